// Restorations by the face networks beside GFPGAN 1.3: tiny checkpoints of each family, under the names of the official
// files, from a request to the picture.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fixture, post, start } from './client.mjs';
import { fixtures, root } from './server.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-faces-'));
const picture = fixture('picture.png');
let server;

before(async () => {
  for (const [to, from] of Object.entries({ plain: 'face_64', detector: 'detector', parser: 'parser', GFPGANv1: 'face_original' }))
    fs.copyFileSync(path.join(fixtures, `${from}.safetensors`), path.join(folder, `${to}.safetensors`));
  for (const [to, from] of Object.entries({ RestoreFormer: 'restoreformer', 'RestoreFormer++': 'restoreformer_plus', codeformer: 'codeformer' }))
    fs.copyFileSync(path.join(root, 'tests/golden/families', `${from}.safetensors`), path.join(folder, `${to}.safetensors`));
  server = await start({ models: ['--models', folder, '--default_version', 'plain', '--default_detector', 'detector', '--default_parser', 'parser', '--device', 'cpu'] });
});
after(async () => {
  await server?.stop();
  fs.rmSync(folder, { recursive: true, force: true });
});

// What comes back, and the name of the face network.
async function restored(fields) {
  const answer = await post(server, '/v1/restore', { picture, fields: { bg_upsampler: 'none', weight: '1', ext: 'png', ...fields } });
  assert.equal(answer.status, 200, String(answer.bytes));
  const faces = /face="([^"]*)"/.exec(answer.headers.get('x-restored-models') ?? '');
  return { face: faces?.[1], body: answer.bytes };
}

test('version=1 is GFPGAN\'s original network', async () => {
  const none = await restored({ version: 'none' }), one = await restored({ version: '1' });
  assert.equal(one.face, 'GFPGANv1');
  assert.notDeepEqual(one.body, none.body);
  assert.deepEqual((await restored({ version: 'GFPGANv1' })).body, one.body);
});

test('version=RestoreFormer and version=RestoreFormer++', async () => {
  const none = await restored({ version: 'none' }), one = await restored({ version: 'RestoreFormer' }), plus = await restored({ version: 'RestoreFormer++' });
  assert.equal(one.face, 'RestoreFormer');
  assert.equal(plus.face, 'RestoreFormer++');
  assert.notDeepEqual(one.body, none.body);
  assert.notDeepEqual(plus.body, none.body);
  assert.notDeepEqual(plus.body, one.body);
});

test('version=CodeFormer, and its w', async () => {
  const none = await restored({ version: 'none' }), half = await restored({ version: 'CodeFormer' });
  assert.equal(half.face, 'codeformer');
  assert.notDeepEqual(half.body, none.body);
  assert.deepEqual((await restored({ version: 'codeformer', w: '0.5' })).body, half.body);
  const least = await restored({ version: 'CodeFormer', w: '0' }), most = await restored({ version: 'CodeFormer', w: '1' });
  assert.notDeepEqual(least.body, half.body);
  assert.notDeepEqual(most.body, half.body);
  assert.notDeepEqual(most.body, least.body);
  const wrong = await post(server, '/v1/restore', { picture, fields: { version: 'CodeFormer', w: '1.5' } });
  assert.equal(wrong.status, 400);
  assert.match(wrong.json.detail, /^w: "1.5".*0 to 1/);
});

test('what may not be used commercially says so, and is not downloaded', () => {
  const run = (...args) => spawnSync(path.join(root, 'build/tests/restored'), ['models', ...args], { encoding: 'utf8' });
  assert.match(run('--models', folder).stdout, /^codeformer +face +CodeFormer .*S-Lab-1\.0, non-commercial/m);
  const got = run('get', 'CodeFormer', '--to', folder);
  assert.equal(got.status, 2);
  assert.match(got.stderr, /codeformer is not downloaded: its licence \(S-Lab-1\.0, non-commercial\) forbids commercial use/);
});
