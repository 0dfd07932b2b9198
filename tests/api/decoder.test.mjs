// Strangers' pictures are read by processes of their own: what becomes of a picture whose process crashes, hangs or wants
// more and more memory, what such a process may do, and that none is left.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import { fixture, logged, plain, post, start, until } from './client.mjs';
import { faulty } from './server.mjs';

const picture = fixture('picture.jpg');
const restore = (server, bytes = picture, fields = {}) => post(server, '/v1/restore', { picture: bytes, fields: { ...plain, upscale: '1', ext: 'png', ...fields } });
const read = (file) => { try { return fs.readFileSync(file, 'utf8'); } catch { return ''; } };
// The processes below one, and those below them.
const below = (pid) => fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name) && new RegExp(`^PPid:\\s*${pid}$`, 'm').test(read(`/proc/${name}/status`))).map(Number);
const family = (server) => { const first = below(server.process.pid); return { first, spares: first.flatMap(below) }; };
const alive = (pid) => fs.existsSync(`/proc/${pid}`) && !/^State:\s*Z/m.test(read(`/proc/${pid}/status`));

test('a decoder that crashes, hangs or takes all memory costs one picture', async (t) => {
  const server = await start({ program: faulty, env: { RESTORED_FAULTS: 'crash@decode:2 ; hang@decode:4 ; bomb@decode:6' }, context: t });
  const good = [], bad = [];
  for (let i = 1; i <= 7; i++) (i % 2 ? good : bad).push(await restore(server));
  assert.deepEqual(good.map(({ status }) => status), [200, 200, 200, 200]);
  assert.deepEqual(bad.map(({ status, json }) => [status, json.code]), [[422, 'corrupt'], [422, 'corrupt'], [422, 'corrupt']]);
  assert.match(bad[0].json.detail, /the process that read it crashed/);
  assert.match(bad[1].json.detail, /took more than 1 seconds of a processor/);
  assert.match(bad[2].json.detail, /crashed or needed too much memory/);
  for (const { json } of bad) assert.doesNotMatch(json.detail, /damaged=accept/);
  await logged(server, /job-detail .*the decoder died of signal 11/);
  await logged(server, /job-detail .*the decoder died of signal 24/);
  for (const { bytes } of good) assert.deepEqual(bytes, good[0].bytes);
});

test('many at a time, some of which crash', async (t) => {
  const server = await start({ program: faulty, env: { RESTORED_FAULTS: 'crash@decode:3,until=6' }, context: t });
  const answers = await Promise.all(Array.from({ length: 16 }, () => restore(server)));
  assert.deepEqual(answers.map(({ status }) => status).sort(), [...Array(12).fill(200), ...Array(4).fill(422)]);
});

test('it has no rights, files or network, and ends with the server', async (t) => {
  const server = await start({ args: ['--device', 'cpu'], context: t });
  assert.equal((await restore(server)).status, 200);
  await until('a spare', () => family(server).spares.length > 0 && family(server).spares.some((pid) => /^Seccomp:\s*2$/m.test(read(`/proc/${pid}/status`))));
  const { first, spares } = family(server);
  assert.equal(first.length, 1);
  const one = spares.find((pid) => /^Seccomp:\s*2$/m.test(read(`/proc/${pid}/status`)));
  assert.match(read(`/proc/${one}/status`), /^NoNewPrivs:\s*1$/m);
  assert.equal(read(`/proc/${one}/comm`), 'restored-decode\n');
  for (const fd of fs.readdirSync(`/proc/${one}/fd`)) assert.match(fs.readlinkSync(`/proc/${one}/fd/${fd}`), /^(\/dev\/null|socket:\[\d+\])$/);
  assert.equal(read(`/proc/${one}/environ`), '');
  await server.stop();
  await until('all are gone', () => [...first, ...spares].every((pid) => !alive(pid)));
});

test('a large file, salvage, turning and pages go through it as well', async (t) => {
  const server = await start({ context: t });
  const large = fixture('formats/plain.tif');
  const padded = Buffer.concat([large, Buffer.alloc(600000)]); // to a file of the spool
  assert.deepEqual((await restore(server, padded)).bytes, (await restore(server, large)).bytes);
  const cut = await restore(server, picture.subarray(0, picture.length / 2), { damaged: 'accept' });
  assert.equal(cut.status, 200);
  assert.match(cut.headers.get('x-restored-notes'), /the lowest \d+ of 128 rows are missing/);
  assert.equal((await restore(server, picture.subarray(0, picture.length / 2))).status, 422);
  const [upright, turned] = [await restore(server, fixture('exif_1.jpg')), await restore(server, fixture('exif_6.jpg'))];
  assert.equal(upright.status, 200);
  assert.equal(upright.bytes.readUInt32BE(16), turned.bytes.readUInt32BE(16));
  assert.equal((await restore(server, fixture('formats/pages.tif'), { page: '2' })).status, 200);
  assert.equal((await restore(server, fixture('formats/moves.jxl'), { page: '3' })).status, 400);
  assert.equal((await restore(server, fixture('rgba.png'))).status, 200);
});

test('killed from outside, it is started again', async (t) => {
  const server = await start({ args: ['--sandbox', 'false'], context: t });
  process.kill(family(server).first[0], 'SIGKILL');
  await until('gone', () => family(server).first.every((pid) => !alive(pid)));
  assert.equal((await restore(server)).status, 200);
  await logged(server, /error decoder /);
});
