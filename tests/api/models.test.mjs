// restored models get: downloads, resumes and verifies, from a folder and from servers of our own, so that no network is
// needed.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { copyFileSync, existsSync, mkdtempSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { binary, fixtures } from './server.mjs';

const base = mkdtempSync(join(tmpdir(), 'restored-models-'));
const mirror = join(base, 'a mirror, 100% full'), out = join(base, 'data/restored/models'), list = join(base, 'models.conf');
const files = { 'one.pth': randomBytes(300000), 'two.pth': randomBytes(50000), 'free.pth': readFileSync(join(fixtures, 'srvgg_x2.safetensors')) };
for (const ending of ['param', 'bin']) files[`pair.${ending}`] = readFileSync(new URL(`../golden/families/ncnn_srvgg_x4.${ending}`, import.meta.url));
const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');

after(() => rmSync(base, { recursive: true, force: true }));
beforeEach(() => {
  rmSync(join(base, 'data'), { recursive: true, force: true });
  rmSync(mirror, { recursive: true, force: true });
  mkdirSync(mirror, { recursive: true });
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(mirror, name), bytes);
  writeFileSync(list, `# a comment
[one]
file = one.pth
url = https://127.0.0.1:1/one.pth
sha256 = ${hash(files['one.pth'])}
bytes = 300000
licence = CC-BY-NC-4.0
alias = 1.3
default = true

[two]
file = two.pth
url = https://127.0.0.1:1/two.pth
sha256 = ${hash(files['two.pth'])}

[free]
file = free.pth
url = https://127.0.0.1:1/free.pth

[later]
file = later.pth
url = https://127.0.0.1:1/later.pth
supported = false

[mine]
file = mine.pth
licence = S-Lab-1.0, non-commercial

[theirs]
file = theirs.pth
licence = MIT

[pair]
file = pair.param
url = https://127.0.0.1:1/pair.param
sha256 = ${hash(Buffer.concat([files['pair.param'], files['pair.bin']]))}
bytes = ${files['pair.param'].length + files['pair.bin'].length}
`);
});

