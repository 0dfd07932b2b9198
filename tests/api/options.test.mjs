// POST /v1/restore and /v1/detect: bodies, options, headers, the report, and what is refused with which words.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { decodePng, difference, fixture, plain, png, pngSize, post, start } from './client.mjs';

let server;
before(async () => { server = await start(); });
after(() => server.stop());

const picture = fixture('picture.png');

function problem(answer, status, ...words) {
  assert.equal(answer.status, status, JSON.stringify(answer.json));
  assert.equal(answer.type, 'application/problem+json');
  const p = answer.json;
  assert.equal(p.status, status);
  for (const key of ['type', 'title', 'detail', 'instance', 'code', 'request_id']) assert.equal(typeof p[key], 'string', key);
  assert.equal(p.request_id, answer.headers.get('x-request-id'));
  for (const word of words) assert.match(p.detail, word);
}

test('aligned needs a face network, also where none is the default', async (context) => {
  const none = await start({ context, args: ['--default_version', 'none'] });
  problem(await post(none, '/v1/restore', { picture, fields: { aligned: 'true' } }), 400, /aligned: true needs a face network/);
  await none.stop();
});

describe('bodies', () => {
  test('a form, the picture itself, and what curl --data-binary sends give the same bytes', async () => {
    const form = await post(server, '/v1/restore', { picture, fields: plain });
    assert.equal(form.status, 200);
    assert.equal(form.type, 'image/png');
    assert.deepEqual(pngSize(form.bytes), [320, 256]);
    for (const type of ['image/png', 'application/octet-stream', 'application/x-www-form-urlencoded', 'image/jpeg', 'text/plain']) {
      const same = await post(server, '/v1/restore', { body: picture, query: '?version=none&bg_upsampler=none', headers: { 'Content-Type': type } });
      assert.equal(same.status, 200, type);
      assert.equal(same.type, 'image/png', 'the bytes decide, not the declared type');
      assert.ok(same.bytes.equals(form.bytes), type);
    }
    const mixed = await post(server, '/v1/restore', { picture, fields: { version: 'none' }, query: '?bg_upsampler=none' });
    assert.ok(mixed.bytes.equals(form.bytes));
  });

  test('headers of a picture', async () => {
    const answer = await post(server, '/v1/restore', { picture, name: 'Mäd "chen"\\x.old.png', fields: { ...plain, suffix: 'x2', ext: 'jpg' }, headers: { 'X-Request-Id': 'my_id-1' } });
    assert.equal(answer.type, 'image/jpeg');
    assert.equal(answer.headers.get('x-request-id'), 'my_id-1');
    assert.equal(answer.headers.get('x-restored-faces'), '0');
    assert.match(answer.headers.get('x-restored-device'), /^(vulkan:\d+|cpu)$/);
    assert.equal(answer.headers.get('x-content-type-options'), 'nosniff');
    assert.match(answer.headers.get('etag'), /^"[0-9a-f-]+"$/);
    assert.match(answer.headers.get('content-disposition'), /^attachment; filename="[^"\\/]*_x2\.jpg"/);
    for (const stage of ['decode', 'detect', 'align', 'restore', 'parse', 'background', 'paste', 'encode', 'queue'])
      assert.match(answer.headers.get('server-timing'), new RegExp(`\\b${stage};dur=[0-9.]+`));
    const again = await post(server, '/v1/restore', { picture, fields: { ...plain, suffix: 'x2', ext: 'jpg' } });
    assert.equal(again.headers.get('etag'), answer.headers.get('etag'));
    const other = await post(server, '/v1/restore', { picture, fields: { ...plain, ext: 'jpg', quality: '50' } });
    assert.notEqual(other.headers.get('etag'), answer.headers.get('etag'));
    assert.ok(other.bytes.length < answer.bytes.length);
    const odd = await post(server, '/v1/restore', { picture, fields: plain, headers: { 'X-Request-Id': 'no blanks allowed' } });
    assert.match(odd.headers.get('x-request-id'), /^[0-9a-f]{32}$/);
  });

  test('a name in UTF-8 comes back as filename*', async () => {
    const answer = await post(server, '/v1/restore', { picture, name: 'Mädchen €.png', fields: plain });
    assert.equal(answer.headers.get('content-disposition'), "attachment; filename=\"M_dchen _.png\"; filename*=UTF-8''M%C3%A4dchen%20%E2%82%AC.png");
  });

  test('empty and missing pictures', async () => {
    problem(await post(server, '/v1/restore', { body: '' }), 400, /^The body is empty/);
    problem(await post(server, '/v1/restore', { fields: plain }), 400, /image: there is no picture in the form/);
    problem(await post(server, '/v1/restore', { picture: Buffer.alloc(0), fields: plain }), 400, /image: the picture is empty/);
    const two = new FormData();
    two.append('image', new Blob([picture]), 'a.png');
    two.append('image', new Blob([picture]), 'b.png');
    problem(await post(server, '/v1/restore', { body: two }), 400, /image: sent more than once/);
  });

  test('files of other kinds are refused by their name', async () => {
    const answer = await post(server, '/v1/restore', { body: Buffer.from('GIF89a\x01\0\x01\0', 'latin1'), headers: { 'Content-Type': 'image/gif' } });
    problem(answer, 415, /^This is a GIF, .* JPEG or PNG/);
    assert.equal(answer.json.code, 'unsupported-format');
    problem(await post(server, '/v1/detect', { picture: Buffer.from('{"image": "/9j/4AAQSkZJRg"}'), name: 'a.jpg' }), 415, /^This is JSON; /);
    problem(await post(server, '/v1/restore', { body: '--part\r\nContent-Disposition: form-data; name="image"\r\n\r\n', headers: { 'Content-Type': 'image/jpeg' } }), 415, /^This is a form /);
  });

  test('ext=jpeg is jpg', async () => {
    const answer = await post(server, '/v1/restore', { picture, fields: { ...plain, ext: 'jpeg' } });
    assert.equal(answer.type, 'image/jpeg');
    assert.match(answer.headers.get('content-disposition'), /picture\.jpg"/);
  });

  test('forms that are broken', async () => {
    const send = (type, body) => post(server, '/v1/restore', { body, headers: { 'Content-Type': type } });
    problem(await send('multipart/form-data', 'x'), 400, /boundary/);
    problem(await send('multipart/form-data; boundary=x', '--x--'), 400, /there is no picture in the form/);
    problem(await send('multipart/form-data; boundary=part', '--other--'), 400, /^The boundary that the Content-Type names is not in the form/);
    problem(await send('multipart/form-data; boundary=part', '--part\r\nContent-Disposition: form-data; name="image"\r\n\r\nabc'), 400, /cut off/);
    problem(await send('multipart/form-data; boundary=part', '--part\r\nContent-Disposition: form-data\r\n\r\nabc\r\n--part--\r\n'), 400, /^A part of the form has no name/);
    problem(await send('multipart/form-data; boundary=part', '--partxyz\r\n'), 400, /form/);
    const part = (name, value) => `--part\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
    const parts = (...list) => send('multipart/form-data; boundary=part', Buffer.concat([Buffer.from(list.join('')), Buffer.from(part('image', '').slice(0, -2)), picture, Buffer.from('\r\n--part--\r\n')]));
    problem(await parts(part('upscale', ''), part('upscale', '1')), 400, /^upscale: the value is empty/);
    problem(await parts(part('image', '').repeat(100000)), 400, /^image: sent more than once/);
    problem(await parts(part('upscale', '1'), part('upscale', '1')), 400, /^upscale: sent more than once/);
    problem(await send('multipart/mixed; boundary=part', '--part--'), 415, /^multipart\/form-data is the only multipart type/);
  });
});

describe('options', () => {
  const bad = [
    ['scale', '2', /^scale: there is no such field; known are: version, upscale/],
    ['upscale', '0', /^upscale: "0".*1 to 8/], ['upscale', 'nan', /^upscale: "nan"/], ['upscale', '8.01', /8\.01/], ['upscale', '2,5', /2,5/],
    ['upscale', '', /^upscale: the value is empty/], ['bg_tile', '31', /^bg_tile: "31".*32 to 4096/], ['weight', '2', /^weight: "2".*0 to 1/],
    ['aligned', 'maybe', /^aligned: "maybe"/], ['ext', 'gif', /^ext: "gif"/], ['quality', '0', /^quality/], ['png_level', '10', /^png_level/],
    ['seed', '-1', /^seed/], ['faces', 'a', /^faces/], ['precision', 'fp64', /^precision: "fp64"/], ['parse', 'perhaps', /^parse/],
    ['async', 'perhaps', /^async: "perhaps"/], ['batch', 'a b', /^batch: "a b"/], ['device', 'vulkan:99', /^device: "vulkan:99" is none of the devices; there are: /],
    ['device', 'reference', /^device: "reference"/], ['version', 'nothing_like_it', /nothing_like_it/], ['version', '1', /1 is not installed/],
    ['version', 'RestoreFormer', /RestoreFormer is not installed/], ['bg_upsampler', 'detector', /detector/], ['detector', 'upscaler', /upscaler/],
    ['page', '0', /^page: "0".*1 to 9999/], ['page', '2', /^page: the file has 1 page/],
  ];
  for (const [field, value, words] of bad)
    test(`${field}=${value || '(empty)'} is a 400`, async () => {
      problem(await post(server, '/v1/restore', { picture, fields: { [field]: value } }), 400, words);
      problem(await post(server, '/v1/restore', { body: picture, query: `?${field}=${value}`, headers: { 'Content-Type': 'image/png' } }), 400, words);
    });

  test('a value that is not UTF-8 is a 400 that names the field', async () => {
    const part = (name, value) => Buffer.concat([Buffer.from(`--part\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n`), value, Buffer.from('\r\n')]);
    for (const field of ['upscale', 'suffix', 'version', 'device', 'async']) {
      const body = Buffer.concat([part(field, Buffer.from([0xff, 0xfe])), part('image', picture), Buffer.from('--part--\r\n')]);
      problem(await post(server, '/v1/restore', { body, headers: { 'Content-Type': 'multipart/form-data; boundary=part' } }), 400, new RegExp(`^${field}: "\\?\\?" is not UTF-8`));
      problem(await post(server, '/v1/restore', { body: picture, query: `?${field}=%ff%fe`, headers: { 'Content-Type': 'image/png' } }), 400, new RegExp(`^${field}: "\\?\\?" is not UTF-8`));
    }
    /* a message that is cut within a character is shown all the same */
    problem(await post(server, '/v1/restore', { picture, fields: { upscale: `a${'€'.repeat(100)}` } }), 400, /^upscale: "a€/);
  });

  test('a picture in a field of another name', async () => {
    const form = new FormData();
    form.append('file', new Blob([picture]), 'one.png');
    problem(await post(server, '/v1/restore', { body: form }), 400, /^file: there is no such field; the picture goes in "image", a mask in "mask"$/);
    form.append('image', new Blob([picture]), 'one.png');
    problem(await post(server, '/v1/restore', { body: form }), 400, /^file: there is no such field/);
    problem(await post(server, '/v1/restore', { picture, fields: { scale: 'a'.repeat(2000) } }), 400, /^scale: there is no such field; known are/);
  });

  test('a suffix: what is too long or would be lost is refused', async () => {
    problem(await post(server, '/v1/restore', { picture, fields: { ...plain, suffix: 'a'.repeat(128) } }), 400, /^suffix: the value has 128 bytes; allowed: up to 127 bytes/);
    problem(await post(server, '/v1/restore', { picture, fields: { ...plain, suffix: 'a\\b' } }), 400, /^suffix: "a\\b" is not allowed/);
    const long = await post(server, '/v1/restore', { picture, fields: { ...plain, suffix: 'a'.repeat(127) } });
    assert.ok(long.headers.get('content-disposition').includes(`_${'a'.repeat(127)}.png`));
  });

  test('a model that is not installed: which file, where it was looked for, how to get it', async () => {
    problem(await post(server, '/v1/restore', { picture, fields: { version: '1.4' } }), 400, /GFPGANv1\.4\.pth/, /build\/fixtures/, /restored models get/);
    const far = await post(server, '/v1/restore', { picture, fields: { version: '1.4' }, headers: { 'X-Forwarded-For': '203.0.113.7' } });
    problem(far, 400, /^version: 1\.4 is not installed; whoever runs this server can say more$/);
  });

  test('the same field twice, also in query and body', async () => {
    const twice = new FormData();
    twice.append('weight', '1');
    twice.append('weight', '0.5');
    twice.append('image', new Blob([picture]), 'a.png');
    problem(await post(server, '/v1/restore', { body: twice }), 400, /^weight: sent more than once/);
    problem(await post(server, '/v1/restore', { picture, fields: { weight: '1' }, query: '?weight=1' }), 400, /^weight: sent more than once/);
    problem(await post(server, '/v1/restore', { picture, query: '?weight=1&weight=1' }), 400, /^weight: sent more than once/);
    problem(await post(server, '/v1/restore', { picture, query: '?weight' }), 400, /^weight: the value is empty/);
    problem(await post(server, '/v1/restore', { picture, query: '?weight=1%00' }), 400, /zero byte/);
  });

  test('booleans in all their spellings, an empty suffix, async=false, Prefer is ignored', async () => {
    for (const value of ['true', '1', 'on', 'yes', 'TRUE', 'false', '0', 'off', 'no']) {
      const answer = await post(server, '/v1/restore', { picture, fields: { ...plain, only_center_face: value, suffix: '', async: 'false' }, headers: { Prefer: 'respond-async' } });
      assert.equal(answer.status, 200, value);
    }
  });

  test('upscale 1, 1.5 and a fraction give int(w*s) by int(h*s)', async () => {
    for (const [upscale, size] of [['1', [160, 128]], ['1.5', [240, 192]], ['1.337', [213, 171]]])
      assert.deepEqual(pngSize((await post(server, '/v1/restore', { picture, fields: { ...plain, upscale } })).bytes), size);
    const same = await post(server, '/v1/restore', { picture, fields: { ...plain, upscale: '1' } });
    assert.ok(difference(decodePng(same.bytes), decodePng(picture)) < 0.01, 'no scaling changes nothing');
  });
});

describe('Accept', () => {
  const ask = (accept, fields = {}) => post(server, '/v1/restore', { picture, fields: { ...plain, ...fields }, headers: { Accept: accept } });
  test('the report instead of the picture', async () => {
    for (const accept of ['application/json', 'application/json, image/png;q=0.5', 'image/png;q=0, application/*']) {
      const answer = await ask(accept);
      assert.equal(answer.status, 200);
      assert.equal(answer.type, 'application/json', accept);
      assert.deepEqual(answer.json.output, { width: 320, height: 256, format: 'png', bits: 8, channels: 3, bytes: answer.json.output.bytes });
      assert.deepEqual(answer.json.models, { damage: null, fill: null, detector: null, face: null, parser: null, background: null });
    }
  });
  test('the picture', async () => {
    for (const accept of ['*/*', 'image/*', 'application/json;q=0.5, */*', 'text/html, image/png'])
      assert.equal((await ask(accept)).type, 'image/png', accept);
  });
  test('a model that is not there is refused, whether it would be used or not', async () => {
    for (const fields of [{ detector: 'nope', version: 'none' }, { detector: 'nope', version: 'none', faces: 'none' }, { bg_upsampler: 'nope', aligned: 'true' },
      { version: 'nope', faces: 'none' }, { fill: 'nope', repair: 'false' }, { damage_detector: 'nope', repair: 'false' }])
      problem(await post(server, '/v1/restore', { picture, fields }), 400, new RegExp(`^${Object.keys(fields)[0]}: .*nope`));
  });

  test('neither: 406', async () => {
    for (const [accept, fields] of [['image/gif', {}], ['image/png', { ext: 'jpg' }], ['text/html', {}], ['*/*;q=0', {}]])
      problem(await ask(accept, fields), 406, /Accept excludes it/);
    problem(await post(server, '/v1/detect', { picture, headers: { Accept: 'image/png' } }), 406, /application\/json/);
    problem(await post(server, '/v1/restore', { picture, fields: { async: 'true' }, headers: { Accept: 'image/gif' } }), 406, /Accept excludes it/);
  });
});

describe('faces', () => {
  test('the report of a restoration', async () => {
    const { status, json: r } = await post(server, '/v1/restore', { picture: fixture('two.png'), headers: { Accept: 'application/json' } });
    assert.equal(status, 200);
    assert.deepEqual(Object.keys(r), ['input', 'output', 'options', 'models', 'device', 'precision', 'damage', 'faces', 'timings_ms', 'network_ms', 'tiles', 'notes', 'note_codes', 'tone', 'rotation']);
    assert.deepEqual(r.input, { width: 240, height: 128, format: 'png', bits: 8, channels: 3, bytes: fixture('two.png').length });
    assert.equal(r.output.width, 480);
    assert.equal(r.damage, null); // no detector of it is the default
    assert.deepEqual(r.models, { damage: null, fill: null, detector: 'detector', face: 'face_64', parser: 'parser', background: 'upscaler' });
    assert.deepEqual(Object.keys(r.timings_ms), ['queue', 'decode', 'repair', 'detect', 'align', 'restore', 'parse', 'background', 'paste', 'encode', 'total']);
    assert.deepEqual(Object.keys(r.network_ms), ['repair', 'detect', 'restore', 'parse', 'background']);
    for (const [stage, ms] of Object.entries(r.network_ms)) assert.ok((ms > 0 || stage === 'repair') && ms <= r.timings_ms[stage], stage);
    assert.equal(r.faces.length, 2);
    for (const [i, face] of r.faces.entries()) {
      assert.equal(face.id, i);
      assert.equal(face.action, 'kept'); // the fixture's network makes another face of it
      assert.match(face.reason, /restoration/);
      assert.ok(face.used < 0.05 && face.change > 0.5 && face.change <= 1);
      assert.equal(face.box.length, 4);
      assert.deepEqual(face.landmarks.map((p) => p.length), [2, 2, 2, 2, 2]);
      assert.ok(face.score > 0.97 && face.eye_distance > 5);
    }
    assert.ok(r.faces[0].score >= r.faces[1].score);
    assert.equal(r.options.upscale, 2);
    assert.equal(r.options.version, 'face_64');
    assert.ok(r.tiles >= 1);
  });

  test('which faces are restored', async () => {
    const run = async (fields) => {
      const { json } = await post(server, '/v1/restore', { picture: fixture('two.png'), fields: { bg_upsampler: 'none', parse: 'false', weight: '1', ...fields }, headers: { Accept: 'application/json' } });
      return json.faces.map((face) => face.action);
    };
    assert.deepEqual(await run({ faces: 'none' }), ['skipped', 'skipped']);
    assert.deepEqual(await run({ faces: '1' }), ['skipped', 'restored']);
    assert.deepEqual(await run({ faces: '1', weight: 'auto' }), ['skipped', 'kept']);
    assert.equal((await run({ only_center_face: 'true' })).filter((a) => a === 'restored').length, 1);
  });

  test('the restored face lies where the face was, and nothing else changes', async () => {
    const fields = { bg_upsampler: 'none', upscale: '1', parse: 'false', weight: '1' };
    const without = decodePng((await post(server, '/v1/restore', { picture, fields: { ...fields, version: 'none' } })).bytes);
    const answer = await post(server, '/v1/restore', { picture, fields });
    assert.equal(answer.headers.get('x-restored-faces'), '1');
    const within = decodePng(answer.bytes);
    const { json } = await post(server, '/v1/detect', { picture });
    const [x0, y0, x1, y1] = json.faces[0].box;
    const middle = [(x0 + x1) / 2, (y0 + y1) / 2], reach = 2 * Math.max(x1 - x0, y1 - y0);
    let changed = 0;
    for (let y = 0; y < within.height; y++)
      for (let x = 0; x < within.width; x++) {
        const at = (y * within.width + x) * 3;
        if ([0, 1, 2].every((c) => within.pixels[at + c] === without.pixels[at + c])) continue;
        changed++;
        assert.ok(Math.hypot(x - middle[0], y - middle[1]) < reach, `pixel ${x},${y} is far from the face`);
      }
    assert.ok(changed > 100);
    const untouched = await post(server, '/v1/restore', { picture, fields: { ...fields, weight: '0' } });
    assert.equal(difference(decodePng(untouched.bytes), without), 0, 'weight 0 leaves the face');
  });

  test('a face half outside the picture', async () => {
    const { status, json } = await post(server, '/v1/restore', { picture: fixture('edge.png'), fields: { bg_upsampler: 'none', weight: '1' }, headers: { Accept: 'application/json' } });
    assert.equal(status, 200);
    assert.ok(json.faces[0].box[0] < 0);
    assert.equal(json.faces[0].action, 'restored');
  });

  test('no face is no error', async () => {
    const answer = await post(server, '/v1/restore', { picture: fixture('none.png'), fields: { bg_upsampler: 'none' } });
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('x-restored-faces'), '0');
  });

  test('an aligned face', async () => {
    const answer = await post(server, '/v1/restore', { picture: png(80, 80), fields: { aligned: 'true', ext: 'png' } });
    assert.equal(answer.status, 200);
    assert.deepEqual(pngSize(answer.bytes), [64, 64]); // the side this small face network takes; 512 for the official ones
    assert.equal(answer.headers.get('x-restored-faces'), '1');
  });

  test('POST /v1/detect', async () => {
    const { status, json } = await post(server, '/v1/detect', { picture });
    assert.equal(status, 200);
    assert.deepEqual(Object.keys(json), ['width', 'height', 'faces', 'models', 'timings_ms']);
    assert.deepEqual([json.width, json.height, json.faces.length, json.models.detector], [160, 128, 1, 'detector']);
    const same = await post(server, '/v1/detect', { body: picture, query: '?detector=detector&precision=fp32', headers: { 'Content-Type': 'image/png' } });
    assert.equal(same.json.faces.length, 1);
    problem(await post(server, '/v1/detect', { picture, fields: { upscale: '2' } }), 400, /^upscale: there is no such field; known are: min_face, max_face, min_score, auto_rotate, detector, device, precision, compat/);
    problem(await post(server, '/v1/detect', { picture: Buffer.from('text') }), 415, /./);
  });
});
