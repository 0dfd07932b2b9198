// The command line: restored restore with the reference's options and layout, models, devices, healthcheck, serve's
// configuration.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { decodePng, fixture, get, ownModels, png, pngSize, start } from './client.mjs';
import { binary, fixtures } from './server.mjs';

let folder, here;
before(() => { folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-cli-')); });
after(() => fs.rmSync(folder, { recursive: true, force: true }));
beforeEach(() => { here = fs.mkdtempSync(path.join(folder, 'run-')); });

// Runs the program in `here`: {status, out, err}.
function run(args, { env = {}, ms = 120000, signal } = {}) {
  return new Promise((resolve) => {
    const child = spawn(binary, args, { cwd: here, env: { ...process.env, RESTORED_STARTER_MODELS: 'false', ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '', err = '';
    const timer = setTimeout(() => child.kill('SIGKILL'), ms);
    child.stdout.on('data', (data) => { out += data; });
    child.stderr.on('data', (data) => { err += data; });
    if (signal) signal(child);
    child.on('close', (status) => { clearTimeout(timer); resolve({ status, out, err }); });
  });
}
const quick = ['--bg_upsampler', 'none', '--parse', 'false'];
const restore = (...args) => run(['restore', ...ownModels, ...args]);
const put = (name, bytes) => { fs.mkdirSync(path.dirname(path.join(here, name)), { recursive: true }); fs.writeFileSync(path.join(here, name), bytes); };
const files = (dir = '.') => fs.readdirSync(path.join(here, dir), { recursive: true, withFileTypes: true }).filter((e) => e.isFile()).map((e) => path.relative(path.join(here, dir), path.join(e.parentPath ?? e.path, e.name))).sort();
const read = (name) => fs.readFileSync(path.join(here, name));

describe('restore', () => {
  test("the reference's layout", async () => {
    put('two.png', fixture('two.png'));
    const { status, out } = await restore('-i', 'two.png', '-o', 'results', '-s', '2', ...quick);
    assert.equal(status, 0);
    assert.deepEqual(files('results'), ['cmp/two_00.png', 'cmp/two_01.png', 'cropped_faces/two_00.png', 'cropped_faces/two_01.png', 'restored_faces/two_00.png', 'restored_faces/two_01.png', 'restored_imgs/two.png']);
    assert.deepEqual(pngSize(read('results/restored_imgs/two.png')), [480, 256]);
    const crop = decodePng(read('results/cropped_faces/two_00.png')), face = decodePng(read('results/restored_faces/two_00.png')), both = decodePng(read('results/cmp/two_00.png'));
    assert.deepEqual([both.width, both.height], [2 * crop.width, crop.height]);
    for (let y = 0; y < crop.height; y += 7) {
      assert.ok(both.pixels.subarray(y * 2 * crop.width * 3, (y * 2 + 1) * crop.width * 3).equals(crop.pixels.subarray(y * crop.width * 3, (y + 1) * crop.width * 3)), 'the crop on the left');
      assert.ok(both.pixels.subarray((y * 2 + 1) * crop.width * 3, (y * 2 + 2) * crop.width * 3).equals(face.pixels.subarray(y * crop.width * 3, (y + 1) * crop.width * 3)), 'the restored face on the right');
    }
    assert.match(out, /^two\.png -> results\/restored_imgs\/two\.png {2}240x128 -> 480x256, 2 of 2 faces restored, [\d.]+ s on (vulkan:\d+|cpu)\n/);
  });

  test('options with one dash, with =, with - for _, and short ones with their value', async () => {
    put('two.png', fixture('two.png'));
    const { status, err } = await restore('two.png', '-bg_upsampler', 'none', '-only_center_face', '--parse=false', '-s1.5', '-w', '0.5', '-suffix', 'x', '--png-level=1', '--ext', 'jpg');
    assert.equal(status, 0, err);
    assert.deepEqual(files('results'), ['cmp/two_00.png', 'cropped_faces/two_00.png', 'restored_faces/two_00_x.png', 'restored_imgs/two_x.jpg']);
  });

  test('-o NAME.png writes just that file; its extension is the format', async () => {
    put('a.jpg', fixture('picture.jpg'));
    assert.equal((await restore('a.jpg', '-o', 'deep/er/b.png', ...quick)).status, 0);
    assert.deepEqual(files(), ['a.jpg', 'deep/er/b.png']);
    assert.deepEqual(pngSize(read('deep/er/b.png')), [320, 256]);
    const two = await restore('a.jpg', 'a.jpg', '-o', 'b.png', ...quick);
    assert.equal(two.status, 2);
    assert.match(two.err, /names one file, but there are 2 inputs/);
    const disagree = await restore('a.jpg', '-o', 'b.png', '--ext', 'jpg', ...quick);
    assert.equal(disagree.status, 2);
    assert.match(disagree.err, /do not agree/);
    const webp = await restore('a.jpg', '-o', 'b.webp', ...quick);
    assert.equal(webp.status, 2);
    assert.match(webp.err, /webp/i);
    assert.ok(!files().includes('b.webp'));
  });

  test('--aligned writes no restored_imgs', async () => {
    put('face.png', fixture('picture.png'));
    assert.equal((await restore('face.png', '--aligned')).status, 0);
    assert.deepEqual(files('results'), ['cmp/face_00.png', 'cropped_faces/face_00.png', 'restored_faces/face_00.png']);
  });

  test('a folder in order, without its subfolders; what cannot be read is reported and the rest go on', async () => {
    put('in/b.png', fixture('none.png'));
    put('in/a.jpg', fixture('picture.jpg'));
    put('in/note.txt', 'no picture');
    put('in/cut.png', fixture('picture.png').subarray(0, 400));
    put('in/empty.png', '');
    put('in/.hidden.png', fixture('none.png'));
    put('in/sub/c.png', fixture('none.png'));
    const { status, out, err } = await restore('in', '-v', 'none', '--bg_upsampler', 'none');
    assert.equal(status, 1);
    assert.deepEqual(files('results'), ['restored_imgs/a.jpg', 'restored_imgs/b.png']);
    assert.deepEqual(out.match(/^in\/\S+/gm), ['in/a.jpg', 'in/b.png']);
    for (const name of ['note.txt', 'cut.png', 'empty.png']) assert.match(err, new RegExp(`restored: in/${name}: `));
    assert.equal((await restore('in/sub', 'nowhere.png', '-v', 'none', '--bg_upsampler', 'none')).status, 1);
    const none = await restore('nowhere.png');
    assert.equal(none.status, 1);
    assert.match(none.err, /nowhere\.png/);
  });

  test('what a folder holds that cannot be read is reported, but for its subfolders', async () => {
    put('in/a.png', fixture('none.png'));
    put('in/sub.png/b.png', fixture('none.png'));
    fs.symlinkSync('nowhere.png', path.join(here, 'in/dangling.png'));
    fs.symlinkSync('a.png', path.join(here, 'in/linked.png'));
    fs.symlinkSync('sub.png', path.join(here, 'in/folder.png'));
    execFileSync('mkfifo', [path.join(here, 'in/fifo.png')]);
    const { status, err } = await restore('in', '-v', 'none', '--bg_upsampler', 'none');
    assert.equal(status, 1);
    assert.match(err, /^restored: in\/dangling\.png: No such file or directory$/m);
    assert.match(err, /^restored: in\/fifo\.png: not a regular file$/m);
    assert.equal(err.match(/^restored:/gm).length, 2, err);
    assert.deepEqual(files('results'), ['restored_imgs/a.png', 'restored_imgs/linked.png']);
  });

  test('a flag may be followed by its value', async () => {
    put('a.png', fixture('picture.png'));
    for (const args of [['--aligned', 'false', 'a.png'], ['a.png', '--compat', 'off', '--aligned=no'], ['--only_center_face', '0', 'a.png', '--json', 'no']]) {
      const { status, out, err } = await restore(...args, '-v', 'none', '--bg_upsampler', 'none');
      assert.equal(status, 0, `${args.join(' ')}: ${err}`);
      assert.match(out, /^a\.png -> results\/restored_imgs\/a\.png/);
    }
    assert.equal((await restore('--aligned', 'TRUE', 'a.png', '-o', 'face')).status, 0);
    assert.equal((await restore('--aligned', 'a.png', '-o', 'face')).status, 0);
    assert.deepEqual(files('face'), ['cmp/a_00.png', 'cropped_faces/a_00.png', 'restored_faces/a_00.png']);
  });

  test('names and values that are not UTF-8', async () => {
    const bytes = (...parts) => `$'${parts.join('')}'`;
    put('a.png', fixture('none.png'));
    const shell = (line) => new Promise((resolve) => {
      const child = spawn('bash', ['-c', line], { cwd: here, stdio: ['ignore', 'pipe', 'pipe'] });
      let out = '', err = '';
      child.stdout.on('data', (data) => { out += data; });
      child.stderr.on('data', (data) => { err += data; });
      child.on('close', (status) => resolve({ status, out, err }));
    });
    const command = [binary, 'restore', ...ownModels, '-v', 'none', '--bg_upsampler', 'none'].join(' ');
    const suffix = await shell(`${command} a.png --suffix ${bytes('\\xff')}`);
    assert.equal(suffix.status, 2);
    assert.match(suffix.err, /suffix: the value is not UTF-8/);
    const name = await shell(`mv a.png ${bytes('b\\xff.png')} && ${command} --json b* nowhere${bytes('\\xff')}`);
    const [good, bad] = name.out.trimEnd().split('\n').map((line) => JSON.parse(line));
    assert.equal(good.file, 'b?.png');
    assert.equal(good.written, 'results/restored_imgs/b?.png');
    assert.match(bad.error.text, /^nowhere\?: No such file/);
  });

  test('a progress bar on a terminal, that never runs backwards', async () => {
    put('two.png', fixture('two.png'));
    const { status, out } = await new Promise((resolve) => {
      const child = spawn('script', ['-qec', [binary, 'restore', ...ownModels, 'two.png', '-s', '4', '--bg_tile', '32', '--bg_upsampler', 'rrdb_x4'].join(' '), '/dev/null'], { cwd: here, stdio: ['ignore', 'pipe', 'pipe'] });
      let text = '';
      child.stdout.on('data', (data) => { text += data; });
      child.on('close', (code) => resolve({ status: code, out: text }));
    });
    assert.equal(status, 0, out);
    const bars = [...out.matchAll(/two\.png \[(#*)\.*\] (\w+)/g)].map((m) => [m[1].length, m[2]]);
    assert.ok(bars.some(([, stage]) => stage === 'background'), out);
    for (let i = 1; i < bars.length; i++) assert.ok(bars[i][0] >= bars[i - 1][0], JSON.stringify(bars));
  });

  test('inputs of one name do not overwrite each other', async () => {
    put('a.png', fixture('none.png'));
    put('a.jpg', fixture('picture.jpg'));
    put('b/a.png', fixture('picture.png'));
    put('a_2.png', fixture('none.png'));
    const { status, err } = await restore('a.png', 'a.jpg', 'b/a.png', 'a_2.png', '-v', 'none', '--bg_upsampler', 'none', '--ext', 'png');
    assert.equal(status, 0);
    assert.deepEqual(files('results'), ['restored_imgs/a.png', 'restored_imgs/a_2.png', 'restored_imgs/a_3.png', 'restored_imgs/a_4.png']);
    assert.deepEqual(pngSize(read('results/restored_imgs/a_2.png')), [192, 128], 'a_2 keeps its own name');
    assert.match(err, /a\.jpg: an input before it is also named "a"; its results are named "a_3"/);
  });

  test('the input is never overwritten', async () => {
    put('results/restored_imgs/a.png', fixture('none.png'));
    const { status, err } = await restore('results/restored_imgs/a.png', '-v', 'none', '--bg_upsampler', 'none');
    assert.equal(status, 1);
    assert.match(err, /would overwrite the input/);
    assert.ok(read('results/restored_imgs/a.png').equals(fixture('none.png')));
  });

  test('--json prints one report a line, failures too', async () => {
    put('a.png', fixture('picture.png'));
    const { status, out } = await restore('a.png', 'nowhere.png', '--json', ...quick);
    assert.equal(status, 1);
    const [good, bad] = out.trimEnd().split('\n').map((line) => JSON.parse(line));
    assert.equal(good.file, 'a.png');
    assert.equal(good.written, 'results/restored_imgs/a.png');
    assert.equal(good.faces.length, 1);
    assert.equal(good.output.width, 320);
    assert.equal(bad.file, 'nowhere.png');
    assert.match(bad.error.text, /nowhere\.png/);
  });

  test('usage', async () => {
    put('a.png', fixture('none.png'));
    for (const [args, words] of [[['a.png', '--bogus', '1'], /unknown option --bogus/], [['a.png', '--upscale', '0'], /upscale: "0"/], [['a.png', '--upscale'], /--upscale needs a value/], [[], /there is no input/], [['a.png', '--queue', 'x'], /queue = "x"/], [['a.png', '-s', 'nan'], /upscale: "nan"/], [['a.png', '--compat=maybe'], /compat: "maybe"/]]) {
      const { status, err } = await restore(...args);
      assert.equal(status, 2, args.join(' '));
      assert.match(err, words);
    }
    const missing = await restore('a.png', '-v', '1.4');
    assert.equal(missing.status, 1);
    assert.match(missing.err, /GFPGANv1\.4\.pth.*make models/s);
    const device = await restore('a.png', '--device', 'nope');
    assert.equal(device.status, 1);
    assert.match(device.err, /device: "nope" is none of the devices; there are: .*vulkan:0/);
    const bare = await run(['restore', '--models', here, 'a.png']);
    assert.equal(bare.status, 1);
    assert.match(bare.err, /make models/);
    assert.deepEqual(files(), ['a.png']);
  });

  test('Ctrl-C stops it, and leaves no half file', async () => {
    put('a.png', png(1600, 1200));
    const { status } = await run(['restore', ...ownModels, 'a.png', '-v', 'none', '-s', '8', '--bg_tile', '32', '--bg_upsampler', 'rrdb_x4'],
      { signal: (child) => setTimeout(() => child.kill('SIGINT'), 700) });
    assert.equal(status, 130);
    assert.deepEqual(files(), ['a.png']);
  });
});

describe('the others', () => {
  test('models', async () => {
    const table = await run(['models', ...ownModels]);
    assert.equal(table.status, 0);
    assert.match(table.out, /^NAME +KIND +ARCHITECTURE/);
    assert.match(table.out, /^face_64 +face +GFPGANv1Clean +1 +\d+ +[0-9a-f]{64} .*\(default\)$/m);
    assert.match(table.out, /GFPGANv1\.3\.pth +get it with: make models/);
    const { status, out } = await run(['models', '--json', '--models', fixtures]);
    assert.equal(status, 0);
    const json = JSON.parse(out);
    assert.ok(json.models.every((m) => /^[0-9a-f]{64}$/.test(m.sha256)));
    const none = await run(['models', '--models', here]);
    assert.equal(none.status, 0);
    assert.match(none.out, /No models were found/);
  });

  test('devices', async () => {
    const { status, out } = await run(['devices', '--json']);
    assert.equal(status, 0);
    const json = JSON.parse(out);
    assert.ok(json.devices.some((d) => d.id === json.default));
    const table = await run(['devices']);
    assert.match(table.out, /^(vulkan:\d+|cpu) /);
    assert.match(table.out, /^cpu /m);
    assert.match(table.out, /usable +yes$/m);
    const software = json.devices.find((d) => d.type === 'software');
    if (software) assert.ok(table.out.includes(`remark     ${software.remark}\n`), table.out);
  });

  test('healthcheck', async () => {
    const server = await start();
    const good = await run(['healthcheck', '--listen', `127.0.0.1:${server.port}`]);
    assert.equal(good.status, 0, good.err);
    await server.stop();
    const bad = await run(['healthcheck', '--listen', `127.0.0.1:${server.port}`]);
    assert.equal(bad.status, 1);
    assert.match(bad.err, /refused/);
    const bare = await start({ models: ['--models', here], ready: false });
    const unready = await run(['healthcheck'], { env: { RESTORED_LISTEN: `127.0.0.1:${bare.port}` } });
    await bare.stop();
    assert.equal(unready.status, 1);
    assert.match(unready.err, /not ready: [\s\S]*make models/);
  });

  test('version, help, and what there is not', async () => {
    assert.match((await run(['--version'])).out, /^restored \d+\.\d+\.\d+\n$/);
    const help = await run(['--help']);
    assert.equal(help.status, 0);
    for (const command of ['serve', 'restore', 'devices', 'models', 'bench', 'healthcheck']) {
      assert.match(help.out, new RegExp(`restored ${command}`));
      const own = await run([command, '--help']);
      assert.equal(own.status, 0);
      assert.match(own.out, new RegExp(`^restored ${command}`));
      assert.equal((await run([command, '--bogus'])).status, 2);
    }
    assert.equal((await run(['explode'])).status, 2);
    assert.equal((await run([])).status, 2);
  });
});

describe('serve', () => {
  test('--print-config shows each value and its source', async () => {
    put('my.conf', '# mine\nqueue = 5\nworkers = 2\n');
    const { status, out } = await run(['serve', '--config', 'my.conf', '--workers=3', '--models', '/m', '--print-config'], { env: { RESTORED_JOB_SECONDS: '77', RESTORED_QUEUE: '6' } });
    assert.equal(status, 0);
    for (const line of ['queue = 6  # environment RESTORED_QUEUE', 'workers = 3  # flag --workers', 'job_seconds = 77  # environment RESTORED_JOB_SECONDS', 'models_dir = /m  # flag --models', 'body_limit = 64MiB  # default'])
      assert.ok(out.includes(`${line}\n`), `${line} is not in\n${out}`);
  });

  test('an unknown key or a bad value stops the start, with file and line', async () => {
    put('bad.conf', 'queue = 5\n\ncolour = blue\n');
    const unknown = await run(['serve', '--config', 'bad.conf']);
    assert.equal(unknown.status, 2);
    assert.match(unknown.err, /bad\.conf:3: unknown key "colour"/);
    assert.match((await run(['serve', '--queue', 'lots'])).err, /flag --queue: queue = "lots" is not a number from 1 to 10000/);
    put('twice.conf', '\ufeffqueue = 5\nworkers = 1\nqueue = 6\n');
    assert.match((await run(['serve', '--config', 'twice.conf'])).err, /twice\.conf:3: "queue" is set in line 1 already/);
    assert.match((await run(['serve', 'stray'])).err, /takes no "stray"/);
    assert.match((await run(['serve', '--config', 'nowhere.conf'])).err, /nowhere\.conf/);
  });

  test('a device that is not there stops the start and names those that are', async () => {
    const { status, out, err } = await run(['serve', ...ownModels, '--listen', '127.0.0.1:0', '--device', 'nope']);
    assert.equal(status, 1);
    assert.match(err, /device: "nope" is none of the devices; there are: .*vulkan:0/);
    assert.doesNotMatch(out, /listening/);
  });

  test('an address in use, and a warning where others can reach it', async () => {
    const server = await start();
    const { status, err } = await run(['serve', ...ownModels, '--listen', `127.0.0.1:${server.port}`]);
    assert.equal(status, 1);
    assert.match(err, /cannot listen on 127\.0\.0\.1:\d+: Address already in use/);
    assert.doesNotMatch(server.log(), /OPEN-TO-THE-NETWORK/);
    await server.stop();
    const open = await run(['serve', ...ownModels, '--listen', '0.0.0.0:0'], { signal: (child) => child.stdout.once('data', () => child.kill('SIGTERM')) });
    assert.equal(open.status, 0);
    assert.match(open.err, /OPEN-TO-THE-NETWORK/);
  });
});
