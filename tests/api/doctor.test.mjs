// restored doctor: each thing that keeps a device from being used is found, with why it matters and what to do.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { binary, root } from './server.mjs';

const faulty = process.env.RESTORED_FAULTY_BINARY ?? path.join(root, 'build/tests/restored');
let folder;
const noVulkan = {}; // software Vulkan would take its time
before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-doctor-'));
  noVulkan.VK_DRIVER_FILES = path.join(folder, 'none');
  fs.mkdirSync(noVulkan.VK_DRIVER_FILES);
});
after(() => fs.rmSync(folder, { recursive: true, force: true }));

// Runs it for people and, as JSON, for programs: {status, out, report}. Both must say the same.
function doctor(env = {}, args = [], program = binary) {
  const clean = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(VK_|RESTORED_)/.test(name)));
  const run = (...more) => spawnSync(program, ['doctor', ...args, ...more], { cwd: folder, env: { ...clean, RESTORED_CONFIG: '/dev/null', RESTORED_CACHE_DIR: path.join(folder, 'cache'), ...env }, encoding: 'utf8', timeout: 180e3 });
  const people = run(), program_ = run('--json');
  const report = JSON.parse(program_.stdout);
  assert.equal(people.status, program_.status);
  assert.equal(report.works, people.status === 0);
  for (const { state, found, why, fix } of report.findings) {
    if (/\d ms$|GiB of memory/.test(found)) continue; // figures that differ from run to run
    assert.ok(people.stdout.includes(`  ${state.padEnd(8)} ${found}\n${why ? `           why: ${why}\n           fix: ${fix}\n` : ''}`), `${found}\n${people.stdout}`);
    assert.equal(state === 'ok', why === null && fix === null, found);
  }
  return { status: people.status, out: people.stdout, err: people.stderr, report };
}
const find = (report, check, state, pattern) => {
  const found = report.findings.find((f) => f.check === check && f.state === state && pattern.test(f.found));
  assert.ok(found, `no ${state} of ${check} like ${pattern}: ${JSON.stringify(report.findings, null, 1)}`);
  return found;
};

