// What a stranger can send or hold to stop the server for others: each time /healthz answers meanwhile, nothing is left
// behind, and the answer says what was wrong.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import net from 'node:net';
import { after, before, describe, test } from 'node:test';
import { fixture, get, metrics, plain, png, pngHeader, post, raw, sleep, start, until } from './client.mjs';

let server;
before(async () => { server = await start({ args: ['--allowed_hosts', 'a', '--metrics_listen', '127.0.0.1:0', '--idle_seconds', '600'] }); });
after(() => server.stop());

const picture = fixture('none.png');
const head = (...lines) => `POST /v1/restore?version=none&bg_upsampler=none HTTP/1.1\r\n${lines.map((l) => `${l}\r\n`).join('')}\r\n`;
const status = (answer) => Number(answer.match(/^HTTP\/1\.[01] (\d{3}) /)?.[1]);
const descriptors = () => fs.readdirSync(`/proc/${server.process.pid}/fd`).length;
const healthz = async () => assert.equal(status(await raw(server, 'GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n', 30000)), 200);

const connect = () => new Promise((resolve, reject) => {
  const socket = net.connect(server.port, '127.0.0.1', () => { socket.removeAllListeners('error').on('error', () => {}); resolve(socket); });
  socket.on('error', reject);
});

describe('connections', () => {
  test('1,500 uploads that are cut off in the middle are gone at once', async () => {
    await until('all idle ones are closed', async () => descriptors() < 60);
    const few = descriptors();
    const bytes = Buffer.concat([Buffer.from(head('Host: a', 'Content-Length: 59000')), Buffer.alloc(30000)]);
    for (let i = 0; i < 1500; i++) {
      const socket = await connect();
      await new Promise((resolve) => socket.end(bytes, resolve));
      socket.destroy();
      if (i % 250 === 0) await healthz();
    }
    await healthz();
    await until('as many descriptors as before', async () => descriptors() <= few + 5); // idle_seconds is twice as long
  });

  for (const [what, bytes] of [
    ['nothing', ''],
    ['half a header', 'POST /v1/restore HTTP/1.1\r\nHost: a\r\nContent-'],
    ['half a body', head('Host: a', 'Content-Length: 1000') + 'abc'],
  ])
    test(`1,000 connections with ${what}: /healthz, /readyz and /metrics answer, and a picture is restored`, async () => {
      const sockets = [];
      for (let i = 0; i < 1000; i++) {
        const socket = await connect();
        socket.write(bytes);
        sockets.push(socket);
      }
      await healthz();
      for (const route of ['/readyz', '/metrics'])
        assert.equal(status(await raw(server, `GET ${route} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`, 30000)), 200);
      assert.equal((await post(server, '/v1/restore', { picture, fields: plain })).status, 200);
      for (const socket of sockets) socket.destroy();
    });

  test('the address for operators has connections of its own, and answers nothing else', async () => {
    const admin = { url: /info admin .*url=(\S+)/.exec(server.log())[1] };
    for (const route of ['/healthz', '/readyz', '/metrics', '/v1/devices'])
      assert.equal((await get(admin, route)).status, 200, route);
    for (const route of ['/', '/v1/models', '/v1/restore', '/style.css'])
      assert.equal((await get(admin, route)).status, 404, route);
    assert.equal((await post(admin, '/v1/restore', { picture, fields: plain })).status, 404);
  });

  // reads until the server closes
  const halfClosed = (bytes) => new Promise((resolve) => {
    const socket = net.connect({ port: server.port, host: '127.0.0.1', allowHalfOpen: true });
    let answer = '';
    socket.on('data', (data) => { answer += data.toString('latin1'); });
    socket.on('error', () => {}).on('end', () => socket.end()).on('close', () => resolve(answer));
    socket.end(bytes);
  });

  test('a client that closes its own direction after the whole request is answered', async () => {
    const get = await halfClosed('GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
    assert.equal(status(get), 200);
    const large = png(300, 200); // long enough at work to be looked at meanwhile
    const answer = await halfClosed(Buffer.concat([Buffer.from(`POST /v1/restore?version=none&bg_upsampler=none&upscale=4&ext=png&png_level=9 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: ${large.length}\r\n\r\n`), large]));
    assert.match(answer, /^(HTTP\/1\.1 102 Processing\r\n\r\n)?HTTP\/1\.1 200 /);
  });

  test('one that closes it in the middle of its body is closed', async () => {
    const started = Date.now();
    assert.equal(await halfClosed(head('Host: a', 'Content-Length: 1000') + 'abc'), '');
    assert.ok(Date.now() - started < 60000, 'not by idle_seconds');
  });
});

describe('requests that mean nothing', () => {
  test('10,000 arguments, zero bytes in names: 400 at once', async () => {
    const ask = (line) => raw(server, `${line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`, 20000);
    for (const count of [257, 1000, 10000]) {
      const answer = await ask(`GET /healthz?${'a=b&'.repeat(count)}`);
      assert.ok([400, 413, 414, 431].includes(status(answer)), `${count}: ${answer.slice(0, 80)}`);
    }
    assert.equal(status(await ask(`GET /healthz?${'a=b&'.repeat(100)}`)), 200);
    assert.equal(status(await ask('GET /healthz%00junk')), 400);
    assert.equal(status(await raw(server, `POST /v1/restore?upscale%00x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: ${picture.length}\r\n\r\n`)), 400);
    assert.equal(status(await ask('POST /v1/estimate?height=9&width%00x=9')), 400);
    assert.equal(status(await ask('POST /v1/estimate?&height=9&&width=9&')), 200);
  });

  test('a picture of one very long row: 422', async () => {
    const answer = await post(server, '/v1/restore', { picture: pngHeader(64000000, 1), fields: plain });
    assert.equal(answer.status, 422);
    assert.match(answer.json.detail, /at most 500000 a side/);
  });
});

describe('memory of all requests together', () => {
  const bytes = 6e6, clients = 64;
  let small;
  // bodies in memory: there is no state folder; idle: this process may take seconds to send so much on a busy machine
  before(async () => { small = await start({ env: { HOME: '', XDG_STATE_HOME: '' }, args: ['--allowed_hosts', 'a', '--inflight_memory', '48MiB', '--queue', '40', '--idle_seconds', '15'] }); });
  after(() => small.stop());
  const rss = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${small.process.pid}/status`, 'latin1'))[1]) * 1024;
  const upload = (body) => new Promise((resolve) => {
    const socket = net.connect(small.port, '127.0.0.1');
    let answer = '';
    socket.on('data', (data) => { answer += data.toString('latin1'); });
    socket.on('error', () => {}).on('close', () => resolve(answer));
    socket.write(head('Host: a', `Content-Length: ${bytes}`, 'Connection: close'));
    socket.write(body);
  });

  test('64 clients with bodies of 6 MB: a few at a time, the rest waits unread, and too many are 429', async () => {
    const before = rss();
    let peak = 0;
    const timer = setInterval(() => { peak = Math.max(peak, rss()); }, 5);
    const answers = await Promise.all(Array.from({ length: clients }, () => upload(Buffer.alloc(bytes))));
    clearInterval(timer);
    const count = (code) => answers.filter((a) => status(a) === code).length;
    assert.ok(count(415) > 0, 'what was admitted was read: zeros are no picture');
    assert.equal(count(415) + count(429), clients, answers.find((a) => ![415, 429].includes(status(a))));
    for (const a of answers.filter((one) => status(one) === 429)) assert.match(a, /\r\nRetry-After: \d+\r\n[^]*"code": "memory-full"/);
    // beside the bodies there are the buffers of 64 connections; all bodies at once would be 366 MiB
    assert.ok(peak - before < 2 * 48 << 20, `${(peak - before) >> 20} MiB`);
  });

  test('uploads that do not get on make room for one that does', async () => {
    const stalled = [];
    for (let i = 0; i < 20; i++) stalled.push(upload(Buffer.alloc(1000)));
    await sleep(200);
    const answer = await post(small, '/v1/restore', { picture, fields: plain });
    assert.ok(answer.status === 200 || answer.status === 429, String(answer.status));
    await until('an answer', async () => (await post(small, '/v1/restore', { picture, fields: plain })).status === 200);
    await Promise.all(stalled);
  });

  test('a picture larger than all of it is restored when it is alone', async () => {
    assert.equal((await post(small, '/v1/restore', { picture: png(800, 600), fields: { ...plain, upscale: '6' } })).status, 200);
  });
});

test('what tiny models take for results sixteen times as large is little, and goes', { timeout: 600000 }, async (context) => {
  const server = await start({ context, args: ['--cpu_threads', '2'] });
  const mib = (name) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(fs.readFileSync(`/proc/${server.process.pid}/status`, 'latin1'))[1]) / 1024;
  const before = mib('VmRSS');
  for (const bg_upsampler of ['srvgg_x4', 'rrdb_x4']) {
    const answer = await post(server, '/v1/restore', { picture: png(480, 500), fields: { version: 'none', device: 'cpu', upscale: '2', bg_upsampler } });
    assert.equal(answer.status, 200);
  }
  assert.ok(mib('VmHWM') - before < 230, `${mib('VmHWM')} MiB, ${before} at first`); // 120 for what the network works in
  await until('memory that is given back', () => mib('VmRSS') - before < 60);
  await server.stop();
});
