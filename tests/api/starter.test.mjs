// The starter models and the sample: what is a default when, what the server says of it, and that the program restores the
// sample with nothing but itself.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fixture, get, hasShared, post, shared, sharedModels, start, until } from './client.mjs';
import { binary, fixtures, root } from './server.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-starter-'));
after(() => fs.rmSync(folder, { recursive: true, force: true }));
const starterFolder = path.join(root, 'models/starter');
const shipped = fs.existsSync(starterFolder) ? fs.readdirSync(starterFolder).filter((f) => f.endsWith('.safetensors')).sort() : [];
const sample = fs.readFileSync(path.join(root, 'static/sample.jpg'));
const on = { RESTORED_STARTER_MODELS: 'true' };
const report = { Accept: 'application/json' };

// A folder of fixtures under other names: {name: fixture}.
function models(name, files) {
  const made = path.join(folder, name);
  fs.mkdirSync(made);
  for (const [to, from] of Object.entries(files)) fs.copyFileSync(path.join(fixtures, `${from}.safetensors`), path.join(made, `${to}.safetensors`));
  return made;
}
const small = { starter_detector: 'detector', starter_face: 'face_64', starter_parser: 'parser', starter_upsampler_x2: 'srvgg_x2' };

describe('by name, in a folder of fixtures', () => {
  let server;
  before(async () => {
    const dir = models('official', { ...small, 'GFPGANv1.4': 'face', RealESRGAN_x2plus: 'upscaler' });
    server = await start({ models: ['--models', dir], env: on });
  });
  after(() => server?.stop());

  test('an official file takes its role, the starter models the others', async () => {
    const { json } = await get(server, '/v1/models');
    assert.deepEqual(json.models.filter((m) => m.default).map((m) => m.name).sort(), ['GFPGANv1.4', 'RealESRGAN_x2plus', 'starter_damage', 'starter_detector', 'starter_fill', 'starter_parser']);
    assert.deepEqual(json.models.filter((m) => m.starter && m.file in { 'GFPGANv1.4.safetensors': 1 }), []);
    for (const m of json.models) assert.equal(m.starter, m.name.startsWith('starter_'), m.name);
    const { options } = (await get(server, '/v1/capabilities')).json, option = (name) => options.find((o) => o.name === name);
    for (const [name, model] of [['damage_detector', 'starter_damage'], ['fill', 'starter_fill']]) {
      assert.equal(option(name).default, model);
      assert.deepEqual([option(name).values.includes(model), option(name).values.at(-1), option(name).models.some((m) => m.name === model)], [true, 'none', true], name);
    }
  });

  test('the picture and the report name what was used', async () => {
    const picture = await post(server, '/v1/restore', { picture: fixture('picture.png') });
    assert.equal(picture.status, 200);
    assert.equal(picture.headers.get('x-restored-models'), 'detector="starter_detector", face="GFPGANv1.4", parser="starter_parser", background="RealESRGAN_x2plus", damage="starter_damage", fill="starter_fill"');
    const { json } = await post(server, '/v1/restore', { picture: fixture('picture.png'), headers: report });
    assert.deepEqual(json.models, { detector: 'starter_detector', face: 'GFPGANv1.4', parser: 'starter_parser', background: 'RealESRGAN_x2plus', damage: 'starter_damage', fill: 'starter_fill' });
    const note = json.notes.find((n) => /starter/.test(n));
    assert.match(note, /\(detector, parser\).*restored models get/);
  });

  test('"starter" asks for the starter model of each role, as does its name', async () => {
    const fields = { version: 'starter', detector: 'starter', bg_upsampler: 'starter_upsampler_x2' };
    const { json } = await post(server, '/v1/restore', { picture: fixture('picture.png'), fields, headers: report });
    assert.deepEqual(json.models, { detector: 'starter_detector', face: 'starter_face', parser: 'starter_parser', background: 'starter_upsampler_x2', damage: 'starter_damage', fill: 'starter_fill' });
    const wrong = await post(server, '/v1/restore', { picture: fixture('picture.png'), fields: { version: 'starter_detector' } });
    assert.equal(wrong.status, 400);
    assert.match(wrong.json.detail, /version: starter_detector is not a face network/);
  });
});