describe('doctor', () => {
  test('this machine: every device with its self-test, and which is used and why', () => {
    const { status, out, report } = doctor();
    assert.equal(status, 0);
    for (const title of ['Graphics processors', 'Permissions', 'Vulkan loader', 'Vulkan drivers', 'Processor and memory', 'Self-tests', 'Choice']) assert.match(out, new RegExp(`^${title}$`, 'm'));
    const devices = JSON.parse(execFileSync(binary, ['devices', '--json'], { encoding: 'utf8', cwd: folder }));
    assert.deepEqual(report.devices.map((d) => d.id), devices.devices.map((d) => d.id));
    for (const device of report.devices) {
      assert.equal(device.self_test.state, 'passed', JSON.stringify(device));
      assert.ok(device.self_test.max_error < 1e-4 && device.self_test.ms > 0);
      assert.match(find(report, 'self_test', 'ok', new RegExp(`^${device.id} passed: largest error`)).found, /e-0\d of the range in fp32/);
    }
    assert.ok(report.devices.some((d) => d.id === 'cpu'));
    assert.equal(report.default, devices.default);
    assert.match(report.summary, new RegExp(`^"auto" is ${report.default} \\(.*\\), in fp(32|16): .+\\.$`));
    find(report, 'choice', 'ok', /^"auto" is /);
    find(report, 'loader', 'ok', /^libvulkan\.so\.1 for Vulkan 1\.\d+\.\d+$/);
  });

  test('no loader library; the program starts without it', () => {
    assert.doesNotMatch(execFileSync('readelf', ['-d', binary], { encoding: 'utf8' }), /libvulkan/);
    fs.mkdirSync(path.join(folder, 'lib'));
    fs.writeFileSync(path.join(folder, 'lib/libvulkan.so.1'), ''); // stands before the real one
    const { status, report } = doctor({ LD_LIBRARY_PATH: path.join(folder, 'lib') });
    assert.equal(status, 0);
    assert.match(find(report, 'loader', 'problem', /^there is no usable Vulkan loader: .*libvulkan\.so\.1: file too short$/).fix, /apt-get install libvulkan1/);
    assert.deepEqual(report.devices.map((d) => d.id), ['cpu']);
    assert.match(report.summary, /^"auto" is cpu .*there is no graphics processor that can be used/);
  });

  test('no driver', () => {
    const { status, report } = doctor(noVulkan);
    assert.equal(status, 0);
    find(report, 'drivers', 'note', /^VK_DRIVER_FILES is set: /);
    assert.equal(find(report, 'drivers', 'problem', /^there is no Vulkan driver that can be loaded in what VK_DRIVER_FILES names$/).fix, 'unset VK_DRIVER_FILES');
    assert.ok(report.findings.some((f) => f.check === 'devices' && f.state !== 'ok'));
    assert.deepEqual(report.devices.map((d) => d.id), ['cpu']);
  });

  test('VK_ICD_FILENAMES at a missing file', () => {
    const { status, report } = doctor({ VK_ICD_FILENAMES: '/nowhere/icd.json' });
    assert.equal(status, 0);
    const found = find(report, 'drivers', 'problem', /^VK_ICD_FILENAMES names \/nowhere\/icd\.json, and there is no such file$/);
    assert.match(found.why, /looks nowhere else/);
    assert.match(found.fix, /unset the variable/);
    assert.deepEqual(report.devices.map((d) => d.id), ['cpu']);
  });

  test('a manifest whose library is not there', () => {
    fs.writeFileSync(path.join(folder, 'gone.json'), JSON.stringify({ file_format_version: '1.0.0', ICD: { library_path: './libgone_icd.so', api_version: '1.3.0' } }));
    const { report } = doctor({ VK_DRIVER_FILES: path.join(folder, 'gone.json') });
    const found = find(report, 'drivers', 'problem', /gone\.json names a library that cannot be loaded: .*libgone_icd\.so: cannot open shared object file/);
    assert.match(found.why, /leaves the driver out/);
  });

  test('llvmpipe only', (t) => {
    const lavapipe = fs.existsSync('/usr/share/vulkan/icd.d') && fs.readdirSync('/usr/share/vulkan/icd.d').find((name) => /^lvp_icd\..*json$/.test(name));
    if (!lavapipe) return t.skip('there is no lavapipe here');
    const { report } = doctor({ VK_DRIVER_FILES: `/usr/share/vulkan/icd.d/${lavapipe}` });
    find(report, 'devices', 'ok', /^vulkan:0: llvmpipe .*, software, Vulkan 1\.\d+\.\d+, driver llvmpipe .*fp16 yes/);
    const note = report.findings.find((f) => f.check === 'devices' && f.state !== 'ok');
    assert.match(note.found, /^Vulkan has software devices alone$|but Vulkan lists none$/); // the latter beside a real GPU
    assert.ok(note.why && note.fix);
    assert.match(note.fix, /; or unset VK_DRIVER_FILES, which hides other drivers$/);
    assert.equal(report.default, 'cpu');
  });

  test('a driver that is named and lists no device', (t) => {
    const others = ['radeon', 'intel'].map((name) => `/usr/share/vulkan/icd.d/${name}_icd.x86_64.json`).filter((name) => fs.existsSync(name));
    const idle = others.map((name) => doctor({ VK_ICD_FILENAMES: name }).report).find((report) => report.devices.length === 1);
    if (!idle) return t.skip('there is no driver without a device here');
    const found = idle.findings.find((f) => f.check === 'devices' && f.state !== 'ok');
    assert.match(found.fix, /; or unset VK_ICD_FILENAMES, which hides other drivers$/);
  });

  test('a device without the limits that the shaders need names each of them', (t) => {
    const { report } = doctor({ RESTORED_VULKAN_LOW_LIMITS: '1' }, [], faulty);
    if (!report.devices.some((d) => d.id.startsWith('vulkan:'))) return t.skip('there is no Vulkan device here');
    const found = find(report, 'devices', 'problem', /^vulkan:0: .* cannot be used: its limits are too low: /);
    for (const limit of ['maxStorageBufferRange 0 (134217728 needed)', 'maxPushConstantsSize 64 (128 needed)', 'maxComputeSharedMemorySize 0 (16384 needed)']) assert.ok(found.found.includes(limit), found.found);
    assert.ok(report.devices.every((d) => d.usable === (d.id === 'cpu')));
    find(report, 'choice', 'ok', /^vulkan:0 is not used: its limits are too low/);
  });

  test('a processor without AVX2 is slower, not broken', { skip: process.arch !== 'x64' && 'not an x86-64 machine' }, () => {
    const { status, report } = doctor({ ...noVulkan, RESTORED_CPU_ISA: 'base' });
    const able = /\bavx2\b/.test(fs.readFileSync('/proc/cpuinfo', 'utf8'));
    assert.equal(status, 0);
    const found = find(report, 'cpu', 'note', able ? /cpu_isa = base switches off .*avx2, which this processor has/ : /no AVX2: it is several times slower with SSE2/);
    assert.match(found.why, /results are the same within rounding/);
    assert.match(found.fix, able ? /set cpu_isa to auto/ : /use a processor with AVX2/);
    assert.equal(report.devices.find((d) => d.id === 'cpu').self_test.state, 'passed');
  });

  test('an instruction set that there is not is refused, with those there are', () => {
    const { status, stderr } = spawnSync(binary, ['doctor'], { env: { ...process.env, RESTORED_CPU_ISA: 'nonsense' }, encoding: 'utf8' });
    assert.equal(status, 2);
    assert.match(stderr, /environment RESTORED_CPU_ISA: cpu_isa = "nonsense" is not auto, base, avx2 or avx512/);
  });

  test('a device that computes wrongly is not used; when none is left, the exit status is 1', () => {
    const one = doctor({ RESTORED_FAULTS: 'nan@run:1,repeat,device=cpu' }, [], faulty);
    const found = find(one.report, 'self_test', 'problem', /^cpu failed: 1\+2 gave values that are not numbers$/);
    assert.match(found.why, /black, gray or garbled/);
    assert.equal(one.report.devices.find((d) => d.id === 'cpu').usable, false);
    find(one.report, 'choice', 'ok', /^cpu is not used: it failed its self-test: 1\+2 gave values that are not numbers/);
    const software = one.report.devices.find((d) => d.type === 'software' && d.usable);
    if (software && one.report.devices.every((d) => !d.usable || d.type === 'software')) { // it would work, if it were named
      assert.equal(one.status, 1);
      const none = find(one.report, 'choice', 'problem', /^No work can be done: no device can be used but software Vulkan/);
      assert.ok(none.fix.includes(`--device ${software.id} works (software Vulkan, slow)`), none.fix);
      const named = doctor({ RESTORED_FAULTS: 'nan@run:1,repeat,device=cpu' }, ['--device', software.id], faulty);
      assert.equal(named.report.default, software.id);
    }
    const all = doctor({ RESTORED_FAULTS: 'flat@run:1,repeat' }, [], faulty);
    assert.equal(all.status, 1);
    assert.equal(all.report.default, null);
    assert.ok(all.report.devices.every((d) => !d.usable && d.self_test.state === 'failed'));
    find(all.report, 'choice', 'problem', /./);
  });

  test('fp16 that computes wrongly leaves fp32', () => {
    const { status, report } = doctor({ ...noVulkan, RESTORED_FAULTS: 'fp16,device=cpu nan@run:1,repeat,device=cpu,precision=fp16' }, ['--device', 'cpu'], faulty);
    assert.equal(status, 0);
    assert.match(find(report, 'self_test', 'note', /^cpu failed in fp16: /).why, /used in fp32/);
    assert.equal(report.devices.find((d) => d.id === 'cpu').self_test.fp16.state, 'failed');
    assert.match(report.summary, /^"cpu" is cpu \(.*\), in fp32: the configuration asks for it/);
  });

  test('a device that is asked for and not there', () => {
    const { status, report } = doctor(noVulkan, ['--device', 'nope']);
    assert.equal(status, 1);
    assert.match(find(report, 'choice', 'problem', /nope/).fix, /^set device to auto/);
  });

  test('what a server refuses of the configuration is a problem, in the same words', () => {
    const env = { ...noVulkan, RESTORED_STATE_DIR: path.join(folder, 'state'), RESTORED_LISTEN: '127.0.0.1:0' };
    const refused = (args) => {
      const { status, stderr } = spawnSync(binary, ['serve', ...args], { cwd: folder, env: { ...process.env, RESTORED_CONFIG: '/dev/null', ...env }, encoding: 'utf8', timeout: 60e3 });
      assert.equal(status, 1, `${args}: ${stderr}`);
      const { status: sick, report } = doctor(env, args);
      assert.equal(sick, 1);
      const found = report.findings.filter(({ check }) => check === 'configuration');
      assert.equal(found.length, 1);
      assert.equal(found[0].state, 'problem');
      assert.ok(stderr.endsWith(`restored: ${found[0].found}\n`), `${found[0].found}\n${stderr}`);
      assert.match(found[0].fix, /--print_config/);
    };
    find(doctor(env).report, 'configuration', 'ok', /^a server accepts it$/);
    for (const args of [
      ['--store', 'mysql://db'], ['--role', 'front'], ['--payload', 'rows'], ['--auth_token_file', '/nowhere/tokens'], ['--tls_cert', '/nowhere/cert'],
      ['--allowed_hosts', 'a/b'], ['--listen', '192.0.2.1:1'],
    ]) refused(args);
  });

  test('what only this user may not do is a note', () => {
    const file = path.join(folder, 'tokens');
    fs.writeFileSync(file, `restored:${'a'.repeat(40)}\n`, { mode: 0o600 });
    fs.chmodSync(file, 0);
    const { status, stdout } = spawnSync(binary, ['doctor', '--json', '--auth_token_file', file], { cwd: '/', uid: process.getuid() || 65534,
      env: { ...process.env, ...noVulkan, RESTORED_CONFIG: '/dev/null', RESTORED_CACHE_DIR: '' }, encoding: 'utf8', timeout: 180e3 });
    assert.equal(status, 0, stdout);
    const note = find(JSON.parse(stdout), 'configuration', 'note', /^auth_token_file: .*tokens: Permission denied$/);
    assert.match(note.fix, /as the server's user/);
  });

  test('an address in use is a note: it may be the server that runs', async () => {
    const other = net.createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { status, report } = doctor(noVulkan, ['--listen', `127.0.0.1:${other.address().port}`]);
    other.close();
    assert.equal(status, 0);
    assert.match(find(report, 'configuration', 'note', /^cannot listen on 127\.0\.0\.1:\d+: Address already in use$/).fix, /^nothing, if that is restored;/);
  });

  test('its help and its arguments', () => {
    assert.match(execFileSync(binary, ['doctor', '--help'], { encoding: 'utf8' }), /Exit status: 0 if a device works/);
    assert.equal(spawnSync(binary, ['doctor', 'now'], { encoding: 'utf8' }).status, 2);
    assert.match(execFileSync(binary, ['--help'], { encoding: 'utf8' }), /on any GPU with Vulkan or on the CPU\n[^]*restored doctor /);
  });
});
