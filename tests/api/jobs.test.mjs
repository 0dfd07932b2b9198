// Jobs that last: accepted, looked at, listed, cancelled, forgotten, and alive after a restart or a kill -9.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test, before, after } from 'node:test';
import { fixture, get, logged, metrics, plain, png, post, raw, sleep, start, until } from './client.mjs';
import { database, skip } from './postgres.mjs';
import { faulty } from './server.mjs';

const small = fixture('none.png'), big = png(3000, 2000);
const slow = { version: 'none', bg_tile: '64', ext: 'jpg' };
// Such a picture has 1500 tiles, each of which takes half a second more on these servers: it is at work until it is cancelled.
const slowly = { program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat,plan=upscaler' } };
const submit = (server, picture, fields = plain, headers = {}) => post(server, '/v1/restore', { picture, name: 'a photo.png', fields: { ...fields, async: 'true' }, headers });
const remove = (server, path) => fetch(server.url + path, { method: 'DELETE' });
const job = async (server, id) => (await get(server, `/v1/jobs/${id}`)).json;
const ended = (server, id, state = 'done') => until(`the job ${state}`, async () => {
  const now = await job(server, id);
  assert.ok(!['failed', 'cancelled', 'done'].includes(now.state) || now.state === state, JSON.stringify(now));
  return now.state === state && now;
});
const result = async (server, id) => Buffer.from(await (await fetch(`${server.url}/v1/jobs/${id}/result`)).arrayBuffer());
const spool = (state) => fs.readdirSync(join(state, 'spool')).filter((name) => /^[0-9a-f]{32}/.test(name));

// The entries of an archive whose files are stored, by its directory at the end (APPNOTE.TXT 4.3).
function unzip(bytes) {
  const end = bytes.lastIndexOf(Buffer.from('PK\x05\x06', 'latin1'));
  const entries = [];
  for (let at = bytes.readUInt32LE(end + 16), i = 0; i < bytes.readUInt16LE(end + 10); i++) {
    assert.equal(bytes.readUInt32LE(at), 0x02014b50);
    assert.equal(bytes.readUInt16LE(at + 10), 0, 'stored');
    const size = bytes.readUInt32LE(at + 24), local = bytes.readUInt32LE(at + 42), length = bytes.readUInt16LE(at + 28);
    const data = local + 30 + bytes.readUInt16LE(local + 26) + bytes.readUInt16LE(local + 28);
    entries.push({ name: bytes.toString('utf8', at + 46, at + 46 + length), data: bytes.subarray(data, data + size) });
    at += 46 + length + bytes.readUInt16LE(at + 30) + bytes.readUInt16LE(at + 32);
  }
  return entries;
}

// Where a server keeps its jobs: here and there all of it is the same to a client.
const stores = [['SQLite', false, () => []], ['PostgreSQL', skip, (context) => ['--store', database(context)]]];

// A state folder that outlives servers.
function folder(context) {
  const path = fs.mkdtempSync(join(tmpdir(), 'restored-jobs-'));
  context.after(() => fs.rmSync(path, { recursive: true, force: true }));
  return path;
}

for (const [name, missing, store] of stores) describe(`one server with ${name}`, { skip: missing }, () => {
  let server;
  before(async () => { server = await start({ ...slowly, args: store() }); });
  after(() => server.stop());

  test('202 with Location; its result is that of the same request without async', async () => {
    const accepted = await submit(server, small);
    assert.equal(accepted.status, 202);
    const { id, links } = accepted.json;
    assert.match(id, /^[0-9a-f]{32}$/);
    assert.equal(accepted.headers.get('location'), `/v1/jobs/${id}`);
    assert.equal(links.self, `/v1/jobs/${id}`);
    const done = await ended(server, id);
    const direct = await post(server, '/v1/restore', { picture: small, name: 'a photo.png', fields: plain });
    const answer = await fetch(server.url + done.links.result);
    assert.equal(answer.headers.get('content-type'), direct.headers.get('content-type'));
    assert.equal(answer.headers.get('etag'), direct.headers.get('etag'));
    assert.equal(answer.headers.get('content-disposition'), direct.headers.get('content-disposition'));
    assert.ok(Buffer.from(await answer.arrayBuffer()).equals(direct.bytes));
    const report = (await post(server, '/v1/restore', { picture: small, fields: plain, headers: { Accept: 'application/json' } })).json;
    for (const key of ['input', 'output', 'options', 'models', 'device', 'precision', 'faces', 'notes'])
      assert.deepEqual(done[key], report[key], key);
    assert.equal(done.progress, 1);
    assert.equal(done.error, null);
    for (const time of ['created', 'started', 'finished', 'expires']) assert.match(done[time], /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    assert.ok(Date.parse(done.expires) - Date.parse(done.finished) === 3600e3);
    const head = await fetch(server.url + done.links.result, { method: 'HEAD' });
    assert.equal(Number(head.headers.get('content-length')), direct.bytes.length);
  });

  test('Prefer: respond-async does the same; async=false wins over it', async () => {
    const answer = await post(server, '/v1/restore', { picture: small, fields: plain, headers: { Prefer: 'wait=1, respond-async' } });
    assert.equal(answer.status, 202);
    assert.equal(answer.headers.get('preference-applied'), 'respond-async');
    assert.equal((await post(server, '/v1/restore', { picture: small, fields: { ...plain, async: 'false' }, headers: { Prefer: 'respond-async' } })).status, 200);
    await ended(server, answer.json.id);
  });

  test('a detection, too; it has no result', async () => {
    const { status, json } = await post(server, '/v1/detect', { picture: small, fields: { async: 'true' } });
    assert.equal(status, 202);
    const done = await ended(server, json.id);
    assert.ok(Array.isArray(done.faces));
    assert.equal(done.links.result, undefined);
    assert.equal((await get(server, '/v1/jobs?limit=1')).json.jobs[0].links.result, undefined);
    assert.equal(done.options.detector, 'detector');
    assert.equal((await get(server, `/v1/jobs/${json.id}/result`)).status, 404);
  });

  test('faces and crops', async () => {
    const picture = fixture('two.png');
    const { json } = await submit(server, picture, { faces_out: 'true', suffix: 'new' });
    const done = await ended(server, json.id);
    const restored = done.faces.filter((face) => face.action !== 'skipped'); // kept ones have theirs, too
    assert.ok(restored.length > 0);
    assert.deepEqual([done.faces_done, done.faces_total], [restored.length, restored.length]);
    assert.equal(done.links.faces.length, 2 * restored.length);
    for (const { id, kind, href } of done.links.faces) {
      const answer = await fetch(server.url + href);
      assert.equal(answer.status, 200);
      assert.match(answer.headers.get('content-disposition'), kind === 'crop' ? /a photo_\d\d\.png/ : /a photo_\d\d_new\.png/);
      assert.deepEqual([...Buffer.from(await answer.arrayBuffer()).subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47], `${id} ${kind}`);
    }
    assert.equal((await get(server, `/v1/jobs/${json.id}/faces/99`)).status, 404);
    assert.equal((await get(server, `/v1/jobs/${json.id}/faces/0?kind=hat`)).status, 400);
  });

  test('a running job is cancelled, a waiting one, too; a second DELETE forgets it', async () => {
    const ids = [];
    for (let i = 0; i < 10; i++) ids.push((await submit(server, big, slow)).json.id);
    // whichever: of several pictures that are read at once the first that is ready goes first
    await until('a running job', async () => (await Promise.all(ids.map((id) => job(server, id)))).some(({ stage, tiles_done, tiles_total }) => stage === 'background' && tiles_done < tiles_total / 2));
    assert.equal((await get(server, `/v1/jobs/${ids[0]}/result`)).status, 409);
    const last = await job(server, ids[9]);
    assert.equal(last.state, 'queued');
    assert.equal(last.options.bg_upsampler, 'upscaler', 'the configured default, by its name');
    assert.equal(last.options.version, 'none');
    assert.ok(last.position >= 0 && last.eta_seconds >= 0);
    for (const id of ids) assert.equal((await remove(server, `/v1/jobs/${id}`)).status, 200);
    for (const id of ids) await ended(server, id, 'cancelled');
    const { error, tiles_done, faces_total } = await job(server, ids[0]);
    assert.deepEqual([error, tiles_done, faces_total], [null, null, null]);
    assert.equal((await remove(server, `/v1/jobs/${ids[0]}`)).status, 204);
    assert.equal((await get(server, `/v1/jobs/${ids[0]}`)).status, 404);
    assert.equal((await remove(server, `/v1/jobs/${ids[0]}`)).status, 404);
  });

  test('lists: newest first, pages, states, batches, since', async () => {
    const since = new Date().toISOString(), ids = [];
    for (let i = 0; i < 5; i++) ids.push((await submit(server, small, { ...plain, batch: i % 2 ? 'odd' : 'even' })).json.id);
    for (const id of ids) await ended(server, id);
    const all = [];
    let path = `/v1/jobs?limit=2&since=${since}`;
    for (; path; ) {
      const { json } = await get(server, path);
      all.push(...json.jobs.map(({ id }) => id));
      path = json.next;
    }
    assert.deepEqual(all, [...ids].reverse());
    assert.deepEqual((await get(server, '/v1/jobs?batch=odd')).json.jobs.map(({ id }) => id), [ids[3], ids[1]]);
    assert.equal((await get(server, '/v1/jobs?batch=odd&state=queued,running')).json.jobs.length, 0);
    for (const wrong of ['limit=0', 'limit=x', 'limit=%201', 'limit=', 'limit', 'state=mad', 'since=yesterday', 'after=me'])
      assert.match((await get(server, `/v1/jobs?${wrong}`)).json.detail, /^(limit|state|since|after): ".*" is not allowed; allowed: /, wrong);
    const { next } = (await get(server, `/v1/jobs?since=${since.replace('Z', '%2B00:00')}&batch=odd&state=done,failed,done&limit=1`)).json;
    assert.deepEqual((await get(server, next)).json, { jobs: (await get(server, '/v1/jobs?batch=odd')).json.jobs.slice(1), next: null });
    const batch = (await get(server, '/v1/batches/even')).json;
    assert.equal(batch.jobs, 3);
    assert.equal(batch.done, 3);
    assert.equal(batch.progress, 1);
    assert.equal(batch.eta_seconds, null, 'nothing is left to do');
    for (const { id, links } of (await get(server, '/v1/jobs?batch=odd')).json.jobs)
      assert.deepEqual(links, { self: `/v1/jobs/${id}`, result: `/v1/jobs/${id}/result` });
    assert.equal((await get(server, '/v1/batches/none')).status, 404);
  });

  test('an argument that a path does not know, or that is sent twice, is refused by its name', async () => {
    const { id } = (await submit(server, fixture('two.png'), { faces_out: 'true', batch: 'strict' })).json;
    await ended(server, id);
    for (const path of ['jobs', `jobs/${id}`, `jobs/${id}/result`, `jobs/${id}/faces/0`, `jobs/${id}/events`, 'events', 'batches/strict', 'batches/strict/results.zip', 'devices', 'models', 'capabilities']) {
      const answer = await get(server, `/v1/${path}?colour=1`);
      assert.equal(answer.status, 400, path);
      assert.match(answer.json.detail, /^colour: there is no such argument; /, path);
    }
    for (const path of [`jobs/${id}`, 'batches/strict']) assert.equal((await remove(server, `/v1/${path}?force=1`)).status, 400);
    for (const [path, name] of [['jobs?limit=1&limit=2', 'limit'], ['jobs?state=done&batch=strict&state=failed', 'state'], [`jobs/${id}/faces/0?kind=crop&kind=crop`, 'kind'], ['events?last_event_id=a-1&last_event_id=a-2', 'last_event_id']]) {
      const answer = await get(server, `/v1/${path}`);
      assert.equal(answer.status, 400, path);
      assert.equal(answer.json.detail, `${name}: sent more than once; once is allowed`);
    }
    for (const path of [`jobs/${id}?`, `jobs/${id}/faces/0?kind=crop`, 'jobs?limit=1']) assert.equal((await fetch(`${server.url}/v1/${path}`)).status, 200, path);
  });

  test('the results of a batch in one file, with names of their own', async () => {
    const names = ['föto.png', 'a photo.png', 'a photo.png', '../../etc/passwd.png', 'A Photo.PNG'];
    for (const name of names) {
      const { json } = await post(server, '/v1/restore', { picture: small, name, fields: { ...plain, batch: 'zip', suffix: 'x' } });
      await ended(server, json.id);
    }
    const one = (await get(server, '/v1/jobs?batch=zip&limit=1')).json.jobs[0].id;
    const answer = await fetch(`${server.url}/v1/batches/zip/results.zip`);
    assert.equal(answer.headers.get('content-type'), 'application/zip');
    const entries = unzip(Buffer.from(await answer.arrayBuffer()));
    assert.deepEqual(entries.map(({ name }) => name), ['föto_x.png', 'a photo_x.png', 'a photo_x (2).png', 'passwd_x.png', 'A Photo_x (3).png']);
    const bytes = await result(server, one);
    for (const { data } of entries) assert.ok(data.equals(bytes));
    assert.equal((await get(server, '/v1/batches/nothing/results.zip')).status, 404);
  });

  test('a batch is cancelled as a whole', async () => {
    for (let i = 0; i < 9; i++) await submit(server, big, { ...slow, batch: 'all' });
    const answer = await remove(server, '/v1/batches/all');
    assert.equal(answer.status, 200);
    await until('the end of all', async () => (await get(server, '/v1/batches/all')).json.cancelled === 9);
  });

  test('Idempotency-Key: the same request is the same job, another one is refused', async () => {
    const key = { 'Idempotency-Key': 'order 17' };
    const first = await submit(server, small, plain, key), again = await submit(server, small, plain, key);
    assert.equal(again.status, 202);
    assert.equal(again.json.id, first.json.id);
    const other = await submit(server, fixture('two.png'), plain, key);
    assert.equal(other.status, 422);
    assert.match(other.json.detail, new RegExp(first.json.id));
    for (const field of [{ upscale: '3' }, { batch: 'other' }, { priority: 'low' }])
      assert.equal((await submit(server, small, { ...plain, ...field }, key)).status, 422, JSON.stringify(field));
    const twice = (await raw(server, Buffer.concat([Buffer.from(`POST /v1/restore?async=true HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nIdempotency-Key: a\r\nidempotency-key: b\r\nConnection: close\r\nContent-Length: ${small.length}\r\n\r\n`), small]))).toString();
    assert.match(twice, /^HTTP\/1.1 400 /);
    assert.match(twice, /Idempotency-Key: sent more than once/);
    assert.equal((await submit(server, small, plain, { 'Idempotency-Key': 'x'.repeat(300) })).status, 400);
    await ended(server, first.json.id);
    await remove(server, `/v1/jobs/${first.json.id}`);
    assert.notEqual((await submit(server, small, plain, key)).json.id, first.json.id, 'the key lives as long as the job');
  });

  test('what cannot be restored is refused before, or fails with its reason', async () => {
    assert.equal((await submit(server, Buffer.from('no picture at all'))).status, 415);
    assert.equal((await post(server, '/v1/restore', { picture: small, fields: { batch: 'a b' } })).status, 400);
    assert.equal((await post(server, '/v1/restore', { picture: small, fields: { batch: 'a', async: 'false' } })).status, 400);
    const cut = fixture('two.png').subarray(0, 1500); // its header is fine
    const { status, json } = await submit(server, cut);
    assert.equal(status, 202);
    const failed = await ended(server, json.id, 'failed');
    assert.equal(failed.error.status, 422);
    assert.equal(failed.error.code, 'corrupt');
    assert.equal(failed.error.instance, `/v1/jobs/${json.id}`);
    const none = await get(server, `/v1/jobs/${json.id}/result`);
    assert.equal(none.status, 409);
    assert.match(none.json.detail, /^The job has failed, and has no result/);
    assert.equal((await get(server, '/v1/jobs/0123456789abcdef0123456789abcdef')).status, 404);
    assert.equal((await get(server, '/v1/jobs/..%2f..%2fetc%2fpasswd')).status, 404);
  });
});

test('a job waits until it begins on a device, for whoever looks', { timeout: 600000 }, async (context) => {
  const server = await start({ context, ...slowly, args: ['--drain_seconds', '0'] }), ids = [];
  for (let i = 0; i < 4; i++) ids.push((await submit(server, big, { ...slow, batch: 'b2' })).json.id);
  const look = async () => (await Promise.all(ids.map((id) => job(server, id)))).map(({ id, state, started, attempts }) => ({ id, state, started, attempts }));
  const list = async (query) => (await get(server, `/v1/jobs?batch=b2&${query}`)).json;
  // the waiting ones are at hand (claimed, in memory); views between which nothing changed must agree
  const same = await until('views between which no job began', async () => {
    const depth = (await metrics(server)).get('restored_queue_depth'), before = await look();
    const views = { all: await list(''), queued: await list('state=queued'), running: await list('state=running'), page: await list('state=queued&limit=1'), batch: (await get(server, '/v1/batches/b2')).json, metrics: await metrics(server) };
    const waits = before.filter(({ state }) => state === 'queued');
    return depth > 0 && waits.length > 0 && waits.length < 4 && JSON.stringify(await look()) === JSON.stringify(before) && { ...views, before, waits, runs: before.filter(({ state }) => state === 'running') };
  });
  const { before, waits, runs } = same, rows = ({ jobs }) => jobs.map(({ id, state, started, attempts }) => ({ id, state, started, attempts })).reverse();
  assert.equal(waits.length + runs.length, 4);
  assert.ok(waits.every(({ started, attempts }) => started === null && attempts === 0) && runs.every(({ started, attempts }) => started && attempts === 1), JSON.stringify(before));
  assert.deepEqual(rows(same.all), before);
  assert.deepEqual(rows(same.queued), waits);
  assert.deepEqual(rows(same.running), runs);
  assert.deepEqual(rows(same.page), waits.slice(-1));
  assert.equal(same.page.next !== null, waits.length > 1);
  assert.deepEqual([same.batch.queued, same.batch.running], [waits.length, runs.length]);
  assert.deepEqual(['queued', 'running'].map((state) => same.metrics.get(`restored_async_jobs{state="${state}"}`)), [waits.length, runs.length]);
  assert.ok(same.metrics.get('restored_async_oldest_seconds') > 0);
  assert.match((await get(server, `/v1/jobs/${waits.at(-1).id}/result`)).json.detail, /^the job waits/i);

  // one that begins later says when it did, one that never begins says nothing
  const [never, last] = waits.length > 1 ? [waits[0].id, waits.at(-1).id] : [null, waits[0].id];
  const from = Date.now();
  assert.equal((await job(server, last)).state, 'queued');
  if (never) await remove(server, `/v1/jobs/${never}`);
  for (const { id } of before) if (id !== last && id !== never) await remove(server, `/v1/jobs/${id}`);
  const begun = await until('the last one at work', async () => { const now = await job(server, last); return now.state === 'running' && now; });
  assert.ok(Date.parse(begun.started) >= from, `${begun.started} ${from}`);
  await remove(server, `/v1/jobs/${last}`);
  const over = await ended(server, last, 'cancelled');
  assert.equal(over.started, begun.started);
  if (never) assert.equal((await ended(server, never, 'cancelled')).started, null);
  await server.stop();
});

for (const [name, missing, store] of stores) test(`${name}: a restart: what waited and what ran goes on, in order; results stay`, { timeout: 600000, skip: missing }, async (context) => {
  const state = folder(context), args = [...store(context), '--state_dir', state, '--drain_seconds', '0'];
  let server = await start({ context, ...slowly, args });
  const before = (await submit(server, small)).json.id;
  await ended(server, before);
  const bytes = await result(server, before);
  const long = (await submit(server, big, slow)).json.id, ids = [];
  await until('a running job', async () => (await job(server, long)).stage === 'background');
  for (let i = 0; i < 12; i++) ids.push((await submit(server, small)).json.id);
  await server.stop();
  assert.match(server.log(), new RegExp(`info job id=${long} state=queued .*text="the server is shutting down; the job goes on after the next start"`));
  assert.doesNotMatch(server.log(), / job id=.* state=cancelled/);
  const again = Date.now();
  server = await start({ context, ...slowly, args });
  assert.ok((await result(server, before)).equals(bytes));
  assert.ok((await job(server, long)).attempts <= 1, 'a stop is no failed attempt');
  await remove(server, `/v1/jobs/${long}`);
  const done = [];
  for (const id of ids) done.push(await ended(server, id));
  for (const id of ids) assert.ok((await result(server, id)).equals(bytes));
  for (const { created, timings_ms } of done) assert.ok(timings_ms.queue >= again - Date.parse(created), `all of its wait, that in the store, too: ${timings_ms.queue} ms of ${again - Date.parse(created)}`);
  const starts = done.map(({ started }) => started);
  // of those at hand (six at most) the first whose picture is read begins; another comes to hand when one has ended
  starts.forEach((at, k) => assert.ok(starts.slice(0, k).filter((earlier) => earlier <= at).length >= k - 5, `${k}: ${starts}`));
  await server.stop();
});

test('kill -9 loses nothing; three times at the same picture, and it is failed', { timeout: 600000 }, async (context) => {
  const state = folder(context), args = ['--state_dir', state];
  let server = await start({ context, ...slowly, args });
  const poison = (await submit(server, big, slow)).json.id, others = [];
  await until('a running job', async () => (await job(server, poison)).stage === 'background');
  for (let i = 0; i < 3; i++) others.push((await submit(server, big, slow)).json.id);
  await until('the others at hand', async () => (await metrics(server)).get('restored_queue_depth') === 3);
  for (let i = 1; i <= 3; i++) {
    await until('a running job', async () => (await job(server, poison)).stage === 'background');
    assert.equal((await job(server, poison)).attempts, i);
    server.process.kill('SIGKILL');
    await new Promise((done) => server.process.on('exit', done));
    server = await start({ context, ...slowly, args });
  }
  const failed = await ended(server, poison, 'failed');
  assert.match(failed.error.detail, /3 (times|attempts)/i);
  assert.equal((await metrics(server)).get('restored_jobs_total{state="failed"}'), 1, 'counted, though no worker ended it');
  for (const id of others) { // they were about to begin when it "crashed" the server
    const { state, attempts } = await job(server, id);
    assert.ok(['queued', 'running'].includes(state) && attempts <= 2, `${state} ${attempts}`);
    await remove(server, `/v1/jobs/${id}`);
    await ended(server, id, 'cancelled');
    await remove(server, `/v1/jobs/${id}`);
  }
  const good = (await submit(server, small)).json.id;
  await ended(server, good);
  await remove(server, `/v1/jobs/${good}`);
  assert.deepEqual(spool(state), []);
  await server.stop();
});

test('results expire, and then they are gone', { timeout: 600000 }, async (context) => {
  const state = folder(context);
  const server = await start({ context, args: ['--state_dir', state, '--result_ttl', '1'] });
  const { id } = (await submit(server, small)).json;
  await until('the end of the result', async () => { // a slow machine may not see it in its second
    const { status } = await get(server, `/v1/jobs/${id}/result`);
    assert.ok([409, 200, 410].includes(status), `${status}`);
    return status === 410;
  });
  await until('an empty spool', () => spool(state).length === 0);
  await server.stop();
});

test('a full spool is 507, and harms no job that is there', { timeout: 600000 }, async (context) => {
  const server = await start({ context, args: ['--spool_max_bytes', '1MiB'] });
  const { id } = (await submit(server, small)).json;
  const refused = await submit(server, big);
  assert.equal(refused.status, 507);
  assert.equal(refused.json.code, 'full');
  await ended(server, id);
  assert.equal((await post(server, '/v1/restore', { picture: small, fields: plain })).status, 200);
  await server.stop();
});

test('a result whose file is gone is no expired one; after the next start its job has failed', { timeout: 600000 }, async (context) => {
  const state = folder(context), args = ['--state_dir', state];
  let server = await start({ context, args });
  const ids = [];
  for (let i = 0; i < 2; i++) ids.push((await submit(server, small)).json.id);
  for (const id of ids) await ended(server, id);
  fs.rmSync(join(state, 'spool', `${ids[0]}.output`));
  const gone = await get(server, `/v1/jobs/${ids[0]}/result`);
  assert.equal(gone.status, 500);
  assert.equal(gone.json.code, 'internal');
  assert.match(gone.json.detail, /^The result of this job is lost: /);
  await server.stop();
  server = await start({ context, args });
  const { state: now, error, links } = await job(server, ids[0]);
  assert.deepEqual([now, error.code, links.result], ['failed', 'internal', undefined]);
  assert.match(error.detail, /^The result of this job is lost: /);
  assert.equal((await get(server, `/v1/jobs/${ids[0]}/result`)).status, 409);
  assert.equal((await job(server, ids[1])).state, 'done');
  assert.ok((await result(server, ids[1])).length > 0);
  assert.match(server.log(), /warn spool-check removed=0 missing=1 lost=1 /);
  await server.stop();
});

test('limits that SIGHUP changes hold for asynchronous jobs, too', { timeout: 600000 }, async (context) => {
  const state = folder(context), config = join(state, 'restored.conf');
  fs.writeFileSync(config, 'input_pixels = 100\n');
  const server = await start({ context, args: ['--config', config, '--state_dir', state] });
  assert.equal((await submit(server, small)).status, 422);
  fs.writeFileSync(config, 'input_pixels = 1MP\n');
  server.process.kill('SIGHUP');
  const { id } = await until('the new limit', async () => { const answer = await submit(server, small); return answer.status === 202 && answer.json; });
  await ended(server, id);
  await server.stop();
});

test('two servers on one state_dir: the second refuses', async (context) => {
  const state = folder(context);
  const server = await start({ context, args: ['--state_dir', state] });
  await assert.rejects(start({ context, args: ['--state_dir', state] }), /state_dir|another server/);
  await server.stop();
});

for (const [name, missing, store] of stores) test(`${name}: more waiting jobs than async_queue are 429`, { timeout: 600000, skip: missing }, async (context) => {
  const server = await start({ context, ...slowly, args: [...store(context), '--async_queue', '2', '--drain_seconds', '0'] });
  let refused;
  for (let i = 0; i < 30 && !refused; i++) {
    const answer = await submit(server, big, slow);
    if (answer.status !== 202) refused = answer;
  }
  assert.equal(refused.status, 429);
  assert.match(refused.headers.get('retry-after'), /^\d+$/);
  await server.stop();
});
