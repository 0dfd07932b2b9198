// How POST /v1/restore answers: the picture with its notes in a header, the report, or both and the faces as parts.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { decodePng, fixture, get, ownModels, plain, pngSize, post, raw, start } from './client.mjs';
import { binary } from './server.mjs';

let server;
before(async () => { server = await start(); });
after(() => server.stop());

const both = { Accept: 'multipart/mixed' };

// The parts of an answer: [{headers, name, file, bytes}].
function parts(answer) {
  const boundary = /^multipart\/mixed; boundary=([0-9a-f]{32})$/.exec(answer.type)?.[1];
  assert.ok(boundary, answer.type);
  const text = answer.bytes.toString('latin1');
  assert.ok(text.startsWith(`--${boundary}\r\n`) && text.endsWith(`\r\n--${boundary}--\r\n`), 'begins and ends with the boundary');
  assert.equal(Number(answer.headers.get('content-length')), answer.bytes.length);
  return text.slice(boundary.length + 4, -boundary.length - 8).split(`\r\n--${boundary}\r\n`).map((part) => {
    const end = part.indexOf('\r\n\r\n');
    const headers = Object.fromEntries(part.slice(0, end).split('\r\n').map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 2)]));
    const bytes = Buffer.from(part.slice(end + 4), 'latin1');
    assert.equal(Number(headers['content-length']), bytes.length);
    const [, name, file] = /^attachment; name="([^"]+)"; filename="([^"]+)"/.exec(headers['content-disposition']) ?? assert.fail(headers['content-disposition']);
    return { headers, name, file, bytes, type: headers['content-type'] };
  });
}

describe('multipart/mixed', () => {
  test('the report first, then the picture, the same as each alone', async () => {
    const picture = fixture('two.png');
    const answer = await post(server, '/v1/restore', { picture, name: 'Zwei.png', fields: { suffix: 'x' }, headers: both });
    assert.equal(answer.status, 200);
    const [report, image, ...rest] = parts(answer);
    assert.deepEqual(rest, []);
    assert.deepEqual([report.name, report.file, report.type], ['report', 'Zwei.json', 'application/json']);
    assert.deepEqual([image.name, image.file, image.type], ['restored_imgs', 'Zwei_x.png', 'image/png']);
    const json = JSON.parse(report.bytes);
    assert.equal(json.output.bytes, image.bytes.length);
    assert.equal(json.faces.length, 2);
    assert.equal(answer.headers.get('x-restored-faces'), '2');
    assert.ok(answer.headers.get('server-timing') && answer.headers.get('x-restored-models') && answer.headers.get('x-restored-device'));
    const alone = await post(server, '/v1/restore', { picture, fields: { suffix: 'x' } });
    assert.ok(alone.bytes.equals(image.bytes));
  });

  test('with faces_out the crops and restored faces, as the command line writes them', async (t) => {
    const picture = fixture('two.png'), folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-parts-'));
    t.after(() => fs.rmSync(folder, { recursive: true }));
    fs.writeFileSync(path.join(folder, 'two.png'), picture);
    const run = spawnSync(binary, ['restore', path.join(folder, 'two.png'), '-o', folder, ...ownModels, '--suffix', 'new', '--device', 'cpu'], { encoding: 'utf8' });
    assert.equal(run.status, 0, run.stderr);
    const answer = await post(server, '/v1/restore', { picture, name: 'two.png', fields: { faces_out: 'true', suffix: 'new', device: 'cpu' }, headers: both });
    assert.equal(answer.status, 200, answer.bytes.toString());
    const found = parts(answer);
    assert.deepEqual(found.map((p) => `${p.name}/${p.file}`), ['report/two.json', 'restored_imgs/two_new.png', 'cropped_faces/two_00.png', 'restored_faces/two_00_new.png', 'cropped_faces/two_01.png', 'restored_faces/two_01_new.png']);
    assert.deepEqual(found.map((p) => p.headers['x-restored-face']), [undefined, undefined, '0', '0', '1', '1']);
    for (const part of found.slice(1)) {
      assert.equal(part.type, 'image/png');
      assert.ok(decodePng(part.bytes).pixels.equals(decodePng(fs.readFileSync(path.join(folder, part.name, part.file))).pixels), part.file);
    }
    for (const part of found.slice(2)) assert.deepEqual(pngSize(part.bytes), [64, 64]);
    const one = parts(await post(server, '/v1/restore', { picture, fields: { faces_out: '1', faces: '1' }, headers: both }));
    assert.deepEqual(one.slice(2).map((p) => [p.name, p.headers['x-restored-face']]), [['cropped_faces', '1'], ['restored_faces', '1']]);
  });

  test('faces_out with aligned and with compat', async () => {
    for (const fields of [{ aligned: 'true' }, { compat: 'true' }]) {
      const found = parts(await post(server, '/v1/restore', { picture: fixture('picture.png'), fields: { faces_out: 'true', ...fields }, headers: both }));
      assert.deepEqual(found.map((p) => p.name), ['report', 'restored_imgs', 'cropped_faces', 'restored_faces'], JSON.stringify(fields));
    }
  });

  test('faces_out without it is refused, by the query before the picture is read', async () => {
    const refused = await post(server, '/v1/restore', { picture: fixture('two.png'), fields: { faces_out: 'true' } });
    assert.equal(refused.status, 400);
    assert.match(refused.json.detail, /^faces_out: true needs the header "Accept: multipart\/mixed"/);
    const early = await raw(server, `POST /v1/restore?faces_out=on HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n`);
    assert.match(early, /^HTTP\/1\.1 400 /);
    assert.equal((await post(server, '/v1/restore', { picture: fixture('two.png'), fields: { faces_out: 'false', ...plain } })).status, 200);
    for (const value of ['maybe', ''])
      assert.match((await post(server, '/v1/restore', { picture: fixture('two.png'), fields: { faces_out: value }, headers: both })).json.detail, /^faces_out: /);
    assert.match((await post(server, '/v1/detect', { picture: fixture('two.png'), fields: { faces_out: 'true' } })).json.detail, /^faces_out: there is no such field/);
  });
});

