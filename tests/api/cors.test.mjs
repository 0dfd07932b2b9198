// Pages of other origins that may use the server (cors_origins), and how many requests an address may send.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { fixture, get, metrics, plain, raw, start } from './client.mjs';

const ours = 'https://photos.example.com', other = 'https://photos.example.com.evil.example';

describe('cors_origins', () => {
  let server;
  before(async () => { server = await start({ args: ['--cors_origins', `${ours}, http://nas:8080`] }); });
  after(() => server.stop());
  const ask = (route, origin, options = {}) => fetch(server.url + route, { ...options, headers: { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'cors', origin, ...options.headers } });

  test('a preflight is answered for them alone', async () => {
    const preflight = (origin, path = '/v1/restore') => raw(server, `OPTIONS ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: ${origin}\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\nConnection: close\r\n\r\n`, 20000);
    for (const origin of [ours, 'http://nas:8080']) {
      const answer = await preflight(origin);
      assert.match(answer, /^HTTP\/1\.1 204 /);
      assert.ok(answer.includes(`Access-Control-Allow-Origin: ${origin}\r\n`));
      assert.match(answer, /^Access-Control-Allow-Methods: .*\bPOST\b.*\bDELETE\b/m);
      for (const name of ['Authorization', 'Prefer', 'Idempotency-Key', 'Last-Event-ID', 'Content-Type'])
        assert.match(answer, new RegExp(`^Access-Control-Allow-Headers: .*\\b${name}\\b`, 'm'));
      assert.match(answer, /^Access-Control-Max-Age: [1-9]/m);
      assert.match(answer, /^Vary: Origin\r$/m);
      assert.doesNotMatch(answer, /Allow-Credentials/);
    }
    for (const origin of [other, 'http://photos.example.com', `${ours}:8443`, `${ours}/`, 'null', ours.toUpperCase(), 'http://nas']) {
      const answer = await preflight(origin);
      assert.match(answer, /^HTTP\/1\.1 403 /, origin);
      assert.doesNotMatch(answer, /Access-Control/, origin);
      assert.match(answer, /^Vary: Origin\r$/m);
    }
    const plainOptions = await raw(server, `OPTIONS /v1/restore HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: ${ours}\r\nConnection: close\r\n\r\n`);
    assert.match(plainOptions, /^HTTP\/1\.1 405 /, 'no preflight');
    assert.match(await raw(server, `OPTIONS /v1/restore HTTP/1.1\r\nHost: evil.example\r\nOrigin: ${ours}\r\nAccess-Control-Request-Method: POST\r\n\r\n`), /^HTTP\/1\.1 421 /);
  });

  test('their pages may send and read, and see the headers; others may not', async () => {
    const body = new FormData();
    for (const [key, value] of Object.entries(plain)) body.append(key, value);
    body.append('image', new Blob([fixture('none.png')]), 'none.png');
    const answer = await ask('/v1/restore', ours, { method: 'POST', body });
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('access-control-allow-origin'), ours);
    const shown = answer.headers.get('access-control-expose-headers').split(', ').map((name) => name.toLowerCase());
    for (const name of answer.headers.keys())
      if (/^x-re|^content-disp|^etag|^server-t/.test(name)) assert.ok(shown.includes(name), name);
    for (const [route, status] of [['/v1/devices', 200], ['/nothing', 404], ['/', 200]]) {
      const read = await ask(route, ours);
      assert.equal(read.status, status, route);
      assert.equal(read.headers.get('access-control-allow-origin'), ours, route);
      await read.text();
    }
    for (const origin of [other, 'null']) {
      const refused = await ask('/v1/devices', origin);
      assert.equal(refused.status, 403);
      assert.equal(refused.headers.get('access-control-allow-origin'), null);
      assert.equal((await ask('/v1/restore', origin, { method: 'POST', body: fixture('none.png') })).status, 403);
    }
    const image = await fetch(`${server.url}/v1/devices`, { headers: { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors', 'sec-fetch-dest': 'image' } });
    assert.equal(image.status, 403, 'what a page embeds without CORS');
    const own = await get(server, '/v1/devices');
    assert.equal(own.headers.get('vary'), 'Origin');
    assert.equal(own.headers.get('access-control-allow-origin'), null);
  });

  test('what is no origin stops the start', async () => {
    for (const origin of ['*', 'photos.example.com', 'https://photos.example.com/', 'https://*.example.com', 'https://a.example:443', 'HTTPS://A.example'])
      await assert.rejects(start({ args: ['--cors_origins', origin], ready: false }), /cors_origins: ".*" is not an origin/, origin);
  });
});

test('without it no answer speaks of it', async (t) => {
  const server = await start({ context: t });
  const answer = await get(server, '/v1/devices');
  assert.equal(answer.headers.get('vary'), null);
  assert.equal(answer.headers.get('access-control-allow-origin'), null);
});

test('requests_per_minute: for each address, but for loopback and the probes', async (t) => {
  const server = await start({ args: ['--requests_per_minute', '5', '--trusted_proxies', '127.0.0.1'], context: t });
  const ask = (address, route = '/v1/capabilities') => get(server, route, { headers: address ? { 'x-forwarded-for': address } : {} });
  const flood = async (address) => { for (let i = 0; i < 20; i++) { const answer = await ask(address); if (answer.status !== 200) return { i, answer }; } return null; };
  const { i, answer } = await flood('198.51.100.1');
  assert.ok(i >= 5 && i <= 10, `${i}`); // some more come in a slow machine's minute
  assert.equal(answer.status, 429);
  assert.equal(answer.json.code, 'rate-limited');
  assert.match(answer.json.detail, /^This address may send 5 requests a minute/);
  assert.ok(Number(answer.headers.get('retry-after')) >= 1 && Number(answer.headers.get('retry-after')) <= 12, answer.headers.get('retry-after'));
  assert.equal((await ask('198.51.100.2')).status, 200, 'another address');
  assert.equal((await flood('2001:db8:1:2::1')).answer.status, 429);
  assert.equal((await ask('2001:db8:1:2:ffff::9')).status, 429, 'another address of the same network');
  assert.equal((await ask('2001:db8:1:3::1')).status, 200);
  for (let k = 0; k < 12; k++) assert.equal((await ask('198.51.100.1', '/readyz')).status, 200, 'a probe');
  assert.equal(await flood(''), null, 'loopback');
  const early = await raw(server, `POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 2001:db8:1:2::1\r\nContent-Length: 5000000\r\n\r\n`, 20000);
  assert.match(early, /^HTTP\/1\.1 429 /, 'before the body');
  assert.ok((await metrics(server)).get('restored_rejected_total{reason="rate_limited"}') >= 4);
});
