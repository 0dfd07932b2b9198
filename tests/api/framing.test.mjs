// HTTP itself: requests that two parsers could read differently, limits, methods, and a body that is refused before it is
// read.
import assert from 'node:assert/strict';
import net from 'node:net';
import os from 'node:os';
import { after, before, describe, test } from 'node:test';
import { fixture, get, metrics, plain, post, raw, sleep, start, until } from './client.mjs';

let server;
before(async () => { server = await start({ args: ['--allowed_hosts', 'a', '--request_seconds', '4', '--idle_seconds', '2'] }); });
after(() => server.stop());

const picture = fixture('none.png');
const head = (...lines) => `POST /v1/restore?version=none&bg_upsampler=none HTTP/1.1\r\n${lines.map((l) => `${l}\r\n`).join('')}\r\n`;
const status = (answer) => Number(answer.match(/^HTTP\/1\.[01] (\d{3}) /)?.[1]);
const detail = (answer) => JSON.parse(answer.slice(answer.indexOf('\r\n\r\n'))).detail;

describe('what two parsers could read differently', () => {
  const cases = [
    ['no Host', ['Content-Length: 3'], /one Host/],
    ['two Hosts', ['Host: a', 'Host: b', 'Content-Length: 3'], /one Host/],
    ['Content-Length and Transfer-Encoding', ['Host: a', 'Content-Length: 3', 'Transfer-Encoding: chunked'], /exclude each other/],
    ['Transfer-Encoding and Content-Length', ['Host: a', 'transfer-encoding: chunked', 'content-length: 3'], /exclude each other/],
    ['two equal Content-Lengths', ['Host: a', 'Content-Length: 3', 'Content-Length: 3'], /more than one Content-Length/],
    ['two different Content-Lengths', ['Host: a', 'Content-Length: 3', 'Content-Length: 4'], /more than one Content-Length/],
    ['a list of lengths', ['Host: a', 'Content-Length: 3, 3'], null],
    ['a signed length', ['Host: a', 'Content-Length: +3'], null],
    ['a negative length', ['Host: a', 'Content-Length: -3'], null],
    ['a hexadecimal length', ['Host: a', 'Content-Length: 0x3'], null],
    ['a blank before the colon', ['Host: a', 'Content-Length : 3'], /name holds characters/],
    ['a blank before the colon of another', ['Host: a', 'Content-Length: 3', 'X-A : b'], /name holds characters/],
    ['a bare CR in a value', ['Host: a', 'Content-Length: 3', 'X-A: b\rContent-Length: 0'], /control characters/],
    ['a zero byte in a value', ['Host: a', 'Content-Length: 3\0 4'], /zero byte/],
    ['a zero byte in the last value', ['Content-Length: 3', 'Host: a\0b'], /zero byte/],
    ['a zero byte in a name', ['Host: a', 'Content-Length: 3', 'X\0A: b'], null],
    ['a bare LF', ['Host: a\nContent-Length: 3'], /end with CR LF/],
    ['a bare LF at the end', ['Host: a', 'Content-Length: 3\n'], /end with CR LF/],
    ['a line that goes on in the next', ['Host: a', 'Content-Length: 3', 'X-A: b', ' c'], /goes on in the next/],
    ['a name that is whole in the next line alone', ['Host: a', 'Content-Lengt: 3', '\th'], /goes on in the next/],
    ['a line that goes on in the next, in between', ['Host: a', 'X-A: b', ' c', 'Content-Length: 3'], /goes on in the next/],
    ['an empty Host', ['Host:', 'Content-Length: 3'], /Host is not a host/],
    ['a Host with a path', ['Host: a/b', 'Content-Length: 3'], /Host is not a host/],
    ['a Host with two names', ['Host: a, b', 'Content-Length: 3'], /Host is not a host/],
    ['a Host with a user', ['Host: user@a', 'Content-Length: 3'], /Host is not a host/],
    ['an empty length', ['Host: a', 'Content-Length:'], null],
    ['another coding', ['Host: a', 'Transfer-Encoding: gzip, chunked'], /only chunked is supported/],
    ['chunked twice', ['Host: a', 'Transfer-Encoding: chunked, chunked'], /only chunked is supported/],
    ['a coding that is none', ['Host: a', 'Transfer-Encoding: xchunked'], /only chunked is supported/],
    ['an empty coding', ['Host: a', 'Transfer-Encoding:'], /only chunked is supported/],
    ['two Transfer-Encodings', ['Host: a', 'Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'], /more than one Transfer-Encoding/],
  ];
  for (const [name, lines, words] of cases)
    test(`${name}: 400, and the connection ends`, async () => {
      // what follows would be a second request if the framing were read the other way
      const answer = await raw(server, `${head(...lines)}abcGET /metrics HTTP/1.1\r\nHost: a\r\n\r\n`, 20000);
      assert.equal(status(answer), 400, answer);
      assert.doesNotMatch(answer, /HTTP\/1\.1 200/, 'nothing after it was answered');
      if (words) assert.match(detail(answer), words);
    });

  test('a length beyond 64 bits: 413', async () => {
    const answer = await raw(server, `${head('Host: a', `Content-Length: ${'9'.repeat(24)}`)}abc`, 20000);
    assert.equal(status(answer), 413);
  });

  test('a header that is as it should be is taken, also in small pieces', async () => {
    const lines = ['Host:   a:80 \t', 'X-Empty:', 'X-Tab:\tb\tc ', `X-Long: ${'b'.repeat(9000)}`, 'Cookie: a=b; c=d', 'Connection: close'];
    const whole = `GET /healthz?a=b&c HTTP/1.1\r\n${lines.map((l) => `${l}\r\n`).join('')}\r\n`;
    assert.equal(status(await raw(server, `\r\n${whole}`)), 200);
    const socket = net.connect(server.port, '127.0.0.1');
    socket.setNoDelay(true);
    let answer = '';
    socket.on('data', (data) => { answer += data; });
    for (let at = 0; at < whole.length; at += at < 9000 && at > 100 ? 500 : 1) {
      socket.write(whole.slice(at, at + (at < 9000 && at > 100 ? 500 : 1)));
      if (at % 5 === 0) await sleep(1);
    }
    await new Promise((resolve) => socket.on('close', resolve));
    assert.equal(status(answer), 200, answer);
  });

  test('a blank, a control character or a zero byte in the target', async () => {
    for (const target of ['/healthz HTTP/1.1', '/ healthz', '/healthz?a=b c', ' /healthz', '/healthz\t', '/healthz\rX:y', '/healthz\0x']) {
      const answer = await raw(server, `GET ${target} HTTP/1.1\r\nHost: a\r\n\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\n`, 20000);
      assert.equal(status(answer), 400, answer);
      assert.doesNotMatch(answer, /HTTP\/1\.1 200/);
    }
  });

  test('no length at all: 411', async () => {
    const answer = await raw(server, head('Host: a'));
    assert.equal(status(answer), 411);
    assert.match(answer, /Content-Type: application\/problem\+json/);
  });

  test('a body where none belongs', async () => {
    const answer = await raw(server, 'GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n');
    assert.equal(status(answer), 400);
    assert.equal(answer.match(/HTTP\/1\.1 /g).length, 1);
  });
});

