// The store over a network: TLS with verify-full, SCRAM with the password in a file, several hosts. What is wrong is said, and the password
// is in no output.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { appendFileSync, chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fixture, plain, post, start, until } from './client.mjs';
import { ownServer, skip, sql } from './postgres.mjs';
import { binary, root } from './server.mjs';

const folder = mkdtempSync(join(tmpdir(), 'restored-store-tls-')), at = (name) => join(folder, name);
const password = 'Kirschbaum-7391', wrong = 'Apfelbaum-2840';
const guide = readFileSync(join(root, 'docs/cluster.md'), 'utf8');
const openssl = (...args) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });
let own, port;

// A certificate authority, or a certificate of one.
function authority(name) {
  openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', `${name}.key`, '-out', `${name}.crt`, '-days', '2', '-subj', `/CN=${name}`);
}
function certificate(name, by, host) {
  openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', `${name}.key`, '-out', `${name}.csr`, '-subj', `/CN=${name}`);
  writeFileSync(at(`${name}.ext`), `subjectAltName=DNS:${host}\n`);
  openssl('x509', '-req', '-in', `${name}.csr`, '-CA', `${by}.crt`, '-CAkey', `${by}.key`, '-CAcreateserial', '-days', '2', '-extfile', `${name}.ext`, '-out', `${name}.crt`);
}

const uri = ({ user = 'app', hosts = `localhost:${port}`, ca = 'authority', more = '' } = {}) => `postgresql://${user}@${hosts}/jobs?sslmode=verify-full&sslrootcert=${at(`${ca}.crt`)}${more}`;
// What `restored store check` says: {code, text}.
const check = (store, file = 'password') => new Promise((done) => {
  const words = ['store', 'check', '--store', store, ...(file ? ['--store_password_file', at(file)] : [])];
  execFile(binary, words, { env: { ...process.env, XDG_STATE_HOME: folder, HOME: folder } }, (error, out, err) => done({ code: error?.code ?? 0, text: out + err }));
});
async function refused(what, store, file) {
  const { code, text } = await check(store, file);
  assert.notEqual(code, 0, text);
  assert.match(text, what);
  assert.ok(!text.includes(password) && !text.includes(wrong), text);
}

describe('a database across a network', { skip }, () => {
  before(async () => {
    own = await ownServer();
    port = new URL(own.url).port;
    authority('authority');
    authority('stranger');
    certificate('server', 'authority', 'localhost');
    writeFileSync(at('password'), `${password}\n`);
    writeFileSync(at('wrong'), `${wrong}\n`);
    sql(own.url, 'CREATE DATABASE jobs');
    for (const name of ['app', 'reader']) sql(own.url, `SET password_encryption = 'scram-sha-256'; CREATE ROLE ${name} LOGIN PASSWORD '${password}'; GRANT ALL ON DATABASE jobs TO ${name}`);
    sql(own.url, 'ALTER DATABASE jobs OWNER TO app; ALTER ROLE reader SET default_transaction_read_only = on');
    for (const name of ['server.crt', 'server.key']) {
      copyFileSync(at(name), join(own.dir, 'data', name));
      chmodSync(join(own.dir, 'data', name), 0o600);
    }
    if (process.getuid() === 0) execFileSync('chown', ['postgres', join(own.dir, 'data/server.crt'), join(own.dir, 'data/server.key')]);
    appendFileSync(join(own.dir, 'data/postgresql.conf'), 'ssl = on\n');
    writeFileSync(join(own.dir, 'data/pg_hba.conf'), 'local all all trust\nhost all postgres samehost trust\nhostssl jobs app,reader samehost scram-sha-256\n');
    const [, line] = /^echo '(hostssl .*)' >> /m.exec(guide); // as docs/cluster.md has it
    appendFileSync(join(own.dir, 'data/pg_hba.conf'), `${line.replace('10.0.0.0/8', 'samehost')}\n`);
    sql(own.url, `CREATE ROLE restored LOGIN PASSWORD '${password}'`);
    sql(own.url, 'CREATE DATABASE restored OWNER restored');
    own.kill();
    own.start();
  });
  after(async () => {
    await own?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  test('a good certificate and the password of a file; each wrong one is told, and no password', { timeout: 300e3 }, async () => {
    const good = await check(uri());
    assert.equal(good.code, 0, good.text);
    await refused(/certificate verify failed/, uri({ ca: 'stranger' }));
    await refused(/does not match host name/, uri({ hosts: `127.0.0.1:${port}` }));
    await refused(/password authentication failed for user 'app'/, uri(), 'wrong');
    await refused(/no password supplied/, uri(), null);
    await refused(/no encryption/, uri().replace('verify-full', 'disable')); // the database takes no connection without TLS
    await refused(/store_password_file cannot be read/, uri(), 'missing');
    await refused(/refused/i, uri({ user: `app:${password}`, hosts: 'localhost:1' }), null);
  });

  test('of several hosts the one that writes', { timeout: 300e3 }, async () => {
    const more = '&target_session_attrs=read-write';
    const good = await check(uri({ hosts: `localhost:1,localhost:${port}`, more }));
    assert.equal(good.code, 0, good.text);
    await refused(/read-only/, uri({ user: 'reader', more }));
  });

  test('front and worker as docs/cluster.md sets them up', { timeout: 300e3 }, async (context) => {
    const servers = [];
    context.after(() => Promise.all(servers.map((server) => server.stop())));
    const commands = [...guide.matchAll(/^sed -i .*$/gm)].map(([line]) => line.replaceAll('/etc/restored', folder).replace('@db/', `@localhost:${port}/`));
    assert.equal(commands.length, 4, 'the commands of front, and the other one of gpu');
    copyFileSync(at('authority.crt'), at('db.crt'));
    for (const [name, lines] of [['front', commands.slice(0, 3)], ['gpu', [commands[0], commands[1], commands[3]]]]) {
      copyFileSync(join(root, 'config/restored.conf'), at('restored.conf'));
      for (const line of lines) execFileSync('sh', ['-c', line]);
      copyFileSync(at('restored.conf'), at(`${name}.conf`));
      const own = name === 'gpu' ? ['--metrics_listen', '127.0.0.1:0'] : [];
      servers.push(await start({ models: name === 'gpu' ? undefined : [], args: ['--config', at(`${name}.conf`), '--device', 'cpu', ...own], ready: false }));
    }
    const [front] = servers;
    await until('a worker is there', async () => (await fetch(`${front.url}/readyz`)).status === 200);
    assert.equal((await post(front, '/v1/restore', { picture: fixture('none.png'), fields: plain })).status, 200);
  });

  test('servers with it: jobs are done, and the password is in no log', { timeout: 300e3 }, async () => {
    mkdirSync(at('state'));
    const store = uri({ hosts: `localhost:1,localhost:${port}`, more: '&target_session_attrs=read-write' });
    const server = await start({ args: ['--store', store, '--store_password_file', at('password'), '--device', 'cpu', '--sandbox', 'true', '--log_level', 'debug', '--state_dir', at('state')] });
    try {
      const answer = await until('a result', async () => {
        const one = await post(server, '/v1/restore', { picture: fixture('none.png'), fields: plain });
        return one.status === 200 && one;
      });
      assert.equal(answer.status, 200);
      const ssl = sql(own.url, "SELECT bool_and(ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'app'");
      assert.match(ssl, /^t\|[1-9]/);
    } finally {
      await server.stop();
    }
    assert.match(server.log(), /sandbox seccomp=true/);
    assert.ok(!server.log().includes(password), server.log());
  });
});
