// Under load: hang-ups, a full queue, health while every worker is busy, deadlines, and how the server ends.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { faulty } from './server.mjs';
import { fixture, get, logged, metrics, ownModels, plain, png, post, sleep, start, until } from './client.mjs';

const big = png(3000, 2000); // keeps a CPU busy for seconds, in small tiles; with `slowly` a device for minutes, on any machine
const slow = { version: 'none', bg_tile: '64', ext: 'jpg' };
const small = fixture('none.png');
const slowly = { program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat,plan=upscaler' } };
const submit = (server, signal, fields = slow) => post(server, '/v1/restore', { picture: big, fields, signal }).catch((error) => ({ error }));
const running = (server) => until('a job at work', async () => (await get(server, '/v1/devices')).json.devices.some((d) => d.current_job));
const counted = async (server, name) => (await metrics(server)).get(`restored_${name}`) ?? 0;

test('a client that hangs up cancels its job, and the worker is free', { timeout: 600000 }, async (context) => {
  const server = await start({ context, ...slowly });
  const abort = new AbortController();
  const job = submit(server, abort.signal);
  await running(server);
  const { json } = await get(server, '/v1/devices');
  assert.equal(json.devices[0].state, 'busy');
  assert.match(json.devices[0].current_job, /^[0-9a-f]{32}$/);
  abort.abort();
  assert.ok((await job).error);
  await until('the cancelled job', async () => (await counted(server, 'jobs_total{state="cancelled"}')) === 1);
  await until('the idle device', async () => (await get(server, '/v1/devices')).json.devices[0].state === 'idle');
  await until('its request', async () => (await counted(server, 'http_requests_total{route="/v1/restore",method="POST",code="499"}')) === 1);
  assert.equal((await get(server, '/v1/devices')).json.devices[0].jobs_failed, 0);
  await logged(server, /state=cancelled/);
  await logged(server, /request .* status=499/);
  assert.equal((await post(server, '/v1/restore', { picture: small, fields: plain })).status, 200);
  await server.stop();
});

test('asynchronous jobs that wait do not fill the queue of others', { timeout: 600000 }, async (context) => {
  const server = await start({ program: faulty, context, args: ['--queue', '1', '--device', 'cpu', '--drain_seconds', '0'], env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=detector' } });
  for (let i = 0; i < 12; i++) {
    const { status, json } = await post(server, '/v1/restore', { picture: small, fields: { async: 'true' } });
    assert.equal(status, 202, JSON.stringify(json));
  }
  await until('more in the queue than it has places', async () => (await counted(server, 'queue_depth')) > 1);
  assert.equal((await get(server, '/readyz')).status, 200);
  const abort = new AbortController();
  const waits = submit(server, abort.signal, plain);
  const refused = waits.then(({ status }) => status); // 429, were there no place
  await until('a synchronous one waits, too', async () => (await get(server, '/readyz')).status === 503 || (await Promise.race([refused, sleep(1).then(() => 0)])) > 0);
  abort.abort();
  assert.ok((await waits).error, 'it was not refused');
  await server.stop();
});

test('a full queue is 429 with Retry-After; a waiting job whose client goes away gives its place back', { timeout: 600000 }, async (context) => {
  const server = await start({ context, ...slowly, args: ['--queue', '1'] });
  const first = new AbortController(), second = new AbortController();
  const jobs = [submit(server, first.signal)];
  await running(server);
  jobs.push(submit(server, second.signal));
  await until('a full queue', async () => (await counted(server, 'queue_depth')) === 1);
  const refused = await post(server, '/v1/restore', { picture: small, fields: plain });
  assert.equal(refused.status, 429);
  assert.match(refused.headers.get('retry-after'), /^[1-9]\d*$/);
  assert.match(refused.json.detail, /The queue is full/);
  assert.equal(await counted(server, 'rejected_total{reason="queue_full"}'), 1);
  const ready = await get(server, '/readyz');
  assert.equal(ready.status, 503);
  assert.deepEqual(ready.json.reasons, ['The queue is full']);
  server.process.kill('SIGUSR1');
  await until('the same in the status line', () => /status ready=false .* reason="the queue is full"\n/.test(server.log()));
  second.abort();
  await until('a place in the queue', async () => (await counted(server, 'queue_depth')) === 0);
  first.abort();
  assert.equal((await post(server, '/v1/restore', { picture: small, fields: plain })).status, 200);
  await Promise.all(jobs);
  await until('both cancelled', async () => (await counted(server, 'jobs_total{state="cancelled"}')) === 2);
  await server.stop();
});

// How long /healthz takes is compared with what the least of servers takes at the same time: the machine may be busy with
// other things, too.
test('/healthz waits for no worker (p95, beside a server that does nothing)', { timeout: 600000 }, async (context) => {
  const least = spawn(process.execPath, ['-e', `
    const s = require('http').createServer((q, r) => r.end('{}'));
    s.listen(0, '127.0.0.1', () => console.log(s.address().port));`], { stdio: ['ignore', 'pipe', 'inherit'] });
  context.after(() => least.kill());
  const port = await new Promise((resolve) => least.stdout.once('data', (data) => resolve(Number(data))));
  const server = await start({ context, args: ['--workers', '2'] });
  const abort = new AbortController();
  const jobs = [1, 2, 3, 4, 5, 6].map(() => submit(server, abort.signal));
  await running(server);
  await until('jobs that wait', async () => (await counted(server, 'queue_depth')) === 4);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  async function time(url, times) {
    const started = process.hrtime.bigint();
    await new Promise((resolve, reject) => http.get(url, { agent }, (response) => {
      assert.equal(response.statusCode, 200);
      response.resume().on('end', resolve);
    }).on('error', reject));
    times.push(Number(process.hrtime.bigint() - started) / 1e6);
  }
  const ours = [], theirs = [];
  for (let i = 0; i < 200; i++) {
    await time(`${server.url}/healthz`, ours);
    await time(`http://127.0.0.1:${port}/`, theirs);
    await sleep(5);
  }
  agent.destroy();
  for (const times of [ours, theirs]) times.sort((a, b) => a - b);
  console.log(`# /healthz: median ${ours[100].toFixed(2)} ms, p95 ${ours[190].toFixed(2)} ms; beside it ${theirs[100].toFixed(2)}, ${theirs[190].toFixed(2)} ms`);
  assert.ok((await get(server, '/v1/devices')).json.devices[0].current_job, 'it was busy to the end');
  assert.ok(ours[190] < 10 + 5 * theirs[190], `p95 is ${ours[190]} ms, beside it ${theirs[190]} ms`);
  abort.abort();
  await Promise.all(jobs);
  await server.stop();
});

test('many waiting requests hold no thread', { timeout: 600000 }, async (context) => {
  const server = await start({ context, ...slowly });
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

test('a deadline that passes, at work or waiting, is 504', { timeout: 600000 }, async (context) => {
  const cache = mkdtempSync(join(tmpdir(), 'restored-cache-')); // where nothing is known of speeds: no estimate refuses them
  context.after(() => rmSync(cache, { recursive: true, force: true }));
  const server = await start({ context, program: faulty, args: ['--job_seconds', '2', '--cache_dir', cache], env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=upscaler' } });
  const hang = () => post(server, '/v1/restore', { picture: small, fields: { version: 'none' } });
  const answers = await Promise.all([hang(), hang()]);
  for (const answer of answers) {
    assert.equal(answer.status, 504);
    assert.match(answer.json.detail, /deadline of 2 seconds/);
  }
  assert.equal(await counted(server, 'jobs_total{state="failed"}'), 2);
  await server.stop();
});

test('the deadline of an asynchronous job counts from when it was sent; one that never began has no attempt', { timeout: 600000 }, async (context) => {
  const state = mkdtempSync(join(tmpdir(), 'restored-state-'));
  context.after(() => rmSync(state, { recursive: true, force: true }));
  const args = ['--state_dir', state, '--device', 'cpu', '--drain_seconds', '0'];
  let server = await start({ program: faulty, context, args, env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=detector' } });
  const jobs = [];
  for (let i = 0; i < 2; i++) jobs.push((await post(server, '/v1/restore', { picture: small, fields: { async: 'true' } })).headers.get('location'));
  await server.stop();
  await sleep(2100);
  server = await start({ context, args: [...args, '--job_seconds', '2'] });
  for (const job of jobs) {
    const { json } = await until('its end', async () => { const now = await get(server, job); return now.json.finished && now; });
    assert.deepEqual([json.state, json.error.status, json.started, json.attempts], ['failed', 504, null, 0]);
    assert.match(json.error.detail, /deadline of 2 seconds/);
  }
  await server.stop();
});

describe('the end', () => {
  test('SIGTERM: no new jobs, the job at hand is done, then exit 0', { timeout: 600000 }, async (context) => {
    const server = await start({ context, ...slowly, args: ['--drain_seconds', '300'] });
    const job = post(server, '/v1/restore', { picture: png(400, 300), fields: { ...slow, bg_tile: '128' } }); // 12 tiles, half a second each
    await running(server);
    server.process.kill('SIGTERM');
    const ready = await until('not ready', async () => { const r = await get(server, '/readyz'); return r.status === 503 && r; });
    assert.deepEqual(ready.json.reasons, ['The server is shutting down']);
    const refused = await post(server, '/v1/restore', { picture: small, fields: plain });
    assert.equal(refused.status, 503);
    assert.match(refused.json.detail, /shutting down/);
    assert.equal(refused.headers.get('retry-after'), '5');
    const answer = await job;
    assert.equal(answer.status, 200);
    assert.equal(answer.type, 'image/jpeg');
    await server.stop();
  });

  test('past drain_seconds what is left is cancelled with 503', { timeout: 600000 }, async (context) => {
    const server = await start({ context, ...slowly, args: ['--drain_seconds', '3', '--queue', '1'] });
    const jobs = [submit(server), submit(server)];
    await running(server);
    await until('one that waits', async () => (await counted(server, 'queue_depth')) === 1);
    server.process.kill('SIGTERM');
    const ready = await until('draining', async () => { const r = await get(server, '/readyz'); return /shutting/.test(r.json.reasons) && r.json; });
    assert.deepEqual(ready.reasons, ['The server is shutting down'], 'a full queue no longer matters');
    for (const answer of await Promise.all(jobs)) {
      assert.equal(answer.status, 503);
      assert.equal(answer.headers.get('retry-after'), '5');
      assert.match(answer.json.detail, /shutting down/);
    }
    await server.stop();
    assert.equal(server.log().match(/ job id=\S+ state=cancelled /g).length, 2);
    assert.doesNotMatch(server.log(), /state=failed/);
  });

  test('a second signal ends it at once', { timeout: 600000 }, async (context) => {
    const server = await start({ context, ...slowly, args: ['--drain_seconds', '300'] });
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
    assert.ok(Date.now() - second < 150e3, 'it did not wait for drain_seconds');
  });
});
