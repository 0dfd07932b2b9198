// What a picture has beyond 8-bit RGB comes back: 16 bits, one channel, transparency.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { decodePng, fixture, plain, pngOf, post, start } from './client.mjs';

let server;
before(async () => { server = await start({ models: [], env: { RESTORED_STARTER_MODELS: 'true' } }); });
after(() => server.stop());

const restore = async (picture, fields = {}) => {
  const answer = await post(server, '/v1/restore', { picture, fields: { ...plain, ext: 'png', ...fields } });
  assert.equal(answer.status, 200, JSON.stringify(answer.json));
  return decodePng(answer.bytes);
};
const worst = (a, b) => a.reduce((most, v, i) => Math.max(most, Math.abs(v - b[i])), 0);
// Every value of 16 bits, in each channel in an order of its own.
const ramp = (channels) => Uint16Array.from({ length: 65536 * channels }, (_, i) => (Math.floor(i / channels) * [1, 257, 65535, 769][i % channels]) & 65535);

describe('16 bits', () => {
  for (const [channels, name] of [[1, 'gray'], [2, 'gray with alpha'], [3, 'RGB'], [4, 'RGBA']])
    test(`a ramp of ${name} comes back at 1x, to the last bit`, async () => {
      const samples = ramp(channels), got = await restore(pngOf(256, 256, channels, samples), { upscale: '1' });
      assert.deepEqual([got.channels, got.bits], [channels, 16]);
      assert.equal(worst(got.pixels, samples), 0);
    });

  test('a slow ramp is smooth behind a network: steps below 1/4096', async () => {
    const width = 256, height = 24, from = 20000, to = 22000;
    const samples = Uint16Array.from({ length: 3 * width * height }, (_, i) => Math.round(from + ((to - from) * (Math.floor(i / 3) % width)) / width));
    const got = await restore(pngOf(width, height, 3, samples), { bg_upsampler: 'starter' });
    const at = (x, y) => got.pixels[3 * (y * got.width + x)];
    let most = 0;
    for (let y = 16; y < 32; y++) for (let x = 32; x < got.width - 33; x++) most = Math.max(most, Math.abs(at(x + 1, y) - at(x, y)));
    assert.ok(most <= 16, `a step of ${most}`); // of 8 bits one would be 257
    const levels = new Set(Array.from({ length: got.width - 64 }, (_, x) => at(x + 32, 24)));
    assert.ok(levels.size > 100, `${levels.size} levels`);
  });

  test('a format of 8 bits gets them, with a note', async () => {
    const answer = await post(server, '/v1/restore', { picture: fixture('deep.png'), fields: { ...plain, ext: 'jpg' }, headers: { Accept: 'application/json' } });
    assert.ok(answer.json.notes.some((note) => /16/.test(note)), JSON.stringify(answer.json.notes));
  });
});

describe('gray', () => {
  test('is one channel behind a network, too, and as a TIFF or JPEG', async () => {
    const got = await restore(fixture('gray.png'), { bg_upsampler: 'starter' });
    assert.deepEqual([got.channels, got.bits], [1, 8]);
    for (const [ext, tell] of [['jpg', (b) => b[b.indexOf(Buffer.from([0xff, 0xc0])) + 9]]]) {
      const answer = await post(server, '/v1/restore', { picture: fixture('gray.png'), fields: { ...plain, ext } });
      assert.equal(tell(answer.bytes), 1, ext);
    }
  });
});

