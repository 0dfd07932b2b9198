// Which faces are restored and how much: ids that stay what they are, sizes and scores, a weight for each face.
import assert from 'node:assert/strict';
import zlib from 'node:zlib';
import { after, before, test } from 'node:test';
import { chunk, decodePng, fixture, post, start } from './client.mjs';
import { rgbProfile } from './icc.mjs';

let server;
before(async () => { server = await start(); });
after(() => server.stop());

const two = fixture('two.png');
const json = { Accept: 'application/json' };
const quick = { bg_upsampler: 'none', upscale: '1', parse: 'false', weight: '1' };
const detect = async (picture, fields = {}) => {
  const answer = await post(server, '/v1/detect', { picture, fields });
  assert.equal(answer.status, 200, JSON.stringify(answer.json));
  return answer.json;
};
const restore = async (picture, fields = {}) => {
  const answer = await post(server, '/v1/restore', { picture, fields: { ...quick, ...fields }, headers: json });
  assert.equal(answer.status, 200, JSON.stringify(answer.json));
  return answer.json;
};
const found = ({ faces }) => faces.map(({ id, box, score, landmarks }) => ({ id, box, score, landmarks }));
const skipped = ({ faces }) => faces.map(({ action, reason }) => (action === 'skipped' ? reason : ''));
const longer = ({ box }) => Math.max(box[2] - box[0], box[3] - box[1]);

test('ids and boxes of a detection are those of every restoration of the same file', async () => {
  const profile = rgbProfile([[0.7347, 0.2653], [0.1596, 0.8404], [0.0366, 0.0001]], 1.8, [0.3457, 0.3585]); // ProPhoto
  const icc = chunk('iCCP', Buffer.concat([Buffer.from('icc\0\0', 'latin1'), zlib.deflateSync(profile)]));
  const wide = Buffer.concat([two.subarray(0, 33), icc, two.subarray(33)]);
  for (const [name, picture] of Object.entries({ plain: two, wide, deep: fixture('deep.png') })) {
    const wanted = found(await detect(picture));
    assert.ok(wanted.length, name);
    for (const fields of [{}, { ext: 'jpg', profile: 'srgb' }, { faces: '1' }, { faces: 'none', version: 'none', detector: 'detector' }, { min_face: '30', max_face: '40', min_score: '0.999' }, { only_center_face: 'true', upscale: '2' }])
      assert.deepEqual(found(await restore(picture, fields)), wanted, `${name} ${JSON.stringify(fields)}`);
    assert.deepEqual(found(await restore(picture, { compat: 'true' })), found(await detect(picture, { compat: 'true' })), name);
  }
});

test('sizes and scores leave faces out without renumbering them', async () => {
  const all = await detect(two), wanted = found(all);
  assert.deepEqual(wanted.map(({ id }) => id), [0, 1]);
  const sizes = all.faces.map(longer);
  for (const [field, side, what] of [['min_face', Math.ceil(Math.max(...sizes)), 'less'], ['max_face', Math.floor(Math.min(...sizes)), 'more']]) {
    assert.deepEqual(skipped(await detect(two, { [field]: String(side + (what === 'less' ? -2 : 2)) })), ['', '']);
    const report = await detect(two, { [field]: String(side) });
    assert.deepEqual(found(report), wanted);
    skipped(report).forEach((reason, i) => { // the number is rounded away from the limit: none "is 58.0 px, less than 58"
      const [, said] = reason.match(new RegExp(`^its box is ([\\d.]+) px, ${what} than ${field} \\(${side} px\\)$`)) ?? assert.fail(reason);
      assert.ok(Math.abs(said - sizes[i]) < 0.11 && (what === 'less' ? said < side : said > side), `${reason}, of ${sizes[i]}`);
    });
    assert.deepEqual(skipped(await restore(two, { [field]: String(side) })), skipped(report));
  }
  const sure = Math.max(...all.faces.map(({ score }) => score));
  assert.deepEqual(skipped(await detect(two, { min_score: String(sure) })).map((reason) => /^its score is 0\.\d{4}, less than min_score/.test(reason)),
    all.faces.map(({ score }) => score < sure));
  const more = await detect(two, { min_score: '0.5' });
  assert.deepEqual(found(more).slice(0, wanted.length), wanted, 'less sure ones come after the others');
  assert.ok(more.faces.slice(wanted.length).every(({ score }) => score <= 0.97 && score > 0.5));
  const none = await post(server, '/v1/restore', { picture: two, fields: { min_face: '50', max_face: '49' } });
  assert.equal(none.status, 400);
  assert.match(none.json.detail, /^max_face: no face is at least 50 px \(min_face\) and at most 49 px/);
});

test('each face may have a weight of its own', async () => {
  const picture = async (fields) => {
    const answer = await post(server, '/v1/restore', { picture: two, fields: { ...quick, ...fields } });
    assert.equal(answer.status, 200, JSON.stringify(answer.json));
    return decodePng(answer.bytes);
  };
  const [none, whole] = [await picture({ version: 'none' }), await picture({})];
  const middle = ({ box }) => [Math.round((box[0] + box[2]) / 2), Math.round((box[1] + box[3]) / 2)];
  const middles = (await detect(two)).faces.map(middle);
  const at = ({ width, pixels }, [x, y]) => Array.from(pixels.subarray(3 * (y * width + x), 3 * (y * width + x) + 3));
  for (const center of middles) assert.notDeepEqual(at(whole, center), at(none, center), 'a restoration shows');
  const mixed = await picture({ weight: '0,1:1' });
  assert.deepEqual(at(mixed, middles[0]), at(none, middles[0]));
  assert.deepEqual(at(mixed, middles[1]), at(whole, middles[1]));
  const half = await picture({ weight: '1,0:0.5' });
  at(half, middles[0]).forEach((v, c) => assert.ok(Math.abs(v - (at(none, middles[0])[c] + at(whole, middles[0])[c]) / 2) <= 1));
  assert.deepEqual(at(half, middles[1]), at(whole, middles[1]));

  const report = await restore(two, { weight: '1:0.25,7:1' });
  assert.equal(report.options.weight, 'auto,1:0.25,7:1');
  assert.equal(report.faces[1].used, 0.25);
  assert.equal(report.faces[1].action, 'restored');
  assert.equal(report.faces[0].used, (await restore(two, { weight: 'auto' })).faces[0].used);
  assert.ok(report.notes.includes('weight: there is no face 7; the picture has 2 faces'), report.notes.join());
  assert.equal(report.note_codes.length, report.notes.length);
  assert.deepEqual(report.note_codes[report.notes.findIndex((note) => note.startsWith('weight'))], { code: 'weight-missing', values: ['7', '2'] });
  const bad = await post(server, '/v1/restore', { picture: two, fields: { weight: '0:2' } });
  assert.match(bad.json.detail, /^weight: "0:2" is not allowed; allowed: auto, or 0 to 1; .*auto,0:0.5,2:1/);
});
