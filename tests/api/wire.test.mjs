// Bodies and connections as no honest client makes them: forms of many parts or without their boundaries, chunks that two
// parsers could read differently, and clients that neither go on nor go away.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import net from 'node:net';
import { after, before, describe, test } from 'node:test';
import { fixture, get, plain, png, post, raw, sleep, start, until } from './client.mjs';

const state = fs.mkdtempSync(join(tmpdir(), 'restored-wire-'));
let server;
before(async () => { server = await start({ args: ['--allowed_hosts', 'a', '--request_seconds', '2', '--state_dir', state] }); });
after(async () => { await server.stop(); fs.rmSync(state, { recursive: true, force: true }); });

const picture = fixture('none.png');
const target = '/v1/restore?version=none&bg_upsampler=none';
const head = (...lines) => `POST ${target} HTTP/1.1\r\nHost: a\r\n${lines.map((l) => `${l}\r\n`).join('')}\r\n`;
const status = (answer) => Number(answer.match(/^HTTP\/1\.[01] (\d{3}) /)?.[1]);
const detail = (answer) => JSON.parse(answer.slice(answer.indexOf('\r\n\r\n'))).detail;
const healthz = async () => assert.equal((await get(server, '/healthz')).status, 200);
const spool = () => fs.readdirSync(join(state, 'spool')).filter((name) => !/^\.?lock$/.test(name));
const descriptors = () => fs.readdirSync(`/proc/${server.process.pid}/fd`).length;

describe('forms', () => {
  const form = (body, type = 'multipart/form-data; boundary=b') => raw(server, Buffer.concat([Buffer.from(head('Connection: close', `Content-Type: ${type}`, `Content-Length: ${body.length}`)), Buffer.from(body)]), 20000);
  const part = (name, value, more = '') => `--b\r\nContent-Disposition: form-data; name="${name}"${more}\r\n\r\n${value}\r\n`;
  const image = `--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n${picture.toString('latin1')}\r\n`;

  test('as it should be, to be sure', async () => {
    assert.equal(status(await form(Buffer.from(`preamble\r\n${image}--b--\r\nepilogue`, 'latin1'))), 200);
  });

  for (const [what, body] of [['small', part('x', '')], ['of options', part('upscale', '2')], ['without a name', '--b\r\n\r\n\r\n'], ['of pictures', part('image', 'x', '; filename="a.png"')]])
    test(`100,000 parts ${what}: 400`, async () => {
      const answer = await form(body.repeat(100000) + '--b--\r\n');
      assert.equal(status(answer), 400, answer.slice(0, 300));
      assert.match(answer, /application\/problem\+json/);
      assert.ok(detail(answer).length > 10);
      await healthz();
    });

  test('129 fields', async () => {
    const fields = Array.from({ length: 129 }, (_, i) => part(`f${i}`, '1')).join('');
    assert.equal(status(await form(`${fields}--b--\r\n`)), 400);
  });

  const inner = 'Content-Type: multipart/mixed; boundary=c\r\n';
  const wrong = [
    ['a form in a form', `--b\r\nContent-Disposition: form-data; name="image"\r\n${inner}\r\n--c\r\n\r\nx\r\n--c--\r\n--b--\r\n`],
    ['a form in a form with the same boundary', `--b\r\nContent-Disposition: form-data; name="image"\r\n${inner.replace('=c', '=b')}\r\n--b\r\n\r\nx\r\n--b--\r\n--b--\r\n`],
    ['a thousand forms in each other', `--b\r\nContent-Disposition: form-data; name="image"\r\n${inner}\r\n`.repeat(1000)],
    ['no boundary at all', 'image'],
    ['another boundary', image.replace('--b', '--d') + '--d--\r\n'],
    ['no last boundary', image],
    ['a last boundary cut short', `${image}--b-`],
    ['the last boundary alone', '--b--\r\n'],
    ['nothing', ''],
    ['a boundary with text behind it', image.replace('--b\r\n', '--bx\r\n') + '--b--\r\n'],
    ['a header without end', `--b\r\nContent-Disposition: form-data; name="${'x'.repeat(100000)}`],
    ['lines without end', `--b\r\n${'A: b\r\n'.repeat(100000)}`],
    ['a boundary in the middle of a header', '--b\r\nContent-Disposition: form-data; na--b\r\nme="image"\r\n\r\nx\r\n--b--\r\n'],
    ['a zero byte in a name', part('up\0scale', '2') + image + '--b--\r\n'],
    ['two names', `--b\r\nContent-Disposition: form-data; name="x"; name="image"\r\n\r\nx\r\n--b--\r\n`],
    ['two dispositions', `--b\r\nContent-Disposition: form-data; name="x"\r\nContent-Disposition: form-data; name="image"\r\n\r\nx\r\n--b--\r\n`],
  ];
  for (const [what, body] of wrong)
    test(`${what}: 400`, async () => {
      const answer = await form(Buffer.from(body, 'latin1'));
      assert.equal(status(answer), 400, answer.slice(0, 300));
      assert.match(answer, /application\/problem\+json/);
    });

  for (const type of ['multipart/form-data', 'multipart/form-data; boundary=', 'multipart/form-data; boundary=""', `multipart/form-data; boundary=${'b'.repeat(71)}`, 'multipart/form-data; boundary="b', 'multipart/form-data; boundary=b; boundary=c'])
    test(`${type.slice(0, 60)}: 400`, async () => {
      assert.equal(status(await form(Buffer.from(`${image}--b--\r\n`, 'latin1'), type)), 400);
    });

  test('a refused form leaves nothing in the spool', async () => {
    const big = Buffer.concat([Buffer.from(`--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n`), Buffer.alloc(400000), Buffer.from('\r\n--b\r\n\r\n')]);
    assert.equal(status(await form(big)), 400);
    await until('an empty spool', () => !spool().length);
  });
});

