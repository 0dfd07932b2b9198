// restored store: a store of SQLite goes to PostgreSQL, from there by pg_dump to another one, and back, killed on the way at many points; every job is there once, with its
// picture or result, its place in the queue and its Idempotency-Key.
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fixture, get, plain, png, post, start, until } from './client.mjs';
import { database, skip, sql } from './postgres.mjs';
import { binary, faulty } from './server.mjs';

const env = { ...process.env, RESTORED_CONFIG: '/dev/null' };
function store(...words) {
  return new Promise((done) => execFile(binary, ['store', ...words], { env }, (failed, out, error) => done({ code: failed ? failed.code ?? failed.signal : 0, out, error })));
}
// Moves one job at a time and is killed -9 as soon as it has told of `lines` of them; false: it was done before. nice: on a single
// processor, too, this process is to hear of a job before all of them have gone.
function killed(words, lines) {
  return new Promise((done) => {
    const child = spawn('nice', ['-n', '19', binary, 'store', 'move', '--group', '1', ...words], { env, stdio: ['ignore', 'ignore', 'pipe'] });
    let text = '';
    child.stderr.on('data', (data) => { text += data; if (text.split('\n').length > lines) child.kill('SIGKILL'); });
    child.on('exit', (code, signal) => { assert.ok(signal === 'SIGKILL' || code === 0, text); done(signal === 'SIGKILL'); });
  });
}
const folder = (context) => {
  const path = fs.mkdtempSync(join(tmpdir(), 'restored-store-'));
  context.after(() => fs.rmSync(path, { recursive: true, force: true }));
  return path;
};
const submit = (server, picture, fields, key) => post(server, '/v1/restore', { picture, name: 'a photo.png', fields: { ...fields, async: 'true' }, headers: key ? { 'Idempotency-Key': key } : {} });
const sum = (bytes) => createHash('sha256').update(bytes).digest('hex');
const result = async (server, id) => { const answer = await fetch(`${server.url}/v1/jobs/${id}/result`); return answer.status === 200 ? sum(Buffer.from(await answer.arrayBuffer())) : answer.status; };
const list = async (server) => (await get(server, '/v1/jobs?limit=1000')).json.jobs;
const summary = (waiting, running, done, failed, cancelled) => `${waiting + running + done + failed + cancelled} jobs: ${waiting} waiting, ${running} running, ${done} done, ${failed} failed, ${cancelled} cancelled`;