describe('a body in chunks', () => {
  const chunked = head('Host: a', 'Transfer-Encoding: chunked');
  const chunk = (bytes) => Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')]);
  const last = Buffer.from('0\r\n\r\n');

  test('is taken as it comes, raw or as a form', async () => {
    const query = '?version=none&bg_upsampler=none';
    const stream = (bytes) => new ReadableStream({
      async start(c) {
        for (let at = 0; at < bytes.length; at += 5000) { c.enqueue(bytes.subarray(at, at + 5000)); await sleep(1); }
        c.close();
      },
    });
    const whole = await post(server, '/v1/restore', { query, body: picture });
    const streamed = await fetch(`${server.url}/v1/restore${query}`, { method: 'POST', duplex: 'half', body: stream(picture) });
    assert.equal(streamed.status, 200);
    assert.deepEqual(Buffer.from(await streamed.arrayBuffer()), whole.bytes);
    const data = new FormData();
    data.append('image', new Blob([picture]), 'a.png');
    const form = new Response(data);
    const type = form.headers.get('content-type');
    const sent = await fetch(`${server.url}/v1/restore${query}`, { method: 'POST', duplex: 'half', headers: { 'content-type': type }, body: stream(Buffer.from(await form.arrayBuffer())) });
    assert.equal(sent.status, 200);
    assert.deepEqual(Buffer.from(await sent.arrayBuffer()), whole.bytes);
  });

  test('what stands behind it is not read', async () => {
    const answer = await raw(server, Buffer.concat([Buffer.from(chunked), chunk(picture), last, Buffer.from('GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n')]));
    assert.equal(status(answer), 200);
    assert.match(answer, /\r\nConnection: close\r\n/i);
    assert.equal(answer.match(/HTTP\/1\.1 /g).length, 1);
  });

  test('empty: 400; of HTTP/1.0: 400; chunks that are none: 400', async () => {
    assert.equal(status(await raw(server, Buffer.concat([Buffer.from(chunked), last]))), 400);
    assert.equal(status(await raw(server, `${chunked.replace('HTTP/1.1', 'HTTP/1.0')}0\r\n\r\n`)), 400);
    assert.equal(status(await raw(server, `${chunked}zz\r\nabc\r\n0\r\n\r\n`)), 400);
  });

  test('413 as soon as it is over the limit, though it does not end', async (context) => {
    const small = await start({ context, args: ['--allowed_hosts', 'a', '--body_limit', '100KiB'] });
    const answer = await new Promise((resolve, reject) => {
      const socket = net.connect(small.port, '127.0.0.1');
      let text = '';
      socket.on('data', (data) => { text += data; });
      socket.on('error', reject).on('end', () => resolve(text));
      socket.write(chunked);
      for (let i = 0; i < 3; i++) socket.write(chunk(Buffer.alloc(40000, 120)));
    });
    assert.equal(status(answer), 413);
    assert.match(detail(answer), /over the limit of 100 KiB \(102400 bytes\)/);
    await small.stop();
  });
});

