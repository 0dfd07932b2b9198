// Several servers with one store: fronts that take requests, workers that do them, and what happens when one of them, or the
// database, is killed.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fixture, get, metrics, ownModels, png, post, start, startReceiver, until } from './client.mjs';
import { database, ownServer, skip, sql } from './postgres.mjs';
import { startS3 } from './s3.mjs';
import { binary, faulty } from './server.mjs';

const small = fixture('none.png'), big = png(400, 300), biggest = png(1600, 1200);
const plain = { version: 'none', bg_upsampler: 'none' };
// Many small tiles; and some large ones, each of which takes half a second more, so that a fast machine is not done at once.
const tiled = { version: 'none', bg_tile: '64', ext: 'jpg' }, slow = { ...tiled, bg_tile: '128' };
const slowly = { RESTORED_FAULTS: 'slow@run:1,repeat,plan=upscaler,over=10000' };
const dropDatabase = () => sql(process.env.RESTORED_TEST_POSTGRES, `DROP DATABASE ${url.split('/').at(-1)} WITH (FORCE)`);
let url, fronts = [], workers = [];

const shared = () => ['--store', url, '--device', 'cpu', '--cpu_threads', '1'];
// All that were started end with their suite, also where its start fails.
const started = [];
const kept = async (starting) => { const server = await starting; started.push(server); return server; };
const startWorker = (more = {}) => kept(start({ program: faulty, env: slowly, ...more, args: [...shared(), '--role', 'worker', '--metrics_listen', '127.0.0.1:0', ...(more.args ?? [])] }));
const startFront = (more = {}) => kept(start({ ...more, models: [], args: [...shared(), '--role', 'front', ...(more.args ?? [])], ready: false }));
const stopAll = () => Promise.allSettled(started.splice(0).map((server) => server.stop()));
const submit = (server, picture, fields, headers = {}) => post(server, '/v1/restore', { picture, name: 'a.png', fields: { ...fields, async: 'true' }, headers });
const state = async (server, id) => (await get(server, `/v1/jobs/${id}`)).json;
const ended = (server, id, wanted = 'done') => until(`${id} ${wanted}`, async () => {
  const now = await state(server, id);
  assert.ok(!['failed', 'cancelled', 'done'].includes(now?.state) || now.state === wanted, JSON.stringify(now));
  return now?.state === wanted && now;
});
const result = async (server, id) => {
  const answer = await fetch(`${server.url}/v1/jobs/${id}/result`), bytes = Buffer.from(await answer.arrayBuffer());
  assert.equal(answer.status, 200, String(bytes));
  return bytes;
};
const owner = (id) => sql(url, `SELECT owner FROM jobs WHERE id = '${id}' AND state = 1`);
// Which worker has the job: the log of each names its owner only in the table, so its process is found by that.
const running = (server, id) => until(`${id} runs`, async () => (await state(server, id)).state === 'running' && owner(id));

async function events(server, path, enough) {
  const seen = [], abort = new AbortController();
  const response = await fetch(server.url + path, { signal: abort.signal });
  let text = '';
  for await (const bytes of response.body) {
    text += Buffer.from(bytes).toString();
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
      const name = /^event: (.*)$/m.exec(text.slice(0, end));
      if (name) seen.push({ name: name[1], data: JSON.parse(/^data: (.*)$/m.exec(text.slice(0, end))[1]) });
    }
    if (enough(seen)) break;
  }
  abort.abort();
  return seen;
}

