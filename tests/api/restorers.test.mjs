// Networks that keep the size, as bg_upsampler with upscale=1: gray and coloured ones, on gray and coloured pictures.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { decodePng, plain, pngOf, post, start } from './client.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-restorers-'));
const names = ['dncnn', 'dncnn_gray', 'dncnn_level', 'drunet_gray'], pooled = ['cugan_x2', 'cugan_x4'];
const odd = ['cugan_x2', 'cugan_x2_nose', 'cugan_x3_pro', 'cugan_x4', 'cugan_x4_pro', 'fbcnn', 'fbcnn_gray'];
const families = new URL('../golden/families/', import.meta.url);
let server;
// Weights of the blocks that means go through become positive and 16 times as large, so that these matter: 4 more in a
// half's exponent.
const strengthen = (file) => {
  const bytes = fs.readFileSync(file), length = Number(bytes.readBigUInt64LE());
  for (const [name, { dtype, data_offsets: [from, to] = [] }] of Object.entries(JSON.parse(bytes.toString('utf8', 8, 8 + length)))) {
    if (!name.includes('.seblock.') || !name.endsWith('.weight')) continue;
    assert.equal(dtype, 'F16');
    for (let at = 8 + length + from; at < 8 + length + to; at += 2) bytes.writeUInt16LE((bytes.readUInt16LE(at) & 0x7fff) + (4 << 10), at);
  }
  fs.writeFileSync(file, bytes);
};
before(async () => {
  for (const name of [...names, ...pooled]) fs.copyFileSync(new URL(`../golden/families/${name}.safetensors`, import.meta.url), path.join(folder, `${name}.safetensors`));
  for (const name of pooled) strengthen(path.join(folder, `${name}.safetensors`));
  for (const name of odd) fs.copyFileSync(new URL(`${name}.safetensors`, families), path.join(folder, `odd_${name}.safetensors`));
  fs.copyFileSync(path.join(folder, 'dncnn_level.safetensors'), path.join(folder, 'strong.safetensors'));
  fs.writeFileSync(path.join(folder, 'models.conf'), '[model strong]\nnoise_level = 200\n[model odd_fbcnn_gray]\njpeg_quality = 40\n');
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

for (const name of pooled)
  test(`${name} makes the same of a picture in tiles as of the whole`, async () => {
    const [w, h] = [150, 109];
    const png = pngOf(w, h, 3, Uint8Array.from({ length: 3 * w * h }, (_, i) => {
      const x = Math.floor(i / 3) % w, y = Math.floor(i / 3 / w);
      return (x > 70 ? 150 : 20) + (y > 50 ? 60 : 0) + 40 * Math.sin(x / 9 + y / 5 + i % 3) ** 2; // not alike in all tiles
    }));
    const at = async (bg_tile) => {
      const answer = await post(server, '/v1/restore', { picture: png, fields: { ...plain, bg_upsampler: name, upscale: '2', ext: 'png', preserve_color: 'false', bg_tile } });
      assert.equal(answer.status, 200, JSON.stringify(answer.json));
      return decodePng(answer.bytes).pixels;
    };
    const whole = await at('0');
    for (const tile of ['48', '32']) {
      const differ = Array.from(await at(tile), (v, i) => Math.abs(v - whole[i]));
      assert.ok(differ.every((v) => v <= 1), `tiles of ${tile} px differ by ${differ.reduce((a, b) => Math.max(a, b))}`);
      assert.ok(differ.filter(Boolean).length < differ.length / 1000, `${differ.filter(Boolean).length} of ${differ.length} values differ in tiles of ${tile} px`);
    }
  });

const half = (bits) => (bits & 0x8000 ? -1 : 1) * (bits & 0x7c00 ? (1 + (bits & 0x3ff) / 1024) * 2 ** ((bits >> 10 & 31) - 15) : (bits & 0x3ff) * 2 ** -24);
// A tensor {1, 3, h, w} of a golden as pixels, in levels.
const golden = (file, name) => {
  const bytes = fs.readFileSync(file), length = Number(bytes.readBigUInt64LE());
  const { dtype, shape: [, , h, w], data_offsets: [from] } = JSON.parse(bytes.toString('utf8', 8, 8 + length))[name];
  const at = (i) => dtype === 'F16' ? half(bytes.readUInt16LE(8 + length + from + 2 * i)) : bytes.readFloatLE(8 + length + from + 4 * i);
  return { w, h, levels: Array.from({ length: 3 * w * h }, (_, i) => 255 * Math.min(1, Math.max(0, at(i % 3 * w * h + Math.floor(i / 3))))) };
};
for (const name of odd)
  test(`${name} fills up sides that are no multiples as its definition does, in tiles as well`, async () => {
    const file = new URL(`${name}.odd`, families), given = golden(file, 'golden.in'), wanted = golden(file, 'golden.out');
    assert.ok(wanted.levels.filter((v) => v > 2 && v < 253).length > wanted.levels.length / 8, 'a golden that is black and white');
    const png = pngOf(given.w, given.h, 3, Uint8Array.from(given.levels, Math.round));
    for (const bg_tile of name.startsWith('fbcnn') ? ['0'] : ['0', '32']) {
      const fields = { ...plain, bg_upsampler: `odd_${name}`, upscale: String(wanted.w / given.w), ext: 'png', preserve_color: 'false', bg_tile };
      const answer = await post(server, '/v1/restore', { picture: png, fields });
      assert.equal(answer.status, 200, JSON.stringify(answer.json));
      const got = decodePng(answer.bytes);
      assert.deepEqual([got.width, got.height], [wanted.w, wanted.h]);
      const worst = wanted.levels.reduce((most, v, i) => Math.max(most, Math.abs(v - got.pixels[i])), 0);
      assert.ok(worst <= 1, `${worst} levels in tiles of ${bg_tile} px`);
    }
  });
