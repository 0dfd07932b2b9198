// auto_rotate: faces in a picture that lies on its side or head are found, and the picture is turned where that is asked for.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { decodePng, plain, png, pngOf, post, start } from './client.mjs';
import { root } from './server.mjs';

let server, upright, faces;
const json = { Accept: 'application/json' };
const same = { ...plain, upscale: '1', ext: 'png', repair: 'false', preserve_color: 'false' };
const send = async (route, picture, fields, headers = {}) => {
  const answer = await post(server, route, { picture, fields, headers });
  assert.equal(answer.status, 200, JSON.stringify(answer.json));
  return answer;
};
const report = async (picture, fields) => (await send('/v1/restore', picture, { ...same, ...fields }, json)).json;

// A picture turned counter-clockwise by 90 degrees so often: pixel x, y comes from width - 1 - y, x.
function turn(picture, times) {
  for (; times > 0; times--) {
    const { width, height, channels, pixels } = picture, out = new pixels.constructor(pixels.length);
    for (let y = 0; y < width; y++)
      for (let x = 0; x < height; x++)
        for (let c = 0; c < channels; c++) out[(y * height + x) * channels + c] = pixels[(x * width + width - 1 - y) * channels + c];
    picture = { width: height, height: width, channels, pixels: out };
  }
  return picture;
}
const file = ({ width, height, channels, pixels }) => pngOf(width, height, channels, pixels);
const found = ({ faces: list }) => list.map(({ id, score, box, landmarks }) => ({ id, score, box, landmarks }));

before(async () => {
  server = await start({ models: [], env: { RESTORED_STARTER_MODELS: 'true' } });
  const sample = fs.readFileSync(path.join(root, 'static/sample.jpg'));
  upright = decodePng((await send('/v1/restore', sample, { ...plain, ext: 'png', repair: 'false', width: '360' })).bytes);
  faces = found((await send('/v1/detect', file(upright), { repair: 'false' })).json);
  assert.equal(faces.length, 2);
});
after(() => server.stop());

test('a picture on its side or head comes back upright, with its faces where they are then', async () => {
  for (const times of [1, 2, 3]) {
    const lying = file(turn(upright, times));
    const answer = await send('/v1/restore', lying, { ...same, auto_rotate: 'apply' });
    const { width, height, pixels } = decodePng(answer.bytes);
    assert.deepEqual([width, height], [upright.width, upright.height]);
    assert.ok(pixels.equals(upright.pixels), `${90 * times} degrees`);
    const told = await report(lying, { auto_rotate: 'apply' });
    assert.deepEqual(told.rotation, { degrees: 90 * times, applied: true });
    assert.deepEqual([told.input.width, told.input.height], [width, height]);
    assert.deepEqual(found(told), faces);
    assert.ok(told.notes.some((note) => note.startsWith(`the picture was turned by ${90 * times} degrees clockwise`)));
  }
});

test('report finds the faces and leaves the picture as it is', async () => {
  for (const times of [1, 2]) {
    const lying = turn(upright, times), picture = file(lying);
    const told = await report(picture, { auto_rotate: 'report' }), detected = (await send('/v1/detect', picture, { repair: 'false', auto_rotate: 'report' })).json;
    assert.deepEqual(told.rotation, { degrees: 90 * times, applied: false });
    assert.deepEqual(detected.rotation, told.rotation);
    assert.deepEqual([told.output.width, told.output.height], [lying.width, lying.height]);
    assert.deepEqual(found(told), found(detected));
    told.faces.forEach(({ box, landmarks, action, reason }, id) => {
      assert.deepEqual([action, reason], ['skipped', 'version=none']);
      assert.equal(detected.faces[id].action, 'restorable');
      const there = (point, from) => { // where a point of the upright picture is in this one
        let [x, y] = point;
        for (let i = 0, { width, height } = from; i < times; i++, [width, height] = [height, width]) [x, y] = [y, width - 1 - x];
        return [x, y];
      };
      landmarks.forEach((point, k) => point.forEach((v, c) => assert.ok(Math.abs(v - there(faces[id].landmarks[k], upright)[c]) < 0.01)));
      assert.ok(box[0] < box[2] && box[1] < box[3]);
      const eyes = landmarks[0].map((v, c) => (v + landmarks[1][c]) / 2);
      assert.ok(eyes[0] > box[0] && eyes[0] < box[2] && eyes[1] > box[1] && eyes[1] < box[3]);
    });
  }
});

