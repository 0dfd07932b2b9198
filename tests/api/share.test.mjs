// One picture's tiles shared by several servers: the same bytes as one server's, whoever computes them, and whoever dies. Each tile
// takes half a second here, so that there is time for others to help; the processors are idle meanwhile.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { fixture, get, metrics, png, pngOf, post, start, until } from './client.mjs';
import { database, skip, sql } from './postgres.mjs';
import { faulty } from './server.mjs';

const small = png(192, 128), picture = png(320, 256), faces = fixture('two.png');
const deep = pngOf(256, 192, 3, Uint16Array.from({ length: 256 * 192 * 3 }, (_, i) => 32768 + 30000 * Math.sin(i / 700)));
const blended = { version: 'none', bg_tile: '64', ext: 'png' };
const exact = { ...blended, bg_upsampler: 'srvgg_x2' };
const slowly = { RESTORED_FAULTS: 'slow@run:1,repeat,plan=upscaler;slow@run:1,repeat,plan=srvgg_x2' };
let url, servers = [];
const one = (args = [], env = slowly) => start({ program: faulty, env,
  args: ['--store', url, '--device', 'cpu', '--cpu_threads', '1', '--share_pixels', '10000', ...args] });
const started = async (starting) => { const server = await starting; servers.push(server); return server; };
const submit = async (server, image, fields) => {
  const answer = await post(server, '/v1/restore', { picture: image, name: 'a.png', fields: { ...fields, async: 'true' } });
  assert.equal(answer.status, 202, String(answer.bytes));
  return answer.json.id;
};
const result = async (server, id) => {
  const job = await until(`${id} is done`, async () => {
    const now = (await get(server, `/v1/jobs/${id}`)).json;
    assert.ok(!['failed', 'cancelled'].includes(now?.state), JSON.stringify(now));
    return now?.state === 'done' && now;
  });
  const answer = await fetch(`${server.url}/v1/jobs/${id}/result`);
  return { job, bytes: Buffer.from(await answer.arrayBuffer()) };
};
const tiles = async (direction) => (await Promise.all(servers.map(async (server) => (await metrics(server)).get(`restored_shared_tiles_total{direction="${direction}"}`))))
  .reduce((sum, count) => sum + count, 0);
const ownerOf = (id) => sql(url, `SELECT owner FROM jobs WHERE id = '${id}' AND state = 1`);
// The server that is called so in the tables.
const find = (owner) => servers.find(({ process }) => process.pid === JSON.parse(sql(url, `SELECT about FROM workers WHERE owner = '${owner}'`)).pid);
const kill = (server) => {
  servers = servers.filter((other) => other !== server);
  server.process.kill('SIGKILL');
  return server.stop().catch(() => {});
};
// The tables are made by the first server that wants them: anew where a test has dropped them.
const there = () => sql(url, "SELECT to_regclass('shared_tiles_1') IS NOT NULL AND to_regclass('shared_tasks_1') IS NOT NULL") === 't';
const held = () => there() && sql(url, 'SELECT helper FROM shared_tiles_1 WHERE state = 1 LIMIT 1');
// A job that somebody helps with now, and who. One that ended before that was seen is sent again.
const helped = async (fields) => {
  for (;;) {
    const id = await submit(servers[0], picture, fields);
    const helper = await until('somebody helps', async () => held() || ((await get(servers[0], `/v1/jobs/${id}`)).json.state === 'done' && 'nobody'));
    if (helper !== 'nobody') return { id, helper };
  }
};
const nothingLeft = () => until('no tile is left', () => sql(url, 'SELECT (SELECT count(*) FROM shared_tasks_1) + (SELECT count(*) FROM shared_tiles_1)') === '0');