describe('methods and paths', () => {
  test('a target in absolute form', async () => {
    const ask = (target) => raw(server, `GET ${target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`);
    for (const target of ['http://a/healthz', 'HTTP://a:80/healthz?x=y', 'https://[::1]:8080/healthz', 'http://a', 'http://a/'])
      assert.equal(status(await ask(target)), 200, target);
    for (const target of ['http:///healthz', 'http://user@a/healthz', 'http://'])
      assert.equal(status(await ask(target)), 400, target);
    const none = await ask('http://a/nothing');
    assert.equal(status(none), 404);
    assert.equal(JSON.parse(none.slice(none.indexOf('\r\n\r\n'))).instance, '/nothing');
    assert.equal(status(await ask('ftp://a/healthz')), 404);
    for (const [target, wanted] of [['http://evil.example/v1/devices', 421], ['http://localhost/v1/devices', 200]])
      for (const host of ['localhost', 'evil.example'])
        assert.equal(status(await raw(server, `GET ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`)), wanted, 'the target decides, not Host');
  });

  test('405 with Allow, 404, HEAD wherever GET is', async () => {
    for (const [method, route, allow] of [['GET', '/v1/restore', 'POST'], ['HEAD', '/v1/detect', 'POST'], ['POST', '/healthz', 'GET, HEAD'], ['DELETE', '/metrics', 'GET, HEAD'], ['PUT', '/v1/restore', 'POST'], ['OPTIONS', '/v1/restore', 'POST']]) {
      const answer = await get(server, route, { method });
      assert.equal(answer.status, 405, `${method} ${route}`);
      assert.equal(answer.headers.get('allow'), allow);
    }
    for (const route of ['/nothing', '/v1', '/v1/restore/', '/conv2d.f32.spv', '/models.conf', '/../etc/passwd', '/%2e%2e/index.html', '//']) {
      const answer = status(await raw(server, `GET ${route} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`));
      assert.ok(answer === 404 || answer === 400, `${route}: ${answer}`);
    }
    const none = await get(server, '/nothing');
    assert.equal(none.status, 404);
    assert.equal(none.json.instance, '/nothing');
    for (const route of ['/healthz', '/readyz', '/metrics', '/v1/devices', '/v1/models', '/v1/capabilities', '/']) {
      const answer = await get(server, route, { method: 'HEAD' });
      assert.equal(answer.status, 200, route);
      assert.equal(answer.text, '');
      assert.ok(Number(answer.headers.get('content-length')) > 0);
      assert.equal(answer.headers.get('x-content-type-options'), 'nosniff');
    }
  });

  test('two requests on one connection', async () => {
    const one = 'GET /healthz HTTP/1.1\r\nHost: a\r\n';
    const answer = await raw(server, `${one}\r\n${one}Connection: close\r\n\r\n`);
    assert.equal(answer.match(/HTTP\/1\.1 200 /g).length, 2);
  });
});

