// How the program is built and installed.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { binary, root } from './server.mjs';

const elf = (...args) => execFileSync('readelf', ['--wide', ...args, binary], { encoding: 'utf8', maxBuffer: 1 << 26 });

test('the program is hardened', () => {
  assert.match(elf('--file-header'), /Type:\s+DYN /); // loaded anywhere
  const segments = elf('--segments');
  assert.match(segments, /GNU_RELRO/);
  assert.match(segments, /GNU_STACK .* RW {2}0x/); // no code on the stack
  assert.doesNotMatch(segments, / RWE /);
  const dynamic = elf('--dynamic');
  assert.match(dynamic, /BIND_NOW/);
  assert.match(dynamic, /FLAGS_1.*NOW.*PIE/);
  assert.doesNotMatch(dynamic, /RPATH|RUNPATH|TEXTREL/);
  const symbols = elf('--dyn-syms');
  assert.match(symbols, / __stack_chk_fail@/);
  assert.match(symbols, / __\w+_chk@/); // _FORTIFY_SOURCE
});

// The C library's start files may lack the note, and then the linked program does, too.
test('code is compiled for Intel CET', { skip: /X86-64/.test(elf('--file-header')) ? false : 'only x86-64 has it' }, () => {
  for (const object of ['server/main.o', 'runtime/backend/backend.o', 'runtime/cpu/cpu_kernel_gemm.avx2.o']) {
    const notes = execFileSync('readelf', ['--wide', '--notes', path.join(root, 'build', object)], { encoding: 'utf8' });
    assert.match(notes, /IBT, SHSTK/, object);
  }
});

// make asked with other flags compiles again; -Werror alone is no other flag.
test('objects depend on the flags', () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-flags-'));
  const object = path.join(folder, 'runtime/base/error.o');
  const time = (...args) => {
    const r = spawnSync('make', ['-s', `BUILD=${folder}`, ...args, object], { cwd: root, encoding: 'utf8' });
    assert.equal(r.status, 0, r.stdout + r.stderr);
    return fs.statSync(object, { bigint: true }).mtimeNs;
  };
  const first = time();
  assert.equal(time(), first);
  assert.equal(time('CI=1'), first);
  assert.ok(time('CFLAGS=-O1') > first);
  fs.rmSync(folder, { recursive: true });
});

test('what is deleted is made again, and then there is nothing left to do', () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-again-'));
  const object = path.join(folder, 'tests/bench/bench_http_bare.o');
  const make = (...args) => spawnSync('make', ['-s', `BUILD=${folder}`, ...args, path.join(folder, 'bench_http_bare')], { cwd: root, encoding: 'utf8' }).status;
  assert.equal(make(), 0);
  assert.equal(make('--question'), 0);
  fs.rmSync(object);
  assert.equal(make('--question'), 1);
  assert.equal(make(), 0);
  assert.ok(fs.existsSync(object));
  assert.equal(make('--question'), 0);
  fs.rmSync(folder, { recursive: true });
});

test('nothing of the folder that it was built in is inside', () => {
  assert.ok(!fs.readFileSync(binary).includes(`${root}/`));
});

test('make install and uninstall', () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-install-'));
  const make = (...args) => {
    const r = spawnSync('make', ['-s', '-o', 'restored', ...args, `DESTDIR=${folder}`, 'PREFIX=/opt/r'], { cwd: root, encoding: 'utf8' });
    assert.equal(r.status, 0, r.stdout + r.stderr);
  };
  const files = () => fs.readdirSync(folder, { recursive: true, withFileTypes: true }).filter((e) => e.isFile()).map((e) => path.relative(folder, path.join(e.parentPath ?? e.path, e.name))).sort();
  const conf = path.join(folder, 'etc/restored/restored.conf');
  const docs = path.join(folder, 'opt/r/share/doc/restored');
  make('install');
  for (const name of ['bin/restored', ...['CHANGELOG.md', 'LICENSE', 'LICENSE.starter-models', 'README.md', 'SECURITY.md', 'restored.conf', 'docs/api.md'].map((file) => `share/doc/restored/${file}`),
    'share/man/man1/restored-serve.1', 'share/bash-completion/completions/restored', 'share/restored/alerts.yml', 'share/restored/grafana.json',
    'lib/systemd/system/restored.service', 'lib/sysusers.d/restored.conf'])
    assert.ok(files().includes(`opt/r/${name}`), name);
  assert.ok(fs.existsSync(conf));
  for (const name of ['README.md', 'SECURITY.md', 'CHANGELOG.md', ...fs.readdirSync(path.join(docs, 'docs')).filter((file) => file.endsWith('.md')).map((file) => `docs/${file}`)])
    for (const [, link] of fs.readFileSync(path.join(docs, name), 'utf8').matchAll(/\]\(([^)#\s]+)/g))
      assert.ok(/^https?:/.test(link) || fs.existsSync(path.join(docs, path.dirname(name), link)), `${name}: ${link}`);
  make('uninstall');
  assert.deepEqual(files(), []);
  assert.ok(!fs.existsSync(path.dirname(conf)));
  make('install');
  fs.writeFileSync(conf, 'queue = 5\n'); // one that was changed is kept
  make('install');
  make('uninstall');
  assert.deepEqual(files(), ['etc/restored/restored.conf']);
  assert.equal(fs.readFileSync(conf, 'utf8'), 'queue = 5\n');
  make('uninstall'); // also where there is nothing
  fs.rmSync(folder, { recursive: true });
});