test('starter_models = false does not work without official models', async (context) => {
  const server = await start({ context, models: ['--models', models('refused', small), '--starter_models', 'false'], ready: false });
  const { status, json } = await get(server, '/readyz');
  assert.equal(status, 503);
  assert.match(json.reasons[0], /GFPGANv1\.3\.pth.*restored models get/);
  assert.ok((await get(server, '/v1/models')).json.models.every((m) => !m.default));
  const named = await post(server, '/v1/restore', { picture: fixture('picture.png'), fields: { version: 'starter' } });
  assert.equal(named.status, 503);
  await server.stop();
});

test('the note about starter models ends with a command only for clients on this machine', async (context) => {
  const server = await start({ context, models: ['--models', models('noted', small)], env: on });
  for (const [headers, end] of [[{}, ': restored models get default'], [{ 'X-Forwarded-For': '203.0.113.7' }, '']]) {
    const note = `small starter models were used (detector, face, parser, background); the official ones restore better${end}`;
    const picture = await post(server, '/v1/restore', { picture: fixture('picture.png'), headers });
    assert.ok(JSON.parse(picture.headers.get('x-restored-notes')).includes(note), picture.headers.get('x-restored-notes'));
    const report = await post(server, '/v1/restore', { picture: fixture('picture.png'), headers: { ...headers, accept: 'application/json' } });
    assert.ok(report.json.notes.includes(note), report.json.notes);
  }
});

test("a model's name that no header can hold", async (context) => {
  const dir = models('odd', { ...small, 'up "1"\n\u00e9': 'srvgg_x4' });
  const server = await start({ context, models: ['--models', dir, '--default_bg_upsampler', 'up "1"\\x0A\u00e9'], env: on });
  const { status, headers } = await post(server, '/v1/restore', { picture: fixture('none.png'), fields: { version: 'none' } });
  assert.equal(status, 200);
  assert.equal(headers.get('x-restored-models'), 'background="up ?1??x0A??", damage="starter_damage", fill="starter_fill"');
  await server.stop();
});

