// Networks that keep the size, as bg_upsampler with upscale=1: gray and coloured ones, on gray and coloured pictures.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { decodePng, plain, pngOf, post, start } from './client.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-restorers-'));
const names = ['dncnn', 'dncnn_gray', 'dncnn_level', 'drunet_gray'];
let server;
before(async () => {
  for (const name of names) fs.copyFileSync(new URL(`../golden/families/${name}.safetensors`, import.meta.url), path.join(folder, `${name}.safetensors`));
  fs.copyFileSync(path.join(folder, 'dncnn_level.safetensors'), path.join(folder, 'strong.safetensors'));
  fs.writeFileSync(path.join(folder, 'models.conf'), '[model strong]\nnoise_level = 200\n');
  server = await start({ models: ['--models', folder], env: { RESTORED_STARTER_MODELS: 'true' } });
});
after(async () => { await server?.stop(); fs.rmSync(folder, { recursive: true }); });

const width = 37, height = 21; // no multiples of 8
const picture = (channels) => pngOf(width, height, channels, Uint8Array.from({ length: channels * width * height }, (_, i) =>
  90 + 50 * Math.sin(Math.floor(i / channels) / 5) + (i % channels) * 35 + (i % 7)));
const send = async (bg_upsampler, png) => {
  const answer = await post(server, '/v1/restore', { picture: png, fields: { ...plain, bg_upsampler, upscale: '1', ext: 'png', preserve_color: 'false' } });
  assert.equal(answer.status, 200, JSON.stringify(answer.json));
  const { pixels, channels, width: w, height: h } = decodePng(answer.bytes);
  assert.deepEqual([w, h], [width, height]);
  return { pixels: Array.from(pixels), channels };
};

for (const name of names)
  test(`${name} changes a picture, keeps its size, and leaves a gray one gray`, async () => {
    const colour = picture(3), before_ = Array.from(decodePng(colour).pixels), { pixels } = await send(name, colour);
    const changes = pixels.map((v, i) => v - before_[i]);
    assert.ok(Math.max(...changes.map(Math.abs)) >= 2, `${Math.max(...changes.map(Math.abs))} levels`);
    const gray = await send(name, picture(1));
    if (!name.includes('gray')) return;
    for (let i = 0; i < gray.pixels.length; i += gray.channels)
      assert.ok(gray.pixels.slice(i, i + gray.channels).every((v) => v === gray.pixels[i]), 'a gray picture became coloured');
    for (let i = 0; i < pixels.length; i += 3) { // the same in each channel, where none reaches black or white
      const here = [0, 1, 2].filter((c) => pixels[i + c] > 0 && pixels[i + c] < 255).map((c) => changes[i + c]);
      if (here.length) assert.ok(Math.max(...here) - Math.min(...here) <= 1, `${here} at ${i}`);
    }
  });

test('noise_level in models.conf is heard', async () => {
  const weak = await send('dncnn_level', picture(3)), strong = await send('strong', picture(3));
  assert.ok(weak.pixels.some((v, i) => Math.abs(v - strong.pixels[i]) > 1));
});
