// What README says comes back of a picture: each row of its table is tried, by files of other programs and exiftool.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fixture, get, plain, post, start } from './client.mjs';
import { rgbProfile } from './icc.mjs';
import { root } from './server.mjs';

let server;
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-whole-'));
before(async () => { server = await start({ models: [], env: { RESTORED_STARTER_MODELS: 'true' } }); });
after(async () => { await server.stop(); fs.rmSync(folder, { recursive: true }); });

const names = { JPEG: 'jpg', PNG: 'png', WebP: 'webp', TIFF: 'tiff', AVIF: 'avif', HEIC: 'heic', 'JPEG XL': 'jxl', 'JPEG 2000': 'jp2' };
const formats = (text) => text.split(', ').map((name) => names[name] ?? assert.fail(`${name} is no format`));
const writable = ['jpg', 'png', 'webp', 'tiff', 'avif', 'jxl'];
const made = (name) => fixture(`formats/${name}`);

async function restore(picture, fields = {}) {
  const answer = await post(server, '/v1/restore', { picture, fields: { ...plain, ...fields }, headers: { Accept: 'multipart/mixed' } });
  assert.equal(answer.status, 200, JSON.stringify(answer.json) ?? String(answer.bytes));
  const [, boundary] = /boundary="?([^";]+)/.exec(answer.headers['content-type'] ?? answer.headers.get('content-type'));
  const parts = answer.bytes.toString('latin1').split(`--${boundary}`).slice(1, -1).map((part) => part.slice(part.indexOf('\r\n\r\n') + 4, -2));
  return { report: JSON.parse(Buffer.from(parts[0], 'latin1')), bytes: Buffer.from(parts[1], 'latin1') };
}
const out = async (picture, fields) => (await restore(picture, fields)).report.output;
const tags = (bytes, ext) => {
  const file = path.join(folder, `x.${ext}`);
  fs.writeFileSync(file, bytes);
  return JSON.parse(execFileSync('exiftool', ['-json', '-n', '-G1', file]))[0];
};
async function keeps(ext, kept, picture, of) {
  assert.equal(of(await out(picture, { ext })), kept.includes(ext), ext);
}

