// restored models add: what is taken, what is refused and why, what is left behind; and licences where a model is chosen.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { get, png, start } from './client.mjs';
import { binary, fixtures, root } from './server.mjs';

const base = mkdtempSync(join(tmpdir(), 'restored-add-'));
const folder = join(base, 'models');
const hash = (...parts) => { const h = createHash('sha256'); for (const part of parts) h.update(part); return h.digest('hex'); };
const fixture = (name) => join(fixtures, `${name}.safetensors`);
const bytes = readFileSync(fixture('srvgg_x2'));

after(() => rmSync(base, { recursive: true, force: true }));
beforeEach(() => rmSync(folder, { recursive: true, force: true }));

const call = (...args) => new Promise((done) => {
  const child = spawn(binary, args, { cwd: base, env: { ...process.env, RESTORED_STARTER_MODELS: 'false', no_proxy: '*' }, stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '', err = '';
  child.stdout.on('data', (t) => { out += t; });
  child.stderr.on('data', (t) => { err += t; });
  child.on('close', (status) => done({ status, out, err }));
});
const run = (args) => call('models', ...args);
const add = (...args) => run(['add', ...args, '--to', folder]);
const conf = () => (existsSync(join(folder, 'models.conf')) ? readFileSync(join(folder, 'models.conf'), 'utf8') : '');
const there = () => (existsSync(folder) ? readdirSync(folder).sort() : []);

// The file with this in its metadata.
function told(metadata) {
  const size = Number(bytes.readBigUInt64LE()), header = JSON.parse(bytes.subarray(8, 8 + size));
  const text = Buffer.from(JSON.stringify({ ...header, __metadata__: metadata })), length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, bytes.subarray(8 + size)]);
}

// A safetensors file of these tensors, four numbers each.
function tensors(...names) {
  const header = Buffer.from(JSON.stringify(Object.fromEntries(names.map((name, i) => [name, { dtype: 'F32', shape: [4], data_offsets: [16 * i, 16 * i + 16] }]))));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([size, header, Buffer.alloc(16 * names.length)]);
}
function write(name, content) {
  writeFileSync(join(base, name), content);
  return join(base, name);
}

test('takes a file, with its sum, its section and its licence, which is shown wherever a model is chosen', async () => {
  const { status, out, err } = await add(fixture('srvgg_x2'), '--sha256', hash(bytes).toUpperCase(), '--licence', 'CC-BY-NC-SA-4.0', '--name', 'sharp');
  assert.equal(status, 0, err);
  assert.match(out, new RegExp(`^srvgg_x2\\.safetensors: SHA-256 ${hash(bytes)}$`, 'm'));
  assert.match(out, /^sharp: upscaler, SRVGGNetCompact ×2$/m);
  assert.match(out, /^sharp: what it makes of 16x16 px is finite$/m);
  assert.match(out, /^sharp: licence: CC-BY-NC-SA-4\.0 \(non-commercial\)$/m);
  assert.match(out, /^sharp: added to .*; choose it with --bg_upsampler sharp$/m);
  assert.deepEqual(there(), ['models.conf', 'sharp.safetensors']);
  assert.ok(readFileSync(join(folder, 'sharp.safetensors')).equals(bytes));
  assert.equal(conf(), `[model sharp]\nsha256 = ${hash(bytes)}\nsource = ${fixture('srvgg_x2')}\nlicence = CC-BY-NC-SA-4.0\n`);

  const table = await run(['--models', folder]);
  const [head, row] = table.out.split('\n'); // the licence with its mark in its own column
  assert.match(row, /^sharp .* CC-BY-NC-SA-4\.0 \(non-commercial\) -$/);
  assert.equal(row.indexOf('CC-BY'), head.indexOf('LICENCE'));
  assert.equal(row.lastIndexOf('-'), head.indexOf('KNOWN AS'));
  const server = await start({ models: ['--models', folder], ready: false });
  try {
    const [listed] = (await get(server, '/v1/models')).json.models;
    assert.deepEqual([listed.name, listed.licence, listed.non_commercial], ['sharp', 'CC-BY-NC-SA-4.0', true]);
    const option = (await get(server, '/v1/capabilities')).json.options.find((o) => o.name === 'bg_upsampler');
    const terms = { licence: 'CC-BY-NC-SA-4.0', non_commercial: true };
    assert.deepEqual(option.models, [{ name: 'sharp', ...terms }]);
    assert.deepEqual((await get(server, '/v1/models')).json.data, [{ id: 'restored', object: 'model', created: 0, owned_by: 'restored' }, { id: 'sharp', object: 'model', created: 0, owned_by: 'restored', ...terms }]);
    assert.deepEqual((await get(server, '/sdapi/v1/upscalers')).json[2], { name: 'sharp', model_name: 'sharp', model_path: null, model_url: null, scale: 2, ...terms });
  } finally {
    await server.stop();
  }

  const note = 'sharp is not for commercial use (licence: CC-BY-NC-SA-4.0)', restore = (upsampler, ...more) => call('restore', write('small.png', png(8, 8)), '-o', join(base, 'out.png'), '--models', folder, '--version', 'none', '--repair', 'false', '--bg_upsampler', upsampler, ...more);
  assert.match((await restore('sharp')).out, /^  note: sharp is not for commercial use \(licence: CC-BY-NC-SA-4\.0\)$/m);
  const report = JSON.parse((await restore('sharp', '--json')).out);
  assert.deepEqual([report.notes, report.note_codes], [[note], [{ code: 'non-commercial', values: ['sharp', 'CC-BY-NC-SA-4.0'] }]]);
  assert.match((await restore('blunt')).err, /blunt is not installed; there is sharp \(non-commercial\); blunt\.pth \(or \.pt, \.ckpt, \.safetensors, \.param with its \.bin\) was looked for/);
  assert.match((await restore('realcugan-pro-up2x-denoise3x')).err, /; realcugan-pro-up2x-denoise3x\.param \(with its \.bin\) was looked for /);

  const again = await add(fixture('srvgg_x2'), '--name', 'sharp');
  assert.equal(again.status, 1);
  assert.match(again.err, /sharp\.safetensors is there already; remove it, or choose another name with --name/);
});

