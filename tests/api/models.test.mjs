// tools/models.sh (`make models`): downloads, resumes and verifies, from a mirror so that no network is needed.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { root } from './server.mjs';

const base = mkdtempSync(join(tmpdir(), 'restored-models-'));
const mirror = join(base, 'a mirror'), out = join(base, 'out'), conf = join(base, 'models.conf');
const files = { 'one.pth': randomBytes(300000), 'two.pth': randomBytes(50000), 'free.pth': randomBytes(700) };
const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');

after(() => rmSync(base, { recursive: true, force: true }));
beforeEach(() => {
  rmSync(out, { recursive: true, force: true });
  rmSync(mirror, { recursive: true, force: true });
  mkdirSync(mirror, { recursive: true });
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(mirror, name), bytes);
  writeFileSync(conf, `# a comment
[one]
file = one.pth
url = http://127.0.0.1:1/one.pth
sha256 = ${hash(files['one.pth'])}
bytes = 300000
default = true

[two]
file = two.pth
url = http://127.0.0.1:1/two.pth
sha256 = ${hash(files['two.pth'])}

[free]
file = free.pth
url = http://127.0.0.1:1/free.pth

[settings_only]
file = one.pth
slope = 0
`);
});

const environment = (extra) => ({ ...process.env, MODELS_CONF: conf, MODELS_DIR: out, MODELS_MIRROR: mirror, ...extra });
const run = (args = [], extra = {}) => {
  const r = spawnSync('sh', [join(root, 'tools/models.sh'), ...args], { env: environment(extra), encoding: 'utf8' });
  return { ...r, text: r.stdout + r.stderr };
};
const have = (name) => existsSync(join(out, name)) && readFileSync(join(out, name)).equals(files[name]);

test('downloads the default files, and those named', () => {
  assert.equal(run().status, 0);
  assert.deepEqual(readdirSync(out), ['one.pth']);
  assert.ok(have('one.pth'));
  const all = run(['all']);
  assert.equal(all.status, 0, all.text);
  assert.match(all.text, /one\.pth: already there/);
  assert.match(all.text, /free\.pth: no hash is published for it; its sha256 is [0-9a-f]{64}/);
  assert.ok(have('two.pth') && have('free.pth'));
});

test('resumes what was cut short', () => {
  mkdirSync(out);
  writeFileSync(join(out, 'one.pth.part'), files['one.pth'].subarray(0, 123456));
  const r = run(['one']);
  assert.equal(r.status, 0, r.text);
  assert.match(r.text, /resuming at 123456 bytes/);
  assert.doesNotMatch(r.text, /starting again/);
  assert.deepEqual(readdirSync(out), ['one.pth']);
  assert.ok(have('one.pth'));
});

test('finishes a part that was already whole', () => {
  mkdirSync(out);
  writeFileSync(join(out, 'one.pth.part'), files['one.pth']);
  assert.equal(run(['one']).status, 0);
  assert.ok(have('one.pth'));
});

test('starts again when what was there does not fit', () => {
  for (const part of [randomBytes(1000), randomBytes(400000)]) {
    rmSync(out, { recursive: true, force: true });
    mkdirSync(out);
    writeFileSync(join(out, 'one.pth.part'), part);
    const r = run(['one']);
    assert.equal(r.status, 0, r.text);
    assert.match(r.text, /starting again/);
    assert.ok(have('one.pth'));
  }
});

test('refuses wrong content, says so, and leaves nothing', () => {
  writeFileSync(join(mirror, 'one.pth'), randomBytes(300000));
  const r = run(['one', 'two']);
  assert.equal(r.status, 1);
  assert.match(r.stderr, new RegExp(`one\\.pth: wrong content .*expected ${hash(files['one.pth'])}`));
  assert.match(r.stderr, /not complete: one\.pth$/m);
  assert.deepEqual(readdirSync(out), ['two.pth'], 'the other file was downloaded all the same');
});

test('replaces an installed file that is not the published one', () => {
  mkdirSync(out);
  writeFileSync(join(out, 'one.pth'), 'something else');
  assert.equal(run(['one']).status, 0);
  assert.ok(have('one.pth'));
});

test('names what it does not know and what it cannot reach', () => {
  assert.match(run(['three']).stderr, /no model three in .*; it has: one two free/);
  assert.match(run([], { MODELS_MIRROR: join(base, 'absent') }).stderr, /no directory/);
  const gone = run(['one'], { MODELS_MIRROR: '' });
  assert.equal(gone.status, 1);
  assert.match(gone.stderr, /one\.pth: not downloaded from http:\/\/127\.0\.0\.1:1\/one\.pth/);
});

test('resumes over HTTP after the connection broke, and copes with a server that cannot resume', async () => {
  const ranges = [];
  let cut = true, honour = true;
  const server = http.createServer((request, response) => {
    const bytes = files[request.url.slice(1)];
    const from = Number(/bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
    ranges.push(from);
    if (!bytes) return response.writeHead(404).end();
    const partial = honour && from > 0;
    response.writeHead(partial ? 206 : 200, {
      'content-length': bytes.length - (partial ? from : 0),
      ...(partial ? { 'content-range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` } : {}),
    });
    if (cut) {
      response.write(bytes.subarray(0, 100000), () => response.destroy());
    } else response.end(bytes.subarray(partial ? from : 0));
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const url = `http://127.0.0.1:${server.address().port}`;
  const go = () => new Promise((done) => {
    const child = spawn('sh', [join(root, 'tools/models.sh'), 'one'], { env: environment({ MODELS_MIRROR: url }) });
    let text = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (t) => { text += t; });
    child.on('exit', (status) => done({ status, text }));
  });
  try {
    const broken = await go();
    assert.equal(broken.status, 1, broken.text);
    assert.match(broken.text, /the same command resumes it/);
    assert.deepEqual(readdirSync(out), ['one.pth.part']);
    cut = false;
    const resumed = await go();
    assert.equal(resumed.status, 0, resumed.text);
    assert.equal(ranges.at(-1), 100000);
    assert.ok(have('one.pth'));

    rmSync(join(out, 'one.pth'));
    writeFileSync(join(out, 'one.pth.part'), files['one.pth'].subarray(0, 5000));
    honour = false;
    const again = await go();
    assert.equal(again.status, 0, again.text);
    assert.match(again.text, /starting again/);
    assert.ok(have('one.pth'));
  } finally {
    server.close();
  }
});