describe('two fronts and two workers', { skip }, () => {
  before(async () => {
    url = database();
    for (let i = 0; i < 2; i++) { fronts.push(await startFront()); workers.push(await startWorker()); }
    for (const front of fronts) await until('a front that is ready', async () => (await fetch(`${front.url}/readyz`)).status === 200);
  });
  after(async () => {
    await stopAll();
    dropDatabase();
  });

  test('a front opens no models, a worker does', { timeout: 600000 }, async () => {
    const of = { env: { RESTORED_STARTER_MODELS: 'true' }, models: [] };
    const front = await startFront(of), worker = await startWorker({ ...of, program: binary });
    await until('the worker has opened them', () => /model-opened/.test(worker.log()), 60e3);
    for (const server of [worker, front]) { // whose end waits for what it opens
      started.splice(started.indexOf(server), 1);
      await server.stop();
    }
    assert.doesNotMatch(front.log(), /model-opened/);
  });

  test('a job of one front is seen, told and fetched at the other; the result is that of one machine', { timeout: 600000 }, async () => {
    const accepted = await submit(fronts[0], big, slow);
    assert.equal(accepted.status, 202, accepted.bytes);
    const { id } = accepted.json;
    const seen = await events(fronts[1], `/v1/jobs/${id}/events`, (list) => list.some(({ name }) => name === 'done'));
    assert.ok(seen.some(({ name, data }) => name === 'progress' && data.tiles_done > 0), JSON.stringify(seen));
    const done = await ended(fronts[1], id);
    const bytes = await result(fronts[1], id);
    assert.deepEqual(await result(fronts[0], id), bytes);
    const single = await kept(start({ args: ['--device', 'cpu'] }));
    const direct = await post(single, '/v1/restore', { picture: big, name: 'a.png', fields: slow });
    await single.stop();
    assert.deepEqual(direct.bytes, bytes);
    assert.equal(done.attempts, 1);
    assert.equal((await fetch(`${fronts[1].url}/v1/jobs/${id}`, { method: 'DELETE' })).status, 204);
    assert.equal((await get(fronts[0], `/v1/jobs/${id}`)).status, 404);
    await until('its pictures are gone', async () => sql(url, 'SELECT count(*) FROM chunks') === '0');
  });

  test('a request waits at a front, and is answered as by one machine', { timeout: 600000 }, async () => {
    const single = await kept(start({ args: ['--device', 'cpu'] }));
    for (const accept of ['image/*', 'multipart/mixed']) { // the parts' names, too
      const ask = (server) => post(server, '/v1/damage', { picture: small, name: 'a.png', fields: { damage_detector: 'scratches' }, headers: { accept } });
      const names = ({ headers, bytes }) => [headers.get('content-disposition'), headers.get('x-restored-notes'), bytes.toString('latin1').match(/name="[^\r]*"/g)];
      assert.deepEqual(names(await ask(fronts[0])), names(await ask(single)));
    }
    for (const accept of ['image/*', 'application/json', 'multipart/mixed']) {
      const ask = (server) => post(server, '/v1/restore', { picture: small, name: 'a.png', fields: { ...plain, suffix: 'new' }, headers: { accept } });
      const [here, there] = [await ask(single), await ask(fronts[0])];
      assert.equal(there.status, 200, there.bytes);
      for (const name of ['etag', 'content-disposition', 'x-restored-faces', 'x-restored-device', 'x-restored-notes'])
        assert.equal(there.headers.get(name), here.headers.get(name), name);
      if (accept === 'image/*') assert.deepEqual(there.bytes, here.bytes);
      else assert.equal(there.type.split(';')[0], here.type.split(';')[0]);
      if (accept === 'application/json') assert.deepEqual({ ...there.json, timings_ms: 0, network_ms: 0 }, { ...here.json, timings_ms: 0, network_ms: 0 });
    }
    await single.stop();
    const bad = await post(fronts[0], '/v1/restore', { picture: small.subarray(0, 200), fields: plain });
    assert.ok(bad.status >= 400 && bad.status < 500, bad.status);
    await until('nothing is left of them', async () => (await get(fronts[1], '/v1/jobs')).json.jobs.length === 0);
  });

  test('a client that hangs up while it waits at a front ends its job', { timeout: 600000 }, async () => {
    const cancelled = async () => (await Promise.all(workers.map(metrics))).reduce((sum, seen) => sum + seen.get('restored_jobs_total{state="cancelled"}'), 0);
    const before = await cancelled(), stop = new AbortController();
    const waits = post(fronts[0], '/v1/restore', { picture: biggest, fields: slow, signal: stop.signal }).catch((error) => error.message);
    await until('it runs', async () => (await get(fronts[1], '/v1/jobs')).json.jobs.some((job) => job.state === 'running'));
    stop.abort();
    assert.equal(await waits, 'aborted');
    await until('its worker stops', async () => await cancelled() > before);
    await until('nothing is left of it', async () => (await get(fronts[1], '/v1/jobs')).json.jobs.length === 0);
  });

  test('a front tells what all workers have', { timeout: 600000 }, async () => {
    const devices = await until('both workers are known', async () => {
      const list = (await get(fronts[0], '/v1/devices')).json.devices;
      return list.filter(({ id }) => id === 'cpu').length >= 2 && list;
    });
    assert.ok(devices.every(({ name }) => name));
    const pids = devices.map(({ worker }) => Number(worker.split(':').at(-1)));
    for (const { process } of workers) assert.ok(pids.includes(process.pid), JSON.stringify(devices));
    const { models, object, data } = (await get(fronts[1], '/v1/models')).json, names = models.map(({ name }) => name);
    assert.ok(object === 'list' && data.some(({ id }) => id === 'upscaler'), JSON.stringify(data)); // for OpenAI's clients
    for (const name of ['detector', 'upscaler', 'face_64']) assert.ok(names.includes(name), `${name}: ${names}`);
    const { options } = (await get(fronts[0], '/v1/capabilities')).json, option = (name) => options.find((row) => row.name === name);
    assert.ok(option('version').values.includes('face_64') && option('version').values.includes('none'));
    assert.deepEqual([option('version').default, option('bg_upsampler').default, option('detector').default], ['face_64', 'upscaler', 'detector']);
    assert.ok(option('damage_detector').values.includes('scratches') && option('fill').models.some(({ name }) => name === 'filler'));
    assert.equal(option('device').values.filter((id) => id === 'cpu').length, 1);
    const here = await submit(fronts[0], small, { ...plain, version: 'no_such_model' }); // no worker has it: it waits
    assert.equal(here.status, 202);
    assert.equal((await state(fronts[1], here.json.id)).state, 'queued');
    const told = await metrics(fronts[0]); // an alert is made of these: a job waits for a model that no worker has
    for (const { process } of workers)
      for (const what of ['device="cpu"', 'model="upscaler"', 'model="face_64"'])
        assert.ok([...told].some(([name, value]) => value === 1 && name.startsWith('restored_worker_') && name.includes(`:${process.pid}",${what}}`)), `${process.pid} ${what}`);
    assert.equal(told.get('restored_waiting_jobs{model="no_such_model"}'), 1);
    assert.ok(told.get('restored_waiting_seconds{model="no_such_model"}') > 0);
    assert.equal(told.get('restored_waiting_seconds{model="no_such_model"}'), told.get('restored_queue_seconds'), 'nothing else waits');
    assert.ok(![...told.keys()].some((name) => name.startsWith('restored_worker_model{') && name.includes('no_such_model')));
    await fetch(`${fronts[1].url}/v1/jobs/${here.json.id}`, { method: 'DELETE' });
    await ended(fronts[0], here.json.id, 'cancelled');
  });

  test('clients of other programs wait at a front, and are answered as by one machine', { timeout: 600000 }, async () => {
    const others = (await get(fronts[1], '/v1/jobs')).json.jobs.length;
    const single = await kept(start({ args: ['--device', 'cpu', '--cpu_threads', '1'] }));
    const picture = png(60, 44), b64 = picture.toString('base64'), uri = `data:image/png;base64,${b64}`;
    // the key is one that /v1/restore refuses: here it means nothing
    const json = (server, path, body) => post(server, path, { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json', 'Idempotency-Key': 'k'.repeat(300) } });
    const openai = (server) => {
      const body = new FormData();
      body.append('image', new Blob([fixture('rgba.png')]), 'a.png');
      body.append('mask', new Blob([fixture('rgba.png')]), 'mask.png');
      body.append('image[]', new Blob([small]), 'b.png');
      for (const [name, value] of Object.entries({ model: 'upscaler', prompt: 'upscale=2 fill=filler' })) body.append(name, value);
      return post(server, '/v1/images/edits', { body });
    };
    const asks = {
      // upscaled by two networks, of which one runs twice, and blended; then faces
      a1111: (server) => json(server, '/sdapi/v1/extra-single-image', { image: b64, upscaler_1: 'upscaler', upscaler_2: 'srvgg_x4', extras_upscaler_2_visibility: 0.4, upscaling_resize: 3, gfpgan_visibility: 1 }),
      openai,
      cog: (server) => json(server, '/predictions', { input: { img: uri, scale: 2 } }),
    };
    const pick = { a1111: ({ image }) => image, openai: ({ data, size }) => ({ data, size }), cog: ({ status, output }) => ({ status, output }) };
    for (const [name, ask] of Object.entries(asks)) {
      const [here, there] = [await ask(single), await ask(fronts[1])];
      assert.deepEqual([there.status, here.status], [200, 200], `${name}: ${there.bytes.subarray(0, 300)} ${here.bytes.subarray(0, 300)}`);
      assert.ok(JSON.stringify(pick[name](there.json)).length > 1000, name);
      assert.deepEqual(pick[name](there.json), pick[name](here.json), name);
    }
    await single.stop();
    const none = await json(fronts[0], '/sdapi/v1/extra-single-image', { image: b64, upscaler_1: 'no_such_model' });
    assert.equal(none.status, 422);
    const broken = await json(fronts[0], '/sdapi/v1/extra-single-image', { image: small.subarray(0, 200).toString('base64'), upscaler_1: 'upscaler' });
    assert.ok(broken.status >= 400 && broken.status < 500, broken.status);
    const waited = fetch(`${fronts[0].url}/predictions/stop_it`, { method: 'PUT', headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ input: { image: `data:image/png;base64,${biggest.toString('base64')}`, scale: 2, tile: 128 } }) });
    await until('it runs', async () => (await get(fronts[0], '/v1/jobs')).json.jobs.some(({ state }) => state === 'running'));
    for (const front of fronts) // each tells of it, by the table
      await until('its progress is told', async () => {
        const { progress, state: { job, job_count: count } } = (await get(front, '/sdapi/v1/progress')).json;
        return progress > 0 && progress < 1 && job === 'extras' && count === 1;
      });
    assert.equal((await post(fronts[0], '/predictions/stop_it/cancel', { body: '' })).status, 200);
    assert.equal((await (await waited).json()).status, 'canceled');
    await until('nothing is left of them', async () => (await get(fronts[1], '/v1/jobs')).json.jobs.length === others);
  });

  test('a front asks the workers what a restoration would take', { timeout: 600000 }, async () => {
    const single = await kept(start({ args: ['--device', 'cpu', '--cpu_threads', '1'] }));
    // a worker that has no processor for three seconds is not waited for
    const ask = (server, query, form = {}) => until('an answer', async () => {
      const answer = await post(server, '/v1/estimate', { query, ...form });
      return answer.status !== 503 && answer;
    });
    for (const [query, form] of [['?width=900&height=700&face_count=2'], ['?bg_tile=64', { picture: small }]]) {
      const [one, fleet] = [await ask(single, query, form), await ask(fronts[0], query, form)];
      assert.equal(fleet.status, 200, fleet.bytes);
      for (const key of ['output', 'tiles', 'memory', 'device', 'fits', 'reason']) assert.deepEqual(fleet.json[key], one.json[key], key);
      assert.ok(fleet.json.low <= fleet.json.seconds && fleet.json.seconds <= fleet.json.high && fleet.json.seconds > 0, fleet.bytes);
    }
    for (const query of ['?width=900&height=700&version=no_such_model', '?width=60000&height=60000&upscale=8']) {
      const [one, fleet] = [await ask(single, query), await ask(fronts[1], query)];
      assert.equal(fleet.status, one.status, fleet.bytes);
      assert.equal(fleet.json.code, one.json.code);
    }
    await single.stop();
  });

  test('a slow database holds no thread of HTTP while the results of a batch come from it', { timeout: 600000 }, async () => {
    const batch = 'slow-zip', ids = [];
    for (let i = 0; i < 2; i++) {
      const { json } = await post(fronts[0], '/v1/restore', { picture: small, name: 'a.png', fields: { ...plain, async: 'true', batch } });
      ids.push(json.id);
    }
    for (const id of ids) await ended(fronts[0], id);
    const zip = () => fetch(`${fronts[0].url}/v1/batches/${batch}/results.zip`).then(async (answer) => ({ status: answer.status, bytes: Buffer.from(await answer.arrayBuffer()) }));
    const whole = await zip();
    assert.equal(whole.status, 200);
    const names = (bytes) => bytes.toString('latin1').match(/a( \(2\))?\.png/g)?.length;
    assert.ok(names(whole.bytes) >= 2);
    const lock = spawn('psql', ['-X', '-q', '-d', url], { stdio: ['pipe', 'pipe', 'ignore'] }); // results cannot be read
    const locked = once(lock.stdout, 'data');
    lock.stdin.write("BEGIN; LOCK TABLE chunks IN ACCESS EXCLUSIVE MODE; SELECT 'locked';\n");
    await locked;
    const waiting = Array.from({ length: 40 }, () => zip().catch(() => null)); // more than there are threads
    await until('they wait', () => sql(url, "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") === 't');
    const answers = Promise.all(Array.from({ length: 40 }, () => fetch(`${fronts[0].url}/healthz`, { headers: { Connection: 'close' } }).then(({ status }) => status)));
    const first = await Promise.race([answers, Promise.race(waiting).then(() => 'a download ended first')]);
    assert.deepEqual(new Set(first), new Set([200]));
    lock.stdin.end('COMMIT;\n');
    await Promise.all(waiting);
    assert.equal((await until('the next one comes', async () => { const next = await zip().catch(() => null); return next?.status === 200 && next; })).bytes.length, whole.bytes.length);
  });

  test('cancelled at the other front; a key is one job at both', { timeout: 600000 }, async () => {
    const { id } = (await submit(fronts[0], biggest, slow)).json;
    await running(fronts[1], id);
    await fetch(`${fronts[1].url}/v1/jobs/${id}`, { method: 'DELETE' });
    await ended(fronts[0], id, 'cancelled');
    const headers = { 'Idempotency-Key': 'one' };
    const [one, two] = await Promise.all(fronts.map((front) => submit(front, small, plain, headers)));
    assert.deepEqual([one.status, two.status], [202, 202], `${one.bytes} ${two.bytes}`);
    assert.equal(one.json.id, two.json.id);
    assert.equal((await submit(fronts[1], small, { ...plain, ext: 'jpg' }, headers)).status, 422);
    await ended(fronts[0], one.json.id);
  });

  test('kill -9 of the worker that has it: another one does it', { timeout: 600000 }, async () => {
    const undisturbed = (await submit(fronts[0], big, slow)).json.id;
    await ended(fronts[0], undisturbed);
    const { id } = (await submit(fronts[0], big, slow)).json;
    const name = await running(fronts[0], id);
    const about = JSON.parse(sql(url, `SELECT about FROM workers WHERE owner = '${name}'`));
    const victim = workers.findIndex(({ process }) => process.pid === about.pid);
    assert.ok(victim >= 0, JSON.stringify(about.pid));
    workers[victim].process.kill('SIGKILL');
    const now = Date.now();
    sql(url, `UPDATE jobs SET lease = ${now} WHERE id = '${id}' AND owner = '${name}'`); // 30 seconds are not waited for
    await ended(fronts[1], id);
    assert.equal(sql(url, `SELECT attempts FROM jobs WHERE id = '${id}'`), '2');
    assert.deepEqual(await result(fronts[0], id), await result(fronts[0], undisturbed));
    workers[victim] = await startWorker();
  });

  test('a busy worker leaves what waits to an idle one', { timeout: 600000 }, async () => {
    const held = [];
    for (const _ of workers) { // each has one that takes a minute, and is known to take longer than a second
      const { id } = (await submit(fronts[0], biggest, slow)).json;
      held.push({ id, owner: await running(fronts[0], id) });
      await until('it is at work', async () => (await state(fronts[0], id)).tiles_done >= 3);
    }
    assert.notEqual(held[0].owner, held[1].owner);
    const ids = [];
    for (let i = 0; i < 3; i++) ids.push((await submit(fronts[1], small, plain)).json.id);
    const seen = await metrics(fronts[0]);
    assert.equal(seen.get('restored_async_jobs{state="queued"}'), 3);
    assert.ok(seen.get('restored_queue_seconds') > 0);
    await fetch(`${fronts[0].url}/v1/jobs/${held[1].id}`, { method: 'DELETE' });
    for (const id of ids) assert.equal((await ended(fronts[1], id)).attempts, 1);
    assert.equal((await state(fronts[1], held[0].id)).state, 'running');
    await fetch(`${fronts[0].url}/v1/jobs/${held[0].id}`, { method: 'DELETE' });
    await ended(fronts[1], held[0].id, 'cancelled');
  });

  test('a front that stops waits for the jobs of its requests; told twice, it does not', { timeout: 600000 }, async () => {
    const ask = async (picture) => {
      const front = await startFront({ args: ['--drain_seconds', '300'] });
      await until('ready', async () => (await fetch(`${front.url}/readyz`)).status === 200);
      const answer = post(front, '/v1/restore', { picture, name: 'a.png', fields: slow });
      await until('it runs', async () => (await get(fronts[0], '/v1/jobs')).json.jobs.some((job) => job.state === 'running'));
      front.process.kill('SIGTERM');
      await until('it drains', () => / drain /.test(front.log()));
      return { front, answer };
    };
    const patient = await ask(big);
    assert.equal((await patient.answer).status, 200);
    await patient.front.stop();
    await until('nothing is left of it', async () => !(await get(fronts[0], '/v1/jobs')).json.jobs.some((job) => job.state === 'running'));
    const hasty = await ask(biggest);
    hasty.front.process.kill('SIGTERM');
    const refused = await hasty.answer;
    assert.equal(refused.status, 503);
    assert.match(refused.json.detail, /shutting down/);
    await hasty.front.stop();
    await until('its job ends', async () => !(await get(fronts[0], '/v1/jobs')).json.jobs.some((job) => job.state === 'running'));
  });

  test('a worker that stops gives back what it has not begun', { timeout: 600000 }, async () => {
    const ids = [];
    for (let i = 0; i < 6; i++) ids.push((await submit(fronts[0], small, tiled)).json.id);
    await workers[0].stop();
    for (const id of ids) await ended(fronts[1], id);
    assert.equal(sql(url, `SELECT count(*) FROM jobs WHERE attempts > 1 AND state = 2 AND id IN (${ids.map((id) => `'${id}'`)})`), '0');
    workers[0] = await startWorker();
  });
});

