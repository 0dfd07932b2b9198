// Results in pieces: previews and regions of the result of a job.
import assert from 'node:assert/strict';
import http from 'node:http';
import { describe, test, before, after } from 'node:test';
import { decodePng, difference, get, plain, png, pngOf, pngSize, post, start, until } from './client.mjs';

const width = 900, height = 700;
const path = (id, query) => `/v1/jobs/${id}/result${query}`;

// The id of a job that is done, and its whole result.
async function done(server, picture, fields) {
  const { json } = await post(server, '/v1/restore', { picture, fields: { ...plain, upscale: '1', async: 'true', ...fields } });
  await until('the job is done', async () => (await get(server, `/v1/jobs/${json.id}`)).json.state === 'done');
  const answer = await fetch(server.url + path(json.id, ''));
  return { id: json.id, etag: answer.headers.get('etag'), bytes: Buffer.from(await answer.arrayBuffer()) };
}

async function part(server, id, query, headers = {}) {
  const answer = await fetch(server.url + path(id, query), { headers });
  return { status: answer.status, type: answer.headers.get('content-type'), etag: answer.headers.get('etag'), cache: answer.headers.get('cache-control'), bytes: Buffer.from(await answer.arrayBuffer()) };
}

// The same part of a decoded picture.
function cut({ width: all, channels, pixels, ...rest }, x, y, w, h) {
  const out = new pixels.constructor(w * h * channels);
  for (let row = 0; row < h; row++)
    out.set(pixels.subarray(((y + row) * all + x) * channels, ((y + row) * all + x + w) * channels), row * w * channels);
  return { ...rest, width: w, height: h, channels, pixels: out };
}

// Means of squares of n × n pixels, of samples 0 to 255.
function reduced({ width: w, height: h, channels, pixels }, n) {
  const out = new Float64Array((w / n) * (h / n) * channels);
  for (let y = 0; y < h; y++)
    for (let x = 0; x < w; x++)
      for (let c = 0; c < channels; c++)
        out[((Math.floor(y / n) * w) / n + Math.floor(x / n)) * channels + c] += pixels[(y * w + x) * channels + c] / (n * n);
  return { width: w / n, height: h / n, channels, pixels: out };
}

