// Pictures whose colours are not sRGB's: they come back in their own, or in sRGB, and what a reader makes of them is the same.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import zlib from 'node:zlib';
import { after, before, describe, test } from 'node:test';
import { chunk, decodePng, fixture, plain, pngOf, post, start } from './client.mjs';
import { cmykProfile, grayProfile, rgbProfile, toXyz } from './icc.mjs';

let server;
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-colour-'));
before(async () => { server = await start({ models: [], env: { RESTORED_STARTER_MODELS: 'true' } }); });
after(async () => { await server.stop(); fs.rmSync(folder, { recursive: true }); });

const spaces = {
  'Display P3': rgbProfile([[0.68, 0.32], [0.265, 0.69], [0.15, 0.06]], 'srgb'),
  'Adobe RGB': rgbProfile([[0.64, 0.33], [0.21, 0.71], [0.15, 0.06]], 563 / 256),
  ProPhoto: rgbProfile([[0.7347, 0.2653], [0.1596, 0.8404], [0.0366, 0.0001]], 1.8, [0.3457, 0.3585]),
};

const withProfile = (png, icc) => Buffer.concat([png.subarray(0, 33), chunk('iCCP', Buffer.concat([Buffer.from('icc\0\0', 'latin1'), zlib.deflateSync(icc)])), png.subarray(33)]);
const profileOf = (png) => {
  for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at))
    if (png.toString('latin1', at + 4, at + 8) === 'iCCP') return zlib.inflateSync(png.subarray(png.indexOf(0, at + 8) + 2, at + 8 + png.readUInt32BE(at)));
  return null;
};
const send = async (picture, fields = {}) => {
  const answer = await post(server, '/v1/restore', { picture, fields: { ...plain, ext: 'png', upscale: '1', ...fields } });
  assert.equal(answer.status, 200, JSON.stringify(answer.json));
  return { ...decodePng(answer.bytes), bytes: answer.bytes, notes: answer.headers.get?.('x-restored-notes') ?? answer.headers['x-restored-notes'] ?? '' };
};
const worst = (a, b) => a.reduce((most, v, i) => Math.max(most, Math.abs(v - b[i])), 0);

// A wheel of all hues to full saturation, outside of sRGB therefore, and grays.
const side = 48;
const wheel = (most) => Array.from({ length: 3 * side * side }, (_, i) => {
  const x = Math.floor(i / 3) % side, y = Math.floor(i / 3 / side), angle = (2 * Math.PI * x) / side + ((i % 3) * 2 * Math.PI) / 3;
  return Math.round((most * (y < 4 ? x / side : (0.5 + 0.5 * Math.cos(angle)) * (0.2 + (0.8 * y) / side))));
});

// CIEDE2000, Sharma, Wu and Dalal 2005, of two XYZ under D50.
function lab([x, y, z]) {
  const f = (t) => (t > 216 / 24389 ? Math.cbrt(t) : (24389 / 27 / 116) * t + 16 / 116);
  const [fx, fy, fz] = [f(x / 0.9642), f(y), f(z / 0.8249)];
  return [116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)];
}
function deltaE(one, two) {
  const [l1, a1, b1] = lab(one), [l2, a2, b2] = lab(two), rad = Math.PI / 180;
  const c7 = ((Math.hypot(a1, b1) + Math.hypot(a2, b2)) / 2) ** 7, g = 0.5 * (1 - Math.sqrt(c7 / (c7 + 25 ** 7)));
  const c1 = Math.hypot(a1 * (1 + g), b1), c2 = Math.hypot(a2 * (1 + g), b2);
  const hue = (b, a) => (a === 0 && b === 0 ? 0 : (Math.atan2(b, a) / rad + 360) % 360);
  const h1 = hue(b1, a1 * (1 + g)), h2 = hue(b2, a2 * (1 + g));
  let dh = c1 * c2 === 0 ? 0 : h2 - h1;
  dh += dh > 180 ? -360 : dh < -180 ? 360 : 0;
  const dH = 2 * Math.sqrt(c1 * c2) * Math.sin((dh / 2) * rad), l = (l1 + l2) / 2, c = (c1 + c2) / 2;
  const h = c1 * c2 === 0 ? h1 + h2 : Math.abs(h1 - h2) <= 180 ? (h1 + h2) / 2 : (h1 + h2 + (h1 + h2 < 360 ? 360 : -360)) / 2;
  const t = 1 - 0.17 * Math.cos((h - 30) * rad) + 0.24 * Math.cos(2 * h * rad) + 0.32 * Math.cos((3 * h + 6) * rad) - 0.2 * Math.cos((4 * h - 63) * rad);
  const sl = 1 + (0.015 * (l - 50) ** 2) / Math.sqrt(20 + (l - 50) ** 2), sc = 1 + 0.045 * c, sh = 1 + 0.015 * c * t;
  const rt = -2 * Math.sqrt(c ** 7 / (c ** 7 + 25 ** 7)) * Math.sin(60 * Math.exp(-(((h - 275) / 25) ** 2)) * rad);
  return Math.sqrt(((l2 - l1) / sl) ** 2 + ((c2 - c1) / sc) ** 2 + (dH / sh) ** 2 + rt * ((c2 - c1) / sc) * (dH / sh));
}

