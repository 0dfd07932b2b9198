// The command line but restored restore: models, devices, healthcheck, serve's configuration.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { describe, test } from 'node:test';
import { here, put, run } from './cli.mjs';
import { ownModels, start } from './client.mjs';
import { binary, fixtures } from './server.mjs';

describe('the others', () => {
  test('models', async () => {
    const table = await run(['models', ...ownModels]);
    assert.equal(table.status, 0);
    assert.match(table.out, /^NAME +KIND +ARCHITECTURE/);
    assert.match(table.out, /^face_64 +face +GFPGANv1Clean +1 +\d+ +[0-9a-f]{64} .*\(default\)$/m);
    assert.match(table.out, /GFPGANv1\.3\.pth +get it with: restored models get/);
    const { status, out } = await run(['models', '--json', '--models', fixtures]);
    assert.equal(status, 0);
    const json = JSON.parse(out);
    assert.ok(json.models.every((m) => /^[0-9a-f]{64}$/.test(m.sha256)));
    const none = await run(['models', '--models', here]);
    assert.equal(none.status, 0);
    assert.match(none.out, /No models were found/);
    put('md/cut.pth', 'no model');
    const cut = await run(['models', '--models', 'md']);
    assert.match(cut.out, /\nFiles not recognised as models, or damaged:\n {2}md\/cut\.pth: (?!md)/);
  });

  test('devices', async () => {
    const { status, out } = await run(['devices', '--json']);
    assert.equal(status, 0);
    const json = JSON.parse(out);
    assert.ok(json.devices.some((d) => d.id === json.default));
    const table = await run(['devices']);
    assert.match(table.out, /^(vulkan:\d+|cpu) /);
    assert.match(table.out, /^cpu /m);
    assert.match(table.out, /usable +yes$/m);
    const software = json.devices.find((d) => d.type === 'software');
    if (software) assert.ok(table.out.includes(`remark     ${software.remark}\n`), table.out);
  });

  test('healthcheck', async () => {
    const server = await start();
    const good = await run(['healthcheck', '--listen', `127.0.0.1:${server.port}`]);
    assert.equal(good.status, 0, good.err);
    await server.stop();
    const bad = await run(['healthcheck', '--listen', `127.0.0.1:${server.port}`]);
    assert.equal(bad.status, 1);
    assert.match(bad.err, /refused/);
    const bare = await start({ models: ['--models', here], ready: false });
    const unready = await run(['healthcheck'], { env: { RESTORED_LISTEN: `127.0.0.1:${bare.port}` } });
    await bare.stop();
    assert.equal(unready.status, 1);
    assert.match(unready.err, /^restored: the server at 127\.0\.0\.1:\d+ is not ready\n {2}.*GFPGAN/);
    for (const [answer, words] of [['', /does not speak HTTP/], ['SSH-2.0-OpenSSH_9.2\r\n', /does not speak HTTP/], ['HTTP/1.0 200 OK\r\n\r\n<html>', /GET \/readyz gave status 200/], ['HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n', /GET \/readyz gave status 404/], [`HTTP/1.1 200 OK\r\n\r\n${'x'.repeat(100000)}`, /gave status 200/]]) {
      const other = net.createServer((socket) => { socket.on('error', () => {}); socket.once('data', () => socket.end(answer)); });
      await new Promise((done) => other.listen(0, '127.0.0.1', done));
      const told = await run(['healthcheck', '--listen', `127.0.0.1:${other.address().port}`]);
      other.close();
      assert.equal(told.status, 1, answer.slice(0, 40));
      assert.match(told.err, /what answers at 127\.0\.0\.1:\d+ is not restored: /);
      assert.match(told.err, words);
    }
  });

  test('version, help, and what there is not', async () => {
    for (const word of ['--version', '-V', 'version']) assert.match((await run([word])).out, /^restored \d+\.\d+\.\d+\n$/);
    const help = await run(['--help']);
    assert.equal(help.status, 0);
    for (const command of ['serve', 'restore', 'devices', 'models', 'store', 'bench', 'healthcheck']) {
      assert.match(help.out, new RegExp(`restored ${command}`));
      const own = await run([command, '--help']);
      assert.equal(own.status, 0);
      assert.match(own.out, new RegExp(`^restored ${command}`));
      assert.equal((await run([command, '--bogus'])).status, 2);
    }
    const columns = (await run(['serve', '--help'])).out.match(/^ {2}--\S+( [A-Z]+)? +(?=\S)/gm).map((line) => line.length);
    assert.ok(columns.length > 20 && new Set(columns).size === 1, 'the options of serve --help stand in one column');
    const explode = await run(['explode']);
    assert.equal(explode.status, 2);
    assert.doesNotMatch(explode.err, /did you mean/);
    for (const [args, meant] of [[['restor', 'a.png'], 'restored restore'], [['restore', '--upscal', '2'], '--upscale'], [['restore', '--bg-tiel=0'], '--bg_tile'], [['restore', '--jsno'], '--json'], [['serve', '--qeue', '3'], '--queue'], [['bench', '--conections', '3'], '--connections'], [['devices', '--jsn'], '--json']]) {
      const wrong = await run(args);
      assert.equal(wrong.status, 2);
      assert.match(wrong.err, new RegExp(`^restored: .*; did you mean ${meant}\\?\n`));
    }
    assert.equal((await run([])).status, 2);
  });
});