describe('what Accept asks for', () => {
  const png = fixture('none.png');
  let jpg;
  before(async () => { jpg = (await post(server, '/v1/restore', { picture: png, fields: { ...plain, ext: 'jpg' } })).bytes; });
  const cases = [
    ['image/png', 'jpg', 'image/png'], ['image/jpeg', 'png', 'image/jpeg'], ['image/png;q=0.5, image/jpeg;q=0.4', 'jpg', 'image/png'],
    ['image/png;q=0.4, image/jpeg;q=0.5', 'png', 'image/jpeg'], ['image/*', 'jpg', 'image/jpeg'], ['*/*', 'png', 'image/png'], ['image/png, */*;q=0.1', 'jpg', 'image/png'],
    ['image/heic, image/*;q=0.8', 'png', 'image/png'], ['image/webp, image/*;q=0.8', 'png', 'image/webp'], ['image/jpeg;q=0, */*', 'jpg', 'image/png'], ['application/json, image/png', 'jpg', 'image/png'],
    ['application/json', 'jpg', 'application/json'], ['multipart/mixed;q=0.5, image/png', 'jpg', 'image/png'],
  ];
  for (const [accept, input, type] of cases)
    test(`${accept} of a ${input}`, async () => {
      const answer = await post(server, '/v1/restore', { picture: input === 'jpg' ? jpg : png, name: `a.${input}`, fields: plain, headers: { Accept: accept } });
      assert.equal(answer.status, 200, answer.bytes.toString('latin1', 0, 400));
      assert.equal(answer.type, type);
      if (type.startsWith('image')) assert.match(answer.headers.get('content-disposition'), new RegExp(`a\\.${type.slice(6).replace('jpeg', 'jpg')}"`));
    });

  test('multipart/mixed with a type for the picture', async () => {
    const [, image] = parts(await post(server, '/v1/restore', { picture: jpg, fields: plain, headers: { Accept: 'multipart/mixed, image/png;q=0.5' } }));
    assert.equal(image.type, 'image/png');
  });

  test('ext goes before Accept, and what is excluded is 406', async () => {
    const answer = await post(server, '/v1/restore', { picture: png, fields: { ...plain, ext: 'png' }, headers: { Accept: 'image/jpeg' } });
    assert.equal(answer.status, 406);
    assert.match(answer.json.detail, /image\/png, application\/json or multipart\/mixed/);
    assert.equal((await post(server, '/v1/restore', { picture: png, fields: plain, headers: { Accept: 'image/gif' } })).status, 406);
  });
});

test('the notes stand in a header: JSON, ASCII, and the same as in the report', async () => {
  const picture = fixture('deep.png');
  const answer = await post(server, '/v1/restore', { picture, fields: { faces: '7,9' } });
  const header = answer.headers.get('x-restored-notes');
  assert.match(header, /^\[[\x20-\x7e]+\]$/);
  const report = await post(server, '/v1/restore', { picture, fields: { faces: '7,9' }, headers: { Accept: 'application/json' } });
  assert.deepEqual(JSON.parse(header), report.json.notes);
  assert.ok(report.json.notes.length >= 2, header);
  const quiet = await post(server, '/v1/restore', { picture: fixture('none.png'), fields: plain });
  assert.equal(quiet.headers.get('x-restored-notes'), null, 'no notes, no header');
});

test('a long request header leaves room for the answer\'s', async () => {
  const head = `POST /v1/restore?faces=7 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Long: ${'a'.repeat(31000)}\r\n`;
  const answer = await raw(server, Buffer.concat([Buffer.from(`${head}Content-Length: ${fixture('deep.png').length}\r\n\r\n`), fixture('deep.png')]), 30000);
  assert.match(answer, /^HTTP\/1\.1 200 [^]*X-Restored-Notes: \[/);
});

test('/v1/detect says what would be done', async () => {
  const { json } = await post(server, '/v1/detect', { picture: fixture('two.png') });
  assert.deepEqual(json.faces.map((face) => face.action), ['restorable', 'restorable']);
});

// Whoever reads the bounds and sends a value just within them is served, and just beyond is refused.
test('the bounds that /v1/capabilities gives are those in force', async () => {
  const { json } = await get(server, '/v1/capabilities');
  const picture = fixture('one_pixel.png'), sides = ['width', 'height', 'max_side']; // the largest square is over max_result_pixels
  const status = async (name, value) => (await post(server, '/v1/restore', { picture, fields: { ...plain, ...(name === 'fit' && { width: '2', height: '2' }), [name]: String(value) } })).status;
  for (const { name, minimum, maximum, values } of json.options) {
    const most = name === 'page' ? 1 : maximum; // the picture has one
    for (const value of (minimum === undefined ? [] : [minimum, most]).concat(name === 'version' || name === 'bg_upsampler' || name === 'device' ? [] : values ?? []))
      assert.equal(await status(name, value), value === maximum && sides.includes(name) ? 422 : 200, `${name}=${value}`);
    if (minimum === undefined || name === 'seed') continue;
    assert.equal(await status(name, maximum + 1), 400, name);
    if (minimum > 1) assert.equal(await status(name, minimum - 1), 400, name);
  }
});