describe('transparency', () => {
  // A red disc; what lies under full transparency is blue.
  const side = 48, disc = Uint8Array.from({ length: 4 * side * side }, (_, i) => {
    const x = Math.floor(i / 4) % side, y = Math.floor(i / 4 / side), inside = Math.hypot(x - 23.5, y - 23.5) < 15;
    return (inside ? [220, 30, 20, 255] : [0, 0, 255, 0])[i % 4];
  });

  // The server maps the pixels' file while the reader lengthens it.
  test('is read each time', async () => {
    const picture = pngOf(side, side, 4, disc);
    for (let i = 0; i < 60; i++) await restore(picture, { upscale: '1' });
  });

  for (const bg_upsampler of ['none', 'starter'])
    test(`no halo of the colours beneath it: ${bg_upsampler}`, async () => {
      const got = await restore(pngOf(side, side, 4, disc), { bg_upsampler });
      assert.equal(got.channels, 4);
      let seen = 0, most = 0, partly = 0;
      for (let i = 0; i < got.pixels.length; i += 4) {
        const alpha = got.pixels[i + 3];
        if (alpha < 8) continue;
        seen++;
        partly += alpha < 250;
        for (const [c, v] of [220, 30, 20].entries()) most = Math.max(most, (Math.abs(got.pixels[i + c] - v) * alpha) / 255);
      }
      assert.ok(seen > 2000 && partly > 50, `${seen} seen, ${partly} in part`);
      assert.ok(most < 12, `a colour is ${most} off`);
    });

  const channel = (picture, c) => Uint8Array.from({ length: picture.pixels.length / picture.channels }, (_, i) => picture.pixels[i * picture.channels + c]);
  const asGray = Uint8Array.from({ length: 3 * side * side }, (_, i) => disc[4 * Math.floor(i / 3) + 3]);
  test('alpha=network: what the upscaler makes of it as a gray picture', async () => {
    // A picture with transparency is not repaired by itself; as a gray one this disc is taken for dust.
    const fields = { bg_upsampler: 'starter', preserve_color: 'false', repair: 'false' };
    for (const upscale of ['2', '3']) {
      const made = channel(await restore(pngOf(side, side, 4, disc), { ...fields, upscale, alpha: 'network' }), 3);
      const gray = await restore(pngOf(side, side, 3, asGray), { ...fields, upscale });
      const resized = channel(await restore(pngOf(side, side, 4, disc), { ...fields, upscale }), 3);
      const wanted = Uint8Array.from(made, (_, i) => Math.round(0.299 * gray.pixels[3 * i] + 0.587 * gray.pixels[3 * i + 1] + 0.114 * gray.pixels[3 * i + 2]));
      assert.ok(worst(made, wanted) <= 3, `${worst(made, wanted)} at ${upscale}`);
      assert.ok(worst(made, resized) > 8, 'it makes a difference');
    }
  });

  test('alpha=network: nearly full and 16-bit transparency', async () => {
    const nearly = Uint16Array.from({ length: 4 * side * side }, (_, i) => (i % 4 === 3 ? (i === 3 ? 65000 : 65535) : 257 * 90));
    const got = await restore(pngOf(side, side, 4, nearly), { bg_upsampler: 'starter', alpha: 'network' });
    assert.deepEqual([got.channels, got.bits], [4, 16]);
    assert.ok(got.pixels[4 * (side * 2 * side + side) + 3] > 64500);
  });

  test('compat without faces keeps what Real-ESRGAN keeps; with faces it is GFPGAN, which drops it', async () => {
    const deep = ramp(4);
    for (const bg_upsampler of ['none', 'starter']) {
      const got = await restore(pngOf(256, 256, 4, deep), { compat: 'true', upscale: '1', bg_upsampler });
      assert.deepEqual([got.width, got.channels, got.bits], [256, 4, 16]);
      if (bg_upsampler === 'none') assert.equal(worst(got.pixels, deep), 0);
    }
    const gray = await restore(fixture('gray.png'), { compat: 'true' });
    assert.deepEqual([gray.channels, gray.bits], [1, 8]);
    const answer = await post(server, '/v1/restore', { picture: pngOf(side, side, 4, disc), fields: { ext: 'png', compat: 'true', bg_upsampler: 'none' } });
    assert.equal(decodePng(answer.bytes).channels, 3);
  });
});
