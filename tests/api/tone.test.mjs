// tone=auto over HTTP: the report, what comes back, and that faces are found in the corrected picture.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { decodePng, fixture, plain, pngOf, post, start } from './client.mjs';

let server;
before(async () => { server = await start(); });
after(() => server.stop());

const json = { Accept: 'application/json' };
const shot = { ...plain, upscale: '1', ext: 'png', preserve_color: 'false' };
// A ramp of grays, or of a colour cast over them, from dark to light, or a faded one.
const ramp = (channels, low, high, type = Uint8Array) => pngOf(128, 64, channels, type.from({ length: 128 * 64 * channels }, (_, i) => {
  const x = Math.floor(i / channels) % 128, c = channels === 3 ? (i % 3) - 1 : 0, y = Math.floor(i / channels / 128), bright = (x / 127 + 0.3 * c * Math.sin(y)) * 0.7 + 0.15;
  return Math.round((low + (high - low) * bright + (channels === 3 ? 10 * c : 0)) * (type === Uint16Array ? 257 : 1));
}));
const spread = ({ pixels, bits }) => (Math.max(...pixels) - Math.min(...pixels)) / (bits === 16 ? 257 : 1);

test('a faded picture is corrected, a sound one is not, and the report says which', async () => {
  for (const [name, picture, monochrome] of [['gray', ramp(1, 70, 200), true], ['16 bit', ramp(1, 70, 200, Uint16Array), true], ['colour', ramp(3, 70, 200), false]]) {
    const { json: report } = await post(server, '/v1/restore', { picture, fields: { ...shot, tone: 'auto' }, headers: json });
    assert.equal(report.tone.monochrome, monochrome, name);
    assert.ok(report.tone.strength > 0.9 && report.tone.change > 5, name);
    const [was, is] = [decodePng(picture), decodePng((await post(server, '/v1/restore', { picture, fields: { ...shot, tone: 'auto' } })).bytes)];
    assert.deepEqual([is.channels, is.bits], [was.channels, was.bits], name);
    assert.ok(spread(is) > 200 && spread(was) < 170, `${name}: ${spread(was)} -> ${spread(is)}`);
    assert.ok(is.pixels.every((v) => v > 0 && v < (is.bits === 16 ? 65535 : 255)), `${name}: nothing is clipped`);
    for (const fields of [{}, { tone: 'auto', compat: 'true' }]) {
      const answer = await post(server, '/v1/restore', { picture, fields: { ...shot, ...fields }, headers: json });
      assert.equal(answer.json.tone, null);
    }
  }
  const sound = ramp(3, -30, 270);
  const answer = await post(server, '/v1/restore', { picture: sound, fields: { ...shot, tone: 'auto' } });
  assert.deepEqual(decodePng(answer.bytes).pixels, decodePng(sound).pixels);
});

test('a detection with tone=auto has the ids and boxes of a restoration with it', async () => {
  const { width, height, channels, pixels } = decodePng(fixture('two.png'));
  const picture = pngOf(width, height, channels, pixels.map((v) => 60 + 0.6 * v));
  const found = ({ faces }) => faces.map(({ id, box, score }) => ({ id, box, score }));
  const detected = found((await post(server, '/v1/detect', { picture, fields: { tone: 'auto' } })).json);
  const { json: report } = await post(server, '/v1/restore', { picture, fields: { bg_upsampler: 'none', tone: 'auto' }, headers: json });
  assert.deepEqual(found(report), detected);
  assert.ok(report.tone.strength > 0);
});