describe('a profile that is not sRGB', () => {
  for (const [name, icc] of Object.entries(spaces))
    for (const bits of [8, 16])
      test(`${name}, ${bits} bits: kept, and the colours with it, those beyond sRGB too`, async () => {
        const samples = (bits === 16 ? Uint16Array : Uint8Array).from(wheel(2 ** bits - 1));
        const got = await send(withProfile(pngOf(side, side, 3, samples), icc));
        assert.deepEqual(profileOf(got.bytes), icc);
        assert.equal(got.bits, bits);
        let sum = 0, most = 0;
        for (let i = 0; i < samples.length; i += 3) {
          const pair = [samples, got.pixels].map((all) => toXyz(icc, [0, 1, 2].map((c) => all[i + c] / (2 ** bits - 1))));
          const d = deltaE(...pair);
          sum += d;
          most = Math.max(most, d);
        }
        assert.ok(most <= 1 && (3 * sum) / samples.length <= 0.5, `ΔE2000 ${(3 * sum) / samples.length} in the mean, ${most} at most`);
      });

  test('profile=srgb: the same colours as sRGB, as ImageMagick has them', async () => {
    const icc = spaces['Display P3'], samples = Uint8Array.from(wheel(255), (v) => 60 + v / 3); // within sRGB
    const picture = withProfile(pngOf(side, side, 3, samples), icc), got = await send(picture, { profile: 'srgb' });
    const srgb = profileOf(got.bytes);
    assert.notDeepEqual(srgb, icc);
    fs.writeFileSync(path.join(folder, 'srgb.icc'), srgb);
    fs.writeFileSync(path.join(folder, 'p3.png'), picture);
    execFileSync('convert', ['p3.png', '-profile', 'srgb.icc', '-strip', '-define', 'png:color-type=2', '-depth', '8', 'converted.png'], { cwd: folder });
    assert.ok(worst(got.pixels, decodePng(fs.readFileSync(path.join(folder, 'converted.png'))).pixels) <= 1);
  });

  test('behind a network: as if the picture had come in sRGB', async () => {
    const icc = spaces['Adobe RGB'], samples = Uint8Array.from(wheel(255), (v) => 80 + v / 4);
    const picture = withProfile(pngOf(side, side, 3, samples), icc), fields = { bg_upsampler: 'starter', upscale: '2' };
    const first = await send(picture, { profile: 'srgb' });
    const [own, other] = [await send(picture, { ...fields, profile: 'srgb' }), await send(pngOf(side, side, 3, first.pixels), fields)];
    assert.ok(worst(own.pixels, other.pixels) <= 3); // the second had been rounded before it came
    assert.deepEqual(profileOf((await send(picture, fields)).bytes), icc);
  });

  test('a gray one is kept on one channel', async () => {
    const icc = grayProfile(1.8), samples = Uint8Array.from({ length: 256 }, (_, i) => i);
    const got = await send(withProfile(pngOf(16, 16, 1, samples), icc));
    assert.deepEqual([got.channels, profileOf(got.bytes)], [1, icc]);
    assert.ok(worst(got.pixels, samples) <= 0);
    const webp = await post(server, '/v1/restore', { picture: withProfile(pngOf(16, 16, 1, samples), icc), fields: { ...plain, ext: 'webp' } });
    assert.equal(webp.status, 200);
  });

  test('said in numbers: cICP and cHRM of a PNG, nclx of an AVIF: the same as with a profile', async () => {
    const samples = Uint8Array.from(wheel(255)), bare = pngOf(side, side, 3, samples), u32 = (v) => { const b = Buffer.alloc(4); b.writeUInt32BE(v); return b; };
    const put = (...chunks) => Buffer.concat([bare.subarray(0, 33), ...chunks, bare.subarray(33)]);
    const chrm = (xy) => chunk('cHRM', Buffer.concat(xy.map((v) => u32(Math.round(v * 1e5)))));
    const white = [0.3127, 0.329], gamma = chunk('gAMA', u32(45455));
    for (const [space, picture] of [['Display P3', put(chunk('cICP', Buffer.from([12, 13, 0, 1])))], ['Adobe RGB', put(gamma, chrm([...white, 0.64, 0.33, 0.21, 0.71, 0.15, 0.06]))]]) {
      const [there, here, kept] = [await send(withProfile(bare, spaces[space]), { profile: 'srgb' }), await send(picture, { profile: 'srgb' }), await send(picture)];
      assert.ok(worst(here.pixels, there.pixels) <= 1, `${space}: ${worst(here.pixels, there.pixels)} levels`);
      assert.ok(profileOf(kept.bytes), space);
      assert.equal(worst(kept.pixels, samples), 0);
    }
    for (const same of [put(chunk('cICP', Buffer.from([1, 13, 0, 1]))), put(gamma, chrm([...white, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06]))]) assert.equal(profileOf((await send(same)).bytes), null);
    fs.writeFileSync(path.join(folder, 'bare.png'), bare);
    execFileSync('heif-enc', ['-A', '-q', '95', '-p', 'chroma=444', 'bare.png', '-o', 'srgb.avif'], { cwd: folder, stdio: 'ignore' });
    const file = fs.readFileSync(path.join(folder, 'srgb.avif')), p3 = Buffer.from(file), codes = file.indexOf('colrnclx') + 8;
    p3.writeUInt16BE(12, codes); // heif-enc says that it does not know
    p3.writeUInt16BE(13, codes + 2);
    const plainly = await send(file), avif = await send(p3);
    assert.equal(profileOf(plainly.bytes), null);
    assert.ok(profileOf(avif.bytes));
    assert.ok(worst(avif.pixels, plainly.pixels) <= 1);
  });

  test('a damaged one counts as sRGB, with a note', async () => {
    const icc = Buffer.from(spaces['Display P3']), samples = Uint8Array.from(wheel(255));
    for (const broken of [icc.subarray(0, 200), Buffer.concat([icc.subarray(0, 36), Buffer.from('what'), icc.subarray(40)])]) {
      const got = await send(withProfile(pngOf(side, side, 3, samples), broken));
      assert.equal(worst(got.pixels, samples), 0);
      assert.match(String(got.notes), /profile is damaged/);
      assert.equal(profileOf(got.bytes), null);
    }
  });
});