describe('a webhook whose front end is killed', { skip }, () => {
  before(() => { url = database(); });
  after(async () => {
    await stopAll();
    dropDatabase();
  });

  test('another front end tells what was not told, and shows the prediction', { timeout: 600000 }, async (context) => {
    const { origin, told } = await startReceiver(context), args = ['--webhook_origins', origin, '--webhook_private', '127.0.0.0/8'];
    const first = await startFront({ args }), elsewhere = await startFront(); // this one sends none
    const body = JSON.stringify({ input: { img: `data:image/png;base64,${small.toString('base64')}` }, webhook: `${origin}/hook` });
    const predict = (headers) => post(first, '/predictions', { body, headers });
    const { status, json: begun } = await predict({ 'Content-Type': 'application/json', Prefer: 'respond-async' });
    assert.equal(status, 202, JSON.stringify(begun));
    const waits = fetch(`${first.url}/predictions/waits`, { method: 'PUT', body: JSON.stringify({ input: JSON.parse(body).input }), headers: { 'Content-Type': 'application/json' } });
    waits.catch(() => {});
    await until('both are stored', () => sql(url, 'SELECT count(*) FROM jobs') === '2');
    await until('the start', () => told.length === 1);
    await until('it is noted', () => sql(url, `SELECT count(*) FROM hooks WHERE about LIKE '%"start":false%'`) === '1');
    const { json: untold } = await predict({ 'Content-Type': 'application/json', Prefer: 'respond-async' });
    await until('its start', () => sql(url, `SELECT count(*) FROM hooks WHERE about LIKE '%"start":false%'`) === '2');
    first.process.kill('SIGKILL');
    await first.stop().catch(() => {});
    await assert.rejects(waits);
    const shown = (server) => get(server, `/predictions/${begun.id}`);
    assert.equal((await shown(elsewhere)).json.status, 'starting');
    await elsewhere.stop();
    told.length = 0; // of the second prediction, the first front end is as one that was killed before it sent the start
    assert.equal(sql(url, `UPDATE hooks SET about = replace(about, '"start":false', '"start":true') WHERE about LIKE '%${untold.id}%' RETURNING 1`), '1');
    assert.equal(sql(url, 'UPDATE hooks SET lease = 1 RETURNING lease'), '1\n1'); // nobody waits for half a minute
    const second = await startFront({ args });
    await startWorker({ env: {} });
    const of = (id) => told.filter(({ path, json }) => path === '/hook' && json.id === id).map(({ json }) => json);
    await until('the ends', () => of(begun.id).length > 0 && of(untold.id).length > 1);
    assert.deepEqual([begun.id, untold.id].map((id) => of(id).map((json) => json.status)), [['succeeded'], ['starting', 'succeeded']]);
    assert.deepEqual(of(begun.id)[0], (await shown(second)).json);
    const other = await until('the one that was waited for', async () => { const { json } = await get(second, '/predictions/waits'); return json.completed_at && json; });
    assert.deepEqual([other.status, other.output], ['succeeded', of(begun.id)[0].output]);
    await until('nothing more to tell', () => sql(url, 'SELECT count(*) FROM hooks') === '0');
    assert.equal(told.length, 3);
  });
});