const get = (args, { from = mirror, env = {} } = {}) => new Promise((done) => {
  const child = spawn(binary, ['models', 'get', '--list', list, ...(from ? ['--mirror', from] : []), ...args],
    { cwd: base, env: { ...process.env, XDG_DATA_HOME: join(base, 'data'), no_proxy: '*', ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '', err = '';
  child.stdout.on('data', (t) => { text += t; });
  child.stderr.on('data', (t) => { text += t; err += t; });
  child.on('close', (status) => done({ status, text, err }));
});
const have = (name) => existsSync(join(out, name)) && readFileSync(join(out, name)).equals(files[name]);
const part = (bytes) => { mkdirSync(out, { recursive: true }); writeFileSync(join(out, 'one.pth.part'), bytes); };

// A server of the files. how: ranges (it honours them), cut (bytes after which it cuts the first `cuts` answers), status.
async function serve(how, work) {
  const asked = [];
  const server = http.createServer((request, response) => {
    const bytes = files[request.url.slice(1)];
    const from = Number(/bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
    asked.push(from);
    if (how.status || !bytes) return response.writeHead(how.status ?? 404).end('an answer that is no model');
    if (how.location) return response.writeHead(302, { location: how.location }).end();
    if (how.ranges && from >= bytes.length) return response.writeHead(416, { 'content-range': `bytes */${bytes.length}` }).end();
    const begin = how.ranges ? from : 0, partial = begin > 0;
    response.writeHead(partial ? 206 : 200, {
      'content-length': bytes.length - begin,
      ...(partial ? { 'content-range': `bytes ${begin}-${bytes.length - 1}/${bytes.length}` } : {}),
    });
    if (how.cuts-- > 0) response.write(bytes.subarray(begin, begin + how.cut), () => setTimeout(() => response.destroy(), 50));
    else response.end(bytes.subarray(begin));
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  try {
    await work(`http://127.0.0.1:${server.address().port}`, asked);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test('downloads the default files, those named, and all', async () => {
  const first = await get(['default']);
  assert.equal(first.status, 0, first.text);
  assert.match(first.text, /^one\.pth: downloading from file:.*; licence: CC-BY-NC-4\.0 \(non-commercial\)$/m);
  assert.deepEqual(readdirSync(out), ['one.pth']);
  assert.ok(have('one.pth'));
  const all = await get(['all']);
  assert.equal(all.status, 0, all.text);
  assert.match(all.text, /one\.pth: already there/);
  assert.match(all.text, /two\.pth: verified, in \//);
  assert.match(all.text, /free\.pth: .*no SHA-256 is published for it: it was opened, and tried on a tiny picture; its own is [0-9a-f]{64}/);
  assert.deepEqual(readdirSync(out), ['free.pth', 'one.pth', 'pair.bin', 'pair.param', 'two.pth']);
  assert.match(all.text, /pair\.param: verified, in \//);
  assert.match((await get(['pair'])).text, /pair\.param: already there/);
  assert.ok(have('two.pth') && have('free.pth'));
  const other = await get(['1.3', '--to', 'else/where']);
  assert.equal(other.status, 0, other.text);
  assert.ok(readFileSync(join(base, 'else/where/one.pth')).equals(files['one.pth']), 'an alias, to another folder');
  const configured = await get(['one'], { env: { RESTORED_MODELS_DIR: join(base, 'configured') } });
  assert.equal(configured.status, 0, configured.text);
  assert.ok(existsSync(join(base, 'configured/one.pth')), 'where the program looks');
});

test('resumes what was cut short, and finishes a part that was whole', async () => {
  for (const bytes of [123456, 300000]) {
    rmSync(out, { recursive: true, force: true });
    part(files['one.pth'].subarray(0, bytes));
    const r = await get(['one']);
    assert.equal(r.status, 0, r.text);
    assert.doesNotMatch(r.text, /starting again/);
    assert.deepEqual(readdirSync(out), ['one.pth']);
    assert.ok(have('one.pth'));
  }
});

test('starts anew when what was there does not fit', async () => {
  for (const bytes of [1000, 300000, 400000]) {
    rmSync(out, { recursive: true, force: true });
    part(randomBytes(bytes));
    const r = await get(['one']);
    assert.equal(r.status, 0, r.text);
    assert.ok(have('one.pth'));
    assert.deepEqual(readdirSync(out), ['one.pth']);
  }
});

test('refuses wrong content, says so, and leaves nothing', async () => {
  writeFileSync(join(mirror, 'one.pth'), randomBytes(300000));
  const r = await get(['one', 'two']);
  assert.equal(r.status, 1);
  assert.match(r.err, new RegExp(`one\\.pth: .* is not the file that was published: its SHA-256 is [0-9a-f]{64} and not ${hash(files['one.pth'])}`));
  assert.match(r.err, /1 model is not there yet/);
  assert.deepEqual(readdirSync(out), ['two.pth'], 'the other file was downloaded all the same');
});

test('a file without a published SHA-256 gets its name only if its network works; a pair only if both files are those published', async () => {
  const damaged = Buffer.from(files['free.pth']);
  damaged.fill(0xff, damaged.length - 2000); // NaN, behind the header
  for (const [bytes, why] of [[randomBytes(700), /not a checkpoint/], [readFileSync(join(fixtures, 'two.png')), /not a checkpoint/], [damaged, /is not finite/]]) {
    writeFileSync(join(mirror, 'free.pth'), bytes);
    const r = await get(['free']);
    assert.equal(r.status, 1, r.text);
    assert.match(r.err, /^restored: free\.pth: what was downloaded is not taken: /m);
    assert.match(r.err, why);
    assert.deepEqual(readdirSync(out), [], 'nothing is left');
  }
  writeFileSync(join(mirror, 'pair.bin'), Buffer.concat([files['pair.bin'], Buffer.from('x')]));
  assert.match((await get(['pair'])).err, /pair\.param: the content differs from what was published/);
  assert.deepEqual(readdirSync(out), []);
});

test('replaces an installed file that is not the published one', async () => {
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, 'one.pth'), 'something else');
  assert.equal((await get(['one'])).status, 0);
  assert.ok(have('one.pth'));
});

test('says what it does not know and what it cannot reach', async () => {
  for (const [args, status, words] of [
    [['tow'], 2, /there is no model "tow" to download; did you mean two\?; there are default, all, one, two, free/],
    [['later'], 2, /later is not supported yet/],
    [['mine'], 2, /mine is not downloaded: its licence \(S-Lab-1\.0, non-commercial\) forbids commercial use.*mine\.pth.*restored models add/],
    [['theirs'], 2, /theirs is not downloaded: its authors do not publish the file by itself/],
    [[], 2, /name the models/],
    [['one', '--too', 'x'], 2, /unknown option --too; did you mean --to\?/],
  ]) {
    const r = await get(args);
    assert.equal(r.status, status, r.text);
    assert.match(r.err, words);
  }
  assert.match((await get(['one'], { from: join(base, 'absent') })).err, /--mirror: there is no folder/);
  rmSync(join(mirror, 'one.pth'));
  assert.match((await get(['one'])).err, /one\.pth: there is no such file/);
  const offline = await get(['one'], { from: null });
  assert.equal(offline.status, 1);
  assert.match(offline.err, /one\.pth: no connection for https:\/\/127\.0\.0\.1:1\/one\.pth .*--mirror DIR/);
  const nowhere = await get(['one'], { env: { XDG_DATA_HOME: '', HOME: '' } });
  assert.match(nowhere.err, /name a folder with --to/);
  writeFileSync(join(base, 'plain'), '');
  assert.match((await get(['two', '--to', join(base, 'plain/below')])).err, /two\.pth: .*plain/);
  assert.ok(!existsSync(out) || readdirSync(out).length === 0, 'nothing is left');
});

test('over HTTP: resumes after the connection broke', () => serve({ ranges: true, cuts: 2, cut: 100000 }, async (url, asked) => {
  const r = await get(['one'], { from: `${url}/` });
  assert.equal(r.status, 0, r.text);
  assert.deepEqual(asked, [0, 100000, 200000]);
  assert.ok(have('one.pth'));
}));

test('over HTTP: a server that always cuts, and the next call', () => serve({ ranges: true, cuts: 8, cut: 30000 }, async (url, asked) => {
  const broken = await get(['one'], { from: url });
  assert.equal(broken.status, 1, broken.text);
  assert.match(broken.err, /run the same command again to continue where it stopped/);
  assert.deepEqual(readdirSync(out), ['one.pth.part']);
  const before = asked.length;
  const resumed = await get(['one'], { from: url });
  assert.equal(resumed.status, 0, resumed.text);
  assert.equal(asked[before], 30000 * before);
  assert.ok(have('one.pth'));
}));

test('over HTTP: a server that cannot resume', () => serve({ ranges: false }, async (url) => {
  part(files['one.pth'].subarray(0, 5000));
  const r = await get(['one'], { from: url });
  assert.equal(r.status, 0, r.text);
  assert.match(r.text, /starting again/);
  assert.ok(have('one.pth'));
}));

test('over HTTP: one that cannot resume and always cuts', () => serve({ ranges: false, cuts: 3, cut: 30000 }, async (url) => {
  const broken = await get(['one'], { from: url });
  assert.equal(broken.status, 1, broken.text);
  assert.match(broken.err, /; run the same command again to begin anew/);
  const again = await get(['one'], { from: url });
  assert.equal(again.status, 0, again.text);
  assert.ok(have('one.pth'));
}));

test('over HTTP: refusals leave nothing behind', async () => {
  for (const status of [404, 403, 500]) {
    await serve({ status }, async (url) => {
      const r = await get(['one'], { from: url });
      assert.equal(r.status, 1);
      assert.match(r.err, new RegExp(`answers ${status}`));
      assert.deepEqual(readdirSync(out), []);
    });
  }
  await serve({ location: `file://${mirror}/one.pth` }, async (url) => {
    const r = await get(['one'], { from: url });
    assert.equal(r.status, 1, 'a server does not name files of this machine');
    assert.match(r.err, /one\.pth: only https:\/\/ and http:\/\/ are allowed \(/);
  });
});

test('http:// is for a mirror that the user names', async () => {
  writeFileSync(list, '[one]\nfile = one.pth\nurl = http://127.0.0.1:1/one.pth\n');
  const r = await get(['one'], { from: null });
  assert.equal(r.status, 2);
  assert.match(r.err, /models\.conf, line 3: not understood: url = http:\/\/127\.0\.0\.1:1\/one\.pth/);
});

test('models are found in the folder of the user: XDG_DATA_HOME, or else below HOME; no path that is relative', () => {
  const put = (...folders) => {
    const folder = join(base, ...folders, 'restored/models');
    mkdirSync(folder, { recursive: true });
    copyFileSync(join(fixtures, 'parser.safetensors'), join(folder, `${folders[0]}.safetensors`));
  };
  put('home', '.local/share');
  put('own');
  const found = (env) => {
    const { status, stdout } = spawnSync(binary, ['models', '--json'], { cwd: base, env: { ...process.env, XDG_DATA_HOME: '', HOME: '', ...env }, encoding: 'utf8' });
    assert.equal(status, 0);
    return ['home', 'own'].filter((name) => JSON.parse(stdout).models.some((model) => model.name === name));
  };
  assert.deepEqual(found({ HOME: join(base, 'home') }), ['home']);
  assert.deepEqual(found({ HOME: join(base, 'home'), XDG_DATA_HOME: join(base, 'own') }), ['own']);
  assert.deepEqual(found({ HOME: 'home', XDG_DATA_HOME: 'own' }), []);
  assert.deepEqual(found({}), []);
});

test('--scan says of each file of a folder whether it is read, and as what', () => {
  const folder = join(base, 'theirs'), families = new URL('../golden/families/', import.meta.url).pathname;
  mkdirSync(folder);
  for (const name of ['esrgan_old_x8.safetensors', 'ncnn_srvgg_x4.param', 'ncnn_srvgg_x4.bin', 'ncnn_rrdbnet_x1.param',
    'span_x2.safetensors', 'plksr_x3_dysample.safetensors', 'cugan_x3_pro.safetensors', 'dncnn_level.safetensors', 'drunet.safetensors', 'fbcnn_gray.safetensors']) {
    copyFileSync(join(families, name), join(folder, name));
  }
  writeFileSync(join(folder, 'odd.pth'), 'odd');
  const { status, stdout } = spawnSync(binary, ['models', '--scan', folder], { encoding: 'utf8' });
  assert.equal(status, 0);
  assert.match(stdout, /esrgan_old_x8\.safetensors: upscaler, RRDBNet ×8\n/);
  assert.match(stdout, /ncnn_srvgg_x4\.param: upscaler, SRVGGNetCompact ×4\n/);
  assert.match(stdout, /ncnn_rrdbnet_x1\.param: its weights are read from the \.bin beside it/);
  assert.match(stdout, /odd\.pth: not a checkpoint/);
  for (const line of ['plksr_x3_dysample.safetensors: upscaler, RealPLKSR+DySample ×3', 'span_x2.safetensors: upscaler, SPAN ×2', 'cugan_x3_pro.safetensors: upscaler, Real-CUGAN pro ×3',
    'dncnn_level.safetensors: upscaler, FDnCNN ×1', 'drunet.safetensors: upscaler, DRUNet ×1', 'fbcnn_gray.safetensors: upscaler, FBCNN ×1']) {
    assert.ok(stdout.includes(`${line}\n`), stdout);
  }
  assert.match(stdout, /8 of 10 files are read\n$/);
  for (const args of [['--scan', folder, '--json'], ['--json', '--scan', folder]]) {
    const told = spawnSync(binary, ['models', ...args], { encoding: 'utf8' }), rows = JSON.parse(told.stdout);
    assert.deepEqual([told.status, told.stderr, rows.length, rows.filter(({ read }) => read).length], [0, '', 10, 8]);
    const row = (name) => rows.find(({ file }) => file === join(folder, name));
    assert.deepEqual(row('cugan_x3_pro.safetensors'), { file: join(folder, 'cugan_x3_pro.safetensors'), read: true, kind: 'upscaler', architecture: 'Real-CUGAN pro', scale: 3, licence: null, non_commercial: false });
    assert.deepEqual(Object.keys(row('odd.pth')), ['file', 'read', 'reason']);
    assert.match(row('odd.pth').reason, /^not a checkpoint/);
  }
  for (const args of [['--json'], [folder, folder], [folder, '--jsn']]) {
    const wrong = spawnSync(binary, ['models', '--scan', ...args], { encoding: 'utf8' });
    assert.deepEqual([wrong.status, wrong.stdout], [2, '']);
    assert.match(wrong.stderr, /restored models --scan DIR \[--json\]: one folder/);
  }
  assert.equal(spawnSync(binary, ['models', '--scan']).status, 2);
});

test('--scan leaves nothing out: names that are there twice, deep folders, many files, other formats, damaged files', () => {
  const folder = join(base, 'all of theirs'), families = new URL('../golden/families/', import.meta.url).pathname, deep = join(folder, 'a/b/c/d/e/f/g/h');
  const scan = (path) => spawnSync(binary, ['models', '--scan', path], { encoding: 'utf8' });
  mkdirSync(deep, { recursive: true });
  for (const to of ['same.safetensors', 'same.pth', 'a/same.safetensors', 'a/b/c/d/e/f/g/h/deep.safetensors']) copyFileSync(join(families, 'span_x2.safetensors'), join(folder, to));
  for (const to of ['codeformer', 'mine']) copyFileSync(join(families, 'codeformer.safetensors'), join(folder, `${to}.safetensors`));
  for (const name of ['net.onnx', 'net.pkl', 'net.gguf', 'net.bin', 'notes.txt', '.hidden.pth']) writeFileSync(join(folder, name), 'x');
  for (const ending of ['param', 'bin']) copyFileSync(join(families, `ncnn_srvgg_x4.${ending}`), join(folder, `pair.${ending}`));
  const whole = readFileSync(join(families, 'esrgan_old_x8.safetensors'), 'latin1'), tensor = 'model.1.sub.0.RDB1.conv2.0.bias';
  assert.ok(whole.includes(`"${tensor}"`));
  writeFileSync(join(folder, 'damaged.safetensors'), whole.replace(`"${tensor}"`, `"${tensor.replace('bias', 'bios')}"`), 'latin1');
  const { status, stdout } = scan(folder), lines = stdout.split('\n').map((line) => line.replace(`${folder}/`, ''));
  assert.equal(status, 0);
  const said = (name) => lines.filter((line) => line.startsWith(`${name}: `)).map((line) => line.slice(name.length + 2)).join();
  for (const name of ['same.safetensors', 'same.pth', 'a/same.safetensors', 'a/b/c/d/e/f/g/h/deep.safetensors']) assert.equal(said(name), 'upscaler, SPAN ×2');
  for (const name of ['codeformer.safetensors', 'mine.safetensors']) assert.equal(said(name), 'face, CodeFormer (non-commercial)');
  assert.match(said('net.onnx'), /^a network as ONNX, .* not read/);
  assert.match(said('net.pkl'), /pickled program/);
  assert.match(said('net.gguf'), /GGUF/);
  assert.match(said('net.bin'), /without the \.param/);
  assert.match(said('damaged.safetensors'), new RegExp(`${tensor.replaceAll('.', '\\.')} is missing`));
  assert.equal(said('pair.param'), 'upscaler, SRVGGNetCompact ×4');
  assert.doesNotMatch(stdout, /pair\.bin|notes|hidden/);
  assert.match(stdout, /7 of 12 files are read\n$/);
  const many = join(base, 'many');
  mkdirSync(many);
  for (let i = 0; i < 1100; i++) writeFileSync(join(many, `${i}.pth`), 'x');
  assert.match(scan(many).stdout, /\n0 of 1100 files are read\n$/);
  for (const [path, why] of [[join(base, 'nowhere'), 'No such file or directory'], [join(folder, 'net.bin'), 'not a folder']]) {
    const none = scan(path);
    assert.equal(none.status, 1);
    assert.match(none.stderr, new RegExp(`^restored: .*: ${why}; --scan takes a folder\n$`));
    assert.equal(none.stdout, '');
  }
});

test('a damaged file is told by the list, and by a restoration', () => {
  const folder = join(base, 'damaged'), run = (...args) => spawnSync(binary, [...args, '--models', folder], { encoding: 'utf8', cwd: base });
  mkdirSync(folder);
  const bytes = readFileSync(join(fixtures, 'srvgg_x2.safetensors'));
  writeFileSync(join(folder, 'nan.safetensors'), bytes.fill(0xff, bytes.length - 2000));
  const whole = readFileSync(new URL('../golden/families/esrgan_old_x8.safetensors', import.meta.url), 'latin1');
  writeFileSync(join(folder, 'short.safetensors'), whole.replace('RDB1.conv2.0.bias"', 'RDB1.conv2.0.bios"'), 'latin1');
  const { status, stdout } = run('models');
  assert.equal(status, 0);
  assert.match(stdout, /\nFiles not recognised as models, or damaged:\n.*short\.safetensors: RRDBNet: tensor model\.1\.sub\.0\.RDB1\.conv2\.0\.bias is missing\n/);
  assert.doesNotMatch(stdout, /^short /m);
  const json = JSON.parse(run('models', '--json').stdout);
  assert.ok(!json.models.some((model) => model.name === 'short'));
  assert.deepEqual(json.unread, [{ file: 'short.safetensors', reason: 'RRDBNet: tensor model.1.sub.0.RDB1.conv2.0.bias is missing' }]);
  const restored = run('restore', join(fixtures, 'picture.png'), '-o', 'never.png', '--version', 'none', '--bg_upsampler', 'nan', '--device', 'cpu');
  assert.equal(restored.status, 1);
  assert.match(restored.stderr, /background: the file of nan is damaged: its tensor body\.\d+\.weight has values that are not finite; get it again/);
  assert.ok(!existsSync(join(base, 'never.png')));
});