describe('three servers share a picture', { skip }, () => {
  const alone = new Map();
  // What one server without others makes of it.
  const undisturbed = async (image, fields) => {
    const key = JSON.stringify([image.length, fields]);
    if (!alone.has(key)) {
      const single = await start({ args: ['--device', 'cpu'] });
      const answer = await post(single, '/v1/restore', { picture: image, name: 'a.png', fields });
      await single.stop();
      assert.equal(answer.status, 200, String(answer.bytes));
      alone.set(key, answer.bytes);
    }
    return alone.get(key);
  };
  before(async () => {
    url = database();
    for (const threads of ['1', '2', '1']) await started(one(['--cpu_threads', threads]));
  });
  after(async () => {
    await Promise.allSettled(servers.map((server) => server.stop()));
    sql(process.env.RESTORED_TEST_POSTGRES, `DROP DATABASE ${url.split('/').at(-1)} WITH (FORCE)`);
  });

  for (const [name, image, fields] of [['exact tiles, some with faces over them', faces, { ...exact, version: 'face_64', weight: '1' }],
    ['exact tiles of 16 bits, made smaller', deep, { ...exact, upscale: '1' }], ['blended tiles', png(256, 192), blended]])
    test(`${name}: the bytes of one server`, { timeout: 600000 }, async () => {
      const before = await tiles('received');
      for (let tries = 0; tries < 5 && await tiles('received') === before; tries++) {
        const { job, bytes } = await result(servers[0], await submit(servers[0], image, fields));
        assert.equal(job.attempts, 1);
        assert.ok(bytes.equals(await undisturbed(image, fields)), 'other bytes');
      }
      assert.ok(await tiles('received') > before, 'nobody helped');
      await until('who gave them has counted them', async () => await tiles('given') >= await tiles('received'));
      await nothingLeft();
    });

  // Each server asks every five seconds by itself. All of them are held in that question until the last has come, so none asks again
  // sooner than five seconds after they were let go: who wants tiles before that was called.
  test('workers without a job are called when a picture is shared', { timeout: 600000 }, async () => {
    const letGo = `BEGIN; LOCK TABLE shared_tasks_1; DO $$ BEGIN
      WHILE (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'relation') < ${servers.length} LOOP
        PERFORM pg_sleep(0.05), pg_stat_clear_snapshot(); END LOOP; END $$;
      SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint; COMMIT`;
    let after;
    for (let tries = 0; tries < 5 && !(after < 5000); tries++) { // a busy machine may take five seconds to begin the job
      const then = Number(sql(url, letGo)), id = await submit(servers[0], picture, exact);
      after = await until('somebody asks', () => Number(sql(url, 'SELECT max(wanted) FROM shared_tasks_1'))) - then;
      await get(servers[0], `/v1/jobs/${id}`, { method: 'DELETE' });
      await nothingLeft();
    }
    assert.ok(after < 5000, `asked after ${after} ms`);
  });

  test('another instruction set does not help', { timeout: 600000 }, async () => {
    const all = servers;
    const other = await one(['--cpu_isa', 'base']);
    const driver = async (server) => (await get(server, '/v1/devices')).json.devices.find(({ id }) => id === 'cpu').driver.split(',')[0];
    const same = await driver(other) === await driver(all[0]);
    const id = await submit(other, small, blended);
    await result(other, id);
    const given = (await metrics(other)).get('restored_shared_tiles_total{direction="given"}'), received = (await metrics(other)).get('restored_shared_tiles_total{direction="received"}');
    await other.stop();
    if (!same) assert.deepEqual([given, received], [0, 0]);
  });

  test('kill -9 of a helper: its tiles are computed by others', { timeout: 600000 }, async () => {
    const { id, helper } = await helped(exact);
    assert.notEqual(helper, ownerOf(id));
    await kill(find(helper));
    sql(url, `UPDATE workers SET seen = 0 WHERE owner = '${helper}'`); // 20 seconds are not waited for
    const { job, bytes } = await result(servers[0], id);
    assert.equal(job.attempts, 1);
    assert.ok(bytes.equals(await undisturbed(picture, exact)), 'other bytes');
    await nothingLeft();
  });

  test('kill -9 of the owner: another server does the job, and nothing is left', { timeout: 600000 }, async () => {
    const { id } = await helped(blended);
    const owner = ownerOf(id);
    await kill(find(owner));
    sql(url, `UPDATE workers SET seen = 0 WHERE owner = '${owner}'; UPDATE jobs SET lease = 0 WHERE id = '${id}' AND owner = '${owner}'`);
    const { job, bytes } = await result(servers[0], id);
    assert.equal(job.attempts, 2);
    assert.ok(bytes.equals(await undisturbed(picture, blended)), 'other bytes');
    await nothingLeft();
  });

  test('the tiles are lost in the middle: the job does not fail', { timeout: 600000 }, async () => {
    await started(one());
    for (const tables of ['shared_tiles_1', 'shared_tiles_1, shared_tasks_1']) {
      const { id } = await helped(exact);
      sql(url, `DROP TABLE ${tables}`);
      const { job, bytes } = await result(servers[0], id);
      assert.equal(job.attempts, 1);
      assert.ok(bytes.equals(await undisturbed(picture, exact)), 'other bytes');
      // a task that was left would keep helpers from others' tiles
      await until('no task is left', () => there() && sql(url, 'SELECT count(*) FROM shared_tasks_1') === '0');
    }
  });
});