test('a face is restored in place, as it is in the upright picture', async () => {
  const fields = { ...same, version: 'starter', faces: '0', parse: 'false', weight: '1' };
  const wanted = decodePng((await send('/v1/restore', file(upright), fields)).bytes);
  const turned = decodePng((await send('/v1/restore', file(turn(upright, 1)), { ...fields, auto_rotate: 'apply' })).bytes);
  assert.ok(turned.pixels.equals(wanted.pixels));
  const place = turn(decodePng((await send('/v1/restore', file(turn(upright, 1)), { ...fields, auto_rotate: 'report' })).bytes), 3);
  let worst = 0, changed = 0;
  for (let i = 0; i < wanted.pixels.length; i++) {
    worst = Math.max(worst, Math.abs(place.pixels[i] - wanted.pixels[i]));
    changed += upright.pixels[i] !== wanted.pixels[i];
  }
  assert.ok(changed > 10000 && worst <= 8, `${changed} changed, at most ${worst} levels apart`);
});

test('gray, 16 bit and transparency are turned, too', async () => {
  const { width, height, pixels } = upright;
  const forms = {
    gray16: { width, height, channels: 1, pixels: Uint16Array.from({ length: width * height }, (_, i) => 257 * pixels[3 * i + 1] + (i % 200)) },
    alpha: { width, height, channels: 4, pixels: Uint8Array.from({ length: 4 * width * height }, (_, i) => (i % 4 < 3 ? pixels[3 * (i >> 2) + (i % 4)] : 200 + ((i >> 2) % 50))) },
  };
  for (const [name, form] of Object.entries(forms)) {
    const answer = await send('/v1/restore', file(turn(form, 1)), { ...same, auto_rotate: 'apply' });
    const got = decodePng(answer.bytes);
    assert.deepEqual([got.width, got.channels], [width, form.channels], name);
    assert.deepEqual(Buffer.from(got.pixels.buffer, got.pixels.byteOffset, got.pixels.byteLength), Buffer.from(form.pixels.buffer, form.pixels.byteOffset, form.pixels.byteLength), name);
  }
});

test('a mask that was sent is turned with the picture', async () => {
  const lying = turn(upright, 1), mask = { width: upright.width, height: upright.height, channels: 1, pixels: Buffer.alloc(upright.width * upright.height) };
  for (let y = 20; y < 26; y++) mask.pixels.fill(255, y * mask.width + 100, y * mask.width + 140);
  const form = new FormData();
  form.append('image', new Blob([file(lying)]), 'photo.png');
  form.append('mask', new Blob([file(turn(mask, 1))]), 'mask.png');
  for (const [name, value] of Object.entries({ ...same, fill: 'none', auto_rotate: 'apply' })) form.append(name, value);
  const answer = await post(server, '/v1/restore', { body: form, headers: { Accept: 'multipart/mixed' } });
  assert.equal(answer.status, 200);
  const text = answer.bytes.toString('latin1'), at = text.indexOf('\x89PNG', text.indexOf('name="masks"'));
  assert.ok(decodePng(answer.bytes.subarray(at, text.indexOf('IEND', at) + 8)).pixels.equals(mask.pixels));
});

test('what is upright, or has no faces, is not turned, and compat and the default do not look', async () => {
  const told = await report(file(upright), { auto_rotate: 'apply' });
  assert.deepEqual(told.rotation, { degrees: 0, applied: false });
  assert.deepEqual(found(told), faces);
  assert.deepEqual((await report(png(200, 150), { auto_rotate: 'apply' })).rotation, { degrees: 0, applied: false });
  const lying = file(turn(upright, 2));
  assert.equal((await report(lying, {})).rotation, null);
  assert.equal((await report(lying, { auto_rotate: 'apply', compat: 'true' })).rotation, null);
  assert.ok(!('rotation' in (await send('/v1/detect', lying, {})).json));
});