test('what is not what it should be is not taken, and leaves nothing', async () => {
  const nan = Buffer.from(bytes);
  for (let at = nan.length - 4 * 64; at < nan.length; at += 4) nan.writeFloatLE(NaN, at);
  for (const [args, status, words] of [
    [[fixture('srvgg_x2'), '--sha256', hash('other')], 1, new RegExp(`srvgg_x2\\.safetensors is another file: its SHA-256 should be ${hash('other')}`)],
    [[write('nan.safetensors', nan)], 1, /nan\.safetensors: what the network makes of a small picture is not finite/],
    [[write('cut.safetensors', bytes.subarray(0, 500))], 1, /^restored: cut\.safetensors: /],
    [[write('dat.safetensors', tensors('before_RG.1.weight', 'layers.0.blocks.0.ffn.sg.norm.weight'))], 1, /^restored: dat\.safetensors: a network that is not read yet: DAT, a transformer$/m],
    [[write('mm.safetensors', tensors('dd_embed.0.weight', 'am_list.0.fc.0.weight'))], 1, /not read yet: MM-RealSR$/m],
    [[write('grl.safetensors', tensors('model.conv_first.weight', 'model.layers.0.blocks.0.attn.window_attn.attn_transform.logit_scale'))], 1, /not read yet: GRL, a transformer$/m],
    [[write('odd.safetensors', tensors('first.weight', 'second.weight', 'third.weight', 'fourth.weight'))], 1, /not a network that we know; it has 4 tensors, the first are "first\.weight", "second\.weight", "third\.weight"$/m],
    [[write('net.onnx', 'x')], 2, /^restored: net\.onnx: a network as ONNX, a format that is not read; its author's \.pth or \.safetensors may be$/m],
    [[write('lone.bin', 'x')], 2, /lone\.bin: weights without the \.param beside them/],
    [['https://127.0.0.1:1/far.gguf?x=1'], 2, /^restored: far\.gguf: .*GGUF/],
    [[write('notes.txt', 'x')], 2, /notes\.txt: a model's file ends in \.pth, /],
    [[join(base, 'nowhere.pth')], 1, /nowhere\.pth/],
    [['https://127.0.0.1:1/far.pth'], 1, /no connection for https:\/\/127\.0\.0\.1:1\/far\.pth \(.*restored models add FILE takes a copy of the file$/m],
    [[fixture('srvgg_x2'), '--name', '../up'], 2, /is no name for a model/],
    [[fixture('srvgg_x2'), '--name', 'a]b'], 0, null],
    [[fixture('srvgg_x2'), '--name', 'None'], 2, /"None" means something else in an option; choose another with --name/],
    [[fixture('srvgg_x2'), '--name', 'starter_face'], 2, /"starter_face" means something else/],
    [[fixture('srvgg_x2'), '--sha256', '12'], 2, /--sha256: 64 hexadecimal digits/],
    [[fixture('srvgg_x2'), '--licence', 'L'.repeat(64)], 2, /--licence: up to 63 bytes, but it has 64/],
    [[fixture('srvgg_x2'), '--activation', 'tanh'], 2, /--activation: relu/],
    [[fixture('srvgg_x2'), 'more.pth'], 2, /takes one file/],
    [[], 2, /name the file/],
  ]) {
    const r = await add(...args);
    assert.equal(r.status, status, `${args}: ${r.err}`);
    if (words) {
      assert.match(r.err, words);
      assert.deepEqual(there(), [], args.join(' '));
    }
    rmSync(folder, { recursive: true, force: true });
  }
});

test('a large file that is no model is not copied; what a killed one has copied is removed by the next', async () => {
  const large = write('large.safetensors', ''), left = join(folder, '.add', `0123456789abcdef.pth.${2 ** 22 - 7}.part`), download = join(folder, '.add/0123456789abcdef.pth.part');
  truncateSync(large, 256 * 2 ** 20); // takes no room here; a copy would
  const { status, out, err } = await add(large);
  assert.deepEqual([status, out], [1, '']);
  assert.match(err, /^restored: large\.safetensors: /);
  assert.deepEqual(there(), []);
  mkdirSync(join(folder, '.add'), { recursive: true });
  for (const file of [left, download]) writeFileSync(file, 'half');
  assert.equal((await add(fixture('srvgg_x2'))).status, 0);
  assert.deepEqual([existsSync(left), existsSync(download)], [false, true]);
});

test('a CodeFormer is marked as non-commercial whatever its file is called', async () => {
  const { out } = await add(join(root, 'tests/golden/families/codeformer.safetensors'), '--name', 'portraits');
  assert.match(out, /^portraits: licence: S-Lab-1\.0, non-commercial$/m);
  rmSync(join(folder, 'models.conf')); // known by its network alone
  const [face] = JSON.parse((await run(['--json', '--models', folder])).out).models.filter((m) => m.name === 'portraits');
  assert.deepEqual([face.architecture, face.licence, face.non_commercial], ['CodeFormer', 'S-Lab-1.0, non-commercial', true]);
});

test("the user's own models.conf is kept, and nothing is added to one that is not understood", async () => {
  mkdirSync(folder);
  writeFileSync(join(folder, 'models.conf'), '# mine\n[other]\nactivation = relu');
  const { status, out, err } = await add(fixture('srvgg_x1'), '--activation', 'leakyrelu:0.2');
  assert.equal(status, 0, err);
  assert.match(out, /^srvgg_x1: the file does not tell its licence; look where it comes from/m);
  assert.match(conf(), /^# mine\n\[other\]\nactivation = relu\n\[model srvgg_x1\]\nsha256 = [0-9a-f]{64}\nsource = .*\nactivation = leakyrelu:0\.2\n$/);
  const section = await add(fixture('srvgg_x2'), '--name', 'other');
  assert.match(section.err, /models\.conf has a section \[other\] already/);
  writeFileSync(join(folder, 'models.conf'), ' what\x1b[7m is this');
  const broken = await add(fixture('srvgg_x2'));
  assert.match(broken.err, /models\.conf, line 1: not understood: what\\x1B\[7m is this; mend it first/);
  assert.equal(broken.out, '', 'before it is copied and tried');
  assert.deepEqual(there(), ['models.conf', 'srvgg_x1.safetensors']);
});

test('of a models.conf all that is understood counts, and what is not, or is for no model, is told', async () => {
  assert.equal((await add(fixture('srvgg_x1'), '--licence', 'CC-BY-NC-4.0')).status, 0);
  assert.equal((await add(fixture('srvgg_x2'), '--licence', 'CC-BY-NC-SA-4.0')).status, 0);
  writeFileSync(join(folder, 'models.conf'), `[srvgg_x4]\nlicence = MIT\nactivaton = relu\nnoise = 3\n${conf()}colour = blue\n`);
  const { out, err } = await run(['--json', '--models', folder]);
  assert.deepEqual(JSON.parse(out).models.map((m) => [m.name, m.licence]), [['srvgg_x1', 'CC-BY-NC-4.0'], ['srvgg_x2', 'CC-BY-NC-SA-4.0']]);
  assert.match(err, /warn models-conf-ignored file="[^"]*\/models\.conf" text="models\.conf, line 3: not understood: activaton = relu(?:; nor line \d+){2}; such lines are left out, and all under such a heading"/);
  assert.match(err, /warn models-conf-unused file="[^"]*" text="\[srvgg_x4\]: no model has this name"/);
});

test('a setting that the network does not have is told', async () => {
  for (const name of ['srvgg_x2', 'rrdb_x4']) { // with PReLU; with LeakyReLU always
    const { status, out, err } = await add(fixture(name), '--activation', 'relu');
    assert.deepEqual([status, out, there()], [1, '', []]);
    assert.match(err, /^restored: --activation: this \w+ has none to be set; leave the option out$/m);
  }
  mkdirSync(folder, { recursive: true });
  for (const name of ['srvgg_x1', 'srvgg_x2', 'detector']) copyFileSync(fixture(name), join(folder, `${name}.safetensors`));
  const lines = { activation: 'relu', slope: '0.2', min_sizes: '16 32 64 128 256 512', noise_level: '20', jpeg_quality: '40' };
  const told = async (name, keys) => {
    writeFileSync(join(folder, 'models.conf'), [`[${name}]`, ...keys.map((key) => `${key} = ${lines[key]}`)].join('\n'));
    return /models-conf-unused .*text="([^"]*)"/.exec((await run(['--models', folder])).err)?.[1];
  };
  assert.equal(await told('srvgg_x1', ['activation']), undefined);
  assert.equal(await told('detector', ['activation', 'slope', 'min_sizes']), undefined);
  for (const key in lines) assert.equal(await told('srvgg_x2', [key]), `[srvgg_x2]: this SRVGGNetCompact has no ${key} to be set`);
});

test("the licence that a file tells is read and marked, in whose words it may be", async () => {
  for (const [key, licence, bound] of [['license', 'CC-BY-NC-SA-4.0', true], ['modelspec.license', 'for personal use only', true], ['licence', 'not for commercial use', true], ['license', 'NVIDIA Source Code License-NC', true], ['license', 'Apache-2.0', false]]) {
    const file = write('told.safetensors', told({ [key]: licence }));
    assert.match((await add(file)).out, new RegExp(`^told: licence: ${licence}${bound ? ' \\(non-commercial\\)' : ''}$`, 'm'));
    rmSync(join(folder, 'models.conf'));
    const [listed] = JSON.parse((await run(['--json', '--models', folder])).out).models;
    assert.deepEqual([listed.licence, listed.non_commercial], [licence, bound]);
    const [scanned] = JSON.parse((await run(['--scan', folder, '--json'])).out);
    assert.deepEqual([scanned.licence, scanned.non_commercial], [licence, bound]);
    rmSync(folder, { recursive: true });
  }
});

test('a damaged file gives way to a good one of its name; a folder that is not there is told', async () => {
  mkdirSync(join(folder, 'later'), { recursive: true });
  writeFileSync(join(folder, 'up.pth'), bytes.subarray(0, 99));
  writeFileSync(join(folder, 'later/up.safetensors'), bytes);
  const [up] = JSON.parse((await run(['--json', '--models', folder])).out).models;
  assert.equal(up.file, 'up.safetensors');
  assert.match((await run(['--models', join(base, 'nowhere')])).err, /warn no-folder models_dir=".*nowhere" text="No such file or directory"/);
});

test('an ncnn pair is taken whole', async () => {
  const from = join(root, 'tests/golden/families/ncnn_srvgg_x4');
  const { status, out, err } = await add(`${from}.param`);
  assert.equal(status, 0, err);
  assert.match(out, new RegExp(`SHA-256 ${hash(readFileSync(`${from}.param`), readFileSync(`${from}.bin`))}`));
  assert.deepEqual(there(), ['models.conf', 'ncnn_srvgg_x4.bin', 'ncnn_srvgg_x4.param']);
  copyFileSync(`${from}.param`, join(base, 'alone.param'));
  const alone = await add(join(base, 'alone.param'));
  assert.equal(alone.status, 1);
  assert.match(alone.err, /alone\.bin/);
});

test('downloads from a URL whose password and token are kept nowhere, and goes on with what a broken download left', async () => {
  let cut = true;
  const asked = [];
  const server = http.createServer((request, response) => {
    const from = Number(/bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
    asked.push(from);
    if (request.url !== '/a/srvgg_x2.safetensors?token=hush' || request.headers.authorization !== `Basic ${btoa('me:secret')}` || (cut && from)) return response.writeHead(404).end();
    response.writeHead(from ? 206 : 200, { 'content-length': bytes.length - from, ...(from ? { 'content-range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` } : {}) });
    if (cut) response.write(bytes.subarray(0, 4000), () => setTimeout(() => response.destroy(), 50));
    else response.end(bytes.subarray(from));
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const at = `127.0.0.1:${server.address().port}/a/srvgg_x2.safetensors`, url = `http://me:secret@${at}?token=hush`;
  try {
    const broken = await add(url);
    assert.equal(broken.status, 1);
    assert.match(broken.err, /run the same command again to continue/);
    assert.deepEqual(there(), ['.add'], 'only what the next call goes on with');
    cut = false;
    const whole = await add(url, '--sha256', hash(bytes));
    assert.equal(whole.status, 0, whole.err);
    assert.equal(asked.at(-1), 4000);
    assert.match(conf(), new RegExp(`^source = http://${at}$`, 'm'));
    assert.deepEqual(there(), ['models.conf', 'srvgg_x2.safetensors']);
    const missing = await add(url.replace('a/', 'b/'), '--name', 'x'), other = await add(url, '--name', 'y', '--sha256', '0'.repeat(64));
    assert.match(missing.err, /answers 404/);
    assert.match(other.err, /is another file/);
    for (const { out, err } of [broken, whole, missing, other]) assert.doesNotMatch(out + err + conf(), /secret|hush/);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test("a URL's name of a file is decoded", async () => {
  const server = http.createServer((request, response) => response.writeHead(200, { 'content-length': bytes.length }).end(bytes));
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const from = (name, ...more) => add(`http://127.0.0.1:${server.address().port}/a%20b/${name}`, ...more);
  try {
    const { status, out, err } = await from('4x%20Sch%C3%A4rfe%2B.safetensors');
    assert.equal(status, 0, err);
    assert.match(out, /^4x Schärfe\+: added to .*--bg_upsampler 4x Schärfe\+$/m);
    assert.deepEqual(there(), ['4x Schärfe+.safetensors', 'models.conf']);
    // what would be no name stays as it is
    for (const name of ['x%2F..%2Fx', 'x%00', 'x%0A', 'x%FF', '100%'])
      assert.equal((await from(`${name}.safetensors`)).status, 0, name);
    assert.deepEqual(there(), [...['100%', '4x Schärfe+', 'x%00', 'x%0A', 'x%2F..%2Fx', 'x%FF'].map((name) => `${name}.safetensors`), 'models.conf'].sort());
  } finally {
    server.close();
  }
});

test('a broken download from a server that cannot go on with it begins anew: half a file is never taken for a whole one', async () => {
  let asked = 0;
  const server = http.createServer((request, response) => {
    response.writeHead(200, { 'content-length': bytes.length }); // whatever range was asked for
    if (asked++) response.end(bytes);
    else response.write(bytes.subarray(0, 4000), () => setTimeout(() => response.destroy(), 50));
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  try {
    const { status, out, err } = await add(`http://127.0.0.1:${server.address().port}/srvgg_x2.safetensors`);
    assert.equal(status, 0, err);
    assert.match(err, /cannot be continued; starting again/);
    assert.match(out, new RegExp(`SHA-256 ${hash(bytes)}$`, 'm'));
    assert.deepEqual(there(), ['models.conf', 'srvgg_x2.safetensors']);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
