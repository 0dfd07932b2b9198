// Who may ask: Host must be a name of the server (DNS rebinding), and pages of other sites are refused before their body
// is read.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fixture, raw, start } from './client.mjs';

let server, behind;
before(async () => {
  server = await start();
  behind = await start({ args: ['--listen', '0.0.0.0:0', '--allowed_hosts', 'photos.example.com, *.photos.example'] });
});
after(async () => { await server.stop(); await behind.stop(); });

const status = (answer) => Number(answer.match(/^HTTP\/1\.[01] (\d{3}) /)?.[1]);
const problem = (answer) => JSON.parse(answer.slice(answer.indexOf('\r\n\r\n')));
const ask = (to, method, path, headers, body = '') => raw(to, Buffer.from(`${method} ${path} HTTP/1.1\r\n${Object.entries(headers).map(([k, v]) => `${k}: ${v}\r\n`).join('')}Connection: close\r\n${body}`, 'latin1'), 20000);
const get = (to, path, headers) => ask(to, 'GET', path, headers, '\r\n');
const picture = fixture('none.png');
const post = (to, headers) => ask(to, 'POST', '/v1/restore?version=none&bg_upsampler=none', { 'Content-Length': picture.length, ...headers }, Buffer.concat([Buffer.from('\r\n'), picture]).toString('latin1'));
// The header alone: what is refused now is refused without the body.
const announce = (to, headers) => ask(to, 'POST', '/v1/restore', { 'Content-Length': 1000000, ...headers }, '\r\n');

test('another Host: 421 everywhere, with the key to set', async () => {
  for (const path of ['/', '/app.js', '/v1/devices', '/v1/models', '/v1/capabilities', '/metrics', '/healthz', '/readyz', '/nothing']) {
    const answer = await get(server, path, { Host: 'evil.example:8080' });
    assert.equal(status(answer), 421, path);
    assert.equal(problem(answer).code, 'host-not-allowed');
    assert.match(problem(answer).detail, /^Host: .*"evil\.example:8080".* allowed_hosts /);
  }
  assert.equal(status(await announce(server, { Host: 'evil.example' })), 421);
  assert.equal(status(await get(server, '/v1/devices', { Host: '192.168.1.5' })), 421);
  assert.equal(status(await get(behind, '/v1/devices', { Host: 'evil.example' })), 421);
});

test('names of loopback, of the network and of allowed_hosts work', async () => {
  for (const Host of ['localhost', `localhost:${server.port}`, '127.0.0.1', '[::1]:80'])
    assert.equal(status(await get(server, '/v1/devices', { Host })), 200, Host);
  for (const Host of ['localhost', '192.168.1.5:8080', 'restored', 'nas.local', 'photos.example.com', 'a.photos.example:443'])
    assert.equal(status(await get(behind, '/v1/devices', { Host })), 200, Host);
});

test('a probe may ask by any address', async () => {
  for (const path of ['/healthz', '/readyz'])
    assert.equal(status(await get(server, path, { Host: '10.42.0.7:8080' })), 200, path);
  assert.equal(status(await raw(server, 'GET /readyz HTTP/1.0\r\n\r\n')), 200, 'HTTP/1.0 without Host');
});

test('a list of hosts that is none stops the start', async () => {
  await assert.rejects(start({ args: ['--allowed_hosts', 'https://photos.example.com'] }), /allowed_hosts: "https:\/\/photos\.example\.com" is not a host name/);
});

test('a page of another site may not have work done, and is told before it sends the picture', async () => {
  const Host = `127.0.0.1:${server.port}`;
  for (const headers of [{ Origin: 'http://evil.example' }, { Origin: 'null' }, { Origin: `http://127.0.0.1:${server.port + 1}` },
    { Origin: `https://evil.example`, 'Sec-Fetch-Site': 'cross-site' }, { 'Sec-Fetch-Site': 'same-site' }, { 'Sec-Fetch-Site': 'cross-site' }]) {
    const answer = await announce(server, { Host, ...headers });
    assert.equal(status(answer), 403, JSON.stringify(headers));
    assert.equal(problem(answer).code, 'cross-site');
    assert.match(problem(answer).detail, /another site/);
  }
  assert.equal(status(await ask(server, 'OPTIONS', '/v1/restore', { Host, Origin: 'http://evil.example', 'Access-Control-Request-Method': 'POST' }, '\r\n')), 403);
});

test('our own page may, also through a proxy, and so may a program', async () => {
  const Host = `127.0.0.1:${server.port}`;
  for (const [to, headers] of [[server, { Host }], [server, { Host, Origin: `http://${Host}` }], [server, { Host, Origin: `http://${Host}`, 'Sec-Fetch-Site': 'same-origin' }],
    [server, { Host, Origin: 'https://photos.example.com', 'Sec-Fetch-Site': 'same-origin' }],
    [server, { Host, Origin: 'http://photos.example.com', 'X-Forwarded-Host': 'photos.example.com' }],
    [behind, { Host: 'photos.example.com', Origin: 'https://photos.example.com' }]]) {
    const answer = await post(to, headers);
    assert.equal(status(answer), 200, JSON.stringify(headers) + answer.slice(0, 400));
  }
});

test('what is read: a visit is let through, a page of another site is not', async () => {
  const Host = 'localhost';
  for (const path of ['/v1/models', '/v1/devices', '/v1/capabilities', '/metrics', '/readyz']) {
    assert.equal(status(await get(server, path, { Host, 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'no-cors', 'Sec-Fetch-Dest': 'image' })), 403, path);
    assert.equal(status(await get(server, path, { Host, 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'document' })), 200, path);
  }
  const page = await get(server, '/', { Host, 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'document' });
  assert.equal(status(page), 200);
  assert.match(page, /^Cross-Origin-Resource-Policy: same-origin\r$/m);
});
