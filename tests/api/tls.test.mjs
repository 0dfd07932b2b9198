// HTTPS: what is spoken, certificates that change while the server runs, and that nothing is different behind it.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import https from 'node:https';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import tls from 'node:tls';
import { fixture, logged, ownModels, png, pngSize, until } from './client.mjs';
import { binary, faulty, startServer } from './server.mjs';

let folder;
const at = (name) => path.join(folder, name);
const openssl = (...args) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });
function make(name, ...key) {
  openssl('req', '-x509', '-newkey', ...key, '-nodes', '-keyout', `${name}.key`, '-out', `${name}.crt`, '-days', '2', '-subj', `/CN=${name}`, '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost');
  fs.chmodSync(at(`${name}.key`), 0o600);
}
before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-tls-'));
  make('one', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256');
  make('two', 'rsa:2048');
});
after(() => fs.rmSync(folder, { recursive: true, force: true }));

const use = (name) => ['crt', 'key'].forEach((end) => fs.copyFileSync(at(`${name}.${end}`), at(`live.${end}`)));
async function start(context, { args = [], program, env } = {}) {
  const server = await startServer({ program, env, args: [...ownModels, '--tls_cert', at('live.crt'), '--tls_key', at('live.key'), '--device', 'cpu', ...args] });
  server.port = Number(new URL(server.url).port);
  context?.after(() => server.stop());
  await answers(server, '/readyz');
  return server;
}

// Waits until it answers with 200: one with small limits of time may close a connection of a slow machine.
const answers = (server, route) => until(`200 from ${route}`, async () => (await ask(server, route).catch((error) => error)).status === 200);

// One request on a connection of its own: {status, body, name (of the certificate), protocol}.
function ask(server, route, { body, headers = {}, ...options } = {}) {
  return new Promise((resolve, reject) => {
    const ca = [fs.readFileSync(at('one.crt')), fs.readFileSync(at('two.crt'))];
    const request = https.request(`${server.url}${route}`, { agent: false, ca, method: body ? 'POST' : 'GET', headers, ...options }, (response) => {
      const parts = [], { subject } = response.socket.getPeerCertificate(), protocol = response.socket.getProtocol();
      response.on('data', (part) => parts.push(part)).on('error', reject);
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(parts), name: subject?.CN, protocol }));
    });
    request.on('error', reject).end(body);
  });
}