// A state folder with jobs in every state: 6 done, 1 failed, 2 cancelled, the rest waits or was at work when the server was killed.
async function fill(state) {
  const server = await start({ program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat,plan=upscaler' }, args: ['--state_dir', state, '--log_level', 'warn'] });
  const known = { done: new Map(), waiting: [], keys: new Map() };
  const slow = { version: 'none', bg_tile: '64', ext: 'jpg' };
  for (let i = 0; i < 6; i++) {
    const { json } = await submit(server, i % 2 ? fixture('none.png') : png(60 + i, 50), plain, `done ${i}`);
    known.keys.set(`done ${i}`, json.id);
    known.done.set(json.id, '');
  }
  for (const id of known.done.keys()) {
    await until(`${id} is done`, async () => (await get(server, `/v1/jobs/${id}`)).json.state === 'done');
    known.done.set(id, await result(server, id));
  }
  const big = (await submit(server, png(3000, 2000), slow)).json.id; // keeps the only worker busy, with half a second for each of 1500 tiles
  await until('the long one runs', async () => (await get(server, `/v1/jobs/${big}`)).json.state === 'running');
  for (let i = 0; i < 12; i++) {
    const { json } = await submit(server, png(40 + i, 30), plain, `waiting ${i}`);
    known.keys.set(`waiting ${i}`, json.id);
    known.waiting.push(json.id);
  }
  for (const id of known.waiting.splice(10)) assert.equal((await fetch(`${server.url}/v1/jobs/${id}`, { method: 'DELETE' })).status, 200);
  known.big = big;
  server.process.kill('SIGKILL');
  await assert.rejects(server.stop(), /SIGKILL/); // which removes its folders
  return known;
}

test('jobs go from SQLite to PostgreSQL and back; kill -9 on the way loses and doubles none', { skip, timeout: 600e3 }, async (context) => {
  const state = folder(context), other = folder(context), url = database(context);
  const known = await fill(state);
  const counted = await store('check', '--state_dir', state);
  assert.equal(counted.code, 0, counted.out + counted.error);
  const [all] = counted.out.split('\n');
  assert.match(all, /^19 jobs: \d+ waiting, \d+ running, 6 done, 0 failed, 2 cancelled$/);

  // A server that is started too early, with the setting changed and nothing moved yet, leaves all pictures for the move.
  await (await start({ args: ['--state_dir', state, '--store', database(context), '--log_level', 'warn'], ready: false })).stop();

  const there = ['--from', `sqlite:${state}`, '--to', url];
  let kills = 0;
  for (const lines of [1, 2, 3, 4, 5, 4]) kills += await killed(there, lines);
  assert.ok(kills >= 1, `${kills} kills`);
  const moved = await store('move', ...there);
  assert.equal(moved.code, 0, moved.error);
  assert.match(moved.out, /missing: 0/);
  assert.equal((await store('check', '--state_dir', state)).out.split('\n')[0], summary(0, 0, 0, 0, 0));
  assert.deepEqual(fs.readdirSync(join(state, 'spool')).filter((name) => /^[0-9a-f]{32}/.test(name)), []);
  const checked = await store('check', '--store', url);
  assert.equal(checked.code, 0, checked.out + checked.error);
  assert.match(checked.out, /^19 jobs: .* 6 done, 0 failed, 2 cancelled\n17 pictures, \d+ bytes; missing: 0; damaged rows: 0\n$/);
  assert.equal(sql(url, 'SELECT count(*) - count(DISTINCT id) FROM jobs'), '0');
  assert.equal(sql(url, 'SELECT count(*) FROM payloads'), '17');

  // A backup as docs/cluster.md has it, into an empty database; what is in it is all there is.
  const restored = database(context), dump = join(folder(context), 'jobs.dump');
  execFileSync('pg_dump', ['--format=custom', '--file', dump, url]);
  execFileSync('pg_restore', ['--exit-on-error', '--dbname', restored, dump]);

  const back = ['--from', restored, '--to', `sqlite:${other}`];
  kills = 0;
  for (const lines of [2, 5, 1, 4]) kills += await killed(back, lines);
  assert.ok(kills >= 1, `${kills} kills`);
  const returned = await store('move', ...back);
  assert.equal(returned.code, 0, returned.error);
  assert.equal(sql(restored, 'SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM results) + (SELECT count(*) FROM chunks)'), '0');
  assert.equal(sql(url, 'SELECT count(*) FROM jobs'), '19', 'the one that was backed up is as it was');

  const server = await start({ args: ['--state_dir', other, '--log_level', 'warn'], context });
  const jobs = await list(server);
  assert.equal(jobs.length, 19);
  for (const [id, hash] of known.done) assert.equal(await result(server, id), hash, `the result of ${id}`);
  for (const [key, id] of known.keys) {
    const i = Number(key.split(' ')[1]), picture = key.startsWith('done') ? (i % 2 ? fixture('none.png') : png(60 + i, 50)) : png(40 + i, 30);
    const again = await submit(server, picture, plain, key);
    assert.equal(again.json.id, id, `${key} is known by its key`);
  }
  await fetch(`${server.url}/v1/jobs/${known.big}`, { method: 'DELETE' }); // it would take long
  const ends = [];
  for (const id of known.waiting) {
    await until(`${id} is done`, async () => (await get(server, `/v1/jobs/${id}`)).json.state === 'done');
    ends.push((await get(server, `/v1/jobs/${id}`)).json.started);
  }
  // of those at hand (six at most) the first whose picture is read begins
  ends.forEach((at, k) => assert.ok(ends.slice(0, k).filter((earlier) => earlier <= at).length >= k - 5, `${k}: they did not begin in the order in which they waited: ${ends}`));
  await server.stop();
});

test('check changes nothing, not even where there are no tables yet or older ones', { skip, timeout: 120e3 }, async (context) => {
  const url = database(context), check = () => store('check', '--store', url);
  const none = await check();
  assert.deepEqual([none.code, none.out], [0, 'there are no tables in this database yet; the first server that starts makes them\n']);
  assert.equal(sql(url, `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`), '0');
  assert.equal((await store('migrate', '--store', url)).code, 0);
  assert.match((await check()).out, /^0 jobs: /);
  const older = sql(url, 'UPDATE schema_version SET version = version - 1 RETURNING version'), told = await check();
  assert.equal(told.code, 1, told.out);
  assert.match(told.error, /older ones \(format \d+; this program's is \d+\): restored store migrate/);
  assert.equal(sql(url, 'SELECT version FROM schema_version'), older);
});

test('what cannot be moved is told', { skip, timeout: 120e3 }, async (context) => {
  const state = folder(context), url = database(context);
  for (const [words, code, pattern] of [
    [['move', '--from', 'sqlite'], 2, /--from STORE and --to STORE/], [['move', '--from', 'mysql://x', '--to', url], 2, /is no store/],
    [['check', '--state_dir', state], 1, /there is no store of jobs/], [['mend'], 2, /check, migrate or move/],
    [['move', '--from', `sqlite:${state}`, '--to', url, '--group', '0'], 2, /--group: 1 to/],
    [['check', '--store', url.replace(/:\d+\//, ':1/')], 1, /database/]]) {
    const said = await store(...words);
    assert.equal(said.code, code, `${words}: ${said.error}`);
    assert.match(said.error, pattern);
  }
  assert.equal((await store('migrate', '--store', url)).out, 'the store is up to date\n');
  const server = await start({ args: ['--state_dir', state], context });
  const accepted = await submit(server, png(30, 20), plain);
  await until('it is done', async () => (await get(server, `/v1/jobs/${accepted.json.id}`)).json.state === 'done');
  const busy = await store('move', '--from', `sqlite:${state}`, '--to', url);
  assert.equal(busy.code, 1);
  assert.match(busy.error, /a server is running with/);
  await server.stop();
  fs.unlinkSync(join(state, 'spool', fs.readdirSync(join(state, 'spool')).find((name) => /^[0-9a-f]{32}/.test(name))));
  const checked = await store('check', '--state_dir', state);
  assert.equal(checked.code, 1);
  assert.match(checked.out, /missing: 1/);
  assert.equal((await store('move', '--quiet', '--from', `sqlite:${state}`, '--to', url)).code, 0);
});
