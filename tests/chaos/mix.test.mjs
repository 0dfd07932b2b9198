// Everything at once: 64 clients with requests of all kinds, one in ten of them hostile. No crash, no job lost, each answer
// is one that belongs to its request, and afterwards the server holds what it held before.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fixture, metrics, png, pngHeader, sleep, start, until } from '../api/client.mjs';
import { long, pictures, random } from './chaos.mjs';

const total = Number(process.env.CHAOS_REQUESTS ?? (long ? 10000 : 600)), clients = 64;
const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');
const nothing = '?version=none&bg_upsampler=none', networks = '?parse=true'; // options: without networks, and with all
const slow = png(600, 400), endless = png(300, 300);

test(`${total} requests of ${clients} clients, one in ten hostile`, { timeout: 1800000 }, async (context) => {
  const seed = Number(process.env.CHAOS_SEED ?? Date.now() % 1e9), next = random(seed), many = (n) => Math.floor(n * next());
  const state = fs.mkdtempSync(join(tmpdir(), 'restored-mix-'));
  context.after(() => fs.rmSync(state, { recursive: true, force: true }));
  const server = await start({ context, args: ['--device', 'cpu', '--queue', '16', '--async_queue', '48', '--state_dir', state, '--log_level', 'warn', '--drain_seconds', '600'] });
  const proc = `/proc/${server.process.pid}`;
  const holds = () => ({ descriptors: fs.readdirSync(`${proc}/fd`).length, threads: fs.readdirSync(`${proc}/task`).length,
    rss: Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`${proc}/status`, 'latin1'))[1]) / 1024 });

  // A request on a connection of its own; after `hang` milliseconds it is given up.
  const send = (method, path, { body, headers = {}, hang } = {}) => new Promise((resolve, reject) => {
    const request = http.request({ port: server.port, host: '127.0.0.1', method, path, agent: false, headers: { ...headers, ...(body && { 'content-length': body.length }) } });
    if (hang !== undefined) setTimeout(() => { request.destroy(); resolve({ status: 0 }); }, hang);
    request.on('error', (error) => (hang === undefined ? reject(error) : resolve({ status: 0 })));
    request.on('response', (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part)).on('error', () => {});
      response.on('end', () => {
        const bytes = Buffer.concat(parts), json = /json/.test(response.headers['content-type'] ?? '') ? JSON.parse(bytes) : null;
        resolve({ status: response.statusCode, headers: response.headers, bytes, json });
      });
    });
    request.end(body);
  });
  // Bytes as they are; reads until the server closes, at most for `ms`. The statuses that came.
  const raw = (bytes, ms = 60000, read = true) => new Promise((resolve) => {
    const socket = net.connect(server.port, '127.0.0.1');
    let answer = '';
    const timer = setTimeout(() => socket.destroy(), ms);
    if (read) socket.on('data', (data) => { answer += data.toString('latin1'); });
    else socket.pause();
    socket.on('error', () => {}).on('close', () => { clearTimeout(timer); resolve([...answer.matchAll(/^HTTP\/1\.1 (\d{3}) /gm)].map((one) => Number(one[1]))); });
    socket.write(bytes);
  });
  const head = (...lines) => `POST /v1/restore${nothing} HTTP/1.1\r\n${['Host: localhost', ...lines].map((line) => `${line}\r\n`).join('')}\r\n`;

  const counts = {}, tally = (what) => { counts[what] = (counts[what] ?? 0) + 1; };
  let refused = 0;
  // Its status is one of these, or it was refused as it should be.
  const one = (answer, ...statuses) => {
    if (answer.status === 429) {
      refused++;
      assert.equal(answer.json.code, 'queue-full');
      assert.match(answer.headers['retry-after'], /^[1-9]\d*$/);
    } else assert.ok(statuses.includes(answer.status), `${answer.status}, not ${statuses}: ${JSON.stringify(answer.json)}`);
    return answer;
  };
  const ours = pictures(), expected = [];
  for (const picture of ours)
    expected.push(await Promise.all([nothing, networks].map(async (query) => hash(one(await send('POST', `/v1/restore${query}`, { body: picture }), 200).bytes))));
  const accepted = new Map(); // id: {expected: hash of its result, or null where it is cancelled or broken}
  async function submit(what, query = nothing, batch = '') {
    const body = what === undefined ? ours[many(ours.length)] : what, number = ours.indexOf(body);
    const answer = one(await send('POST', `/v1/restore${query}&async=true${batch}`, { body }), 202);
    if (answer.status === 202) accepted.set(answer.json.id, { expected: number < 0 ? null : expected[number][query === nothing ? 0 : 1] });
    return answer.json.id;
  }
  const some = () => [...accepted.keys()][many(accepted.size)] ?? '0'.repeat(32);
  const restore = (query) => async () => {
    const number = many(ours.length), answer = one(await send('POST', `/v1/restore${query}`, { body: ours[number] }), 200);
    if (answer.status === 200) assert.equal(hash(answer.bytes), expected[number][query === nothing ? 0 : 1]);
  };
  const fine = [
    ['restore', restore(nothing)], ['restore', restore(nothing)], ['networks', restore(networks)],
    ['detect', async () => one(await send('POST', '/v1/detect', { body: ours[many(ours.length)] }), 200)],
    ['estimate', async () => one(await send('POST', `/v1/estimate?width=${1 + many(5000)}&height=${1 + many(5000)}`, { body: Buffer.alloc(0) }), 200)],
    ['async', () => submit()], ['async', () => submit(undefined, networks)], ['batch', () => submit(undefined, nothing, `&batch=b${many(20)}`)],
    ['zip', async () => one(await send('GET', `/v1/batches/b${many(20)}/results.zip`), 200, 404, 409)],
    ['status', async () => one(await send('GET', `/v1/jobs/${some()}`), 200, 404)],
    ['result', async () => {
      const id = some(), answer = one(await send('GET', `/v1/jobs/${id}/result`), 200, 404, 409);
      if (answer.status === 200) assert.equal(hash(answer.bytes), accepted.get(id).expected);
    }],
    ['events', async () => { await send('GET', `/v1/jobs/${some()}/events`, { hang: many(500) }); await send('GET', '/v1/events', { hang: many(100) }); }],
    ['look', async () => { for (const path of ['/healthz', '/metrics', '/v1/jobs?limit=50', '/v1/devices']) one(await send('GET', path), 200); }],
  ];
  const body = ours[3], length = `Content-Length: ${body.length}`;
  const answers = (statuses, ...allowed) => assert.ok(statuses.length && statuses.every((status) => allowed.includes(status)), `${statuses}, not ${allowed}`);
  const hostile = [
    ['bad framing', async () => answers(await raw(head(length, 'Transfer-Encoding: chunked') + 'abcGET /healthz HTTP/1.1\r\n\r\n'), 400)],
    ['cut body', () => raw(Buffer.concat([Buffer.from(head('Content-Length: 400000')), Buffer.alloc(many(300000))]), many(50))],
    ['length too short', async () => answers(await raw(Buffer.concat([Buffer.from(head(`Content-Length: ${body.length >> 1}`)), body])), 400, 422, 429)],
    ['length too long', () => raw(Buffer.concat([Buffer.from(head(`Content-Length: ${body.length + 9}`)), body]), many(300))],
    ['huge header', async () => answers(await raw(`GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ${'y'.repeat(100000)}\r\n\r\n`), 413, 414, 431)],
    ['unknown', async () => { one(await send('GET', `/v1/${many(1e9)}`), 404); one(await send('PUT', '/v1/restore', { body }), 405); }],
    ['broken picture', async () => {
      one(await send('POST', `/v1/restore${nothing}`, { body: body.subarray(0, many(body.length - 20)) }), 400, 415, 422);
      one(await send('POST', `/v1/restore${nothing}`, { body: pngHeader(1 + many(1e6), 1 + many(1e6)) }), 422);
      one(await send('POST', `/v1/detect`, { body: fixture('picture.jpg').subarray(0, 4000) }), 422);
    }],
    ['broken job', () => submit(body.subarray(0, 3000))],
    ['cancel', async () => {
      const id = await submit(slow, '?version=none&bg_tile=64');
      await sleep(many(100));
      if (id) one(await send('DELETE', `/v1/jobs/${id}`), 200, 204);
      if (id && !many(3)) one(await send('DELETE', `/v1/jobs/${id}`), 200, 204, 404);
    }],
    ['stops reading', () => raw(Buffer.concat([Buffer.from(`POST /v1/restore${nothing}&upscale=8&png_level=0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${endless.length}\r\n\r\n`), endless]), 1000, false)],
    ['hangs up', () => send('POST', '/v1/restore?version=none&bg_tile=64', { body: slow, hang: many(200) })],
    ['no HTTP', () => raw(Buffer.from(Array.from({ length: 200 }, () => many(256))), 100)],
    ['chunks without end', () => raw(head('Transfer-Encoding: chunked') + `3e8\r\n${'x'.repeat(1000)}\r\n`.repeat(50), many(100))],
  ];

  async function drained() {
    await until('the end of all jobs', async () => {
      const now = await metrics(server);
      return !now.get('restored_queue_depth') && !(await send('GET', '/v1/jobs?state=queued,running')).json.jobs.length && (await send('GET', '/v1/devices')).json.devices.every((device) => !device.current_job);
    }, 600000);
    return until('the connections are closed', async () => (await send('GET', '/metrics')) && holds());
  }
  for (let i = 0; i < 24; i++) for (const kinds of [fine, hostile]) await kinds[i % kinds.length][1](); // what is made at its first use
  await Promise.all(Array.from({ length: 12 }, restore(networks)));
  const before = await drained();
  refused = 0;
  const rejected = async () => [...(await metrics(server))].filter(([name]) => /^restored_rejected_total/.test(name)).reduce((sum, [, value]) => sum + value, 0);
  const refusedBefore = await rejected(), begin = Date.now();
  let number = 0;
  await Promise.all(Array.from({ length: clients }, async () => {
    while (number < total) {
      const i = number++, kinds = i % 10 === 9 ? hostile : fine, [name, ask] = kinds[kinds === hostile ? ((i / 10) | 0) % hostile.length : many(fine.length)];
      await ask().catch((error) => { throw new Error(`CHAOS_SEED=${seed}, request ${i}, ${name}: ${error.message}\n${server.log()}`, { cause: error }); });
      tally(name);
    }
  }));
  const seconds = (Date.now() - begin) / 1000;
  await drained();

  // No job is lost, and each has the end that it should have.
  const found = new Map();
  for (let path = '/v1/jobs?limit=1000'; path; ) {
    const { json } = await send('GET', path);
    for (const job of json.jobs) found.set(job.id, job);
    path = json.next;
  }
  const ends = {};
  for (const [id, { expected: wanted }] of accepted) {
    const job = found.get(id);
    if (!job) assert.equal(wanted, null, `${id} is lost`); // cancelled and forgotten
    else if (wanted) assert.equal(job.state, 'done', JSON.stringify(job));
    else if (job.state === 'failed') assert.equal((await send('GET', `/v1/jobs/${id}`)).json.error.code, 'corrupt');
    ends[job?.state ?? 'forgotten'] = (ends[job?.state ?? 'forgotten'] ?? 0) + 1;
  }
  for (const [id, { expected: wanted }] of accepted) if (wanted && many(accepted.size) < 100) assert.equal(hash((await send('GET', `/v1/jobs/${id}/result`)).bytes), wanted);
  if (!refused) // so fast a machine: more at once than it has places for
    await Promise.all(Array.from({ length: clients }, async () => one(await send('POST', '/v1/restore?version=none&bg_tile=64', { body: slow, hang: 3000 }), 0, 200)));
  assert.ok(refused > 0, 'some are refused');
  assert.ok((await rejected()) - refusedBefore >= refused);
  for (const id of found.keys()) one(await send('DELETE', `/v1/jobs/${id}`), 204);
  await until('an empty spool', () => fs.readdirSync(join(state, 'spool')).every((name) => /^\.?lock$/.test(name)));

  const after = await until('descriptors and threads as before', () => { const now = holds(); return now.descriptors <= before.descriptors && now.threads <= before.threads && now; });
  context.diagnostic(`CHAOS_SEED=${seed}: ${total} requests in ${seconds.toFixed(1)} s, ${refused} refused; ${JSON.stringify(counts)}; jobs ${JSON.stringify(ends)}`);
  context.diagnostic(`before ${JSON.stringify(before)}, after ${JSON.stringify(after)}`);
  assert.ok(after.rss < 2 * before.rss + 100, `${before.rss} MiB, then ${after.rss} MiB`);
  assert.doesNotMatch(server.log(), /panic|Sanitizer|runtime error/);
  await server.stop();
});