describe('pictures in S3', { skip }, () => {
  let front, s3;
  before(async () => {
    url = database();
    s3 = await startS3();
    const more = { args: ['--sandbox', 'true', '--payload', `s3://${s3.bucket}/jobs?endpoint=${s3.endpoint}`], env: s3.env };
    front = await startFront(more);
    assert.match((await startWorker(more)).log(), /sandbox seccomp=true/);
    await until('ready', async () => (await fetch(`${front.url}/readyz`)).status === 200);
  });
  after(async () => {
    await stopAll();
    await s3.stop();
    dropDatabase();
  });
  const seen = () => s3.seen.map(({ method, url: path }) => `${method} ${path.replace('/pictures/jobs/', '')}`);

  test('they go there and back, the result is that of one machine, and nothing stays', { timeout: 600000 }, async () => {
    const { id } = (await submit(front, small, plain)).json;
    const bytes = await ended(front, id).then(() => result(front, id));
    const single = await kept(start({ args: ['--device', 'cpu'] }));
    assert.deepEqual((await post(single, '/v1/restore', { picture: small, name: 'a.png', fields: plain })).bytes, bytes);
    await single.stop();
    assert.equal((await post(front, '/v1/restore', { picture: small, name: 'a.png', fields: plain })).status, 200); // one that waits
    assert.equal((await fetch(`${front.url}/v1/jobs/${id}`, { method: 'DELETE' })).status, 204);
    for (const what of [`PUT in/${id}`, `GET in/${id}`, `PUT out/${id}/1`, `GET out/${id}/1`, `DELETE in/${id}`, `DELETE out/${id}/1`])
      await until(what, () => seen().includes(what));
    assert.equal(sql(url, 'SELECT count(*) FROM payloads'), '0'); // nothing is in the database
  });

  test('a bucket that refuses: 503 for new ones; a result is delivered when it takes it again', { timeout: 600000 }, async () => {
    s3.fault = ({ method, url: path }) => (method === 'PUT' && path.includes('/out/') ? 'refuse' : '');
    const { id } = (await submit(front, small, plain)).json;
    await until('it is tried', () => seen().filter((what) => what === `PUT out/${id}/1`).length >= 2);
    assert.equal((await state(front, id)).state, 'running');
    s3.fault = ({ method, url: path }) => (method === 'PUT' && path.includes('/jobs/') ? 'refuse' : '');
    const refused = await submit(front, small, plain);
    assert.equal(refused.status, 503, String(refused.bytes));
    assert.ok(Number(refused.headers.get('retry-after')) > 0);
    s3.fault = null;
    assert.equal((await ended(front, id)).attempts, 1);
    await result(front, id);
  });

  test('a front end stops though results hang on their way: 503, and a ZIP that breaks off', { timeout: 600000 }, async () => {
    const { id } = (await submit(front, small, { ...plain, batch: 'hanging' })).json;
    await ended(front, id);
    s3.seen.length = 0;
    s3.fault = ({ method, url: path }) => (method === 'GET' && path.includes('/out/') ? 'stall' : '');
    const waiting = fetch(`${front.url}/v1/jobs/${id}/result`), zip = fetch(`${front.url}/v1/batches/hanging/results.zip`).then((answer) => answer.arrayBuffer());
    zip.catch(() => {});
    await until('both hang', () => seen().filter((what) => what === `GET out/${id}/1`).length >= 2);
    const stopped = front.stop(), answer = await waiting;
    assert.equal(answer.status, 503);
    assert.match((await answer.json()).detail, /shutting down/);
    await assert.rejects(zip);
    await stopped; // it ends as it should, though nobody answers those
    s3.fault = () => 'refuse';
    s3.hangUp();
  });
});