describe('parts of results', () => {
  let server, lossless, jpeg;
  before(async () => {
    server = await start();
    lossless = await done(server, png(width, height), { ext: 'png' });
    jpeg = await done(server, png(width, height), { ext: 'jpg' });
  });
  after(() => server.stop());

  test('a region has the pixels of the result, wherever it lies', async () => {
    const whole = decodePng(lossless.bytes);
    for (const [x, y, w, h] of [[0, 0, 64, 64], [333, 127, 300, 3], [width - 1, height - 1, 1, 1], [0, 0, width, height]]) {
      const { status, type, bytes, cache } = await part(server, lossless.id, `?region=${x},${y},${w},${h}`);
      assert.equal(status, 200);
      assert.equal(type, 'image/png');
      assert.equal(cache, 'no-store');
      const piece = decodePng(bytes);
      assert.deepEqual([piece.width, piece.height], [w, h]);
      assert.equal(difference(piece, cut(whole, x, y, w, h)), 0, `${x},${y},${w},${h}`);
    }
  });

  test('a region of a JPEG has what the JPEG has', async () => {
    const whole = decodePng((await post(server, '/v1/restore', { picture: jpeg.bytes, fields: { ...plain, upscale: '1', ext: 'png' } })).bytes);
    const piece = decodePng((await part(server, jpeg.id, '?region=100,200,257,129')).bytes);
    assert.equal(difference(piece, cut(whole, 100, 200, 257, 129)), 0);
  });

  test('16 bits and transparency stay in a region; a preview of it is a PNG', async () => {
    const samples = new Uint16Array(120 * 80 * 4).map((_, i) => (i * 7919) % 65536);
    const deep = await done(server, pngOf(120, 80, 4, samples), { ext: 'png' });
    const whole = decodePng(deep.bytes), piece = decodePng((await part(server, deep.id, '?region=30,20,50,40')).bytes);
    assert.equal(piece.bits, 16);
    assert.equal(difference(piece, cut(whole, 30, 20, 50, 40)), 0);
    const preview = await part(server, deep.id, '?preview=60');
    assert.equal(preview.type, 'image/png');
    const { channels, bits } = decodePng(preview.bytes);
    assert.deepEqual([pngSize(preview.bytes), channels, bits], [[60, 40], 4, 8]);
    // alpha is the mean; a colour counts as much as it is opaque
    const small = decodePng(preview.bytes).pixels;
    for (const [x, y] of [[0, 0], [59, 39], [17, 23]]) {
      const four = [0, 1, 120, 121].map((step) => (2 * y * 120 + 2 * x + step) * 4);
      const alpha = four.reduce((sum, at) => sum + whole.pixels[at + 3] / 257, 0);
      assert.ok(Math.abs(small[(y * 60 + x) * 4 + 3] - alpha / 4) <= 1);
      const red = four.reduce((sum, at) => sum + ((whole.pixels[at] / 257) * whole.pixels[at + 3]) / 257, 0) / alpha;
      assert.ok(Math.abs(small[(y * 60 + x) * 4] - red) <= 1, `${small[(y * 60 + x) * 4]} for ${red}`);
    }
  });

  test('a preview is the mean of the result, and never larger than it', async () => {
    const preview = await part(server, lossless.id, '?preview=450');
    assert.equal(preview.type, 'image/jpeg');
    const shown = decodePng((await post(server, '/v1/restore', { picture: preview.bytes, fields: { ...plain, upscale: '1', ext: 'png' } })).bytes);
    assert.deepEqual([shown.width, shown.height], [450, 350]);
    assert.ok(difference(shown, reduced(decodePng(lossless.bytes), 2)) < 4); // JPEG of quality 90; another row is some 60 away
    const half = await part(server, jpeg.id, '?preview=450'); // of a JPEG that was read at half its size
    const halved = decodePng((await post(server, '/v1/restore', { picture: half.bytes, fields: { ...plain, upscale: '1', ext: 'png' } })).bytes);
    assert.deepEqual([halved.width, halved.height], [450, 350]);
    assert.ok(difference(halved, reduced(decodePng(lossless.bytes), 2)) < 5);
    const most = await part(server, jpeg.id, '?preview=4096');
    const all = decodePng((await post(server, '/v1/restore', { picture: most.bytes, fields: { ...plain, upscale: '1', ext: 'png' } })).bytes);
    assert.deepEqual([all.width, all.height], [width, height]);
  });

  test('ETags tell the result and its part; what is known is not sent again', async () => {
    const parts = ['?preview=64', '?preview=65', '?region=0,0,8,8', '?region=0,0,8,9'];
    const etags = new Set();
    for (const query of parts) {
      const { etag } = await part(server, lossless.id, query);
      etags.add(etag);
      const again = await part(server, lossless.id, query, { 'If-None-Match': etag });
      assert.deepEqual([again.status, again.bytes.length, again.etag], [304, 0, etag]);
      assert.equal((await part(server, jpeg.id, query, { 'If-None-Match': etag })).status, 200);
    }
    assert.equal(etags.size, parts.length);
    assert.ok(!etags.has(lossless.etag));
  });

  test('what is not allowed is told', async () => {
    for (const query of ['?preview=15', '?preview=4097', '?preview=', '?preview=64.5', '?preview=-64', '?region=1,2,3', '?region=1,2,3,4,5',
      '?region=0,0,0,1', '?region=0,0,1,0', '?region=-1,0,1,1', '?region=0,0,2049,2048', '?region=0,0,99999999999,1', `?region=${width},0,1,1`,
      `?region=0,0,${width + 1},1`, `?region=1,${height - 7},1,8`, '?preview=64&region=0,0,1,1', '?preview=64&preview=64']) {
      const { status, json } = await get(server, path(lossless.id, query));
      assert.equal(status, 400, query);
      assert.match(json.detail, /preview|region|900 × 700/, query);
    }
    assert.equal((await get(server, `/v1/jobs/${lossless.id}/mask?preview=64`)).status, 400);
    const gone = await done(server, png(40, 30));
    await fetch(`${server.url}/v1/jobs/${gone.id}`, { method: 'DELETE' });
    assert.equal((await get(server, path(gone.id, '?preview=64'))).status, 404);
  });

  test('many ask at once, some of them leave, and all others are answered', async () => {
    const large = await done(server, png(2600, 2000), { ext: 'png' });
    const whole = decodePng(large.bytes);
    const leave = (query) => new Promise((resolve) => {
      const request = http.get(server.url + path(large.id, query), { agent: false });
      request.on('error', resolve).on('response', () => request.destroy()).on('socket', (socket) => socket.on('connect', () => setImmediate(() => request.destroy(new Error('left')))));
    });
    const wanted = Array.from({ length: 12 }, (_, i) => [i * 200, i * 150, 128, 128]);
    const [pieces] = await Promise.all([
      Promise.all(wanted.map((at) => part(server, large.id, `?region=${at}`))),
      Promise.all(wanted.map((at) => leave(`?region=${at}`))),
      part(server, jpeg.id, '?preview=100'),
    ]);
    pieces.forEach(({ bytes }, i) => assert.equal(difference(decodePng(bytes), cut(whole, ...wanted[i])), 0));
  });
});

test('a spool without room for the decoded picture says so, and the result is still there', async (context) => {
  const server = await start({ context, args: ['--spool_max_bytes', '2500000'] });
  const { id, bytes } = await done(server, pngOf(1000, 1000, 3, new Uint8Array(3e6)), { ext: 'jpg' });
  const refused = await get(server, path(id, '?region=0,0,8,8'));
  assert.equal(refused.status, 507);
  assert.equal(refused.json.code, 'full');
  assert.equal((await part(server, id, '')).bytes.length, bytes.length);
  assert.equal((await part(server, id, '?preview=64')).status, 200, 'less is decoded for it');
});

test('a server that ends answers or closes those that wait', async (context) => {
  const server = await start({ context });
  const { id } = await done(server, png(2600, 2000), { ext: 'png' });
  const asked = Array.from({ length: 8 }, (_, i) => part(server, id, `?preview=${64 + i}`).then(({ status }) => status, () => 'closed'));
  await server.stop();
  for (const status of await Promise.all(asked)) assert.ok([200, 503, 'closed'].includes(status), String(status));
});
