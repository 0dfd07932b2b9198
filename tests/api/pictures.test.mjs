// Pictures of every kind, good and broken: what comes out, or which status says why not.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { decodePng, difference, fixture, hasShared, plain, png, pngHeader, pngSize, post, shared, sharedModels, start } from './client.mjs';

let server;
before(async () => { server = await start(); });
after(() => server.stop());

const restore = (picture, fields = {}, extra = {}) => post(server, '/v1/restore', { picture, fields: { ...plain, ...fields }, ...extra });
const report = async (picture, fields) => (await restore(picture, fields, { headers: { Accept: 'application/json' } })).json;

describe('broken', () => {
  const jpeg = fixture('picture.jpg'), good = fixture('picture.png');
  const cases = [
    ['a text named .png', Buffer.from('This is no picture.\n'), 415],
    ['random bytes', Buffer.from(Array.from({ length: 3000 }, (_, i) => (i * 7919) % 251)), 415],
    ['a GIF', Buffer.from('GIF89a\x01\x00\x01\x00\x00\x00\x00;', 'latin1'), 415],
    ['a WebP without a size', Buffer.from('RIFF\x24\x00\x00\x00WEBPVP8 \x18\x00\x00\x00aaaaaaaaaaaaaaaaaaaaaaaa', 'latin1'), 422],
    ['a TIFF that ends early', Buffer.from('II*\0\x08\0\0\0', 'latin1'), 422],
    ['a JPEG cut in the middle', jpeg.subarray(0, jpeg.length / 2), 422],
    ['a JPEG without its last bytes', jpeg.subarray(0, jpeg.length - 8), 422],
    ['a JPEG cut in the header', jpeg.subarray(0, 30), 422],
    ['a PNG cut in the middle', good.subarray(0, good.length / 2), 422],
    ['a PNG cut in the header', good.subarray(0, 20), 422],
    ['a PNG with a flipped byte', Buffer.concat([good.subarray(0, 200), Buffer.from([good[200] ^ 0x55]), good.subarray(201)]), 422],
    ['a PNG of 60000x60000', Buffer.concat([pngHeader(60000, 60000), Buffer.alloc(100)]), 422],
    ['a PNG of 0x10', pngHeader(0, 10), 422],
  ];
  for (const [name, bytes, status] of cases)
    test(`${name}: ${status}`, async () => {
      const answer = await restore(bytes);
      assert.equal(answer.status, status, JSON.stringify(answer.json));
      assert.equal(answer.type, 'application/problem+json');
      assert.ok(answer.json.detail.length > 10);
    });

  test('60000x60000 is refused by its header, with the numbers', async () => {
    const answer = await restore(Buffer.concat([pngHeader(60000, 60000), Buffer.alloc(100)]));
    assert.match(answer.json.detail, /60000 . 60000/);
    assert.match(answer.json.detail, /64/);
  });

  test('a result over the limits', async () => {
    const pixels = await restore(png(8000, 1000), { upscale: '8' });
    assert.equal(pixels.status, 422);
    assert.match(pixels.json.detail, /result/);
    const side = await restore(png(9000, 2), { upscale: '8', ext: 'jpg' });
    assert.equal(side.status, 422);
    assert.match(side.json.detail, /longest side/);
  });
});

