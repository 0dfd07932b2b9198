// restored restore: the reference's options and layout, folders, names, streams, reports, and what it refuses.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { describe, test } from 'node:test';
import { files, folder, here, put, read, run } from './cli.mjs';
import { decodePng, fixture, ownModels, png, pngSize } from './client.mjs';
import { binary, faulty, fixtures } from './server.mjs';

const quick = ['--bg_upsampler', 'none', '--parse', 'false'];
const restore = (...args) => run(['restore', ...ownModels, ...args]);

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
    assert.match(out, /^two\.png -> results\/restored_imgs\/two\.png {2}240x128 -> 480x256, 0 of 2 faces restored, 2 kept as they came, [\d.]+ s on (vulkan:\d+|cpu)\n/);
  });

  test('control characters in file names do not reach the terminal', async () => {
    put('in/a\x1b[2J\nb.png', fixture('two.png'));
    put('in/c\x07.png', 'no picture');
    const args = ['in', '-o', 'out', '--faces', 'none', ...quick], shown = 'in/a\\x1B[2J\\x0Ab.png -> out/restored_imgs/a\\x1B[2J\\x0Ab.png';
    assert.equal((await restore(...args, '--dry_run')).out.split('\n')[0], shown);
    const { out, err } = await restore(...args);
    assert.ok(out.startsWith(`${shown}  240x128 -> `), out);
    assert.ok(err.includes('restored: in/c\\x07.png: skipped: '), err);
    assert.ok(fs.existsSync(path.join(here, 'out/restored_imgs/a\x1b[2J\nb.png')), 'the file has its name');
  });

  test('options with one dash, with =, with - for _, and short ones with their value', async () => {
    put('two.png', fixture('two.png'));
    const { status, out, err } = await restore('two.png', '-bg_upsampler', 'none', '-only_center_face', '--parse=false', '-s1.5', '-w', '0.5', '-suffix', 'x', '--png-level=1', '--ext', 'jpg');
    assert.equal(status, 0, err);
    assert.match(out, /, 1 of 2 faces restored, [\d.]+ s on /);
    assert.deepEqual(files('results'), ['cmp/two_00.png', 'cropped_faces/two_00.png', 'restored_faces/two_00_x.png', 'restored_imgs/two_x.jpg']);
  });

  test('for --device cpu no graphics driver is loaded', async () => {
    put('two.png', fixture('two.png'));
    const { status, err } = await run(['restore', ...ownModels, 'two.png', '--device', 'cpu', '--faces', 'none', ...quick], { env: { LD_DEBUG: 'libs' } });
    assert.equal(status, 0);
    assert.match(err, /libpng/, 'the loader tells what it loads');
    assert.doesNotMatch(err, /libvulkan/);
  });

  test('the log is of warnings, or all of it with --log_level debug', async () => {
    put('two.png', fixture('two.png'));
    for (const [level, logged] of [['info', false], ['debug', true]]) {
      const { status, err } = await restore('two.png', '-o', 'out.png', '--device', 'cpu', '--faces', 'none', '--log_level', level, ...quick);
      assert.equal(status, 0, err);
      assert.equal(/ debug plan-made /.test(err), logged, err);
    }
  });

  test("-w is short for --weight, --w is CodeFormer's w", async () => {
    put('two.png', fixture('two.png'));
    for (const [args, weight, w] of [[['--weight', '1', '--w', '0'], 1, 0], [['-w', '0.25'], 0.25, 0.5], [['-w0.25', '--w=0.75'], 0.25, 0.75]]) {
      const { status, out, err } = await restore('two.png', '--json', ...quick, ...args), { options } = JSON.parse(out);
      assert.equal(status, 0, err);
      assert.deepEqual([options.weight, options.w], [weight, w], args.join(' '));
    }
    for (const command of [['bench'], ['watch', 'in', 'out'], ['restore', 'two.png']])
      for (const [flag, name] of [['--w', 'w'], ['-w', 'weight']]) {
        const { status, err } = await run([...command, flag, '7']);
        assert.equal(status, 2);
        assert.match(err, new RegExp(`^restored: ${name}: `));
      }
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
    for (const name of ['x/o.BMP', 'o.gif', 'o.heic', 'o.jp2']) {
      const other = await restore('a.jpg', '-o', name, ...quick);
      assert.equal(other.status, 2, name);
      assert.match(other.err, /^restored: -o \S+: \w+ cannot be written, only png, jpg, webp, tiff, avif and jxl;/);
    }
    assert.deepEqual(fs.readdirSync(here), ['a.jpg', 'deep']);
    fs.mkdirSync(path.join(here, 'there.gif'));
    for (const name of ['new.tif/', 'there.gif']) {
      const made = await restore('a.jpg', '-o', name, '-v', 'none', '--bg_upsampler', 'none');
      assert.equal(made.status, 0, made.err);
      assert.deepEqual(files(name), ['restored_imgs/a.jpg']);
    }
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
    put('in/d.png.123.part', fixture('none.png')); // what a killed program was writing
    put('in/e.png.crdownload', fixture('none.png'));
    put('in/sub/c.png', fixture('none.png'));
    const { status, out, err } = await restore('in', '-v', 'none', '--bg_upsampler', 'none');
    assert.equal(status, 1);
    assert.deepEqual(files('results'), ['restored_imgs/a.jpg', 'restored_imgs/b.png']);
    assert.deepEqual(out.match(/^in\/\S+/gm), ['in/a.jpg', 'in/b.png']);
    for (const name of ['cut.png', 'empty.png']) assert.match(err, new RegExp(`^restored: in/${name}: `, 'm'));
    assert.match(err, /^restored: in\/note\.txt: skipped: .*not a picture/m);
    assert.match(err, /^restored: in: 1 subfolder skipped; --recursive/m);
    assert.match(out, /^2 restored, 2 failed, 1 skipped \(not pictures\)\n$/m);
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
    fs.symlinkSync('sub.png', path.join(here, 'in/folder.part'));
    execFileSync('mkfifo', [path.join(here, 'in/fifo.png')]);
    const { status, err } = await restore('in', '-v', 'none', '--bg_upsampler', 'none');
    assert.equal(status, 1);
    assert.match(err, /^restored: in\/dangling\.png: No such file or directory$/m);
    assert.match(err, /^restored: in\/fifo\.png: not a regular file$/m);
    assert.match(err, /^restored: in: 3 subfolders skipped; --recursive includes what is in them$/m);
    assert.equal(err.match(/^restored:/gm).length, 3, err);
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
      const child = spawn('script', ['-qec', [faulty, 'restore', ...ownModels, 'two.png', '-s', '4', '--bg_tile', '32', '--bg_upsampler', 'rrdb_x4'].join(' '), '/dev/null'],
        { cwd: here, env: { ...process.env, RESTORED_FAULTS: 'slow@run:1,until=3,plan=rrdb_x4' }, stdio: ['ignore', 'pipe', 'pipe'] });
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
    assert.match(err, /a\.jpg: an earlier input is also named "a"; the results of this one are named "a_3"/);
  });

  const plain = ['-v', 'none', '--bg_upsampler', 'none'];

  test('a picture of the same name keeps off the results of another, in later runs, too', async () => {
    put('A/img.png', fixture('none.png'));
    put('B/img.png', fixture('picture.png'));
    assert.equal((await restore('A/img.png', ...plain)).err, '');
    const other = await restore('B/img.png', ...plain);
    assert.equal(other.status, 0);
    assert.match(other.err, /^restored: B\/img\.png: there are results named "img" already, of \/.*\/A\/img\.png; its own are named "img_2"$/m);
    const sizes = () => ['img', 'img_2'].map((name) => pngSize(read(`results/restored_imgs/${name}.png`)));
    const first = sizes();
    assert.deepEqual(first, [pngSize(fixture('none.png')), pngSize(fixture('picture.png'))].map(([w, h]) => [2 * w, 2 * h]));
    for (const args of [['B/img.png'], ['A/img.png'], ['B/img.png', 'A/img.png'], ['B']]) { // each overwrites its own
      const again = await restore(...args, ...plain);
      assert.equal(again.err, '', args.join(' '));
      assert.deepEqual(sizes(), first);
      assert.deepEqual(files('results'), ['restored_imgs/img.png', 'restored_imgs/img_2.png']);
    }
    fs.renameSync(path.join(here, 'A'), path.join(here, 'moved')); // the same picture elsewhere
    assert.equal((await restore('moved/img.png', ...plain)).err, '');
    fs.writeFileSync(path.join(here, 'results/.restored-index'), 'rubbish\n\ta%zz\t\n');
    assert.match((await restore('moved/img.png', ...plain)).err, /of another picture or an unknown one; its own are named "img_3"/);
    const twice = await restore('moved/img.png', './moved/img.png', '-o', 'twice', ...plain);
    assert.match(twice.err, /img\.png: this file was given twice; it is restored once/);
    assert.deepEqual(files('twice'), ['restored_imgs/img.png']);
  });

  test('--skip-existing', async () => {
    put('in/a.png', fixture('none.png'));
    put('in/b.jpg', fixture('picture.jpg'));
    const skip = (...args) => restore('in', '--skip-existing', ...plain, ...args);
    const summary = (r) => { assert.equal(r.status, 0, r.err); return r.out.trimEnd().split('\n').at(-1); };
    assert.equal(summary(await skip()), '2 restored');
    assert.equal(summary(await skip()), '0 restored, 2 skipped (restored before)');
    assert.equal(summary(await skip('-s', '3')), '2 restored', 'with other options it is another result');
    assert.equal(summary(await skip()), '2 restored');
    const later = new Date(Date.now() + 60e3);
    fs.utimesSync(path.join(here, 'in/a.png'), later, later);
    assert.equal(summary(await skip()), '1 restored, 1 skipped (restored before)');
    assert.equal(summary(await skip()), '0 restored, 2 skipped (restored before)', 'a result of the same size and time is good, whatever the clock');
    fs.rmSync(path.join(here, 'results/restored_imgs/b.jpg'));
    assert.equal(summary(await skip()), '1 restored, 1 skipped (restored before)');
    put('one.png', fixture('none.png'));
    for (const before of [false, true]) {
      const one = await restore('one.png', '-o', 'out.png', '--skip-existing', ...plain);
      assert.equal(one.status, 0);
      assert.equal(one.out.includes('out.png'), !before);
    }
  });

  test('--recursive keeps the folders, and leaves the results alone', async () => {
    put('in/a.png', fixture('none.png'));
    put('in/x/a.png', fixture('picture.png'));
    put('in/x/y/b.png', fixture('none.png'));
    put('in/.hidden/c.png', fixture('none.png'));
    fs.symlinkSync('../..', path.join(here, 'in/x/loop'));
    for (let time = 0; time < 2; time++) {
      const { status, out, err } = await restore('in', '--recursive', '-o', 'in/out', ...plain);
      assert.equal(status, 0, err);
      assert.match(out, /^3 restored$/m);
      if (time) assert.match(err, /^restored: in\/out: not searched, because the results go there$/m);
      assert.match(err, /^restored: in\/x: 1 link to a folder skipped$/m);
      assert.deepEqual(files('in/out'), ['restored_imgs/a.png', 'restored_imgs/x/a.png', 'restored_imgs/x/y/b.png']);
    }
    const two = await restore('in/x', '--recursive', '-o', 'two', '-v', 'face_64', '--parse', 'false', '--bg_upsampler', 'none');
    assert.equal(two.status, 0, two.err);
    assert.deepEqual(files('two'), ['cmp/a_00.png', 'cropped_faces/a_00.png', 'restored_faces/a_00.png', 'restored_imgs/a.png', 'restored_imgs/y/b.png']);
  });

  test('--damaged accept restores what is left of a file, and says what is missing', async () => {
    for (const [name, ext] of [['picture.jpg', 'jpg'], ['two.png', 'png']]) {
      const file = fixture(name);
      put(`cut.${ext}`, file.subarray(0, Math.round(file.length * 0.7)));
      const refused = await restore(`cut.${ext}`, '-o', `new.${ext}`, ...plain);
      assert.equal(refused.status, 1);
      assert.match(refused.err, new RegExp(`^restored: cut\\.${ext}: the (JPEG|PNG) is damaged or cut short: a part of the picture is missing or wrong; --damaged accept restores what can be read\\n`));
      const { status, out, err } = await restore(`cut.${ext}`, '-o', `new.${ext}`, ...plain, '--damaged', 'accept');
      assert.equal(status, 0, err);
      assert.match(out, /\n {2}note: the file is cut short: the lowest \d+ of \d+ rows are missing and were filled with gray\n/);
    }
    const { width, pixels } = decodePng(read('new.png'));
    const last = pixels.subarray(pixels.length - 3 * width);
    assert.ok(last.every((v) => v === 128), 'gray below');
    put('head.jpg', fixture('picture.jpg').subarray(0, 300));
    assert.equal((await restore('head.jpg', '-o', 'none.jpg', ...plain, '--damaged', 'accept')).status, 1);
  });

  test('a result has the ending of its format, also where that is not that of the input', async () => {
    const starts = { png: '89504e47', jpg: 'ffd8ff' }, formats = (name) => fs.readFileSync(path.join(fixtures, 'formats', name));
    put('a.JPEG', fixture('picture.jpg'));
    put('c.tif', formats('plain.tif'));
    const heic = [['h.heic', 'lossy.heic', 'jpg'], ['t.heic', 'alpha.heic', 'png'], ['j.jp2', 'lossless.jp2', 'jpg']].filter(([, from]) => fs.existsSync(path.join(fixtures, 'formats', from)));
    for (const [name, from] of heic) put(name, formats(from));
    for (const [name, result, start, ...args] of [['a.JPEG', 'a.png', starts.png, '--lossless', 'true'], ['a.JPEG', 'a.JPEG', starts.jpg], ['c.tif', 'c.tif', '', '--lossless', 'true'],
      ...heic.flatMap(([one, , ext]) => [[one, `${one[0]}.${ext}`, starts[ext]], [one, `${one[0]}.png`, starts.png, '--lossless', 'true']])]) {
      const would = await restore(name, '--dry-run', ...plain, ...args), { status, out, err } = await restore(name, ...plain, ...args), to = `results/restored_imgs/${result}`;
      assert.equal(status, 0, err);
      assert.equal(would.out, `${name} -> ${to}\n`);
      assert.ok(out.startsWith(`${name} -> ${to} `), out);
      assert.ok(read(to).toString('hex').startsWith(start), `${name} ${result}`);
    }
  });

  test('--dry-run says what would be done', async () => {
    put('in/a.png', fixture('none.png'));
    put('in/b.jpeg', fixture('picture.jpg'));
    put('in/n.txt', 'no picture');
    const { status, out, err } = await restore('in', '--dry-run', '--suffix', 'x', ...plain);
    assert.equal(status, 0);
    assert.equal(out, 'in/a.png -> results/restored_imgs/a_x.png\nin/b.jpeg -> results/restored_imgs/b_x.jpeg\n2 would be restored, 1 skipped (not pictures)\n');
    assert.match(err, /n\.txt: skipped/);
    assert.deepEqual(files(), ['in/a.png', 'in/b.jpeg', 'in/n.txt']);
  });

  test('stdin and stdout', async () => {
    const pipe = (args, input) => new Promise((resolve) => {
      const child = spawn(binary, ['restore', ...ownModels, ...args], { cwd: here, env: { ...process.env, RESTORED_STARTER_MODELS: 'false' } });
      const out = [];
      let err = '';
      child.stdout.on('data', (data) => out.push(data));
      child.stderr.on('data', (data) => { err += data; });
      child.stdin.on('error', () => {});
      child.on('close', (status) => resolve({ status, out: Buffer.concat(out), err }));
      child.stdin.end(input);
    });
    const both = await pipe(['-', '-o', '-', ...plain], fixture('none.png'));
    assert.equal(both.status, 0, both.err);
    assert.deepEqual(pngSize(both.out), pngSize(fixture('none.png')).map((side) => 2 * side));
    assert.match(both.err, /^- -> -  /m);
    put('a.png', fixture('none.png'));
    const json = await pipe(['a.png', '-o', '-', '--json', '--ext', 'jpg', ...plain], '');
    assert.equal(json.out.toString('latin1', 0, 3), '\xff\xd8\xff');
    assert.equal(JSON.parse(json.err).written, '-');
    const folder = await pipe(['-i', '-', ...plain], fixture('none.png'));
    assert.equal(folder.status, 0, folder.err);
    assert.deepEqual(files('results'), ['restored_imgs/stdin.png']);
    assert.match((await pipe(['-', ...plain], fixture('none.png'))).err, /results named "stdin" already.*its own are named "stdin_2"/);
    for (const [input, words] of [['', /the file is empty/], ['no picture', /not a picture/], [fixture('picture.png').subarray(0, 400), /damaged/]]) {
      const bad = await pipe(['-', '-o', '-', ...plain], input);
      assert.equal(bad.status, 1);
      assert.equal(bad.out.length, 0);
      assert.match(bad.err, words);
    }
    const many = await pipe(['-', 'a.png', '-o', '-', ...plain], fixture('none.png'));
    assert.equal(many.status, 2);
    assert.match(many.err, /-o - names one file, but there are 2 inputs/);
    assert.ok(!fs.existsSync(path.join(here, '-')));
  });

  test('what is the same for all is said once; a model that is missing before any work', async () => {
    put('in/a.png', fixture('none.png'));
    put('in/b.png', fixture('none.png'));
    const { status, out } = await run(['restore', 'in', '--models', here, '-v', 'none', '--bg_upsampler', 'starter', '--ext', 'jpg'], { env: { RESTORED_STARTER_MODELS: 'true' } });
    assert.equal(status, 0);
    assert.equal(out.match(/note: .*starter/g).length, 1, out);
    const missing = await restore('in', '-v', '1.4', '-o', 'other');
    assert.equal(missing.status, 1);
    assert.equal(missing.err.match(/GFPGANv1\.4\.pth/g).length, 1, missing.err);
  });

  test('where the results cannot go is said before any work, and a full disk keeps the picture', async () => {
    put('a.png', fixture('two.png'));
    put('file', '');
    const through = await restore('a.png', '-o', 'file/results', ...plain);
    assert.equal(through.status, 1);
    assert.match(through.err, /^restored: the results cannot be written: file/);
    assert.equal(through.out, '');
    put('half/cmp', ''); // what should be a folder of faces is a file
    const half = await restore('a.png', '-o', 'half', ...quick);
    assert.equal(half.status, 1);
    assert.match(half.err, /^restored: the results cannot be written: half\/cmp/);
    if (process.getuid() !== 0) return;
    // too small for the result, large enough for the test of writing
    const small = (bytes, args) => new Promise((resolve) => {
      const child = spawn('bash', ['-c', `ulimit -f ${bytes / 1024}; exec "$@"`, 'bash', binary, 'restore', ...ownModels, ...args], { cwd: here, stdio: ['ignore', 'pipe', 'pipe'] });
      let err = '';
      child.stderr.on('data', (data) => { err += data; });
      child.on('close', (code) => resolve({ status: code, err }));
    });
    const full = await small(8192, ['a.png', '-o', 'full', ...quick]);
    assert.equal(full.status, 1);
    assert.match(full.err, /File too large/);
    assert.deepEqual(files('full'), [], 'no half file');
  });

  test('the input is never overwritten', async () => {
    put('results/restored_imgs/a.png', fixture('none.png'));
    const same = await restore('results/restored_imgs/a.png', '-o', 'results/restored_imgs/a.png', '-v', 'none', '--bg_upsampler', 'none');
    assert.equal(same.status, 1);
    assert.match(same.err, /would overwrite the input/);
    const { status, err } = await restore('results/restored_imgs/a.png', '-v', 'none', '--bg_upsampler', 'none');
    assert.equal(status, 0);
    assert.match(err, /there are results named "a" already, of another picture or an unknown one; its own are named "a_2"/);
    assert.ok(read('results/restored_imgs/a.png').equals(fixture('none.png')));
    assert.deepEqual(files('results'), ['restored_imgs/a.png', 'restored_imgs/a_2.png']);
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
    assert.match(missing.err, /GFPGANv1\.4\.pth.*restored models get/s);
    const device = await restore('a.png', '--device', 'nope');
    assert.equal(device.status, 1);
    assert.match(device.err, /device: "nope" is none of the devices; there are: .*vulkan:0/);
    const bare = await run(['restore', '--models', here, 'a.png']);
    assert.equal(bare.status, 1);
    assert.match(bare.err, /restored models get/);
    assert.deepEqual(files(), ['a.png']);
  });

  test('Ctrl-C stops it, sums up, and leaves no half file', async () => {
    put('in/a.png', fixture('none.png'));
    put('in/b.png', png(1600, 1200));
    const { status, out } = await run(['restore', ...ownModels, 'in', '-v', 'none', '-s', '8', '--bg_tile', '32', '--bg_upsampler', 'rrdb_x4'],
      { signal: (child) => child.stdout.once('data', () => setTimeout(() => child.kill('SIGINT'), 300)) });
    assert.equal(status, 130);
    assert.match(out, /^1 restored, 1 not done; stopped\n$/m);
    assert.deepEqual(files(), ['in/a.png', 'in/b.png', 'results/restored_imgs/a.png']);
  });
});
