// Two front ends and four workers on one PostgreSQL are killed one after the other, while clients go on and connections are cut: the
// short form of cluster.mjs, which goes on for as long as it is told (make chaos).
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../api/client.mjs';
import { Cluster } from './cluster.mjs';

test('front ends, workers and the database killed: no job is lost, stuck, wrong or done twice', { timeout: 900e3 }, async (context) => {
  const seed = Number(process.env.CHAOS_SEED ?? Date.now() % 1e9);
  context.diagnostic(`CHAOS_SEED=${seed}`);
  const cluster = new Cluster({ seed });
  context.after(() => cluster.stop());
  if (!(await cluster.start())) { context.skip('no PostgreSQL is installed'); return; }
  let going = true;
  const clients = Array.from({ length: 4 }, async (_, client) => {
    for (let i = 0; going; i++) await cluster.finish(await cluster.submit(Math.floor(cluster.next() * cluster.pictures.length), `${client}-${i}`));
  });
  const trouble = (async () => {
    try {
      for (const role of ['worker', 'front', 'database', 'worker']) {
        const before = cluster.accepted.size; // each time some have come since
        await until('some more jobs are accepted', () => cluster.accepted.size >= before + 3);
        cluster.network.delay = 20 * cluster.next();
        await cluster.strike(role);
        cluster.network.cut(0.3);
      }
    } finally {
      cluster.network.delay = 0;
      going = false;
    }
  })();
  await Promise.all([...clients, trouble]);
  await cluster.check();
  assert.equal(cluster.finished, cluster.accepted.size);
  context.diagnostic(`${cluster.finished} jobs; connections cut: ${cluster.network.cuts}; asked again: ${cluster.retries}`);
});