const checks = {
  '16 bits': async (cell) => {
    for (const ext of writable) await keeps(ext, formats(cell.replace('in ', '')), fixture('deep.png'), (o) => o.bits === 16);
  },
  gray: async (cell) => {
    for (const ext of writable) await keeps(ext, formats(cell.replace('one channel in ', '')), fixture('gray.png'), (o) => o.channels === 1);
  },
  transparency: async (cell) => {
    const [list, ways] = cell.split('; ');
    for (const ext of writable) await keeps(ext, formats(list.replace('in ', '')), made('alpha.png'), (o) => o.channels === 4);
    assert.equal(ways, 'by Lanczos or by the upscaler');
    const [resized, network] = await Promise.all(['resize', 'network'].map((alpha) => restore(made('alpha.png'), { bg_upsampler: 'starter', ext: 'png', alpha })));
    assert.ok(!resized.bytes.equals(network.bytes));
  },
  'colour profile': async (cell) => {
    assert.equal(cell, 'kept (CMYK in JPEG and TIFF), or converted to sRGB'); // CMYK: colour.test.mjs
    const icc = rgbProfile([[0.68, 0.32], [0.265, 0.69], [0.15, 0.06]], 'srgb');
    fs.writeFileSync(path.join(folder, 'p3.icc'), icc);
    fs.writeFileSync(path.join(folder, 'p3.jpg'), fixture('picture.jpg'));
    execFileSync('exiftool', ['-q', '-overwrite_original', '-icc_profile<=p3.icc', 'p3.jpg'], { cwd: folder });
    const picture = fs.readFileSync(path.join(folder, 'p3.jpg'));
    for (const ext of writable) {
      const [kept, converted] = [await restore(picture, { ext }), await restore(picture, { ext, profile: 'srgb' })];
      assert.ok(ext === 'png' || ext === 'jxl' || kept.bytes.includes(icc), ext); // in these two it is packed
      assert.ok(!converted.bytes.includes(icc), ext);
      const first = tags(kept.bytes, ext)['ICC_Profile:RedMatrixColumn'], second = tags(converted.bytes, ext)['ICC_Profile:RedMatrixColumn'];
      if (ext !== 'jxl') assert.deepEqual([/^0.51/.test(first), /^0.43/.test(second)], [true, true], `${ext}: ${first}, ${second}`);
    }
  },
  'EXIF, XMP, IPTC': async (cell) => {
    assert.equal(cell, 'kept with the new size, stripped, or without the place');
    fs.writeFileSync(path.join(folder, 'in.jpg'), fixture('picture.jpg'));
    execFileSync('exiftool', ['-q', '-overwrite_original', '-Artist=Ann', '-ExifImageWidth=5', '-XMP-dc:Title=hello', '-IPTC:City=Bern', '-GPSLatitude=47.5', '-GPSLatitudeRef=N', 'in.jpg'], { cwd: folder });
    const picture = fs.readFileSync(path.join(folder, 'in.jpg'));
    const seen = async (metadata) => {
      const { report, bytes } = await restore(picture, { ext: 'jpg', metadata }), t = tags(bytes, 'jpg');
      return [t['IFD0:Artist'], t['XMP-dc:Title'], t['IPTC:City'], t['Composite:GPSLatitude'], t['ExifIFD:ExifImageWidth'] === report.output.width];
    };
    assert.deepEqual(await seen('keep'), ['Ann', 'hello', 'Bern', 47.5, true]);
    assert.deepEqual(await seen('strip-gps'), ['Ann', 'hello', 'Bern', undefined, true]);
    assert.deepEqual(await seen('strip'), [undefined, undefined, undefined, undefined, false]);
  },
  orientation: async (cell) => {
    assert.equal(cell, 'applied, and the tag reset');
    const { report, bytes } = await restore(made('turned.jpg'), { ext: 'jpg', upscale: '1' }); // stored as 61 x 43
    assert.deepEqual([report.output.width, report.output.height, tags(bytes, 'jpg')['IFD0:Orientation']], [43, 61, 1]);
  },
  reads: async (cell) => {
    const files = { jpg: 'turned.jpg', png: 'alpha.png', webp: 'lossy.webp', tiff: 'plain.tif', avif: 'lossy.avif', heic: 'lossy.heic', jxl: 'lossy.jxl', jp2: 'lossless.jp2' };
    for (const ext of formats(cell)) assert.ok((await out(made(files[ext]), { ext: 'png' })).bytes > 0, ext);
    assert.equal((await get(server, '/v1/capabilities')).json.formats.in.length, formats(cell).length);
  },
  writes: async (cell) => {
    assert.deepEqual(formats(cell), writable);
    for (const ext of writable) assert.equal((await out(fixture('picture.jpg'), { ext })).format, ext === 'jpg' ? 'jpeg' : ext);
    assert.equal((await get(server, '/v1/capabilities')).json.formats.out.length, writable.length);
  },
  size: async (cell) => {
    assert.equal(cell, '1 to 8 times, or a width and height');
    const size = async (fields) => { const { width, height } = await out(made('colour.png'), { ext: 'png', ...fields }); return [width, height]; };
    assert.deepEqual(await size({ upscale: '1' }), [61, 43]);
    assert.deepEqual(await size({ upscale: '2.5' }), [152, 107]);
    assert.deepEqual(await size({ upscale: '8' }), [488, 344]);
    assert.deepEqual(await size({ width: '100', height: '90', fit: 'fill' }), [100, 90]);
  },
};

const text = fs.readFileSync(path.join(root, 'README.md'), 'utf8');
const table = text.slice(text.indexOf('### What comes back of a picture')).split('\n\n')[1].split('\n').slice(2).map((line) => line.slice(2, -2).split(' | '));
test('every row has its check', () => assert.deepEqual(table.map(([row]) => row), Object.keys(checks)));
for (const [row, cell] of table) test(`${row}: ${cell}`, () => checks[row](cell));
