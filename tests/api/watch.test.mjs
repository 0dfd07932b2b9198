// restored watch: what is there and what appears, written slowly, in subfolders; what is done or cannot be read, also after a
// restart and kill -9.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { fixture, ownModels, png, pngSize, until } from './client.mjs';
import { binary } from './server.mjs';

let folder, here, running = [];
before(() => { folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-watch-')); });
beforeEach(() => { here = fs.mkdtempSync(path.join(folder, 'run-')); fs.mkdirSync(path.join(here, 'in')); });
after(() => {
  for (const watcher of running) watcher.child.kill('SIGKILL');
  fs.rmSync(folder, { recursive: true, force: true });
});

const plain = ['-v', 'none', '--bg_upsampler', 'none'];

// A watcher that has looked at what was there: {child, out, err, ended}.
async function watch(...args) {
  const child = spawn(binary, ['watch', 'in', 'out', '--settle', '0.2', ...ownModels, ...args], { cwd: here, env: { ...process.env, RESTORED_STARTER_MODELS: 'false' }, stdio: ['ignore', 'pipe', 'pipe'] });
  const watcher = { child, out: '', err: '', ended: new Promise((done) => child.on('close', (status, signal) => done({ status, signal }))) };
  running.push(watcher);
  child.stdout.on('data', (data) => { watcher.out += data; });
  child.stderr.on('data', (data) => { watcher.err += data; });
  await until('it watches', () => /watching in; /.test(watcher.out) || child.exitCode !== null);
  return watcher;
}
async function stop({ child, ended }) {
  child.kill('SIGTERM');
  assert.deepEqual(await ended, { status: 0, signal: null });
}
// At once: however busy the machine is, no half of it is seen.
const put = (name, bytes) => {
  fs.mkdirSync(path.dirname(path.join(here, name)), { recursive: true });
  fs.writeFileSync(path.join(here, 'half'), bytes);
  fs.renameSync(path.join(here, 'half'), path.join(here, name));
};
const files = (dir = 'out') => fs.readdirSync(path.join(here, dir), { recursive: true, withFileTypes: true }).filter((e) => e.isFile() && !e.name.startsWith('.restored-')).map((e) => path.relative(path.join(here, dir), path.join(e.parentPath ?? e.path, e.name))).sort();
const there = (...names) => until(`${names} in out`, () => names.every((name) => fs.existsSync(path.join(here, 'out/restored_imgs', name))));
const told = (watcher, words) => until(`${words}`, () => words.test(watcher.out + watcher.err));

test('what is there, what comes, in subfolders that come as well; written slowly; each once, also after a restart', async () => {
  put('in/a.png', fixture('none.png'));
  put('in/sub/b.png', fixture('none.png'));
  put('in/.hidden.png', fixture('none.png'));
  const first = await watch(...plain);
  assert.match(first.out, /^watching in; 2 waiting$/m);
  await there('a.png', 'sub/b.png');
  put('in/new/deep/c.png', fixture('none.png'));
  put('d.png', fixture('picture.png'));
  fs.renameSync(path.join(here, 'd.png'), path.join(here, 'in/d.png'));
  // nothing but the close at the end says that this one is whole
  const slow = fs.openSync(path.join(here, 'in/slow.png'), 'w');
  fs.writeSync(slow, fixture('none.png').subarray(0, 300));
  await there('new/deep/c.png', 'd.png');
  fs.writeSync(slow, fixture('none.png').subarray(300));
  fs.closeSync(slow);
  await there('slow.png');
  assert.equal(first.err, '', 'the half of slow.png was not read');
  await stop(first);
  assert.deepEqual(files(), ['restored_imgs/a.png', 'restored_imgs/d.png', 'restored_imgs/new/deep/c.png', 'restored_imgs/slow.png', 'restored_imgs/sub/b.png']);

  fs.unlinkSync(path.join(here, 'out/restored_imgs/a.png')); // taken away by whoever wanted it
  put('in/sub/b.png', fixture('picture.png')); // another picture of the name
  const second = await watch(...plain);
  assert.match(second.out, /^watching in; 1 waiting$/m);
  const twice = pngSize(fixture('picture.png')).map((n) => 2 * n);
  await until('b anew', () => JSON.stringify(pngSize(fs.readFileSync(path.join(here, 'out/restored_imgs/sub/b.png')))) === JSON.stringify(twice));
  assert.ok(!fs.existsSync(path.join(here, 'out/restored_imgs/a.png')));
  await stop(second);
  const other = await watch(...plain, '-s', '1');
  assert.match(other.out, /^watching in; 5 waiting$/m, 'with other options all is done again');
  await stop(other);
});

test('what is still downloaded is left out until it has its name', async () => {
  for (const name of ['a.png.part', 'b.png.crdownload']) put(`in/${name}`, fixture('none.png'));
  const watcher = await watch(...plain);
  assert.match(watcher.out, /^watching in; 0 waiting$/m);
  put('in/c.png.part', fixture('none.png'));
  put('in/d.png', fixture('none.png'));
  await there('d.png');
  for (const name of ['a.png.part', 'b.png.crdownload', 'c.png.part']) fs.renameSync(path.join(here, 'in', name), path.join(here, 'in', path.parse(name).name));
  await there('a.png', 'b.png', 'c.png');
  await stop(watcher);
  assert.deepEqual(files(), ['a', 'b', 'c', 'd'].map((name) => `restored_imgs/${name}.png`));
  assert.equal(watcher.err, '');
});

test('what cannot be read is reported once, and tried again when it has changed', async () => {
  put('in/bad.png', fixture('none.png').subarray(0, 200));
  put('in/notes.txt', 'no picture');
  put(`in/${'n'.repeat(240)}.png`, fixture('none.png')); // nor can its result be written
  fs.mkdirSync(path.join(here, 'in', 'd/'.repeat(101)), { recursive: true });
  const first = await watch(...plain);
  await told(first, /in(\/d){101}: not watched, because it is more than 100 folders deep\n/);
  await told(first, /in\/bad\.png: [^]*in\/notes\.txt: skipped: |in\/notes\.txt: skipped: [^]*in\/bad\.png: /);
  await told(first, /in\/n{240}\.png: [^]*the name is too long; up to 235 bytes can be written\n/);
  put('in/good.png', fixture('none.png'));
  await there('good.png');
  assert.equal(first.err.match(/bad\.png/g).length, 1, first.err);
  await stop(first);
  fs.rmSync(path.join(here, 'in/d'), { recursive: true });
  assert.match(fs.readFileSync(path.join(here, 'out/.restored-failed'), 'utf8'), /\/in\/bad\.png$/m);

  const second = await watch(...plain, '--rescan', '0.1');
  assert.match(second.out, /^watching in; 0 waiting, 3 left out that could not be read \(out\/\.restored-failed\)$/m);
  put('in/bad.png', fixture('none.png'));
  await there('bad.png');
  assert.equal(second.err, '');
  await stop(second);
});

test('kill -9 leaves no half results, and the next start goes on under the same names', async () => {
  const names = Array.from({ length: 8 }, (_, i) => `p${i}.png`);
  for (const name of names) put(`in/${name}`, png(300, 200));
  put(`out/restored_imgs/p9.png.${2 ** 22 - 7}.part`, 'half'); // of a process that is no more
  for (let seen = 0; seen < 4; seen += 2) {
    const watcher = await watch(...plain, '-s', '4');
    await until('some results', () => (watcher.out.match(/->/g) ?? []).length >= 2 || names.every((name) => fs.existsSync(path.join(here, 'out/restored_imgs', name))));
    watcher.child.kill('SIGKILL');
    await watcher.ended;
    for (const name of files()) if (!/\.part$/.test(name)) assert.deepEqual(pngSize(fs.readFileSync(path.join(here, 'out', name))), [1200, 800], name);
  }
  const last = await watch(...plain, '-s', '4');
  await there(...names);
  await stop(last);
  assert.deepEqual(files(), names.map((name) => `restored_imgs/${name}`), 'no second names, and no temporary files');
});

test('SIGTERM ends it while it works, and the picture is begun anew', async () => {
  put('in/large.png', png(1200, 900));
  const args = ['-v', 'none', '-s', '4', '--bg_tile', '64', '--bg_upsampler', 'rrdb_x4'];
  const first = await watch(...args);
  await until('it is at work', () => fs.readFileSync(`/proc/${first.child.pid}/stat`, 'utf8').split(' ')[13] > 30);
  await stop(first);
  assert.match(first.out, /^stopped$/m);
  assert.deepEqual(files(), []);
  const second = await watch(...args);
  assert.match(second.out, /^watching in; 1 waiting$/m);
  await stop(second);
});

test('what it refuses', async () => {
  put('a.png', fixture('none.png'));
  const run = (...args) => new Promise((resolve) => {
    const child = spawn(binary, ['watch', ...args], { cwd: here, stdio: ['ignore', 'pipe', 'pipe'] });
    let err = '';
    child.stderr.on('data', (data) => { err += data; });
    child.on('close', (status) => resolve({ status, err }));
  });
  fs.mkdirSync(path.join(here, 'in/restored_imgs/x'), { recursive: true });
  for (const [args, words] of [
    [['in'], /restored watch IN OUT: name the folder/],
    [['in', 'out', 'more'], /restored watch IN OUT/],
    [['nowhere', 'out'], /nowhere: there is no such folder/],
    [['in', 'in'], /the results in in would be watched as pictures of in/],
    [['in/restored_imgs/x', 'in'], /would be watched/],
    [['in', 'out', '--settle', 'long'], /--settle: "long" is not a number of seconds/],
    [['in', 'out', '--mask', 'a.png'], /--mask is for restored restore/],
    [['in', 'out', '--upscale', '99'], /upscale/],
  ]) {
    const { status, err } = await run(...args);
    assert.equal(status, 2, args.join(' '));
    assert.match(err, words);
  }
});
