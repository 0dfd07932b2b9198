// tools/deps.sh (`make deps`): installs only what is missing, as root or through sudo. dpkg-query, apt-get, id and sudo are
// stand-ins here; which packages a real Debian lacks is not a test's business.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { root } from './server.mjs';

let folder;
const script = (name, text) => {
  writeFileSync(join(folder, name), `#!/bin/sh\n${text}\n`);
  chmodSync(join(folder, name), 0o755);
};

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'restored-deps-'));
  for (const tool of ['sh', 'env', 'mktemp', 'cat', 'rm', 'cc', 'make', 'glslc'].map((name) => ['/usr/bin', '/bin'].map((d) => join(d, name)).find(existsSync)))
    if (tool) symlinkSync(tool, join(folder, tool.split('/').pop()));
  for (const tool of ['cc', 'make', 'glslc']) if (!existsSync(join(folder, tool))) script(tool, ':');
  script('dpkg-query', `for p; do :; done; case " $MISSING " in *" $p "*) exit 1 ;; *) printf '%s' "\${STATES-installed:all }" ;; esac`);
  script('dpkg', 'echo amd64');
  script('apt-get', `echo "apt-get $* $DEBIAN_FRONTEND" >>${folder}/log; [ -z "$BROKEN" ] || { echo 'E: no such package'; exit 100; }`);
  script('id', 'echo "${AS:-0}"');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const run = (what, env = {}) => spawnSync('/bin/sh', [join(root, 'tools/deps.sh'), what], { env: { PATH: folder, ...env }, encoding: 'utf8' });
const log = () => (existsSync(join(folder, 'log')) ? readFileSync(join(folder, 'log'), 'utf8').trim().split('\n') : []);

test('does nothing when all is there', () => {
  const r = run('run');
  assert.equal(r.status, 0, r.stderr);
  assert.equal(r.stdout + r.stderr, '');
  assert.deepEqual(log(), []);
});

test('installs what is missing and nothing else', () => {
  const r = run('run', { MISSING: 'libpng-dev mesa-vulkan-drivers clang' });
  assert.equal(r.status, 0, r.stderr);
  assert.deepEqual(log(), ['apt-get update noninteractive', 'apt-get install -y --no-install-recommends libpng-dev mesa-vulkan-drivers noninteractive']);
});

test("what is installed for another architecture alone is missing", () => {
  assert.equal(run('run', { STATES: 'installed:amd64 installed:arm64 ' }).status, 0);
  assert.equal(run('run', { STATES: 'not-installed:arm64 installed:amd64 ' }).status, 0);
  assert.deepEqual(log(), []);
  for (const STATES of ['installed:arm64 ', 'not-installed:amd64 installed:arm64 ', 'half-installed:amd64 ', '']) {
    rmSync(join(folder, 'log'), { force: true });
    run('run', { STATES });
    assert.match(log()[1] ?? '', /ca-certificates/, STATES);
  }
});

test('a command that is there needs no package', () => {
  script('npm', ':');
  for (const name of ['spirv-val', 'clang', 'node', 'chromium', 'curl', 'systemd-analyze', 'mandoc']) script(name, ':');
  assert.equal(run('check', { MISSING: 'npm nodejs' }).status, 0);
  assert.deepEqual(log(), []);
});

test('says that node is too old for the tests, found or just installed', () => {
  for (const name of ['npm', 'spirv-val', 'clang', 'chromium', 'curl', 'systemd-analyze', 'mandoc']) script(name, ':');
  script('node', `case "$1" in --version) echo v16.20.2 ;; *) echo 'node: bad option' >&2; exit 9 ;; esac`);
  for (const env of [{}, { MISSING: 'libcmocka-dev' }]) {
    const r = run('check', env);
    assert.equal(r.status, 1);
    assert.match(r.stderr, /^restored: the tests need node 18\.15 or newer; \S+\/node is v16\.20\.2\n$/);
  }
  assert.equal(run('run').status, 0, 'only the tests need it');
});

test('uses sudo where it is not root, and says what to do where there is none', () => {
  const without = run('run', { MISSING: 'libpng-dev', AS: '1000' });
  assert.equal(without.status, 1);
  assert.equal(without.stderr.trim().split('\n').length, 1);
  assert.match(without.stderr, /apt-get install libpng-dev/);
  script('sudo', `echo sudo >>${folder}/log; exec "$@"`);
  assert.equal(run('run', { MISSING: 'libpng-dev', AS: '1000' }).status, 0);
  assert.deepEqual(log().map((line) => line.split(' ').slice(0, 2).join(' ')), ['sudo', 'apt-get update', 'sudo', 'apt-get install']);
});

test('shows what apt-get said when it fails', () => {
  const r = run('run', { MISSING: 'libpng-dev', BROKEN: '1' });
  assert.equal(r.status, 1);
  assert.match(r.stderr, /E: no such package/);
  assert.match(r.stderr, /could not install: libpng-dev$/m);
});
