// Under load: hang-ups, a full queue, health while every worker is busy, deadlines, and how the server ends.
import assert from 'node:assert/strict';
import http from 'node:http';
import { describe, test } from 'node:test';
import { fixture, get, metrics, ownModels, plain, png, post, sleep, start, until } from './client.mjs';

const big = png(3000, 2000); // keeps a CPU busy for many seconds, in small tiles
const slow = { version: 'none', bg_tile: '64', ext: 'jpg' };
const small = fixture('none.png');
const submit = (server, signal, fields = slow) => post(server, '/v1/restore', { picture: big, fields, signal }).catch((error) => ({ error }));
const running = (server) => until('a job at work', async () => (await get(server, '/v1/devices')).json.devices.some((d) => d.current_job));
const counted = async (server, name) => (await metrics(server)).get(`restored_${name}`) ?? 0;

test('a client that hangs up cancels its job, and the worker is free', { timeout: 120000 }, async (context) => {
  const server = await start({ context });
  const abort = new AbortController();
  const job = submit(server, abort.signal);
  await running(server);
  const { json } = await get(server, '/v1/devices');
  assert.equal(json.devices[0].state, 'busy');
  assert.match(json.devices[0].current_job, /^[0-9a-f]{32}$/);
  abort.abort();
  assert.ok((await job).error);
  await until('the cancelled job', async () => (await counted(server, 'jobs_total{state="cancelled"}')) === 1, 20000);
  await until('the idle device', async () => (await get(server, '/v1/devices')).json.devices[0].state === 'idle');
  assert.equal(await counted(server, 'http_requests_total{route="/v1/restore",method="POST",code="499"}'), 1);
  assert.equal((await get(server, '/v1/devices')).json.devices[0].jobs_failed, 0);
  assert.match(server.log(), /state=cancelled/);
  assert.match(server.log(), /request .* status=499/);
  const started = Date.now();
  assert.equal((await post(server, '/v1/restore', { picture: small, fields: plain })).status, 200);
  assert.ok(Date.now() - started < 5000);
  await server.stop();
});

test('a full queue is 429 with Retry-After; a waiting job whose client goes away gives its place back', { timeout: 120000 }, async (context) => {
  const server = await start({ context, args: ['--queue', '1'] });
  const first = new AbortController(), second = new AbortController();
  const jobs = [submit(server, first.signal)];
  await running(server);
  jobs.push(submit(server, second.signal));
  await until('a full queue', async () => (await counted(server, 'queue_depth')) === 1);
  const refused = await post(server, '/v1/restore', { picture: small, fields: plain });
  assert.equal(refused.status, 429);
  assert.match(refused.headers.get('retry-after'), /^[1-9]\d*$/);
  assert.match(refused.json.detail, /the queue is full/);
  assert.equal(await counted(server, 'rejected_total{reason="queue_full"}'), 1);
  const ready = await get(server, '/readyz');
  assert.equal(ready.status, 503);
  assert.deepEqual(ready.json.reasons, ['the queue is full']);
  second.abort();
  await until('a place in the queue', async () => (await counted(server, 'queue_depth')) === 0);
  first.abort();
  assert.equal((await post(server, '/v1/restore', { picture: small, fields: plain })).status, 200);
  await Promise.all(jobs);
  await until('both cancelled', async () => (await counted(server, 'jobs_total{state="cancelled"}')) === 2);
  await server.stop();
});