describe('a server with a certificate', () => {
  let server;
  before(async () => { use('one'); server = await start(null, { args: ['--body_limit', '2MiB', '--state_dir', at('state')] }); });
  after(() => server?.stop());
  const reload = async () => {
    const from = server.log().length;
    server.process.kill('SIGHUP');
    await until('reloaded', () => /info reloaded |error reloaded-partly /.test(server.log().slice(from)));
    return server.log().slice(from);
  };

  test('speaks HTTPS, by TLS 1.2 or 1.3 and nothing older', async () => {
    assert.match(server.url, /^https:/);
    assert.match(server.log(), /info start .*url=https:\/\/127/);
    assert.match(server.log(), /info tls certificate=".*live\.crt" until=\d{4}-/);
    for (const version of ['TLSv1.2', 'TLSv1.3'])
      assert.deepEqual([(await ask(server, '/healthz', { minVersion: version, maxVersion: version })).protocol], [version]);
    for (const version of ['TLSv1', 'TLSv1.1'])
      await assert.rejects(ask(server, '/healthz', { minVersion: version, maxVersion: version, ciphers: 'DEFAULT@SECLEVEL=0' }), /alert|protocol|version|disconnected/i, version);
    await assert.rejects(fetch(server.url.replace('https', 'http')), 'plain HTTP');
  });

  test('a picture goes and comes whole, also in chunks', async () => {
    const picture = png(600, 500), route = '/v1/restore?version=none&bg_upsampler=none&upscale=1.5';
    for (const headers of [{ 'content-length': picture.length }, { 'transfer-encoding': 'chunked' }]) {
      const answer = await ask(server, route, { body: picture, headers });
      assert.equal(answer.status, 200, answer.body);
      assert.deepEqual(pngSize(answer.body), [900, 750]);
    }
    const page = { origin: server.url, 'sec-fetch-site': 'same-origin', 'content-length': picture.length };
    assert.equal((await ask(server, route, { body: picture, headers: page })).status, 200);
    assert.equal((await ask(server, route, { body: picture, headers: { ...page, origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' } })).status, 403);
  });

  test('a job that is not waited for, with its events and its files', async () => {
    const picture = png(600, 500), options = 'version=none&bg_upsampler=none&upscale=1.5&ext=png';
    const waited = await ask(server, `/v1/restore?${options}`, { body: picture });
    const job = await ask(server, `/v1/restore?${options}&async=true&batch=album`, { body: picture });
    assert.equal(job.status, 202, job.body);
    const { id } = JSON.parse(job.body);
    const events = await ask(server, `/v1/jobs/${id}/events`);
    assert.match(events.body.toString(), /^event: done$/m);
    const result = await ask(server, `/v1/jobs/${id}/result`);
    assert.equal(result.status, 200);
    assert.ok(result.body.equals(waited.body));
    const zip = await ask(server, '/v1/batches/album/results.zip');
    assert.ok(zip.body.includes(waited.body), 'stored, not deflated');
  });

  test('a body without end is refused in its middle, in the encrypted stream', async () => {
    const socket = tls.connect({ port: server.port, host: '127.0.0.1', rejectUnauthorized: false });
    let answer = '';
    socket.on('data', (data) => { answer += data; }).on('error', () => {});
    const closed = new Promise((done) => socket.on('close', done));
    socket.write('POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n');
    const chunk = Buffer.alloc(65536 + 9, 'x');
    chunk.write('10000\r\n', 0, 'latin1');
    chunk.write('\r\n', chunk.length - 2, 'latin1');
    for (let i = 0; i < 64 && !answer && !socket.destroyed; i++) {
      socket.write(chunk);
      await new Promise((done) => setTimeout(done, 5));
    }
    await until('an answer', () => answer.includes('\r\n\r\n{'));
    assert.match(answer, /^HTTP\/1\.1 413 [^]*"code": "body-too-large"/);
    socket.destroy();
    await closed;
  });

  test('SIGHUP takes new files for new connections; a pair that does not fit changes nothing', async () => {
    const agent = new https.Agent({ keepAlive: true, maxSockets: 1 });
    const kept = await ask(server, '/healthz', { agent });
    assert.equal(kept.name, 'one');
    use('two');
    assert.equal((await ask(server, '/healthz')).name, 'one', 'not before it is told to');
    await reload();
    assert.equal((await ask(server, '/healthz')).name, 'two');
    assert.equal((await ask(server, '/healthz', { agent })).name, 'one', 'the connection that was open');
    agent.destroy();
    for (const [spoil, says] of [[() => fs.copyFileSync(at('one.crt'), at('live.crt')), /tls_key: .* is not the key of the certificate in /],
      [() => fs.writeFileSync(at('live.crt'), 'nothing'), /tls_cert: .* holds no certificate in PEM form/],
      [() => fs.rmSync(at('live.key')), /tls_key: .*live\.key: No such file/]]) {
      use('two');
      spoil();
      const log = await reload();
      assert.match(log, says);
      assert.match(log, /error reload .* result="the old certificate stays"/);
      assert.equal((await ask(server, '/healthz')).name, 'two');
    }
    use('one');
    await reload();
    assert.equal((await ask(server, '/healthz')).name, 'one');
  });

  test('healthcheck asks over HTTPS and knows the certificate', () => {
    const check = (...args) => spawnSync(binary, ['healthcheck', '--listen', `127.0.0.1:${server.port}`, ...args], { encoding: 'utf8' });
    assert.equal(check('--tls_cert', at('one.crt')).status, 0);
    assert.equal(check('--insecure').status, 0);
    const other = check('--tls_cert', at('two.crt'));
    assert.equal(other.status, 1);
    assert.match(other.stderr, /certificate/);
    assert.match(check().stderr, /does not speak HTTP/);
  });
});

test('handshakes that are aborted, and those that never go on, leave nothing', async (t) => {
  use('one');
  const server = await start(t, { args: ['--idle_seconds', '1', '--metrics_listen', '127.0.0.1:0'] });
  const metrics = /info admin url=(\S+)/.exec(server.log())[1];
  const open = async () => Number(/^process_open_fds (\d+)/m.exec(await (await fetch(`${metrics}/metrics`)).text())[1]);
  const before = await open();
  let hello;
  await new Promise((done) => { // the first bytes of a real client
    const trap = net.createServer((socket) => socket.on('error', () => {}).once('data', (data) => { hello = data; socket.destroy(); trap.close(done); }));
    trap.listen(0, '127.0.0.1', () => tls.connect({ port: trap.address().port, host: '127.0.0.1' }).on('error', () => {}));
  });
  const connect = (bytes, how) => new Promise((done) => {
    const socket = net.connect(server.port, '127.0.0.1', () => {
      if (bytes.length) socket.write(bytes);
      if (how) setTimeout(() => socket[how](), 5);
    });
    socket.on('error', () => {}).on('data', () => {}).on('close', done);
  });
  await Promise.all(Array.from({ length: 112 }, (_, i) => {
    const part = hello.subarray(0, [0, 1, 5, hello.length >> 1, hello.length - 1, hello.length][i % 7]);
    return connect(i % 7 === 6 ? Buffer.from('GET / HTTP/1.1\r\n\r\n') : part, ['resetAndDestroy', 'destroy', 'end', null][i % 4]);
  })); // resolves when the server has closed those that never go on, too
  // a connection that fetch has kept may be closed for being idle as it is used again
  await until('all is closed', async () => (await open().catch(() => Infinity)) <= before + 1);
  await answers(server, '/healthz');
});

test('clients that are too slow are cut off, in the handshake, in a request and in an answer', async (t) => {
  use('one');
  const server = await start(t, { args: ['--request_seconds', '1'] });
  const slow = (open, next) => new Promise((done) => {
    const socket = open();
    const timer = setInterval(() => next(socket), 100); // never idle for long
    socket.on('error', () => {}).on('data', () => {}).on('close', () => { clearInterval(timer); done(); });
  });
  const plain = () => net.connect(server.port, '127.0.0.1');
  const secure = (first) => () => { const socket = tls.connect({ port: server.port, host: '127.0.0.1', rejectUnauthorized: false }); socket.write(first); return socket; };
  const hello = Buffer.from([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]); // a record of which the rest comes byte by byte
  await Promise.all([
    slow(plain, (socket) => socket.write(hello.subarray(socket.bytesWritten % hello.length, socket.bytesWritten % hello.length + 1))),
    slow(secure('GET / HTTP/1.1\r\nHost: localhost\r\nX: '), (socket) => socket.write('x')),
    slow(secure('POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n'), (socket) => socket.write('x')),
  ]);
  await logged(server, /info slow-client activity=reading/);
  const small = png(400, 400); // whose result no socket's buffer holds
  const reader = secure(`POST /v1/restore?version=none&bg_upsampler=none&upscale=8&ext=png&png_level=0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${small.length}\r\n\r\n`)();
  reader.on('error', () => {}).pause();
  reader.write(small);
  await until('it is cut off', () => /info slow-client activity=sending/.test(server.log()));
  reader.destroy();
  await answers(server, '/healthz');
});

test('a client that hangs up cancels its work', async (t) => {
  use('one');
  const server = await start(t, { program: faulty, env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=detector' } });
  const picture = fixture('picture.png');
  const socket = tls.connect({ port: server.port, host: '127.0.0.1', rejectUnauthorized: false }).on('error', () => {});
  socket.write(`POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${picture.length}\r\n\r\n`);
  socket.write(picture);
  await until('it is at work', async () => /"busy"/.test((await ask(server, '/v1/devices')).body));
  socket.end();
  await until('it is cancelled', () => /info job id=\w+ state=cancelled /.test(server.log()) && /path=\/v1\/restore status=499 /.test(server.log()));
});

test('a wrong pair stops the start and says what is wrong', async () => {
  openssl('rsa', '-in', 'two.key', '-aes128', '-passout', 'pass:secret', '-out', 'locked.key');
  for (const [args, says] of [[['--tls_cert', at('one.crt')], /tls_cert and tls_key: set both, or neither; tls_key is empty/],
    [['--tls_key', at('one.key')], /tls_cert is empty/], [['--tls_cert', at('one.crt'), '--tls_key', at('two.key')], /two\.key is not the key of the certificate in .*one\.crt/],
    [['--tls_cert', at('two.crt'), '--tls_key', at('locked.key')], /locked\.key is encrypted/], [['--tls_cert', at('one.key'), '--tls_key', at('one.key')], /holds no certificate/],
    [['--tls_cert', at('one.crt'), '--tls_key', at('one.crt')], /holds no private key/]])
    await assert.rejects(startServer({ args: [...ownModels, '--device', 'cpu', ...args] }), says);
});
