// A roll-out in small: an older program (OLD=its path) and this one at work on one PostgreSQL, as docs/cluster.md tells: first all old, then
// a new worker beside the old one, old front ends with new workers, new ones with old workers, and all of them. Every job must be done,
// with the same pixels. Run it by: OLD=/path/to/restored sh tests/postgres.sh node tests/chaos/rollout.mjs
import assert from 'node:assert/strict';
import { decodePng, get, plain, png, post, until } from '../api/client.mjs';
import { database, sql } from '../api/postgres.mjs';
import { binary, fixtureModels, startServer } from '../api/server.mjs';

const old = process.env.OLD, url = database(), picture = png(60, 40), servers = [], results = new Set();
assert.ok(old, 'OLD names an older program');
// Of a PNG, whose file may differ between versions.
const pixels = (bytes) => JSON.stringify(decodePng(bytes), (key, value) => (ArrayBuffer.isView(value) ? Buffer.from(value).toString('base64') : value));
async function up(program, role) {
  const place = role === 'worker' ? [...fixtureModels, '--metrics_listen', '127.0.0.1:0'] : [];
  const server = await startServer({ program, args: ['--store', url, '--device', 'cpu', '--cpu_threads', '1', '--role', role, ...place] });
  servers.push(server);
  return server;
}
const workers = (count) => until(`${count} workers`, () => sql(url, "SELECT count(*) FROM workers WHERE about::json ->> 'role' = 'worker'") === String(count));

// Some jobs, and one that is waited for.
async function jobs(front, what) {
  const ids = [];
  await until('it sees a worker', async () => (await fetch(`${front.url}/readyz`)).status === 200);
  for (let i = 0; i < 6; i++) {
    const answer = await post(front, '/v1/restore', { picture, fields: { ...plain, async: 'true' }, headers: { 'Idempotency-Key': `${what} ${i}` } });
    assert.equal(answer.status, 202, String(answer.bytes));
    ids.push(answer.json.id);
  }
  for (const id of ids) {
    await until('it is done', async () => {
      const job = (await get(front, `/v1/jobs/${id}`)).json;
      assert.notEqual(job.state, 'failed', JSON.stringify(job.error));
      return job.state === 'done';
    });
    results.add(pixels(Buffer.from(await (await fetch(`${front.url}/v1/jobs/${id}/result`)).arrayBuffer())));
  }
  const waited = await post(front, '/v1/restore', { picture, fields: plain });
  assert.equal(waited.status, 200, String(waited.bytes));
  results.add(pixels(waited.bytes));
  for (const path of ['/v1/models', '/v1/devices', '/v1/capabilities', '/metrics']) assert.equal((await fetch(front.url + path)).status, 200, path);
  console.log(`${what}: ${ids.length + 1} done; tables ${sql(url, 'SELECT version FROM schema_version')}`);
}

try {
  const oldFront = await up(old, 'front'), oldWorker = await up(old, 'worker');
  await workers(1);
  await jobs(oldFront, 'front end old, worker old');
  const newWorker = await up(binary, 'worker');
  await workers(2);
  await jobs(oldFront, 'front end old, workers old and new');
  await oldWorker.stop();
  await jobs(oldFront, 'front end old, worker new');
  const newFront = await up(binary, 'front');
  await up(old, 'worker');
  await newWorker.stop();
  await workers(1);
  await jobs(newFront, 'front end new, worker old, started after the change of the tables');
  const again = await up(old, 'front');
  await jobs(again, 'front end old, started after the change of the tables');
  await up(binary, 'worker');
  await workers(2);
  await jobs(newFront, 'all of them');
  assert.equal(results.size, 1, 'the pixels are the same');
} finally {
  await Promise.all(servers.map((server) => server.stop()));
}
console.log('every job was done, with the same pixels');