describe('CMYK', () => {
  for (const [name, args] of [['x.jpg', ['-quality', '98']], ['x.tif', ['-depth', '8']], ['deep.tif', ['-depth', '16']]])
    test(`${name} becomes sRGB by its profile, as ImageMagick does it`, async () => {
      fs.writeFileSync(path.join(folder, 'cmyk.icc'), cmykProfile());
      const samples = Uint8Array.from(wheel(255));
      fs.writeFileSync(path.join(folder, 'rgb.png'), pngOf(side, side, 3, samples));
      fs.writeFileSync(path.join(folder, 's.icc'), profileOf((await send(withProfile(pngOf(side, side, 3, samples), spaces.ProPhoto), { profile: 'srgb' })).bytes));
      execFileSync('convert', ['rgb.png', '-colorspace', 'CMYK', '-profile', 'cmyk.icc', ...args, name], { cwd: folder });
      execFileSync('convert', [name, '-intent', 'perceptual', '-profile', 's.icc', '-strip', '-define', 'png:color-type=2', '-depth', '8', 'there.png'], { cwd: folder });
      const got = await send(fs.readFileSync(path.join(folder, name)));
      assert.match(String(got.notes), /converted to sRGB by the picture's ICC profile/);
      const there = decodePng(fs.readFileSync(path.join(folder, 'there.png'))).pixels;
      const here = got.bits === 16 ? got.pixels.map((v) => Math.round(v / 257)) : got.pixels;
      assert.ok(worst(here, there) <= 2, `${worst(here, there)} levels`);
    });
});

describe('CMYK with a profile that works both ways', () => {
  for (const [name, args] of [['both.jpg', ['-quality', '98']], ['both.tif', ['-depth', '8']], ['deep.tif', ['-depth', '16']]])
    test(`${name} comes back as CMYK with its profile and looks the same, as ImageMagick reads both; with profile=srgb or as a PNG as sRGB`, async () => {
      const icc = cmykProfile(true), samples = Uint8Array.from(wheel(90), (v) => v + 80) /* all well within what these inks can print */, file = (one) => fs.readFileSync(path.join(folder, one));
      fs.writeFileSync(path.join(folder, 'both.icc'), icc);
      fs.writeFileSync(path.join(folder, 'wide.icc'), spaces.ProPhoto);
      fs.writeFileSync(path.join(folder, 'rgb.png'), pngOf(side, side, 3, samples));
      execFileSync('convert', ['rgb.png', '-profile', 'wide.icc', '-intent', 'perceptual', '-profile', 'both.icc', ...args, name], { cwd: folder });
      const answer = await post(server, '/v1/restore', { picture: file(name), fields: { ...plain, upscale: '1', quality: '100' } });
      assert.equal(answer.status, 200);
      fs.writeFileSync(path.join(folder, 'out'), answer.bytes);
      assert.equal(execFileSync('identify', ['-format', '%[colorspace] %z', 'out'], { cwd: folder, encoding: 'utf8' }), `CMYK ${name === 'deep.tif' ? 16 : 8}`);
      assert.ok(answer.bytes.includes(icc));
      const [there, here] = [name, 'out'].map((one) => {
        execFileSync('convert', [one, '-intent', 'perceptual', '-profile', 'wide.icc', '-depth', '16', '-endian', 'LSB', 'rgb:seen'], { cwd: folder });
        return new Uint16Array(new Uint8Array(file('seen')).buffer);
      });
      assert.equal(here.length, 3 * side * side);
      let sum = 0, most = 0;
      for (let i = 0; i < here.length; i += 3) {
        const d = deltaE(...[there, here].map((all) => toXyz(spaces.ProPhoto, [0, 1, 2].map((c) => all[i + c] / 65535))));
        sum += d;
        most = Math.max(most, d);
      }
      const mean = (3 * sum) / here.length;
      assert.ok(mean <= 0.5, `on average ${mean}`);
      assert.ok(most <= 1, `${most}, on average ${mean}`);
      if (name === 'both.jpg') assert.equal(answer.bytes[answer.bytes.indexOf('Adobe\0') + 11], 0); // the inks themselves, not YCCK
      const report = await post(server, '/v1/restore', { picture: file(name), fields: { ...plain, upscale: '1' }, headers: { Accept: 'application/json' } });
      assert.equal(report.json.output.channels, 4);
      assert.ok(report.json.notes.some((note) => /to sRGB and back by the picture's ICC profile/.test(note)), String(report.json.notes));
      for (const fields of [{ profile: 'srgb' }, { ext: 'png' }]) {
        const other = await post(server, '/v1/restore', { picture: file(name), fields: { ...plain, upscale: '1', ...fields }, headers: { Accept: 'application/json' } });
        assert.equal(other.json.output.channels, 3);
        assert.ok(other.json.notes.some((note) => /converted to sRGB by the picture's ICC profile/.test(note)), String(other.json.notes));
      }
    });
});

describe('the mean colour', () => {
  // Textures in which this upscaler, made of noise, makes everything another colour.
  test('stays within half a level behind any upscaler, and is another with preserve_color=false', async () => {
    const other = await start();
    try {
      const samples = Uint8Array.from({ length: 3 * 64 * 64 }, (_, i) => 100 + 40 * Math.sin(i / 7) + 30 * Math.cos(Math.floor(i / 192) / 5) + (i % 3) * 10);
      const means = (pixels) => [0, 1, 2].map((c) => pixels.reduce((sum, v, i) => sum + (i % 3 === c ? v : 0), 0) / (pixels.length / 3));
      const there = means(samples), off = {};
      for (const preserve_color of ['true', 'false']) {
        const answer = await post(other, '/v1/restore', { picture: pngOf(64, 64, 3, samples), fields: { ...plain, bg_upsampler: 'srvgg_x2', ext: 'png', preserve_color } });
        assert.equal(answer.status, 200, JSON.stringify(answer.json));
        off[preserve_color] = Math.max(...means(decodePng(answer.bytes).pixels).map((v, c) => Math.abs(v - there[c])));
      }
      assert.ok(off.false > 0.5, `${off.false} levels off`);
      assert.ok(off.true <= 0.5, `${off.true} levels off`);
      // the same, seen through an alpha that is low in half of the picture, where the texture is another
      const clear = Uint8Array.from({ length: 4 * 64 * 64 }, (_, i) => (i % 4 === 3 ? (i % 256 < 128 ? 255 : 30) : i % 256 < 128 ? samples[(i >> 2) * 3 + (i % 4)] : 250));
      const seen = (pixels) => [0, 1, 2].map((c) => pixels.reduce((sum, v, i) => sum + (i % 4 === c ? v * pixels[i - c + 3] : 0), 0) / pixels.reduce((sum, v, i) => sum + (i % 4 === 3 ? v : 0), 0));
      const answer = await post(other, '/v1/restore', { picture: pngOf(64, 64, 4, clear), fields: { ...plain, bg_upsampler: 'srvgg_x2', ext: 'png' } });
      assert.equal(answer.status, 200, JSON.stringify(answer.json));
      const apart = Math.max(...seen(decodePng(answer.bytes).pixels).map((v, c) => Math.abs(v - seen(clear)[c])));
      assert.ok(apart <= 0.5, `${apart} levels off behind an alpha`);
    } finally {
      await other.stop();
    }
  });
});

describe('the colours of faces', () => {
  // Networks made of noise, for faces and for what is around them: what they make has colours of its own.
  test('of a black-and-white photo in three channels stay without any, those of a toned one are the same within a level', async () => {
    const other = await start();
    try {
      const { width, height, pixels } = decodePng(fixture('two.png')), light = [];
      for (let i = 0; i < pixels.length; i += 3) light.push(0.299 * pixels[i] + 0.587 * pixels[i + 1] + 0.114 * pixels[i + 2]);
      const tone = (rgb) => pngOf(width, height, 3, Uint8Array.from(light.flatMap((v) => rgb.map((of) => Math.min(255, Math.round(of * v))))));
      const send = async (picture, fields) => {
        const answer = await post(other, '/v1/restore', { picture, fields: { bg_upsampler: 'srvgg_x2', weight: '1', upscale: '1', ext: 'png', ...fields } });
        assert.equal(answer.status, 200, JSON.stringify(answer.json));
        return decodePng(answer.bytes).pixels;
      };
      const chroma = (p, [x0, y0, x1, y1]) => {
        const sum = [0, 0];
        for (let y = Math.round(y0); y < y1; y++)
          for (let x = Math.round(x0); x < x1; x++) {
            const i = 3 * (y * width + x), luma = 0.299 * p[i] + 0.587 * p[i + 1] + 0.114 * p[i + 2];
            [0, 2].forEach((c, k) => { sum[k] += (p[i + c] - luma) / (Math.round(x1) - Math.round(x0)) / (Math.round(y1) - Math.round(y0)); });
          }
        return sum;
      };
      const gray = tone([1, 1, 1]), most = (p) => p.reduce((far, v, i) => Math.max(far, Math.abs(v - p[i - (i % 3)])), 0);
      for (const fields of [{}, { aligned: 'true' }]) assert.equal(most(await send(gray, fields)), 0, JSON.stringify(fields));
      assert.ok(most(await send(gray, { preserve_color: 'false' })) > 3);
      const sepia = tone([1.15, 0.97, 0.8]), before = decodePng(sepia).pixels, after = await send(sepia, {});
      const { faces } = (await post(other, '/v1/detect', { picture: sepia })).json;
      assert.equal(faces.length, 2); // the drawn ones, whose skin this tone happens to have
      for (const { box } of faces) {
        const was = chroma(before, box), now = chroma(after, box);
        assert.ok(Math.abs(was[0]) > 10);
        assert.ok(was.every((v, k) => Math.abs(v - now[k]) <= 1), `${was} became ${now}`);
      }
    } finally {
      await other.stop();
    }
  });
});
