// `make deb`: what is in the package, what it needs, and that its program runs. How it behaves on a clean system is
// `make check-deb`, which takes root and minutes.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { root } from './server.mjs';

const has = (tool) => !spawnSync('sh', ['-c', `command -v ${tool}`]).status;
const must = (command, ...args) => {
  const r = spawnSync(command, args, { encoding: 'utf8', cwd: root, env: { ...process.env, MAINTAINER: 'A B <a.b@debian.org>' } });
  assert.equal(r.status, 0, `${command} ${args.join(' ')}\n${r.stdout}${r.stderr}`);
  return r.stdout;
};

describe('the package', { skip: has('dpkg-shlibdeps') ? false : 'dpkg-dev is not installed' }, () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-package-'));
  let deb, listed;
  before(() => {
    deb = path.join(root, must('make', '-s', '-o', 'restored', 'deb').trim());
    listed = must('dpkg-deb', '-c', deb).trim().split('\n').map((line) => line.split(/\s+/)).map(([mode, owner, , , , name]) => ({ mode, owner, name: name.slice(1) }));
    must('dpkg-deb', '-x', deb, folder);
    must('dpkg-deb', '-e', deb, path.join(folder, 'DEBIAN'));
  });
  after(() => fs.rmSync(folder, { recursive: true }));
  const read = (name) => fs.readFileSync(path.join(folder, name), 'utf8');

  test('has its name, version and libraries', () => {
    const version = /RESTORED_VERSION "(.*)"/.exec(fs.readFileSync(path.join(root, 'server/version.h'), 'utf8'))[1];
    const control = read('DEBIAN/control');
    assert.match(control, new RegExp(`^Package: restored\nVersion: ${version}-1\nArchitecture: \\w+\nMaintainer: A B <a\\.b@debian\\.org>\n`));
    assert.doesNotMatch(control, /@\w+@/);
    const depends = /^Depends: (.*)$/m.exec(control)[1];
    for (const library of ['libc6 (>=', 'libmicrohttpd12', 'libjansson4', 'libpng16-16', 'libjpeg62-turbo', 'libsqlite3-0', 'systemd']) assert.ok(depends.includes(library), library);
    assert.equal(read('DEBIAN/conffiles'), '/etc/restored/restored.conf\n');
    for (const script of ['postinst', 'prerm', 'postrm']) must('sh', '-n', path.join(folder, 'DEBIAN', script));
  });

  test('has the files where Debian wants them, owned by root', () => {
    const names = listed.map(({ name }) => name);
    for (const name of ['/usr/bin/restored', '/lib/systemd/system/restored.service', '/usr/lib/sysusers.d/restored.conf', '/etc/restored/restored.conf',
      '/usr/share/man/man1/restored-serve.1.gz', '/usr/share/bash-completion/completions/restored', '/usr/share/doc/restored/copyright', '/usr/share/restored/alerts.yml'])
      assert.ok(names.includes(name), name);
    assert.deepEqual(listed.filter(({ owner, mode }) => owner !== 'root/root' || !/^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--|lrwxrwxrwx)$/.test(mode)), []);
    assert.match(read('lib/systemd/system/restored.service'), /^ExecStart=\/usr\/bin\/restored serve$/m);
    for (const line of read('DEBIAN/md5sums').trim().split('\n')) assert.ok(names.includes(`/${line.slice(34)}`), line);
  });

  test('its program runs', () => {
    assert.match(must(path.join(folder, 'usr/bin/restored'), '--version'), /^restored \d/);
  });

  test('lintian finds no error', { skip: has('lintian') ? false : 'lintian is not installed' }, () => {
    const r = spawnSync('lintian', ['--fail-on', 'error', deb], { encoding: 'utf8' });
    assert.equal(r.status, 0, r.stdout);
  });
});