test('/healthz answers in under 10 ms (p95) while every worker is busy', { timeout: 120000 }, async (context) => {
  const server = await start({ context, args: ['--workers', '2'] });
  const abort = new AbortController();
  const jobs = [1, 2, 3].map(() => submit(server, abort.signal));
  await running(server);
  await until('a job that waits', async () => (await counted(server, 'queue_depth')) === 1);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const times = [];
  for (let i = 0; i < 200; i++) {
    const started = process.hrtime.bigint();
    await new Promise((resolve, reject) => http.get(`${server.url}/healthz`, { agent }, (response) => {
      assert.equal(response.statusCode, 200);
      response.resume().on('end', resolve);
    }).on('error', reject));
    times.push(Number(process.hrtime.bigint() - started) / 1e6);
    await sleep(5);
  }
  agent.destroy();
  times.sort((a, b) => a - b);
  console.log(`# /healthz: median ${times[100].toFixed(2)} ms, p95 ${times[190].toFixed(2)} ms`);
  assert.ok((await get(server, '/v1/devices')).json.devices[0].current_job, 'it was busy to the end');
  assert.ok(times[190] < 10, `p95 is ${times[190]} ms`);
  abort.abort();
  await Promise.all(jobs);
  await server.stop();
});

test('many waiting requests hold no thread', { timeout: 120000 }, async (context) => {
  const server = await start({ context });
  const abort = new AbortController();
  const jobs = Array.from({ length: 12 }, () => submit(server, abort.signal, { ...slow }));
  await until('eleven that wait', async () => (await counted(server, 'queue_depth')) === 11);
  assert.equal((await get(server, '/healthz')).status, 200);
  assert.equal((await get(server, '/v1/models')).status, 200);
  abort.abort();
  await Promise.all(jobs);
  await until('all twelve cancelled', async () => (await counted(server, 'jobs_total{state="cancelled"}')) === 12);
  await server.stop();
});

test('a deadline that passes, at work or waiting, is 504', { timeout: 120000 }, async (context) => {
  const server = await start({ context, args: ['--job_seconds', '2'] });
  const answers = await Promise.all([submit(server), submit(server)]);
  for (const answer of answers) {
    assert.equal(answer.status, 504);
    assert.match(answer.json.detail, /deadline of 2 seconds/);
  }
  assert.equal(await counted(server, 'jobs_total{state="failed"}'), 2);
  await server.stop();
});

describe('the end', () => {
  test('SIGTERM: no new jobs, the job at hand is done, then exit 0', { timeout: 120000 }, async (context) => {
    const server = await start({ context });
    const job = post(server, '/v1/restore', { picture: png(400, 300), fields: slow });
    await running(server);
    server.process.kill('SIGTERM');
    const ready = await until('not ready', async () => { const r = await get(server, '/readyz'); return r.status === 503 && r; });
    assert.deepEqual(ready.json.reasons, ['the server is shutting down']);
    const refused = await post(server, '/v1/restore', { picture: small, fields: plain });
    assert.equal(refused.status, 503);
    assert.match(refused.json.detail, /shutting down/);
    const answer = await job;
    assert.equal(answer.status, 200);
    assert.equal(answer.type, 'image/jpeg');
    await server.stop();
  });

  test('past drain_seconds what is left is cancelled with 503', { timeout: 120000 }, async (context) => {
    const server = await start({ context, args: ['--drain_seconds', '1'] });
    const jobs = [submit(server), submit(server)];
    await running(server);
    await until('one that waits', async () => (await counted(server, 'queue_depth')) === 1);
    server.process.kill('SIGTERM');
    for (const answer of await Promise.all(jobs)) {
      assert.equal(answer.status, 503);
      assert.match(answer.json.detail, /shutting down/);
    }
    await server.stop();
    assert.equal(server.log().match(/ job id=\S+ state=cancelled /g).length, 2);
    assert.doesNotMatch(server.log(), /state=failed/);
  });

  test('a second signal ends it at once', { timeout: 120000 }, async (context) => {
    const server = await start({ context });
    const job = submit(server);
    await running(server);
    server.process.kill('SIGTERM');
    await until('draining', async () => (await get(server, '/readyz')).status === 503);
    const second = Date.now();
    server.process.kill('SIGINT');
    assert.equal((await job).status, 503);
    await server.stop();
    assert.match(server.log(), /state=cancelled/);
    assert.doesNotMatch(server.log(), /state=failed/);
    assert.ok(Date.now() - second < 15000, 'it did not wait for drain_seconds');
  });
});