describe('the database is killed', { skip }, () => {
  let front, own, worker;
  before(async () => {
    own = await ownServer(); // others use the common one
    url = own.url;
    front = await startFront();
    worker = await startWorker();
    await until('ready', async () => (await fetch(`${front.url}/readyz`)).status === 200);
  });
  after(async () => {
    await stopAll();
    await own.stop();
  });

  test('503 with Retry-After meanwhile; what was accepted is done, and delivered when it is back', { timeout: 600000 }, async () => {
    const ids = [];
    for (let i = 0; i < 3; i++) ids.push((await submit(front, big, tiled)).json.id);
    await until('it begins', async () => (await state(front, ids[0])).state !== 'queued');
    own.kill();
    try {
      const refused = await until('503', async () => {
        const answer = await submit(front, small, plain);
        return answer.status === 503 && answer;
      });
      const asked = (body) => post(front, '/sdapi/v1/extra-single-image', { body: JSON.stringify({ image: small.toString('base64'), ...body }), headers: { 'Content-Type': 'application/json' } });
      const form = new FormData();
      form.append('model', 'upscaler');
      form.append('image', new Blob([small]), 'a.png');
      assert.equal((await post(front, '/v1/images/edits', { body: form })).status, 503);
      for (const one of [refused, await asked({ upscaler_1: 'upscaler' }), await asked({ codeformer_visibility: 1 }), await asked({ upscaler_1: 'Lanczos', upscaling_resize: 2 })]) {
        assert.equal(one.status, 503, String(one.bytes));
        assert.ok(Number(one.headers.get('retry-after')) > 0);
      }
      assert.equal((await get(front, `/v1/jobs/${ids[0]}`)).status, 503);
      assert.equal((await fetch(`${front.url}/healthz`)).status, 200);
      for (const server of [front, worker]) {
        const { reasons } = await until('it says why', async () => { const { status, json } = await get(server, '/readyz'); return status === 503 && json; });
        assert.ok(reasons.includes('The database of jobs does not answer'), reasons);
      }
    } finally {
      own.start();
    }
    for (const id of ids) await until('it is back', async () => (await state(front, id))?.state === 'done');
    const sizes = await Promise.all(ids.map((id) => until('its result', () => result(front, id).catch(() => null)))); // 503 is told once more, perhaps
    assert.deepEqual(sizes[1], sizes[0]);
    assert.deepEqual(sizes[2], sizes[0]);
  });

  test('leases that end while the database is away: their owners keep their jobs; what cannot be known is not told', { timeout: 600000 }, async () => {
    const other = await startWorker(), { id } = (await submit(front, biggest, slow)).json;
    await running(front, id);
    const idle = async () => (await submit(front, small, plain)).json.id; // the other one does it, and is heard of
    await ended(front, await idle());
    sql(url, `UPDATE jobs SET lease = ${Date.now() + 4000} WHERE id = '${id}'`); // 30 seconds are not waited for
    own.kill();
    const away = Date.now();
    try {
      for (const path of ['/v1/devices', '/v1/models', '/v1/models/upscaler', '/v1/estimate?width=90&height=70']) {
        const answer = await until(`503 for ${path}`, async () => {
          const now = await fetch(front.url + path, { method: path.includes('?') ? 'POST' : 'GET' });
          return now.status === 503 && now;
        });
        assert.ok(Number(answer.headers.get('retry-after')) > 0, path);
        assert.doesNotMatch(await answer.text(), /no server that takes jobs/i);
      }
      const seen = await metrics(front);
      assert.equal(seen.get('restored_store_up'), 0);
      for (const name of ['queue_seconds', 'workers', 'busy_ratio', 'async_oldest_seconds', 'async_jobs{state="queued"}'])
        assert.equal(seen.get(`restored_${name}`), undefined, name);
      await until('the lease is over', () => Date.now() > away + 8000); // and whoever asks each second knows of the outage
    } finally {
      own.start();
    }
    const next = await until('it is back', () => idle().catch(() => null));
    await ended(front, next);
    await until('its owner renews it', () => {
      const [now, attempts, renewed] = sql(url, `SELECT state, attempts, lease > ${Date.now()} FROM jobs WHERE id = '${id}'`).split('|');
      assert.equal(attempts, '1');
      return renewed === 't' || now === '2';
    });
    assert.equal((await metrics(front)).get('restored_store_up'), 1);
    await fetch(`${front.url}/v1/jobs/${id}`, { method: 'DELETE' });
    await until('its end', async () => !['queued', 'running'].includes((await state(front, id))?.state));
    await other.stop();
  });

  test('a result that a killed worker could not deliver is delivered by the next start, and not computed again', { timeout: 600000 }, async (context) => {
    await worker.stop();
    const { id } = (await submit(front, small, plain)).json, dir = fs.mkdtempSync(path.join(tmpdir(), 'restored-kept-'));
    context.after(() => fs.rmSync(dir, { recursive: true, force: true }));
    const lock = spawn('psql', ['-X', '-q', '-d', url], { stdio: ['pipe', 'pipe', 'ignore'] }); // pictures can be read, and not written
    lock.stdin.on('error', () => {});
    lock.stdin.write("BEGIN; LOCK TABLE chunks IN EXCLUSIVE MODE; SELECT 'locked';\n");
    await once(lock.stdout, 'data');
    worker = await startWorker({ args: ['--state_dir', dir] });
    const spool = () => fs.readdirSync(path.join(dir, 'spool'));
    await until('it is noted', () => spool().includes(`${id}.record`));
    worker.process.kill('SIGKILL');
    await worker.stop().catch(() => {});
    own.kill();
    lock.kill();
    own.start();
    await startFront({ args: ['--state_dir', dir] }); // nobody computes
    const done = await ended(front, id);
    assert.equal(done.attempts, 1);
    await until('its result', () => result(front, id).catch(() => null));
    await until('the disk is free', () => spool().every((name) => !name.startsWith(id)));
  });
});
