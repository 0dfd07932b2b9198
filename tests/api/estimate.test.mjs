// POST /v1/estimate, and what is made of estimates: jobs that cannot be done in time are refused.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fixture, get, metrics, ownModels, png, post, raw, start, until } from './client.mjs';
import { binary, faulty } from './server.mjs';

const medium = png(640, 480);
const fields = { version: 'none', ext: 'jpg', device: 'cpu' };

// A cache folder of its own: speeds are kept there.
function folder(context) {
  const path = mkdtempSync(join(tmpdir(), 'restored-cache-'));
  context.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}
const estimate = (server, options) => post(server, '/v1/estimate', options);

test('from a size alone, in the query or a form, or from the picture', { timeout: 600000 }, async (context) => {
  const server = await start({ context, args: ['--cache_dir', folder(context)] });
  const query = '?width=640&height=480&version=none&ext=jpg&device=cpu';
  const asked = await fetch(`${server.url}/v1/estimate${query}`, { method: 'POST' });
  assert.equal(asked.status, 200);
  const json = await asked.json();
  assert.deepEqual(Object.keys(json), ['seconds', 'low', 'high', 'queue_seconds', 'memory', 'tiles', 'output', 'device', 'measured', 'fits', 'reason', 'code']);
  assert.ok(json.low > 0 && json.low <= json.seconds && json.seconds <= json.high, JSON.stringify(json));
  assert.deepEqual(json.output, { width: 1280, height: 960 });
  assert.equal(json.queue_seconds, 0);
  assert.equal(json.tiles, 1);
  assert.equal(json.device, 'cpu');
  assert.equal(json.measured, false);
  assert.equal(json.fits, true);
  assert.equal(json.reason, '');
  assert.ok(json.memory > 640 * 480 * 3 + 1280 * 960 * 3);
  const same = [
    await estimate(server, { fields: { ...fields, width: '640', height: '480' } }),
    await estimate(server, { body: new URLSearchParams({ ...fields, width: '640', height: '480' }) }),
    await estimate(server, { picture: medium, fields }),
    await estimate(server, { body: medium, headers: { 'content-type': 'image/png' }, query: '?version=none&ext=jpg&device=cpu' }),
  ];
  for (const { status, json: other } of same) {
    assert.equal(status, 200, JSON.stringify(other));
    for (const key of ['output', 'tiles', 'device', 'measured', 'fits']) assert.deepEqual(other[key], json[key]);
    assert.ok(other.seconds > json.seconds / 2 && other.seconds < json.seconds * 2);
  }
  const larger = (await estimate(server, { fields: { ...fields, width: '6400', height: '4800' } })).json;
  assert.ok(larger.seconds > 20 * json.seconds && larger.tiles > 1 && larger.memory > 20 * json.output.width * json.output.height);
  const faces = async (count) => (await estimate(server, { query: '', fields: { ext: 'jpg', width: '640', height: '480', face_count: `${count}` } })).json;
  const none = await faces(0), many = await faces(9);
  assert.ok(many.seconds > none.seconds);
  await server.stop();
});

test('a body over the limit: 413', { timeout: 600000 }, async (context) => {
  const server = await start({ context, args: ['--body_limit', '1KiB'] });
  const answer = await raw(server, 'POST /v1/estimate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1025\r\n\r\n');
  assert.match(answer, /^HTTP\/1.1 413 /, 'before any of it has come');
  assert.match(answer, /"limit": ?1024/);
  assert.equal((await estimate(server, { body: Buffer.alloc(1024) })).status, 415);
  await server.stop();
});