describe('serve', () => {
  test('--print-config hides the password of a URI', async () => {
    for (const [store, shown] of [['postgresql://me:se:cr@et@db/x?sslmode=require', 'postgresql://me:***@db/x?sslmode=require'], ['postgresql://me:p@db/x', 'postgresql://me:***@db/x'], ['postgresql://db/x?user=me&password=secret&sslmode=require', 'postgresql://db/x?user=me&password=***&sslmode=require'], ['postgresql://me:p@db/x?password=q', 'postgresql://me:***@db/x?password=***'], ['postgresql://me@db/x', 'postgresql://me@db/x']]) {
      const { out } = await run(['serve', '--config', '/dev/null', '--store', store, '--print-config']);
      assert.ok(out.includes(`store = ${shown}  #`), out.split('\n').find((line) => line.startsWith('store =')));
    }
  });

  test('--print-config shows each value and its source', async () => {
    put('my.conf', '# mine\nqueue = 5\nworkers = 2\n');
    const { status, out } = await run(['serve', '--config', 'my.conf', '--workers=3', '--models', '/m', '--print-config'], { env: { RESTORED_JOB_SECONDS: '77', RESTORED_QUEUE: '6' } });
    assert.equal(status, 0);
    for (const line of ['queue = 6  # environment RESTORED_QUEUE', 'workers = 3  # flag --workers', 'job_seconds = 77  # environment RESTORED_JOB_SECONDS', 'models_dir = /m  # flag --models', 'body_limit = 64MiB  # default'])
      assert.ok(out.includes(`${line}\n`), `${line} is not in\n${out}`);
  });

  test('the files that are looked for without --config, and what each gave', async () => {
    put('xdg/restored/restored.conf', 'queue = 5\n');
    const env = { RESTORED_CONFIG: '', XDG_CONFIG_HOME: path.join(here, 'xdg') };
    const { status, out } = await run(['serve', '--print-config'], { env });
    assert.match(out, /^memory = 0  # default: \d{8,} bytes on cpu/m, 'what 0 is here');
    assert.match(out, /^inflight_memory = 0  # default: \d{8,} bytes$/m);
    assert.equal(status, 0);
    assert.match(out, /^# \S*\/restored\/restored\.conf: (read|not there)\n# \S*\/xdg\/restored\/restored\.conf: read\n/);
    assert.match(out, /\nqueue = 5 {2}# \S*\/xdg\/restored\/restored\.conf:1\n/);
    put('my.conf', 'workers = 2\n');
    for (const [args, extra] of [[['--config', 'my.conf'], {}], [[], { RESTORED_CONFIG: 'my.conf' }]]) { // one that is named is the only one
      const named = await run(['serve', ...args, '--print-config'], { env: { ...env, ...extra } });
      assert.match(named.out, /^# my\.conf: read\nlisten/);
      assert.match(named.out, /\nqueue = 64 {2}# default\n/);
      assert.match(named.out, /\nworkers = 2 {2}# my\.conf:1\n/);
    }
    put('xdg/restored/restored.conf', '\ncolour = blue\n');
    for (const command of ['serve', 'restore', 'devices', 'models', 'doctor', 'store', 'bench', 'healthcheck']) { // all of them read it
      const bad = await run([command], { env });
      assert.equal(bad.status, 2, command);
      assert.match(bad.err, /\/xdg\/restored\/restored\.conf:2: unknown key "colour"/, command);
    }
    for (const command of ['serve', 'restore', 'devices', 'models', 'models get', 'doctor', 'store', 'bench', 'healthcheck'])
      for (const extra of [{}, { XDG_CONFIG_HOME: here, RESTORED_NONSENSE: '1' }, { RESTORED_CONFIG: 'nowhere.conf' }]) {
        const help = await run([...command.split(' '), '--help'], { env: { ...env, ...extra } });
        assert.equal(help.status, 0, help.err);
        assert.ok(help.out.startsWith(`restored ${command}`), command);
      }
  });

  test('a variable that is no key stops the start; those of Kubernetes do not', async () => {
    const bad = await run(['serve', '--print-config'], { env: { RESTORED_WORKRES: '2' } });
    assert.equal(bad.status, 2);
    assert.match(bad.err, /environment RESTORED_WORKRES: unknown key "workres"; did you mean workers\?/);
    const good = await run(['serve', '--print-config'], { env: { RESTORED_PORT: 'tcp://10.0.0.1:80', RESTORED_PORT_80_TCP_ADDR: '10.0.0.1', RESTORED_SERVICE_HOST: '10.0.0.1' } });
    assert.equal(good.status, 0, good.err);
  });

  test('models beside PREFIX are found', async () => {
    for (const part of ['prefix/bin', 'prefix/share/restored/models']) fs.mkdirSync(path.join(here, part), { recursive: true });
    fs.copyFileSync(binary, path.join(here, 'prefix/bin/restored'));
    fs.chmodSync(path.join(here, 'prefix/bin/restored'), 0o755);
    fs.copyFileSync(path.join(fixtures, 'face.safetensors'), path.join(here, 'prefix/share/restored/models/beside.safetensors'));
    const out = execFileSync(path.join(here, 'prefix/bin/restored'), ['models', '--json'], { cwd: here, encoding: 'utf8' });
    assert.ok(JSON.parse(out).models.some((m) => m.name === 'beside'), out);
  });

  test('an unknown key or a bad value stops the start, with file and line', async () => {
    put('bad.conf', 'queue = 5\n\ncolour = blue\n');
    const unknown = await run(['serve', '--config', 'bad.conf']);
    assert.equal(unknown.status, 2);
    assert.match(unknown.err, /bad\.conf:3: unknown key "colour"/);
    assert.match((await run(['serve', '--queue', 'lots'])).err, /flag --queue: queue = "lots" is not a number from 1 to 10000/);
    put('twice.conf', '\ufeffqueue = 5\nworkers = 1\nqueue = 6\n');
    assert.match((await run(['serve', '--config', 'twice.conf'])).err, /twice\.conf:3: "queue" is set in line 1 already/);
    assert.match((await run(['serve', 'stray'])).err, /takes no "stray"/);
    assert.match((await run(['serve', '--config', 'nowhere.conf'])).err, /nowhere\.conf/);
  });

  test('a device that is not there stops the start and names those that are', async () => {
    const { status, out, err } = await run(['serve', ...ownModels, '--listen', '127.0.0.1:0', '--device', 'nope']);
    assert.equal(status, 1);
    assert.match(err, /device: "nope" is none of the devices; there are: .*vulkan:0/);
    assert.doesNotMatch(out, /listening/);
  });

  test('what is wrong with the configuration is all that is told: no model has been looked for', async () => {
    for (const [args, says] of [[['--cors_origins', 'bad'], /cors_origins/], [['--allowed_hosts', 'a/b'], /allowed_hosts/], [['--trusted_proxies', '1.2.3'], /trusted_proxies/],
      [['--auth_token_file', 'nowhere'], /auth_token_file/], [['--tls_cert', 'nowhere'], /tls_cert/], [['--metrics_listen', '192.0.2.1:1'], /192\.0\.2\.1/],
      [['--store', 'mysql://a'], /store = "mysql:\/\/a…" is neither/], [['--role', 'front'], /role = front and role = worker need store/],
      [['--role', 'worker', '--store', 'postgresql://a'], /needs metrics_listen/]]) {
      const { status, err } = await run(['serve', ...ownModels, '--listen', '127.0.0.1:0', '--log_level', 'debug', ...args]);
      assert.equal(status, 1);
      assert.match(err, says);
      assert.equal(err.trim().split('\n').length, 1, err);
    }
  });

  test('an address in use, and a warning where others can reach it', async () => {
    const server = await start();
    const { status, err } = await run(['serve', ...ownModels, '--listen', `127.0.0.1:${server.port}`]);
    assert.equal(status, 1);
    assert.match(err, /cannot listen on 127\.0\.0\.1:\d+: Address already in use/);
    assert.doesNotMatch(server.log(), /OPEN-TO-THE-NETWORK/);
    await server.stop();
    const open = await run(['serve', ...ownModels, '--listen', '0.0.0.0:0'], { signal: (child) => child.stdout.once('data', () => child.kill('SIGTERM')) });
    assert.equal(open.status, 0);
    assert.match(open.err, /OPEN-TO-THE-NETWORK/);
  });
});
