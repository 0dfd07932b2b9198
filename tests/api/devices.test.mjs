// Several devices in one server: the native CPU and a Vulkan one, each with jobs of its own; what the status and the
// metrics say while they work and after one has failed; and a server that loses one.
import assert from 'node:assert/strict';
import path from 'node:path';
import { spawn } from 'node:child_process';
import { describe, test } from 'node:test';
import { decodePng, difference, fixture, get, logged, metrics, ownModels, png, post, start, until } from './client.mjs';
import { faulty, fixtures, root } from './server.mjs';

const gpu = 'vulkan:0'; // software or not
const network = { version: 'none', bg_upsampler: 'upscaler', bg_tile: '64' };
const rows = async (server) => new Map((await get(server, '/v1/devices')).json.devices.map((d) => [d.id, d]));
const report = (server, device, picture, fields = network) => post(server, '/v1/restore', { picture, fields: { ...fields, ...(device ? { device } : {}) }, headers: { Accept: 'application/json' } });

// The program with the fault layer, if it is built.
const withFaults = (context, device, faults, args = []) => start({ context, program: faulty, args: ['--device', device, ...args], env: { RESTORED_FAULTS: faults }, ready: false });

async function hasGpu(context, server) {
  if ((await rows(server)).has(gpu)) return true;
  context.skip(`there is no device ${gpu}`);
  return false;
}