test('errors as everywhere', { timeout: 600000 }, async (context) => {
  const server = await start({ context });
  for (const [query, status, detail] of [
    ['', 400, /Send the picture's width and height, or the picture itself/],
    ['?width=10', 400, /Send the picture's width and height, or the picture itself/],
    ['?width=0&height=5', 400, /width: "0" is not allowed/],
    ['?width=5&height=1e3', 400, /height: "1e3" is not allowed/],
    ['?width=5&height=99999999999999999999', 400, /height: .* is not allowed/],
    ['?width=500001&height=5', 400, /width: "500001" is not allowed; allowed is .*, 1 to 500000/],
    ['?width=5&width=6&height=5', 400, /width: sent more than once/],
    ['?width=5&height=5&face_count=-1', 400, /face_count: "-1" is not allowed/],
    ['?width=5&height=5&upscale=9', 400, /upscale/],
    ['?width=5&height=5&nonsense=1', 400, /there is no such field; known are: .*, width, height, face_count, result_width, result_height/],
    ['?width=5&height=5&version=nothing', 400, /nothing/],
    ['?width=5&height=5&device=cuda:7', 400, /device: "cuda:7"/],
    ['?width=100000&height=100000', 422, /megapixels; at most/],
  ]) {
    const response = await fetch(`${server.url}/v1/estimate${query}`, { method: 'POST' });
    const json = await response.json();
    assert.equal(response.status, status, `${query}: ${JSON.stringify(json)}`);
    assert.match(json.detail, detail);
  }
  assert.equal((await estimate(server, { body: 'no picture' })).status, 415);
  assert.match((await estimate(server, { picture: medium, fields: { width: '3', height: '4' } })).json.detail, /not both/);
  assert.equal((await fetch(`${server.url}/v1/estimate`)).status, 405);
  for (const name of ['face_count', 'result_width', 'result_height'])
    assert.equal((await post(server, '/v1/restore', { picture: fixture('none.png'), fields: { version: 'none', [name]: '5' } })).status, 400);
  await server.stop();
});

test('a job teaches it, also for the next start', { timeout: 600000 }, async (context) => {
  const cache = folder(context), size = { ...fields, width: '1280', height: '960' };
  let server = await start({ context, args: ['--cache_dir', cache] });
  for (let i = 0; i < 3; i++) assert.equal((await post(server, '/v1/restore', { picture: medium, fields })).status, 200);
  const learned = (await estimate(server, { fields: size })).json;
  assert.equal(learned.measured, true);
  assert.equal((await estimate(server, { fields: { ...size, bg_upsampler: 'srvgg_x2' } })).json.measured, false);
  await server.stop();
  server = await start({ context, args: ['--cache_dir', cache] });
  const kept = (await estimate(server, { fields: size })).json;
  assert.equal(kept.measured, true);
  assert.ok(Math.abs(kept.seconds - learned.seconds) <= 0.02 * learned.seconds, `${kept.seconds} ${learned.seconds}`);
  await server.stop();
});

// The device's speed is set, so nothing here depends on this machine.
test('before any job, what the starter networks are said to compute is near what they do', { timeout: 600000 }, async (context) => {
  const work = (model, ...size) => JSON.parse(execFileSync(binary, ['bench', '--device', 'cpu', '--model', model, ...size, '--runs', '1', '--json'])).networks[0].gmac;
  const cache = folder(context), file = join(cache, 'speed.txt'), options = { context, models: [], args: ['--device', 'cpu', '--cache_dir', cache], env: { RESTORED_STARTER_MODELS: 'true' } };
  let server = await start(options);
  await server.stop();
  writeFileSync(file, readFileSync(file, 'utf8').replace(/^\S+(.* any fp32)$/m, '1$1')); // a second for 10^9 multiply-accumulates
  server = await start(options);
  const seconds = async (rest) => (await (await fetch(`${server.url}/v1/estimate?width=512&height=512&ext=jpg&${rest}`, { method: 'POST' })).json()).seconds;
  const least = await seconds('bg_upsampler=none&repair=false&face_count=0');
  const said = { // 0.262144 megapixels
    face: await seconds('bg_upsampler=none&repair=false&face_count=1') - least,
    background: (await seconds('repair=false&face_count=0') - least) / 64,
    damage: (await seconds('bg_upsampler=none&repair=auto&fill=none&face_count=0') - least) / 16,
  };
  const done = { face: work('starter_face') + work('starter_parser'), background: work('starter_upsampler_x2', '--size', '64x64'), damage: work('starter_damage', '--size', '128x128') };
  for (const [what, gmacs] of Object.entries(done)) assert.ok(said[what] > gmacs / 1.6 && said[what] < gmacs * 1.6, `${what}: ${said[what]}, ${gmacs}`);
  await server.stop();
});

test('what cannot be done before the deadline is refused at once, with the estimate', { timeout: 600000 }, async (context) => {
  const cache = folder(context);
  let server = await start({ context, args: ['--cache_dir', cache] });
  assert.equal((await post(server, '/v1/restore', { picture: medium, fields })).status, 200);
  await server.stop();
  // the same machine, a thousand times slower
  const file = join(cache, 'speed.txt'), text = readFileSync(file, 'utf8');
  writeFileSync(file, text.split('\n').map((line) => / background /.test(line) ? line.replace(/^\S+/, (rate) => rate * 1000 + 1000) : line).join('\n'));
  server = await start({ context, args: ['--cache_dir', cache, '--job_seconds', '20'] });
  const refused = await post(server, '/v1/restore', { picture: medium, fields });
  assert.equal(refused.status, 422);
  assert.equal(refused.json.code, 'too-slow');
  assert.equal(refused.json.limit_seconds, 20);
  assert.ok(refused.json.estimate_seconds > 100);
  assert.match(refused.json.detail, /bg_upsampler=none/);
  const later = await post(server, '/v1/restore', { picture: medium, fields: { ...fields, async: 'true' } });
  assert.deepEqual([later.status, later.json.code, later.json.limit_seconds], [422, 'too-slow', 20], 'asynchronous, too');
  const asked = (await estimate(server, { picture: medium, fields })).json;
  assert.equal(asked.fits, false);
  assert.match(asked.reason, /longer than the 20-second limit/);
  assert.equal(asked.code, 'too-slow');
  assert.equal((await metrics(server)).get('restored_rejected_total{reason="too_slow"}'), 2);
  assert.equal((await post(server, '/v1/restore', { picture: medium, fields: { ...fields, bg_upsampler: 'none' } })).status, 200);
  await server.stop();
  server = await start({ context, args: ['--cache_dir', cache] }); // by default there is no deadline
  assert.equal((await post(server, '/v1/restore', { picture: medium, fields })).status, 200);
  await server.stop();
});

test('a job that makes no progress is stopped; one that is slow is not', { timeout: 600000 }, async (context) => {
  const faults = { RESTORED_FAULTS: 'hang@run:1,device=cpu,plan=upscaler slow@run:2,repeat,device=cpu,plan=upscaler slow@plan:2,device=cpu,plan=upscaler' };
  const server = await start({ context, program: faulty, env: faults, models: ownModels, args: ['--stall_seconds', '2', '--cache_dir', folder(context)] });
  const stalled = await post(server, '/v1/restore', { picture: medium, fields });
  assert.equal(stalled.status, 504);
  assert.equal(stalled.json.code, 'stalled');
  assert.match(stalled.json.detail, /cpu made no progress on this picture for 2 seconds/);
  assert.match((await metrics(server)).get('restored_jobs_stopped_total{reason="stalled"}').toString(), /^1$/);
  const slow = await post(server, '/v1/restore', { picture: medium, fields: { ...fields, bg_tile: '160' } }); // 12 tiles, half a second each, after a plan that takes three seconds
  assert.equal(slow.status, 200);
  assert.equal((await metrics(server)).get('restored_jobs_total{state="failed"}'), 1);
  await server.stop();
});

test('Retry-After and queue_seconds are what is left of the jobs ahead', { timeout: 600000 }, async (context) => {
  const cache = folder(context);
  let server = await start({ context, args: ['--cache_dir', cache] });
  assert.equal((await post(server, '/v1/restore', { picture: medium, fields })).status, 200);
  await server.stop();
  const file = join(cache, 'speed.txt'), text = readFileSync(file, 'utf8');
  const rate = (line) => (/ background /.test(line) ? '10' : / host /.test(line) ? '0.01' : '$&'); // whatever this machine was busy with
  writeFileSync(file, text.split('\n').map((line) => line.replace(/^\S+/, rate(line))).join('\n'));
  server = await start({ context, program: faulty, env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=upscaler' }, args: ['--cache_dir', cache, '--queue', '1'] });
  const large = { picture: png(3000, 2000), fields: { ...fields, bg_tile: '64' } }; // 47 x 32 tiles of 128 px: 246 s at 10 s a megapixel, and 24 / 128 more for so small ones
  const alone = (await estimate(server, large)).json;
  assert.ok(alone.seconds > 285 && alone.seconds < 303 && alone.queue_seconds === 0, JSON.stringify(alone));
  const aborts = [new AbortController(), new AbortController()];
  const jobs = [post(server, '/v1/restore', { ...large, signal: aborts[0].signal }).catch(() => {})];
  await until('a job at work', async () => (await get(server, '/v1/devices')).json.devices.some((d) => d.current_job));
  jobs.push(post(server, '/v1/restore', { ...large, signal: aborts[1].signal }).catch(() => {}));
  await until('a full queue', async () => (await metrics(server)).get('restored_queue_depth') === 1);
  const behind = (await estimate(server, large)).json;
  const most = 2 * alone.seconds + 2; // less what the first one has had, and rounding
  assert.ok(behind.queue_seconds > 292 && behind.queue_seconds <= most, JSON.stringify(behind));
  assert.deepEqual([behind.fits, behind.code], [false, 'queue-full']);
  const refused = await post(server, '/v1/restore', large);
  assert.deepEqual([refused.status, refused.json.code], [429, 'queue-full']);
  const wait = Number(refused.headers.get('retry-after'));
  assert.ok(wait > 292 && wait <= most, `${wait}`);
  aborts.forEach((abort) => abort.abort());
  await Promise.all(jobs);
  await server.stop();
});
