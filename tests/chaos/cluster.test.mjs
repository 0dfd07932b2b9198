// Two front ends and four workers on one PostgreSQL are killed one after the other, while clients go on and connections are cut: the
// short form of cluster.mjs, which goes on for as long as it is told (make chaos).
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { once } from 'node:events';
import net from 'node:net';
import { until } from '../api/client.mjs';
import { Cluster, startNetwork } from './cluster.mjs';

test('the network between hands on every byte in order, and has no more listeners than it needs', { timeout: 120e3 }, async (context) => {
  const warnings = [], note = ({ name }) => { if (name === 'MaxListenersExceededWarning') warnings.push(name); }, parts = [];
  process.on('warning', note);
  context.after(() => process.off('warning', note));
  const server = net.createServer((socket) => { // it reads nothing until it is told to
    socket.pause();
    socket.on('data', (data) => parts.push(data));
    setTimeout(() => socket.resume(), 300);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  context.after(() => server.close());
  const network = await startNetwork(server.address().port, () => 0.5);
  context.after(() => network.stop());
  network.delay = 20;
  const client = net.connect({ port: network.port, host: '127.0.0.1' }), sent = Buffer.alloc(16 << 20);
  for (let i = 0; i < sent.length; i += 4) sent.writeUInt32LE(i, i);
  client.end(sent);
  await once(client, 'close');
  await until('all of it is there', () => parts.reduce((sum, { length }) => sum + length, 0) === sent.length);
  assert.ok(Buffer.concat(parts).equals(sent));
  assert.deepEqual(warnings, []);
});

test('a wait in vain tells what the servers have said last', async () => {
  const cluster = new Cluster({ seed: 1 });
  cluster.servers = [{ last: () => '--- worker 0, its last lines:\nno room' }];
  assert.throws(() => cluster.explain(new Error('waited in vain')), /waited in vain\n--- worker 0, its last lines:\nno room/);
  await cluster.stop().catch(() => {});
});

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