test('jobs on two devices are done at the same time, from one queue, with the same result', { timeout: 600000 }, async (context) => {
  // each tile takes half a second, however fast the machine is
  const server = await start({ context, program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat,plan=upscaler' } });
  if (!(await hasGpu(context, server))) return;
  const small = fixture('picture.png');
  const [one, two] = await Promise.all(['cpu', gpu].map((device) => post(server, '/v1/restore', { picture: small, fields: { device, ext: 'png' } })));
  assert.equal(one.status, 200);
  assert.equal(two.status, 200);
  assert.equal(one.headers.get('x-restored-device'), 'cpu');
  assert.equal(two.headers.get('x-restored-device'), gpu);
  // fp32 on one side, fp32 or fp16 on the other, then rounding to 8 bit
  assert.ok(difference(decodePng(one.bytes), decodePng(two.bytes)) < 0.5);

  // both busy, seen at once; a job that names no device goes past the one that waits for the busy device
  const large = png(300, 300); // 25 tiles and more
  const long = report(server, gpu, large), waiting = report(server, gpu, small);
  await until('the job at work', async () => (await rows(server)).get(gpu).current_job);
  const other = report(server, null, large);
  await until('both at work', async () => { const d = await rows(server); return d.get(gpu).current_job && d.get('cpu').current_job; });
  const both = await rows(server);
  assert.notEqual(both.get(gpu).current_job, both.get('cpu').current_job);
  assert.equal(both.get(gpu).state, 'busy');
  assert.equal(both.get('cpu').state, 'busy');
  for (const [job, device] of [[long, gpu], [waiting, gpu], [other, 'cpu']]) {
    const { status, json } = await job;
    assert.equal(status, 200, JSON.stringify(json));
    assert.equal(json.device, device);
    assert.deepEqual(json.notes, []);
  }
  const jobs = await until('five lines of jobs', () => { const lines = server.log().split('\n').slice(0, -1).filter((line) => / job id=/.test(line)); return lines.length === 5 && lines; });
  const span = (line) => { const end = Date.parse(line.slice(0, 24)); return [end - Number(line.match(/ ms=(\d+)/)[1]), end]; };
  const onGpu = jobs.filter((l) => l.includes(`device=${gpu}`)).map(span), onCpu = jobs.filter((l) => l.includes('device=cpu')).map(span);
  assert.ok(onGpu.some(([a, b]) => onCpu.some(([c, d]) => Math.min(b, d) - Math.max(a, c) > 50)), `no two overlap: ${jobs.join('\n')}`);
  await server.stop();
});

test('the status of a device, at work and afterwards, and the metrics that go with it', { timeout: 600000 }, async (context) => {
  const server = await start({ context, args: ['--device', 'cpu', '--workers', '2'] });
  const before = (await rows(server)).get('cpu');
  assert.equal(before.state, 'idle');
  assert.equal(before.jobs_done + before.jobs_failed, 0);
  assert.equal(before.busy_seconds, 0);
  assert.equal(before.utilisation, 0);
  assert.equal(before.self_test.state, 'passed');
  assert.ok(before.self_test.max_error > 0 && before.self_test.max_error < 1e-4);
  assert.ok(before.self_test.ms > 0);
  assert.match(before.precision, /^fp32 \(.+\)$/);
  const sent = Date.now();
  const jobs = [report(server, null, png(900, 700)), report(server, 'cpu', png(900, 700))];
  await until('a job at work', async () => (await rows(server)).get('cpu').current_job);
  const during = (await rows(server)).get('cpu');
  assert.equal(during.state, 'busy');
  assert.match(during.current_job, /^[0-9a-f]{32}$/);
  await until('memory', async () => { const { memory } = (await rows(server)).get('cpu'); return memory.used > before.memory.used && memory.peak >= memory.used && memory.used < memory.budget && memory.budget <= memory.total; });
  await until('work that counts before it is done', async () => { const d = (await rows(server)).get('cpu'); return d.jobs_done > 0 || (d.busy_seconds > 0 && d.utilisation > 0); });
  for (const { status } of await Promise.all(jobs)) assert.equal(status, 200);
  const after = (await rows(server)).get('cpu');
  const samples = await metrics(server);
  assert.equal(after.state, 'idle');
  assert.equal(after.current_job, null);
  assert.equal(after.jobs_done, 2);
  assert.ok(after.busy_seconds > 0 && after.busy_seconds <= (Date.now() - sent) / 1000, 'two at once are busy once');
  assert.ok(Math.abs(after.utilisation - after.busy_seconds / 60) < 0.01);
  assert.equal(after.reason, null);
  assert.ok(Math.abs(samples.get('restored_device_busy_seconds_total{device="cpu"}') - after.busy_seconds) < 1e-6);
  for (const kind of ['total', 'used', 'peak']) assert.equal(samples.get(`restored_device_memory_bytes{device="cpu",kind="${kind}"}`), after.memory[kind], kind);
  assert.equal(samples.get('restored_device_lost_total{device="cpu"}'), 0);
  assert.equal(samples.get('restored_jobs_total{state="done"}'), 2);
  await server.stop();
});

test('a device that is not there is a 400 that lists those that are; software Vulkan is not taken by itself', async (context) => {
  const server = await start({ context });
  const { json } = await get(server, '/v1/devices');
  const ids = json.devices.map((d) => d.id);
  for (const route of ['/v1/restore', '/v1/detect']) {
    const answer = await post(server, route, { picture: fixture('picture.png'), fields: { device: 'vulkan:77' } });
    assert.equal(answer.status, 400);
    const hint = json.devices.some((d) => !['cpu', 'software'].includes(d.type)) ? '' : '; restored doctor says why a GPU is missing';
    assert.equal(answer.json.detail, `device: "vulkan:77" is none of the devices; there are: ${ids.join(', ')}${hint}`);
    const far = await post(server, route, { picture: fixture('picture.png'), fields: { device: 'vulkan:77' }, headers: { 'X-Forwarded-For': '203.0.113.7' } });
    assert.equal(far.json.detail, `device: "vulkan:77" is none of the devices; there are: ${ids.join(', ')}${hint && '; whoever runs this server can say more'}`);
    const list = await post(server, route, { picture: fixture('picture.png'), fields: { device: 'cpu,cpu' } });
    assert.equal(list.status, 400);
    assert.equal(list.json.detail, `device: "cpu,cpu" is a list, and a request takes one device; there are: ${ids.join(', ')}`);
    assert.equal((await post(server, route, { picture: fixture('picture.png'), fields: { device: 'AUTO' } })).status, 200);
  }
  const order = ['discrete', 'integrated', 'virtual', 'cpu', 'software'];
  const kinds = json.devices.map((d) => order.indexOf(d.type));
  assert.deepEqual(kinds, [...kinds].sort(), 'in the order of preference');
  assert.equal(json.default, ids[0]);
  for (const device of json.devices) {
    if (device.type !== json.devices[0].type) assert.ok(device.reason, device.id);
    if (device.type === 'software') {
      assert.match(device.reason, /only if a request or the key device names it/);
      assert.equal(device.self_test.state, 'not run');
      assert.notEqual(json.default, device.id);
    }
  }
  assert.deepEqual((await get(server, '/readyz')).json.devices, json.devices.filter((d) => d.type === json.devices[0].type).map((d) => d.id));
  await server.stop();
});

test('of a list the first that is idle takes the job, and it is the default', { timeout: 600000 }, async (context) => {
  for (const list of [['cpu', gpu], [gpu, 'cpu']]) {
    const server = await start({ context, args: ['--device', list.join(',')] });
    if (!(await hasGpu(context, server))) return;
    await until('both open', async () => (await get(server, '/readyz')).json.devices.length === 2);
    const { json } = await get(server, '/v1/devices');
    assert.equal(json.default, list[0]);
    assert.deepEqual(json.devices.slice(0, 2).map((d) => d.id), list);
    for (let n = 0; n < 12; n++) assert.equal((await report(server, null, fixture('picture.png'))).json.device, list[0]);
    await server.stop();
  }
});

describe('devices that fail', () => {
  test('one that fails its self-test is disabled with the reason, and the others do the work', { timeout: 600000 }, async (context) => {
    const server = await withFaults(context, `cpu,${gpu}`, 'nan@run:1,repeat,device=cpu,plan=selftest');
    if (!(await hasGpu(context, server))) return;
    await until('ready', async () => (await get(server, '/readyz')).status === 200);
    await until('the test of the CPU', async () => (await rows(server)).get('cpu').self_test.state !== 'not run');
    const cpu = (await rows(server)).get('cpu');
    assert.equal(cpu.state, 'disabled');
    assert.equal(cpu.self_test.state, 'failed');
    assert.ok(cpu.reason);
    assert.equal((await get(server, '/v1/devices')).json.default, gpu);
    assert.deepEqual((await get(server, '/readyz')).json, { ready: true, reasons: [], devices: [gpu], models: ['detector', 'face_64', 'parser', 'upscaler'] });
    await logged(server, /self-test device=cpu fp32="failed"/);
    const refused = await report(server, 'cpu', fixture('picture.png'));
    assert.equal(refused.status, 503, 'as one that was lost');
    assert.equal(refused.json.code, 'device-disabled');
    assert.equal(refused.json.detail, `device: "cpu" cannot be used: ${cpu.reason}`);
    const done = await report(server, null, fixture('picture.png'));
    assert.equal(done.status, 200);
    assert.equal(done.json.device, gpu);
    await server.stop();
  });

  test('the only one, lost twice under a job, is opened again for the next, or in time', { timeout: 600000 }, async (context) => {
    const server = await start({ context, program: faulty, args: ['--device', 'cpu'], env: { RESTORED_FAULTS: 'lost@run:1,until=4,device=cpu,plan=upscaler' } });
    const lost = await report(server, null, fixture('picture.png'));
    assert.equal(lost.status, 503);
    assert.equal(lost.json.code, 'device-lost');
    assert.match(lost.json.detail, /^cpu was lost twice while it worked on this picture \(cpu could not run/);
    const later = /^cpu: it was lost \(cpu could not run.*\), and is opened again every \d seconds and for the next job$/;
    const ready = await get(server, '/readyz');
    assert.equal(ready.status, 503);
    assert.match(ready.json.reasons[0], later);
    assert.equal((await report(server, 'cpu', fixture('picture.png'))).status, 503, 'lost for the third and fourth time');
    assert.equal((await rows(server)).get('cpu').state, 'lost');
    assert.equal((await report(server, null, fixture('picture.png'))).status, 200); // that it waits for no retry: test_worker_pool.c
    assert.deepEqual((await get(server, '/readyz')).json.reasons, []);
    assert.equal((await rows(server)).get('cpu').state, 'idle');
    await server.stop();
  });

  test('without any device it says so at /readyz, and refuses work with 503', { timeout: 600000 }, async (context) => {
    const server = await withFaults(context, 'cpu', 'lost@open:1,repeat');
    const ready = await until('the verdict', async () => { const r = await get(server, '/readyz'); return r.json.reasons.every((t) => !/being loaded/.test(t)) && r; });
    assert.equal(ready.status, 503);
    assert.match(ready.json.reasons[0], /^cpu: .*lost/);
    assert.deepEqual(ready.json.devices, []);
    for (const device of [null, 'cpu']) {
      const refused = await report(server, device, fixture('picture.png'));
      assert.equal(refused.status, 503);
      assert.equal(refused.json.code, 'device-disabled');
    }
    await server.stop();
  });

  test('one that is lost twice hands its job to the next, which the report and the metrics tell', { timeout: 600000 }, async (context) => {
    const server = await withFaults(context, gpu, `lost@run:1,until=4,device=${gpu},plan=upscaler`);
    if (!(await hasGpu(context, server))) return;
    await until('ready', async () => (await get(server, '/readyz')).status === 200);
    const { status, json } = await report(server, null, fixture('picture.png'));
    assert.equal(status, 200, JSON.stringify(json));
    assert.equal(json.device, 'cpu');
    assert.ok(json.notes.includes(`${gpu} was lost again, so another device restored this picture`), JSON.stringify(json.notes));
    const lost = (await rows(server)).get(gpu);
    assert.equal(lost.state, 'lost');
    assert.match(lost.reason, /lost/);
    assert.equal(lost.jobs_failed, 1);
    assert.equal(lost.current_job, null);
    assert.equal(lost.memory.used, 0);
    const samples = await metrics(server);
    assert.equal(samples.get(`restored_device_lost_total{device="${gpu}"}`), 2);
    assert.equal(samples.get('restored_fallbacks_total{reason="device_lost"}'), 1);
    assert.equal(samples.get('restored_jobs_total{state="done"}'), 1);
    assert.equal(samples.get('restored_jobs_total{state="failed"}'), 0);
    assert.deepEqual((await get(server, '/readyz')).json, { ready: true, reasons: [], devices: ['cpu'], models: ['detector', 'face_64', 'parser', 'upscaler'] });

    const named = await report(server, gpu, fixture('picture.png')); // the third and fourth time
    assert.equal(named.status, 503);
    assert.equal(named.json.code, 'device-lost');
    assert.match(named.json.detail, /lost twice/);
    const picture = await post(server, '/v1/restore', { picture: fixture('picture.png'), fields: { ...network, device: gpu } });
    assert.equal(picture.status, 200);
    assert.equal(picture.headers.get('x-restored-device'), gpu);
    assert.equal((await rows(server)).get(gpu).reason, null);
    await server.stop();
  });
});

// Runs the command line.
const run = (program, args, env) => new Promise((resolve) => {
  const child = spawn(program, args, { cwd: root, env: { ...process.env, ...env } });
  let out = '', err = '';
  child.stdout.on('data', (t) => { out += t; });
  child.stderr.on('data', (t) => { err += t; });
  child.on('close', (status) => resolve({ status, out, err, get lines() { return out.trim().split('\n').filter(Boolean).map((l) => JSON.parse(l)); } }));
});

test('restored restore takes a list of devices, and goes on with the next when one is lost', { timeout: 600000 }, async (context) => {
  const server = await start({ context });
  if (!(await hasGpu(context, server))) return;
  await server.stop();
  const output = path.join(root, 'build/log/restore-devices');
  const inputs = ['none.png', 'picture.png'].map((name) => path.join(fixtures, name));
  const restore = (device, faults) => run(faulty, ['restore', ...inputs, ...ownModels, '--version', 'none', '--device', device, '-o', output, '--json'], { RESTORED_FAULTS: faults });
  const both = await restore(`cpu,${gpu}`, 'lost@run:1,until=2,device=cpu,plan=upscaler');
  assert.equal(both.status, 0, both.err);
  assert.deepEqual(both.lines.map((l) => l.device), [gpu, gpu]);
  assert.ok(both.lines[0].notes.includes('cpu was lost again, so another device restored this picture'));
  for (const order of [['cpu', gpu], [gpu, 'cpu']]) assert.deepEqual((await restore(order.join(','), '')).lines.map((l) => l.device), [order[0], order[0]]);
  const one = await restore('cpu', 'lost@run:1,until=2,device=cpu,plan=upscaler');
  assert.equal(one.status, 1);
  assert.equal(one.lines[0].error.code, 'device-lost');
  assert.equal(one.lines[1].device, 'cpu', 'the next picture opens it again');
  const failed = await restore(`cpu,${gpu}`, 'nan@run:1,repeat,device=cpu,plan=selftest');
  assert.equal(failed.status, 0, failed.err);
  assert.deepEqual(failed.lines.map((l) => l.device), [gpu, gpu]);
  const nowhere = await restore('cpu,nope', '');
  assert.equal(nowhere.status, 1);
  assert.match(nowhere.err, /device: "nope" is none of the devices; there are: .*cpu/);
});

test('what names no device is refused by each command in its own words', async () => {
  const { out: help } = await run(faulty, ['restore', '--help']);
  assert.equal(help.match(/^ *--device /mg).length, 1, help);
  const bench = await run(faulty, ['bench', ...ownModels, '--model', 'srvgg_x2', '--device', `cpu,${gpu}`]);
  assert.equal(bench.status, 1);
  assert.match(bench.err, new RegExp(`one device works here, and "cpu,${gpu}" is a list; the devices are: .*cpu`));
  for (const [device, text] of [['0', /device: "0" is none of the devices; there are: /], ['cpu,AUTO', /"auto" cannot be part of a list/]]) {
    const refused = await run(faulty, ['restore', path.join(fixtures, 'none.png'), ...ownModels, '--device', device]);
    assert.notEqual(refused.status, 0);
    assert.match(refused.err, text);
  }
  const { out } = await run(faulty, ['bench', ...ownModels, '--model', 'srvgg_x2', '--device', 'AUTO', '--runs', '1', '--size', '16x16', '--json']).then((r) => ({ out: JSON.parse(r.out) }));
  assert.equal(out.networks.length, 1);
});
