// Large bodies lie in files of the spool: what they cost, what a full one does, what is left of them.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import crypto from 'node:crypto';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { get, logged, metrics, ownModels, plain, png, pngOf, post, sleep, start, until } from './client.mjs';
import { binary } from './server.mjs';

let folder;
before(() => { folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-spool-')); });
after(() => fs.rmSync(folder, { recursive: true, force: true }));

const state = (name) => path.join(folder, name);
const files = (name) => fs.readdirSync(path.join(state(name), 'spool')).sort();
// Sizes of the files in the spool that the server has open and that have no name.
function nameless(server, name) {
  const fds = `/proc/${server.process.pid}/fd`, sizes = [];
  for (const fd of fs.readdirSync(fds))
    try {
      const target = fs.readlinkSync(path.join(fds, fd));
      if (target.startsWith(path.join(state(name), 'spool/')) && !target.endsWith('/lock')) sizes.push(fs.statSync(path.join(fds, fd)).size);
    } catch { /* closed meanwhile */ }
  return sizes;
}

// A small picture in a large file.
function noisy(bytes) {
  const picture = png(300, 200), end = picture.length - 12; // a chunk that decoders skip, before IEND
  const text = Buffer.alloc(12 + bytes);
  text.writeUInt32BE(bytes, 0);
  text.write('noSe', 4);
  crypto.randomFillSync(text, 8, bytes);
  text.writeUInt32BE(crc32(text.subarray(4, 8 + bytes)), 8 + bytes);
  return Buffer.concat([picture.subarray(0, end), text, picture.subarray(end)]);
}
function crc32(bytes) {
  const table = Array.from({ length: 256 }, (_, n) => { for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1; return n; });
  let c = ~0;
  for (const b of bytes) c = table[(c ^ b) & 255] ^ (c >>> 8);
  return ~c >>> 0;
}

// Sends a header for `length` bytes, and `sent` of them.
function upload(server, length, sent) {
  const socket = net.connect(server.port, '127.0.0.1');
  socket.on('error', () => {});
  socket.write(`POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${length}\r\n\r\n`);
  socket.write(sent);
  return socket;
}

describe('a server with a state folder', () => {
  let server;
  before(async () => { server = await start({ args: ['--state_dir', state('a')] }); });
  after(() => server.stop());

  test('64 clients that upload 60 MB each at once add less than 200 MiB', async () => {
    const length = 60e6, count = 64, sent = Buffer.alloc(process.env.RESTORED_FULL ? length - 1 : 8e6, 0x89);
    const rss = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${server.process.pid}/status`, 'latin1'))[1]) / 1024;
    const before = rss();
    let peak = before;
    const sockets = Array.from({ length: count }, () => upload(server, length, sent));
    await until('all of it', () => {
      peak = Math.max(peak, rss());
      const sizes = nameless(server, 'a');
      return sizes.length === count && sizes.every((size) => size === sent.length);
    });
    peak = Math.max(peak, rss());
    assert.ok(peak - before < 200, `${Math.round(peak - before)} MiB`);
    for (const socket of sockets) socket.destroy();
    await until('none is left', () => nameless(server, 'a').length === 0);
  });

  test('a large picture gives the same bytes as on the command line, and its file is gone', async () => {
    const picture = noisy(3e6), input = state('large.png'), output = state('result.png');
    fs.writeFileSync(input, picture);
    const { status, stderr } = spawnSync(binary, ['restore', ...ownModels, input, '-o', output], { encoding: 'utf8', env: { ...process.env, RESTORED_STARTER_MODELS: 'false' } });
    assert.equal(status, 0, stderr);
    const wanted = fs.readFileSync(output);
    const form = await post(server, '/v1/restore', { picture });
    const body = await post(server, '/v1/restore', { body: picture, headers: { 'content-type': 'image/png' } });
    for (const answer of [form, body]) {
      assert.equal(answer.status, 200);
      assert.ok(answer.bytes.equals(wanted), `${answer.bytes.length} bytes, ${wanted.length} on the command line`);
    }
    const accepted = await post(server, '/v1/restore', { picture, fields: { async: 'true' } });
    assert.equal(accepted.status, 202);
    const job = accepted.headers.get('location');
    await until('the asynchronous job', async () => (await get(server, job)).json.state === 'done');
    const result = await fetch(`${server.url}${job}/result`);
    assert.ok(Buffer.from(await result.arrayBuffer()).equals(wanted), 'the same for an asynchronous job');
    assert.equal((await fetch(server.url + job, { method: 'DELETE' })).status, 204);
    await until('its files are gone', () => files('a').length === 1);
    await until('those without a name, too', () => nameless(server, 'a').length === 0);
    assert.deepEqual(files('a'), ['lock']);
    const estimate = await post(server, '/v1/estimate', { picture });
    assert.equal(estimate.status, 200);
    assert.deepEqual([estimate.json.output.width, estimate.json.output.height], [600, 400]);
    const broken = await post(server, '/v1/restore', { picture: Buffer.concat([picture.subarray(0, 60), Buffer.alloc(3e6)]) });
    assert.equal(broken.status, 422);
    assert.equal((await post(server, '/v1/restore', { picture: Buffer.alloc(3e6) })).status, 415);
    await until('none is left', () => nameless(server, 'a').length === 0);
  });

  test('a second server refuses the same folder', () => {
    const { status, stderr } = spawnSync(binary, ['serve', ...ownModels, '--listen', '127.0.0.1:0', '--state_dir', state('a')], { encoding: 'utf8', timeout: 600000 });
    assert.equal(status, 1);
    assert.match(stderr, /state_dir: another server is running with \S+; stop it, or give this one a state_dir of its own/);
    assert.ok(stderr.includes(state('a')));
    const first = spawnSync(binary, ['serve', ...ownModels, '--listen', '127.0.0.1:0', '--state_dir', state('a'), '--device', 'vulkan:99'], { encoding: 'utf8', timeout: 600000 });
    assert.match(first.stderr, /state_dir: another server is running/, 'before any device is looked for');
  });
});

test('a full spool is 507, and harms neither a job at work nor the next', async (context) => {
  const server = await start({ context, args: ['--state_dir', state('b'), '--spool_max_bytes', '4MiB'] });
  const slow = post(server, '/v1/restore', { picture: png(1500, 1000), fields: { version: 'none', bg_tile: '64', ext: 'jpg' } });
  await until('a job at work', async () => (await get(server, '/v1/devices')).json.devices.some((d) => d.current_job));
  const held = upload(server, 4e6, Buffer.alloc(3500000, 0x89));
  await until('most of the spool in use', () => nameless(server, 'b')[0] === 3500000);
  const picture = noisy(1e6);
  for (const options of [{ picture }, { body: picture, headers: { 'content-type': 'image/png' } }]) {
    const full = await post(server, '/v1/restore', options);
    assert.equal(full.status, 507);
    assert.equal(full.json.code, 'full');
    assert.match(full.json.detail, /spool_max_bytes allows 4 MiB/);
  }
  assert.equal((await metrics(server)).get('restored_rejected_total{reason="full"}'), 2);
  held.destroy();
  await until('room again', () => nameless(server, 'b').length === 0);
  assert.equal((await post(server, '/v1/restore', { picture, fields: plain })).status, 200);
  assert.equal((await slow).status, 200);
  await server.stop();
  assert.deepEqual(files('b'), ['lock']);
});

test('what a killed server was receiving is gone after the next start', async (context) => {
  const first = await start({ context: { after() {} }, args: ['--state_dir', state('c')] });
  const socket = upload(first, 3e6, Buffer.alloc(1e6, 0x89));
  await until('a file', () => nameless(first, 'c').length === 1);
  fs.writeFileSync(path.join(state('c'), 'spool/.part-77'), 'as a file system without nameless files leaves it');
  fs.writeFileSync(path.join(state('c'), 'spool/notes'), 'not ours');
  first.process.kill('SIGKILL');
  await new Promise((resolve) => first.process.on('exit', resolve));
  socket.destroy();
  const second = await start({ context, args: ['--state_dir', state('c')] });
  assert.deepEqual(files('c'), ['lock', 'notes']);
  await second.stop();
});

test('without a folder for it large bodies stay in memory, and the log says so', async (context) => {
  for (const [args, env, said] of [
    [['--state_dir', '/proc/nowhere'], {}, /\/proc\/nowhere/],
    [[], { HOME: '', XDG_STATE_HOME: '' }, /large bodies stay in memory, and there are no asynchronous jobs; set state_dir/],
  ]) {
    const server = await start({ context, args, env }); // and it is ready
    await logged(server, said);
    await logged(server, /warn(ing)? no-state-folder /);
    assert.equal((await post(server, '/v1/restore', { picture: noisy(1e6), fields: plain })).status, 200);
    await server.stop();
  }
});

test('a store that is gone or cannot be used: the start is refused with what to do, and no file of a job is lost', { timeout: 300000 }, async (context) => {
  const args = ['--state_dir', state('d'), '--drain_seconds', '0'], aside = state('aside');
  let server = await start({ context, args });
  assert.equal(fs.statSync(state('d')).mode & 0o777, 0o700, 'for the server alone');
  const accepted = await post(server, '/v1/restore', { picture: png(300, 200), fields: { async: 'true', ...plain } });
  const job = accepted.headers.get('location');
  await until('the job', async () => (await get(server, job)).json.state === 'done');
  const bytes = Buffer.from(await (await fetch(`${server.url}${job}/result`)).arrayBuffer());
  await server.stop();
  const kept = files('d'), db = path.join(state('d'), 'jobs.db');
  assert.deepEqual(kept.map((name) => path.extname(name) || name), ['.output', 'lock']);
  const refused = (...said) => {
    const { status, stderr } = spawnSync(binary, ['serve', ...ownModels, '--listen', '127.0.0.1:0', ...args], { encoding: 'utf8', timeout: 60000 });
    assert.equal(status, 1, stderr);
    for (const text of said) assert.ok(stderr.includes(text), `${stderr}\nlacks: ${text}`);
    assert.deepEqual(files('d'), kept);
  };
  const moveBoth = `To start with an empty one, move ${db}* and the folder spool beside it away, all together`;
  const whole = fs.readFileSync(db), version = 60; // user_version's place in the file
  const newer = Buffer.from(whole);
  newer.writeUInt32BE(newer.readUInt32BE(version) + 1, version);
  fs.writeFileSync(db, newer);
  refused('written by a newer version', 'Use that version', moveBoth);
  fs.writeFileSync(db, Buffer.concat([whole.subarray(0, 100), Buffer.alloc(whole.length - 100, 0x55)]));
  refused('the store of jobs is damaged', moveBoth);
  fs.writeFileSync(db, whole);
  // only the store is moved away, twice, since the first try must not have made a new one
  fs.mkdirSync(aside);
  fs.renameSync(db, path.join(aside, 'jobs.db'));
  for (let i = 0; i < 2; i++) refused('the store of jobs is gone, but files of its jobs are there (1)', `put ${db} back`, 'move the folder spool beside it away, too');
  assert.ok(!fs.existsSync(db));
  // both are moved away: an empty store
  fs.renameSync(path.join(state('d'), 'spool'), path.join(aside, 'spool'));
  server = await start({ context, args });
  assert.equal((await fetch(server.url + job)).status, 404);
  await server.stop();
  // and both are put back
  fs.rmSync(state('d'), { recursive: true });
  fs.renameSync(aside, state('d'));
  server = await start({ context, args });
  const again = await fetch(`${server.url}${job}/result`);
  assert.equal(again.status, 200);
  assert.ok(Buffer.from(await again.arrayBuffer()).equals(bytes));
  await server.stop();
});

test('a result that does not fit is tried again, and the log says so once', { timeout: 300000 }, async (context) => {
  const server = await start({ context, args: ['--state_dir', state('e'), '--spool_max_bytes', '4MiB'] });
  // rows that are repeated: a small PNG, and a JPEG of many times what its pixels foretell
  const noise = crypto.randomBytes(900 * 32), picture = pngOf(300, 192, 3, Buffer.concat(Array(6).fill(noise)));
  const fields = { async: 'true', version: 'none', bg_upsampler: 'none', upscale: '1', ext: 'jpg', quality: '100' };
  const submit = () => post(server, '/v1/restore', { picture, fields });
  const left = 2 * picture.length + 2 * 300 * 192 / 2 + 1000, size = (4 << 20) - left;
  assert.ok(left < 130000, `${left}`);
  const held = upload(server, size + 1, Buffer.alloc(size, 0x89));
  await until('most of the spool in use', () => nameless(server, 'e')[0] === size);
  const accepted = await submit();
  assert.equal(accepted.status, 202, accepted.text);
  const job = accepted.headers.get('location');
  const said = () => server.log().split('\n').filter((line) => / error spool id=/.test(line));
  await until('the full spool', () => said().length > 0);
  await sleep(2500); // it is tried each second
  assert.equal(said().length, 1, said().join('\n'));
  assert.match(said()[0], /spool_max_bytes allows 4 MiB/);
  const { json } = await get(server, job);
  assert.equal(json.state, 'running');
  assert.equal(json.error.status, 507);
  assert.match(json.error.detail, /the result waits for room: .*spool_max_bytes allows 4 MiB/i);
  assert.deepEqual((await get(server, '/readyz')).json.reasons, ['1 result waits for room: the spool or its disk is full']);
  const other = (await submit()).headers.get('location');
  await until('the other one', async () => (await get(server, other)).json.error);
  const ready = await get(server, '/readyz');
  assert.equal(ready.status, 503);
  assert.deepEqual(ready.json.reasons, ['2 results wait for room: the spool or its disk is full']);
  const samples = await metrics(server);
  assert.equal(samples.get('restored_jobs_waiting_for_room'), 2);
  assert.equal(samples.get('restored_spool_max_bytes'), 4 << 20);
  const cancelled = await fetch(server.url + other, { method: 'DELETE' });
  assert.equal((await cancelled.json()).state, 'cancelled', 'at once');
  assert.ok(!files('e').some((name) => other.endsWith(name.split('.')[0])), 'and its picture is gone');
  assert.equal((await metrics(server)).get('restored_jobs_waiting_for_room'), 1);
  held.destroy();
  await until('the job', async () => (await get(server, job)).json.state === 'done');
  await logged(server, /info spool id=\w+ text="the result is kept now"/);
  assert.equal((await fetch(`${server.url}${job}/result`)).status, 200);
  await server.stop();
});

test('a job whose result will not fit is refused when it is sent; the room of one that ends is free again', { timeout: 300000 }, async (context) => {
  const server = await start({ context, args: ['--state_dir', state('f'), '--spool_max_bytes', '1MiB'] });
  const submit = (upscale) => post(server, '/v1/restore', { picture: png(300, 200), fields: { async: 'true', upscale, ...plain } });
  const refused = await submit('4');
  assert.equal(refused.status, 507, refused.text);
  assert.match(refused.json.detail, /no room for the result, about 1\.8 MiB .*: 0 bytes are kept for results of other jobs, and spool_max_bytes allows 1 MiB/);
  assert.deepEqual(files('f'), ['lock']);
  for (let i = 0; i < 3; i++) {
    const { status, headers, text } = await submit('2'); // two would not fit beside each other
    assert.equal(status, 202, text);
    const job = headers.get('location');
    await until('its end', async () => (await get(server, job)).json.state === 'done');
    assert.equal((await fetch(server.url + job, { method: 'DELETE' })).status, 204);
  }
  assert.equal((await metrics(server)).get('restored_spool_promised_bytes'), 0);
  await server.stop();
});