describe('kinds', () => {
  const reference = async () => decodePng((await restore(fixture('picture.png'), { upscale: '1', ext: 'png' })).bytes);

  test('1x1', async () => {
    const answer = await restore(fixture('one_pixel.png'));
    assert.equal(answer.status, 200);
    assert.deepEqual(pngSize(answer.bytes), [2, 2]);
    const whole = await post(server, '/v1/restore', { picture: fixture('one_pixel.png') }); // with every network
    assert.equal(whole.status, 200);
    assert.deepEqual(pngSize(whole.bytes), [2, 2]);
  });

  test('one row, one column', async () => {
    for (const [w, h] of [[37, 1], [1, 37]])
      assert.deepEqual(pngSize((await post(server, '/v1/restore', { picture: png(w, h) })).bytes), [2 * w, 2 * h]);
  });

  for (const [name, channels, bits] of [['gray.png', 1, 8], ['gray.jpg', 1, 8], ['deep.png', 3, 16]])
    test(`${name} comes out with ${channels} channels of ${bits} bits, where the format can hold them`, async () => {
      const fields = { upscale: '1', ext: 'png' }, r = await report(fixture(name), fields);
      assert.deepEqual(r.notes, []);
      const png = decodePng((await restore(fixture(name), fields)).bytes);
      assert.deepEqual([png.channels, png.bits], [channels, bits]);
      const webp = await report(fixture(name), { upscale: '1', ext: 'webp' });
      assert.ok(webp.notes.some((note) => (bits === 16 ? /16/ : /gr[ae]y/i).test(note)), JSON.stringify(webp.notes));
    });

  test('cmyk.jpg comes out as RGB, and the report says so', async () => {
    const r = await report(fixture('cmyk.jpg'), { upscale: '1' });
    assert.ok(r.notes.some((note) => /CMYK/i.test(note)), JSON.stringify(r.notes));
    const answer = await restore(fixture('cmyk.jpg'), { upscale: '1', ext: 'png' });
    assert.ok(difference(decodePng(answer.bytes), await reference()) < 8, 'it looks the same');
  });

  test('alpha is kept in PNG, and flattened on white in JPEG with a note', async () => {
    const kept = decodePng((await restore(fixture('rgba.png'))).bytes);
    assert.equal(kept.channels, 4);
    const alpha = new Set();
    for (let i = 3; i < kept.pixels.length; i += 4) alpha.add(kept.pixels[i]);
    assert.ok(alpha.size > 1, 'the alpha plane is not flat');
    const r = await report(fixture('rgba.png'), { ext: 'jpg' });
    assert.ok(r.notes.some((note) => /white/.test(note)), JSON.stringify(r.notes));
  });

  test('progressive and baseline JPEG', async () => {
    for (const name of ['progressive.jpg', 'picture.jpg']) {
      const answer = await restore(fixture(name), { upscale: '1', ext: 'png' });
      assert.equal(answer.status, 200);
      assert.ok(difference(decodePng(answer.bytes), await reference()) < 8, name);
    }
    const auto = await restore(fixture('picture.jpg'));
    assert.equal(auto.type, 'image/jpeg');
  });

  test('every other format that is read, and pages', async () => {
    const formats = (name) => fixture(`formats/${name}`);
    const expected = decodePng(formats('colour.png')), negative = decodePng(formats('negative.png'));
    for (const name of ['lossy.webp', 'plain.tif', 'lossy.avif', 'lossy.heic', 'lossless.jxl', 'lossless.jp2']) {
      const answer = await restore(formats(name), { upscale: '1', ext: 'png' });
      assert.equal(answer.status, 200, `${name} ${JSON.stringify(answer.json)}`);
      assert.ok(difference(decodePng(answer.bytes), expected) < 8, name);
      const auto = await restore(formats(name), { upscale: '1' });
      assert.equal(auto.type, { webp: 'image/webp', tif: 'image/tiff', avif: 'image/avif', jxl: 'image/jxl' }[name.split('.')[1]] ?? 'image/jpeg', name);
    }
    for (const name of ['moves.webp', 'pages.tif', 'pages.heic', 'moves.jxl'])
      for (const page of ['1', '2']) {
        const r = await report(formats(name), { upscale: '1', page });
        assert.ok(r.notes.some((note) => new RegExp(`the file has (2|several) pages or frames; number ${page} was`).test(note)), JSON.stringify(r));
      }
    assert.ok(difference(decodePng((await restore(formats('pages.tif'), { upscale: '1', page: '2', ext: 'png' })).bytes), negative) < 1);
    assert.equal((await restore(formats('pages.tif'), { page: '3' })).status, 400);
    const cut = formats('lossless.jxl');
    const answer = await restore(cut.subarray(0, cut.length / 2));
    assert.equal(answer.status, 422);
    assert.doesNotMatch(answer.json.detail, /damaged=accept/);
  });

  // What is written is read by each format's own reader.
  test('every other format that is written', async () => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-formats-')), at = (name) => path.join(folder, name);
    const readers = { webp: ['dwebp', '-quiet', at('a.webp'), '-o', at('a.png')], tiff: ['convert', at('a.tiff'), at('a.png')],
      avif: ['heif-convert', at('a.avif'), at('a.png')], jxl: ['djxl', '--quiet', at('a.jxl'), at('a.png')] };
    for (const ext of Object.keys(readers))
      for (const [name, fields] of [['alpha.png', {}], ['colour.png', { quality: '80' }], ['colour.png', { lossless: 'true' }], ['turned.jpg', {}]]) {
        const picture = fixture(`formats/${name}`), answer = await restore(picture, { upscale: '1', ext, ...fields });
        if (ext === 'avif' && fields.lossless) {
          assert.equal(answer.status, 400);
          continue;
        }
        assert.equal(answer.status, 200, JSON.stringify(answer.json));
        assert.equal(answer.type, `image/${ext}`);
        fs.writeFileSync(at(`a.${ext}`), answer.bytes);
        execFileSync(readers[ext][0], readers[ext].slice(1), { stdio: 'ignore' });
        if (name === 'turned.jpg') {
          const said = execFileSync('exiftool', ['-s3', '-Artist', '-Orientation', '-Title', at(`a.${ext}`)], { encoding: 'utf8' });
          assert.equal(said, 'Anna\nHorizontal (normal)\nHello\n', ext);
          const { width, height } = decodePng(fs.readFileSync(at('a.png')));
          assert.deepEqual([width, height], [43, 61], ext);
          continue;
        }
        const made = decodePng(fs.readFileSync(at('a.png'))), expected = decodePng(picture);
        assert.equal(made.channels, expected.channels, `${ext} ${name}`);
        const apart = difference(made, expected);
        assert.ok(apart <= (fields.lossless || ext === 'tiff' ? 0 : 20), `${ext} ${name}: ${apart}`);
      }
    const both = await restore(fixture('picture.jpg'), { upscale: '1', lossless: 'true' });
    assert.equal(both.type, 'image/png');
    fs.rmSync(folder, { recursive: true });
  });

  test('a JPEG has all chroma from quality 90 on, with compat as the reference writes it; progressive where asked', async () => {
    const sampling = async (fields) => {
      const { bytes } = await restore(fixture('picture.jpg'), { upscale: '1', ext: 'jpg', ...fields });
      return bytes[bytes.indexOf(Buffer.from([0xff, 0xc0])) + 11]; // the first component's, both ways: ITU-T T.81, B.2.2
    };
    assert.deepEqual([await sampling({}), await sampling({ quality: '90' }), await sampling({ quality: '89' }), await sampling({ compat: 'true' })],
      [0x11, 0x11, 0x22, 0x22]);
    const { bytes } = await restore(fixture('picture.jpg'), { upscale: '1', ext: 'jpg', progressive: 'true' });
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-scans-'));
    fs.writeFileSync(path.join(folder, 'a.jpg'), bytes);
    assert.match(execFileSync('exiftool', ['-s3', '-EncodingProcess', '-YCbCrSubSampling', path.join(folder, 'a.jpg')], { encoding: 'utf8' }), /^Progressive DCT.*\nYCbCr4:4:4/);
    fs.rmSync(folder, { recursive: true });
  });

  test('EXIF orientations 1 to 8 all stand upright', async () => {
    const pictures = [];
    for (let n = 1; n <= 8; n++) {
      const answer = await restore(fixture(`exif_${n}.jpg`), { upscale: '1', ext: 'png' });
      assert.equal(answer.status, 200);
      pictures.push(decodePng(answer.bytes));
    }
    for (let n = 2; n <= 8; n++) assert.ok(difference(pictures[n - 1], pictures[0]) < 8, `orientation ${n}`);
  });
});

