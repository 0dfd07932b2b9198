// A device that fails under the program: what clients and metrics see of it. And that the program itself cannot be made
// to fail: only build/tests/restored has the layer of faults.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, test } from 'node:test';
import { fixture, logged, metrics, ownModels, post, start } from './client.mjs';
import { binary, faulty, fixtures } from './server.mjs';

// A server on the device "cpu" that fails by the spec.
const failing = (context, spec) => start({ program: faulty, args: ['--device', 'cpu'], env: { RESTORED_FAULTS: spec }, context });
const restore = (server, fields = {}, headers = {}) => post(server, '/v1/restore', { picture: fixture('picture.png'), fields, headers });

test('the program takes no faults; the one for tests does', () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-faults-'));
  const run = (program) => spawnSync(program, ['restore', path.join(fixtures, 'picture.png'), '-o', path.join(folder, 'a.png'), '--device', 'cpu', ...ownModels],
    { cwd: folder, env: { ...process.env, RESTORED_FAULTS: 'lost@run:1,repeat,plan=detector' }, encoding: 'utf8', timeout: 600000 });
  try {
    const sound = run(binary), failed = run(faulty);
    assert.equal(sound.status, 0, sound.stderr);
    assert.equal(failed.status, 1);
    assert.match(failed.stderr, /cpu was lost twice/);
    assert.ok(!fs.readFileSync(binary).includes('RESTORED_FAULTS'), 'nothing of the layer is in the program');
    assert.ok(fs.readFileSync(faulty).includes('RESTORED_FAULTS'));
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
});

describe('served', () => {
  test('results of NaN are computed again in fp32, counted and noted', async (context) => {
    const server = await failing(context, ['detector', 'face_64', 'parser', 'upscaler'].map((plan) => `nan@run:1,repeat,precision=fp16,plan=${plan}`).join(' ') + ' fp16');
    const { status, json } = await restore(server, {}, { accept: 'application/json' });
    assert.equal(status, 200);
    assert.deepEqual(json.notes.filter((note) => /was not finite and was computed again in fp32/.test(note)).length, 4);
    assert.equal((await metrics(server)).get('restored_fallbacks_total{reason="fp32"}'), 4);
    const again = await restore(server), sound = await restore(server, { precision: 'fp32' });
    assert.equal(again.status, 200);
    assert.ok(again.bytes.equals(sound.bytes));
    assert.equal((await metrics(server)).get('restored_fallbacks_total{reason="fp32"}'), 8);
    await server.stop();
  });

  test('NaN in fp32 too is an error, never a picture', async (context) => {
    const server = await failing(context, 'nan@run:1,until=2,plan=upscaler');
    const { status, json } = await restore(server);
    assert.equal(status, 500);
    assert.match(json.detail, /background: the result of upscaler on cpu is not finite, in fp32 too/);
    assert.equal((await restore(server)).status, 200);
    await server.stop();
  });

  test('a network for which there is no room at first has it when other plans are given back', async (context) => {
    const server = await failing(context, 'no_memory@plan:1,until=2,plan=face_64');
    const short = await restore(server), sound = await restore(server);
    assert.equal(short.status, 200);
    assert.ok(short.bytes.equals(sound.bytes));
    await server.stop();
  });

  test('a network for which there never is room is a 503 that says what to do, and doing so helps', async (context) => {
    const server = await failing(context, 'no_memory@plan:1,repeat,plan=face_64');
    const { status, json } = await restore(server);
    assert.equal(status, 503);
    assert.equal(json.code, 'no-memory');
    assert.match(json.detail, /a face of 64 × 64 px with face_64 does not fit the memory of cpu .*version=none/);
    assert.equal((await restore(server, { version: 'none' })).status, 200);
    await server.stop();
  });

  test('a device whose self-test ran out of memory is tested again', async (context) => {
    const server = await failing(context, 'no_memory@plan:1,plan=selftest'); // waits until it is ready
    await logged(server, /self-test .*fp32="failed".*\n(.*\n)*.*self-test .*fp32="passed"/);
    assert.equal((await restore(server)).status, 200);
    await server.stop();
  });

  test('a background that does not fit is done in tiles, counted and noted', async (context) => {
    const server = await failing(context, 'no_memory@run:1,plan=upscaler,over=20000,repeat');
    const { status, json } = await restore(server, {}, { accept: 'application/json' });
    assert.equal(status, 200);
    assert.ok(json.tiles > 1);
    assert.match(json.notes.join(), /does not fit the device's memory at once; tiles of \d+ px were used/);
    assert.ok((await metrics(server)).get('restored_fallbacks_total{reason="memory"}') > 0);
    await server.stop();
  });

  test('a device that is lost once costs the client nothing', async (context) => {
    const server = await failing(context, 'lost@run:1,plan=face_64');
    const lost = await restore(server), sound = await restore(server);
    assert.equal(lost.status, 200);
    assert.ok(lost.bytes.equals(sound.bytes));
    assert.equal((await metrics(server)).get('restored_device_lost_total{device="cpu"}'), 1);
    await server.stop();
  });
});
