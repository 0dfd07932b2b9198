// Who waits for whom: clients take turns, priority=low waits for all others, and what a client is told to wait is true.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { get, metrics, png, post, start, until } from './client.mjs';
import { faulty } from './server.mjs';

const fields = { version: 'none', ext: 'jpg', bg_tile: '64', device: 'cpu' };
const small = png(20, 20), short = png(110, 40); // short: two tiles
const counted = async (server, name) => (await metrics(server)).get(`restored_${name}`) ?? 0;
// Addresses are what a trusted proxy says, so that one machine can be several clients.
const trusting = ['--trusted_proxies', '127.0.0.1'];
const from = (address) => ({ 'x-forwarded-for': address });
// Each tile takes half a second more, however fast the machine is.
const slowly = { program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat,plan=upscaler' } };
const running = (server) => until('a job at work', async () => (await get(server, '/v1/devices')).json.devices.some((d) => d.current_job));

test('one picture does not wait for the thirty of another client', { timeout: 600000 }, async (context) => {
  const server = await start({ context, ...slowly, args: [...trusting, '--device', 'cpu'] });
  const aborts = Array.from({ length: 30 }, () => new AbortController());
  const many = aborts.map(({ signal }) => post(server, '/v1/restore', { picture: short, fields, headers: from('10.0.0.1'), signal }).catch(() => {}));
  await running(server);
  await until('28 that wait', async () => (await counted(server, 'queue_depth')) >= 28 - (await counted(server, 'jobs_total{state="done"}')));
  const before = await counted(server, 'jobs_total{state="done"}');
  const answer = await post(server, '/v1/restore', { picture: small, fields, headers: from('10.0.0.2') });
  const after = await counted(server, 'jobs_total{state="done"}') - 1;
  assert.equal(answer.status, 200);
  // the one at work, one whose turn came first, and one that may have ended while the request was on its way
  assert.ok(after - before <= 3, `${after - before} of the other's were done before it`);
  assert.ok(await counted(server, 'queue_depth') > 0, 'the other still waits');
  for (const abort of aborts) abort.abort();
  await Promise.all(many);
  await server.stop();
});

test('who fills the queue keeps nobody else out', { timeout: 600000 }, async (context) => {
  const server = await start({ context, program: faulty, args: [...trusting, '--queue', '4', '--device', 'cpu'], env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=upscaler' } });
  const abort = new AbortController(), jobs = [];
  const send = (address) => jobs.push(post(server, '/v1/restore', { picture: small, fields, headers: from(address), signal: abort.signal }).catch(() => {}));
  const fits = async (address) => (await post(server, '/v1/estimate', { picture: small, fields, headers: from(address) })).json.fits;
  send('10.0.0.1');
  await running(server);
  for (let i = 0; i < 4; i++) send('10.0.0.1');
  await until('a full queue', async () => (await counted(server, 'queue_depth')) === 4);
  assert.equal((await post(server, '/v1/restore', { picture: small, fields, headers: from('10.0.0.1') })).status, 429);
  assert.deepEqual([await fits('10.0.0.1'), await fits('10.0.0.2')], [false, true]);
  send('10.0.0.2');
  await until('the other waits, too', async () => (await counted(server, 'queue_depth')) === 5);
  assert.equal((await post(server, '/v1/restore', { picture: small, fields, headers: from('10.0.0.2') })).status, 429, 'one place');
  abort.abort();
  await Promise.all(jobs);
});

test('position is the place in the order in which jobs begin', { timeout: 600000 }, async (context) => {
  const server = await start({ context, program: faulty, args: [...trusting, '--device', 'cpu', '--drain_seconds', '0'], env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=upscaler' } });
  const send = async (address) => (await post(server, '/v1/restore', { picture: small, fields: { ...fields, async: 'true' }, headers: from(address) })).json.id;
  const position = async (id) => (await get(server, `/v1/jobs/${id}`)).json.position;
  const many = [];
  many.push(await send('10.0.0.1'));
  await running(server); // and stays there
  for (let i = 0; i < 11; i++) many.push(await send('10.0.0.1'));
  await until('as many in the queue as are taken from the store', async () => (await counted(server, 'queue_depth')) === 5);
  const other = await send('10.0.0.2');
  // two begin, and one of those in the queue has the same turn: of the twelve before it nine let it go first
  assert.equal(await position(other), 3);
  assert.deepEqual(await Promise.all(many.map(position)), [null, 0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]);
});

test('priority=low waits for what came later', { timeout: 600000 }, async (context) => {
  // the first stays at work until its client hangs up, when all others wait; each of those takes half a second
  const server = await start({ context, program: faulty, args: ['--device', 'cpu'], env: { RESTORED_FAULTS: 'hang@run:1,plan=upscaler;slow@run:2,repeat,plan=upscaler' } });
  const order = [], first = new AbortController();
  const send = (name, more) => post(server, '/v1/restore', { picture: small, fields: { ...fields, ...more } }).then((answer) => {
    assert.equal(answer.status, 200);
    order.push(name);
  });
  const held = post(server, '/v1/restore', { picture: small, fields, signal: first.signal }).catch(() => {}), jobs = [];
  await running(server);
  for (let i = 0; i < 4; i++) jobs.push(send('low', { priority: 'low' }));
  await until('four that wait', async () => (await counted(server, 'queue_depth')) === 4);
  jobs.push(send('normal', { priority: 'normal' }));
  await until('five that wait', async () => (await counted(server, 'queue_depth')) === 5);
  first.abort();
  await Promise.all([held, ...jobs]);
  assert.ok(order.indexOf('normal') <= 2, `it came after ${order}`); // two low ones may have been read ahead
  const refused = await post(server, '/v1/restore', { picture: small, fields: { ...fields, priority: 'high' } });
  assert.equal(refused.status, 400);
  assert.match(refused.json.detail, /^priority: "high" is not allowed; allowed is normal or low/);
  await server.stop();
});

// The machine may be busy with other things in one of the rounds, and slower or faster than before.
test('what a client is told to wait is within a factor of two', { timeout: 600000 }, async (context) => {
  const cache = mkdtempSync(join(tmpdir(), 'restored-cache-'));
  context.after(() => rmSync(cache, { recursive: true, force: true }));
  const server = await start({ context, ...slowly, args: ['--queue', '8', '--cache_dir', cache, '--device', 'cpu'] });
  for (let i = 0; i < 3; i++) await post(server, '/v1/restore', { picture: short, fields });
  const rounds = [];
  const close = ({ told, retry, took }) => told > took / 2 && told < took * 2 && retry >= took / 2 && retry <= took * 2 + 1;
  while (rounds.length < 4 && !rounds.some(close)) {
    const jobs = Array.from({ length: 9 }, () => post(server, '/v1/restore', { picture: short, fields }));
    await until('a full queue', async () => (await counted(server, 'queue_depth')) === 8);
    const began = Date.now();
    const [refused, estimate] = await Promise.all([
      post(server, '/v1/restore', { picture: short, fields }), post(server, '/v1/estimate', { picture: short, fields })]);
    assert.equal(refused.status, 429);
    for (const { status } of await Promise.all(jobs)) assert.equal(status, 200);
    rounds.push({ told: estimate.json.queue_seconds, retry: Number(refused.headers.get('retry-after')), took: (Date.now() - began) / 1e3 });
  }
  console.log(`# seconds told, in Retry-After, and taken: ${rounds.map((r) => `${r.told} ${r.retry} ${r.took}`).join('; ')}`);
  assert.ok(rounds.some(close), JSON.stringify(rounds));
  await server.stop();
});