test('models.conf knows what is shipped, and it is small', { skip: shipped.length ? false : 'models/starter holds no models' }, () => {
  const conf = fs.readFileSync(path.join(root, 'config/models.conf'), 'utf8').split(/^\[/m).slice(1).filter((s) => /^starter = true$/m.test(s));
  assert.deepEqual(conf.map((s) => /^file = (.*)$/m.exec(s)[1]).sort(), shipped);
  const bytes = shipped.reduce((sum, name) => sum + fs.statSync(path.join(starterFolder, name)).size, 0);
  assert.ok(bytes <= 32 * 2 ** 20, `${bytes} bytes`);
});

describe('the program alone', { skip: shipped.length ? false : 'models/starter holds no models' }, () => {
  const empty = path.join(folder, 'empty');
  before(() => fs.mkdirSync(empty));

  test('has them inside, each with its card and its SHA-256', async (context) => {
    const server = await start({ context, models: ['--models', empty], env: on });
    const { models: list } = await until('the sums', async () => {
      const { json } = await get(server, '/v1/models');
      return json.models.every((m) => m.sha256) && json;
    });
    assert.deepEqual(list.map((m) => m.file).sort(), shipped.map((name) => `embedded:${name}`));
    for (const m of list) {
      assert.ok(m.starter && m.default, m.name);
      assert.equal(m.sha256, createHash('sha256').update(fs.readFileSync(path.join(starterFolder, `${m.name}.safetensors`))).digest('hex'));
      assert.equal(m.licence, m.card.licence);
      for (const key of ['name', 'licence', 'commit', 'data']) assert.ok(m.card[key], `${m.name}: ${key}`);
    }
    await server.stop();
  });

  test('restores the sample, copied to an empty folder', () => {
    const away = path.join(folder, 'away');
    fs.mkdirSync(away);
    fs.copyFileSync(binary, path.join(away, 'restored'));
    fs.chmodSync(path.join(away, 'restored'), 0o755);
    fs.writeFileSync(path.join(away, 'photo.jpg'), sample);
    const run = (...args) => spawnSync('./restored', args, { cwd: away, encoding: 'utf8', env: { ...process.env, HOME: away, XDG_DATA_HOME: away } });
    const restored = run('restore', 'photo.jpg', '-o', 'out.png', '--json');
    assert.equal(restored.status, 0, restored.stderr);
    const json = JSON.parse(restored.stdout);
    assert.deepEqual(json.faces.map((f) => f.action), ['restored', 'restored']);
    for (const [part, name] of Object.entries(json.models)) assert.match(name, /^starter_/, part);
    const table = run('models');
    for (const name of shipped) assert.match(table.stdout, new RegExp(`^${path.parse(name).name} .* [0-9a-f]{64} +\\S+ .*\\(starter\\) \\(default\\)$`, 'm'));
  });
});

test('the sample is a small JPEG, as the page gets it', async (context) => {
  const server = await start({ context, ready: false });
  const answer = await fetch(`${server.url}/sample.jpg`);
  assert.equal(answer.headers.get('content-type'), 'image/jpeg');
  assert.deepEqual(Buffer.from(await answer.arrayBuffer()), sample);
  assert.ok(sample.length <= 150 * 1024, `${sample.length} bytes`);
  await server.stop();
});

test('the sample has two faces, of 100 px and more', { skip: shipped.length || hasShared ? false : 'neither models/starter nor ../shared holds a detector' }, async (context) => {
  for (const choice of [...(shipped.length ? [{ models: [], env: on }] : []), ...(hasShared ? [{ models: sharedModels }] : [])]) {
    const server = await start({ context, ...choice });
    const { status, json } = await post(server, '/v1/detect', { picture: sample });
    assert.equal(status, 200);
    assert.equal(json.faces.length, 2, json.models.detector);
    for (const { box, score } of json.faces) assert.ok(Math.min(box[2] - box[0], box[3] - box[1]) >= 100 && score > 0.97, json.models.detector);
    await server.stop();
  }
});

// A portrait that, enlarged, has a face larger than those that the starter detector knows: it finds pieces of it, too, of
// which it is less sure.
test('a large face is found whole, and restored once', { skip: shipped.length && hasShared ? false : 'there is no models/starter or no ../shared' }, async (context) => {
  const server = await start({ context, models: [], env: on });
  const face = fs.readFileSync(path.join(shared, 'photos/aligned_face.png'));
  const detect = async (picture) => (await post(server, '/v1/detect', { picture, fields: { min_score: '0.5' } })).json.faces;
  const [{ box }] = await detect(face);
  for (const upscale of [2.734375, 3.90625]) {
    const enlarged = await post(server, '/v1/restore', { picture: face, fields: { version: 'none', bg_upsampler: 'none', upscale: String(upscale), ext: 'png' } });
    assert.equal(enlarged.status, 200);
    const [whole, ...pieces] = await detect(enlarged.bytes);
    assert.equal(whole.action, 'restorable');
    for (let k = 0; k < 4; k++) assert.ok(Math.abs(whole.box[k] / upscale - box[k]) < 20, `${whole.box} at ${upscale}, ${box}`);
    assert.ok(pieces.length > 0, 'what shows that the face is too large');
    for (const piece of pieces) assert.deepEqual([piece.action, piece.reason], ['skipped', 'it is face 0, found once more']);
  }
  await server.stop();
});