describe('limits', () => {
  test('a body of 65 MiB: 413 by its Content-Length', async () => {
    const answer = await post(server, '/v1/restore', { body: Buffer.alloc(65 << 20), headers: { 'Content-Type': 'image/png' } });
    assert.equal(answer.status, 413);
    assert.match(answer.json.detail, /is 65 MiB \(68157440 bytes\); at most 64 MiB \(67108864 bytes\)/);
    assert.equal(answer.json.limit, 67108864);
  });

  test('with Expect: 100-continue the refusal comes instead of "continue", and "continue" where it is taken', async () => {
    const refused = await raw(server, head('Host: a', `Content-Length: ${65 << 20}`, 'Expect: 100-continue'));
    assert.equal(status(refused), 413);
    const full = await raw(server, `POST /v1/restore?scale=2 HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n`);
    assert.equal(status(full), 400);
    const socket = net.connect(server.port, '127.0.0.1').on('error', () => {});
    let taken = '';
    socket.on('data', (data) => { taken += data; }).write(head('Host: a', `Content-Length: ${picture.length}`, 'Expect: 100-continue'));
    await until('an answer', () => taken.includes('\r\n\r\n'));
    socket.destroy();
    assert.equal(taken, 'HTTP/1.1 100 Continue\r\n\r\n');
    const other = await raw(server, head('Host: a', `Content-Length: ${picture.length}`, 'Expect: the-best'));
    assert.equal(status(other), 417);
    assert.match(detail(other), /only 100-continue/);
  });

  test('a header over 32 KiB: 431 or 414', async () => {
    for (const size of [40000, 200000]) {
      const long = await raw(server, `GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: ${'a'.repeat(size)}\r\n\r\n`);
      assert.ok([431, 414, 413].includes(status(long)), long.slice(0, 100));
    }
    assert.equal(status(await raw(server, `GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Long: ${'a'.repeat(20000)}\r\n\r\n`)), 200);
  });

  test('an unlucky field in the query is refused before the body is read', async () => {
    const answer = await raw(server, `POST /v1/restore?scale=2 HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n`);
    assert.equal(status(answer), 400);
  });

  test('a slow request is cut off, however busy it looks; so is an idle one', async () => {
    const started = Date.now();
    const socket = net.connect(server.port, '127.0.0.1');
    socket.on('error', () => {});
    socket.write(head('Host: a', 'Content-Length: 1000'));
    const drip = setInterval(() => socket.write('a'), 500); // each byte restarts libmicrohttpd's own timeout
    await new Promise((resolve) => socket.on('close', resolve));
    clearInterval(drip);
    const seconds = (Date.now() - started) / 1000;
    assert.ok(seconds > 3.5 && seconds < 100, `${seconds} s`);
    const idle = await raw(server, 'GET /heal', 10000);
    assert.equal(idle, '');
  });
});

const mine = Object.values(os.networkInterfaces()).flat().find((i) => i.family === 'IPv4' && !i.internal)?.address;
test('connections of one address are limited, but for loopback', { skip: mine ? false : 'no address here but loopback' }, async (context) => {
  const open = await start({ context, args: ['--listen', '0.0.0.0:0', '--connections_per_address', '3'] });
  const connect = (host) => new Promise((resolve) => {
    const socket = net.connect(open.port, host);
    const done = (how) => { resolve({ socket, how }); };
    socket.on('error', () => done('refused'));
    socket.on('close', () => done('refused'));
    socket.on('data', () => done('answered'));
    socket.write('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
  });
  const results = [];
  for (let i = 0; i < 5; i++) results.push(await connect(mine));
  assert.deepEqual(results.map((r) => r.how), ['answered', 'answered', 'answered', 'refused', 'refused']);
  for (let i = 0; i < 5; i++) results.push(await connect('127.0.0.1'));
  assert.ok(results.slice(5).every((r) => r.how === 'answered'));
  results[0].socket.destroy();
  await until('a free place', async () => { const r = await connect(mine); results.push(r); return r.how === 'answered'; });
  for (const { socket } of results) socket.destroy();
  await open.stop();
});

test('bytes that are no HTTP do no harm', async () => {
  for (const bytes of ['\r\n\r\n', 'GET\r\n\r\n', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', `${'A'.repeat(70000)}`, 'GET / HTTP/9.9\r\nHost: a\r\n\r\n', 'POST /v1/restore HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n'])
    await raw(server, bytes, 500);
  assert.equal((await get(server, '/healthz')).status, 200);
});

test('a client that goes away in the middle of its body leaves nothing behind', async () => {
  const socket = net.connect(server.port, '127.0.0.1');
  socket.write(`${head('Host: a', 'Content-Length: 1000000')}${'x'.repeat(5000)}`);
  await sleep(200);
  socket.destroy();
  const gone = await until('the 499', async () => (await metrics(server)).get('restored_http_requests_total{route="/v1/restore",method="POST",code="499"}'));
  assert.ok(gone >= 1);
  assert.equal((await post(server, '/v1/restore', { picture, fields: plain })).status, 200);
});
