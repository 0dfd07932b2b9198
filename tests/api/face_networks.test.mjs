// Restorations by the face networks beside GFPGAN 1.3: tiny checkpoints of each family, under the names of the official
// files, from a request to the picture.
import assert from 'node:assert/strict';
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
  for (const [to, from] of Object.entries({ RestoreFormer: 'restoreformer', 'RestoreFormer++': 'restoreformer_plus' }))
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