describe('photos', { skip: hasShared ? false : 'no ../shared here' }, () => {
  let real;
  before(async () => { real = await start({ models: sharedModels }); });
  after(() => real.stop());
  test('faces are found in a photo, by multipart and raw', { timeout: 300000 }, async () => {
    const photo = fs.readFileSync(path.join(shared, 'photos/one_face.jpg'));
    const { json } = await post(real, '/v1/detect', { picture: photo });
    assert.equal(json.faces.length, 1);
    const answer = await post(real, '/v1/restore', { body: photo, query: '?bg_upsampler=none&upscale=1', headers: { 'Content-Type': 'image/jpeg' } });
    assert.equal(answer.status, 200);
    assert.equal(answer.type, 'image/jpeg');
    assert.equal(answer.headers.get('x-restored-faces'), '1');
  });

  test('the same seed gives the same bytes, another seed others', async () => {
    const photo = fs.readFileSync(path.join(shared, 'photos/one_face.jpg'));
    const run = async (seed) => (await post(real, '/v1/restore', { picture: photo, fields: { version: 'gfpgan_micro', weight: '1', bg_upsampler: 'none', upscale: '1', parse: 'false', seed } })).headers.get('etag');
    const [a, b, c] = [await run('7'), await run('7'), await run('8')];
    assert.equal(a, b);
    assert.notEqual(a, c);
  });
});