describe('what could be two requests', () => {
  const second = 'GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n';
  const chunked = head('Transfer-Encoding: chunked');
  for (const [what, size] of [['of no digits', ''], ['with a sign', '+3'], ['negative', '-1'], ['with 0x', '0x3'], ['beyond 64 bits', '10000000000000003'], ['that wraps around to 3', 'ffffffffffffffff3'], ['with a blank before it', ' 3'], ['in letters', 'three']])
    test(`a chunk's size ${what}: no second request is answered`, async () => {
      const answer = await raw(server, `${chunked}${size}\r\nabc\r\n0\r\n\r\n${second}`, 20000);
      assert.ok([400, 413].includes(status(answer)), answer.slice(0, 200));
      assert.doesNotMatch(answer, /HTTP\/1\.1 200/);
    });
  for (const [what, body] of [['longer than its size', `3\r\nabcdef\r\n0\r\n\r\n`], ['without CR LF', '3\r\nabc0\r\n\r\n'], ['that is the next request', `${second.length.toString(16)}\r\n${second}\r\n0\r\n\r\n`],
    ['with an extension of 100 KB', `3;x=${'y'.repeat(100000)}\r\nabc\r\n0\r\n\r\n`], ['with trailers that are a request', `3\r\nabc\r\n0\r\nHost: b\r\nContent-Length: 9\r\n\r\n`], ['and endless trailers', `3\r\nabc\r\n0\r\n${'X: y\r\n'.repeat(20000)}\r\n`]])
    test(`a chunk ${what}: one answer, and it is no success`, async () => {
      const answer = await raw(server, `${chunked}${body}${second}`, 20000);
      assert.equal((answer.match(/HTTP\/1\.1 [2345]\d\d /g) ?? []).length, 1, answer.slice(0, 300));
      assert.ok(status(answer) >= 400, answer.slice(0, 200));
    });
  for (const [what, lines] of [['Transfer-Encoding after a vertical tab', ['Transfer-Encoding:\x0bchunked', 'Content-Length: 3']], ['an underscore for a dash', ['Transfer_Encoding: chunked', 'Content-Length: 3']],
    ['a name with a high byte', ['Content-Length\xa0: 3', 'Content-Length: 3']], ['a length in quotes', ['Content-Length: "3"']], ['a length with a point', ['Content-Length: 3.0']], ['a length with a blank within', ['Content-Length: 3 0']],
    ['a list of codings', ['Transfer-Encoding: identity, chunked', 'Content-Length: 3']], ['identity', ['Transfer-Encoding: identity', 'Content-Length: 3']]])
    test(`${what}: never success, and what follows is at most what the length says`, async () => {
      const answer = await raw(server, Buffer.from(`${head(...lines)}abcGET /nothing HTTP/1.1\r\nHost: a\r\n\r\n`, 'latin1'), 20000);
      assert.ok(status(answer) >= 400, answer.slice(0, 200));
      assert.doesNotMatch(answer, /HTTP\/1\.1 200/);
    });
  test('an upgrade is not taken', async () => {
    const answer = await raw(server, `GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`, 20000);
    assert.equal(status(answer), 200);
    assert.doesNotMatch(answer, /101/);
  });
});

describe('clients that neither go on nor go away', () => {
  const closed = (bytes, keep) => new Promise((resolve) => {
    const socket = net.connect(server.port, '127.0.0.1'), timer = keep && setInterval(() => socket.write(keep), 200);
    socket.on('error', () => {}).on('close', () => { clearInterval(timer); resolve(); });
    socket.on('data', () => {});
    socket.write(bytes);
  });

  test('slowloris: 100 headers, lines and chunks that come byte by byte are all cut off', { timeout: 600000 }, async () => {
    const shapes = [['GET / HTTP/1.1\r\nHost: a\r\n', 'X: y\r\n'], ['GET /', 'a'], [head('Transfer-Encoding: chunked'), '1\r\na\r\n'], [head('Transfer-Encoding: chunked') + '1;', 'x'], ['', '\r\n']];
    const all = Promise.all(Array.from({ length: 100 }, (_, i) => closed(...shapes[i % shapes.length])));
    await healthz();
    assert.equal((await post(server, '/v1/restore', { picture, fields: plain })).status, 200);
    await all;
  });

  test('who does not read a result, an archive or events is cut off, and it is freed', { timeout: 600000 }, async () => {
    const before = descriptors(), big = png(400, 400), query = '&upscale=8&ext=png&png_level=0';
    const { json } = await post(server, '/v1/restore', { query: `?version=none&bg_upsampler=none${query}&batch=big`, body: big, headers: { 'Content-Type': 'image/png' } });
    await until('its end', async () => (await get(server, `/v1/jobs/${json.id}`)).json.state === 'done');
    const from = server.log().length, stuck = [];
    for (const bytes of [Buffer.concat([Buffer.from(head(`Content-Length: ${big.length}`).replace(target, target + query)), big]), ...[`/v1/jobs/${json.id}/result`, '/v1/batches/big/results.zip'].map((path) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`)]) {
      const socket = net.connect(server.port, '127.0.0.1').on('error', () => {}).pause();
      socket.write(bytes);
      stuck.push(socket);
    }
    await until('all three are cut off', () => (server.log().slice(from).match(/slow-client activity=/g) ?? []).length >= 3);
    await until('their descriptors are closed', () => descriptors() <= before + 2); // fetch keeps one or two
    for (const socket of stuck) socket.destroy();
    assert.equal((await fetch(`${server.url}/v1/jobs/${json.id}`, { method: 'DELETE' })).status, 204);
    await until('an empty spool', () => !spool().length);
    await healthz();
  });
});
