// restored bench: what it prints is there, finite and plausible. How fast anything is, is no test.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ownModels } from './client.mjs';
import { binary, fixtures } from './server.mjs';

let folder;
before(() => { folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-bench-')); });
after(() => fs.rmSync(folder, { recursive: true, force: true }));

function bench(...args) {
  return new Promise((resolve) => {
    const child = spawn(binary, ['bench', '--device', 'cpu', ...ownModels, ...args], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '', err = '';
    child.stdout.on('data', (data) => { out += data; });
    child.stderr.on('data', (data) => { err += data; });
    child.on('close', (status) => resolve({ status, out, err }));
  });
}

async function network(...args) {
  const { status, out, err } = await bench('--runs', '3', '--json', ...args);
  assert.equal(status, 0, err);
  const { networks, version } = JSON.parse(out);
  assert.match(version, /^\d+\.\d+\.\d+$/);
  assert.equal(networks.length, 1);
  return networks[0];
}

function checkTimes(t) {
  assert.ok(t.least > 0 && t.least <= t.median && t.median <= t.p90, JSON.stringify(t));
}

describe('bench', () => {
  // [name, size, architecture, multiply-accumulates by hand]
  const srvgg = 24 * 16 * 9 * (3 * 64 + 16 * 64 * 64 + 64 * 48) + 96 * 64 * 3;
  const builtIn = [
    ['srvgg_x4_16', '24x16', 'SRVGGNetCompact', srvgg], ['rrdbnet_x4_6b', '16x16', 'RRDBNet'], ['rrdbnet_x2', '16x16', 'RRDBNet'],
    ['rrdbnet_x4', '8x8', 'RRDBNet'], ['srvgg_x4_32', '8x8', 'SRVGGNetCompact'], ['retinaface_mobilenet', '64x48', 'RetinaFace-mobilenet0.25'],
    ['retinaface_r50', '64x64', 'RetinaFace-resnet50'], ['parsenet', '64x64', 'ParseNet'], ['span_x4', '16x16', 'SPAN'],
    ['plksr_x4', '8x8', 'RealPLKSR'], ['cugan_x2', '16x16', 'Real-CUGAN'], ['dncnn', '16x16', 'DnCNN'], ['drunet', '16x16', 'DRUNet'],
    ['fbcnn', '16x16', 'FBCNN'], ['gfpgan', '512x512', 'GFPGANv1Clean'],
  ];
  for (const [name, size, architecture, macs] of builtIn) {
    test(`${name}: random weights of the official shape give finite, lively output`, { timeout: 600000 }, async () => {
      const r = await network('--model', name, '--size', size, ...(name === 'gfpgan' ? ['--runs', '1'] : []));
      const [w, h] = size.split('x').map(Number);
      assert.equal(r.architecture, architecture);
      assert.equal(r.weights, 'random');
      assert.deepEqual(r.input, [1, 3, h, w]);
      assert.equal(r.device.id, 'cpu');
      assert.equal(r.precision, 'fp32');
      assert.equal(r.runs, name === 'gfpgan' ? 1 : 3);
      checkTimes(r.ms);
      checkTimes(r.device_ms);
      assert.ok(r.device_ms.least <= r.ms.least);
      if (macs) assert.ok(Math.abs(r.gmac * 1e9 - macs) < 1, `${r.gmac * 1e9} for ${macs}`);
      assert.ok(Math.abs(r.gflops * r.ms.median / 1e3 - 2 * r.gmac) < 1e-4 * r.gmac);
      assert.ok(r.output.min < r.output.mean && r.output.mean < r.output.max);
      assert.ok(r.output.deviation > 1e-3 && r.output.deviation < 10, JSON.stringify(r.output));
      assert.ok(r.memory.plan > 0 && r.memory.device_peak >= r.memory.plan && r.memory.process_peak > r.memory.plan);
    });
  }

  test('a file, an installed model, a batch', async () => {
    const file = await network('--model', path.join(fixtures, 'srvgg_x4.safetensors'), '--size', '20x10', '--batch', '3');
    assert.deepEqual(file.input, [3, 3, 10, 20]);
    assert.equal(file.weights, 'file');
    const installed = await network('--model', 'parser', '--size', '32x32');
    assert.equal(installed.architecture, 'ParseNet');
    const one = await network('--model', 'srvgg_x4', '--size', '20x10');
    assert.ok(Math.abs(file.gmac - 3 * one.gmac) < 1e-9);
  });

  test('layers: their times add up, their work too', async () => {
    const kinds = await network('--model', 'srvgg_x4_16', '--size', '24x16', '--layers');
    const shapes = await network('--model', 'srvgg_x4_16', '--size', '24x16', '--layers=shapes');
    assert.deepEqual(kinds.layers.map((l) => `${l.count} ${l.layer}`).sort(), ['1 conv2d 3x3, <16 in, <4096 px', '1 pixel_shuffle', '17 conv2d 3x3, <4096 px']);
    assert.deepEqual(shapes.layers.map((l) => `${l.count} ${l.layer}`).sort(), ['1 conv2d 3x3, 3 to 64 channels of 24x16',
      '1 conv2d 3x3, 64 to 48 channels of 24x16', '1 pixel_shuffle, 48 to 3 channels of 96x64', '16 conv2d 3x3, 64 to 64 channels of 24x16']);
    for (const { layers, gmac } of [kinds, shapes]) {
      const sum = (f) => layers.reduce((total, l) => total + f(l), 0);
      assert.ok(Math.abs(sum((l) => l.share) - 1) < 1e-6);
      assert.ok(Math.abs(sum((l) => l.gflops * l.ms / 1e3) - 2 * gmac) < 1e-4 * gmac);
      for (const l of layers) assert.ok(l.ms > 0 && l.gbs > 0, JSON.stringify(l));
      assert.deepEqual(layers.map((l) => l.ms), layers.map((l) => l.ms).sort((a, b) => b - a));
    }
  });

  test('layers: bytes are those of inputs, outputs and weights; a residual that is a part of the input counts once', async () => {
    const { layers } = await network('--model', 'rrdbnet_x4_6b', '--size', '16x16', '--layers=shapes');
    const last = layers.find((l) => l.layer === 'conv2d 3x3, 192 to 64 channels of 16x16');
    assert.equal(last.count, 18);
    // Every third of them ends a block of three and adds that block's input, too.
    const values = 18 * (256 * (192 + 64) + 192 * 64 * 9 + 64) + 6 * 256 * 64;
    assert.ok(Math.abs(last.gbs * last.ms * 1e6 - 4 * values) < 1e-3 * values, `${last.gbs * last.ms * 1e6} for ${4 * values}`);
  });

  test('--keep leaves weights, input and outputs, from which the same comes out', async () => {
    const kept = path.join(folder, 'kept');
    const built = await network('--model', 'srvgg_x4_16', '--size', '24x16', '--keep', kept);
    assert.deepEqual(fs.readdirSync(kept).sort(), ['srvgg_x4_16.in.npy', 'srvgg_x4_16.out0.npy', 'srvgg_x4_16.safetensors']);
    const array = (name) => {
      const bytes = fs.readFileSync(path.join(kept, name));
      const length = bytes.readUInt16LE(8), header = bytes.toString('latin1', 10, 10 + length);
      assert.equal(bytes.toString('latin1', 0, 8), '\x93NUMPY\x01\x00');
      assert.equal((10 + length) % 64, 0);
      const shape = header.match(/^\{'descr': '<f4', 'fortran_order': False, 'shape': \((.*)\), \} *\n$/)[1].split(', ').map(Number);
      const count = shape.reduce((a, b) => a * b);
      assert.equal(bytes.length, 10 + length + 4 * count);
      return { shape, values: Array.from({ length: count }, (_, i) => bytes.readFloatLE(10 + length + 4 * i)) };
    };
    assert.deepEqual(array('srvgg_x4_16.in.npy').shape, [1, 3, 16, 24]);
    const out = array('srvgg_x4_16.out0.npy');
    assert.deepEqual(out.shape, [1, 3, 64, 96]);
    assert.ok(Math.abs(out.values.reduce((a, b) => a + b) / out.values.length - built.output.mean) < 1e-6);
    const file = await network('--model', path.join(kept, 'srvgg_x4_16.safetensors'), '--size', '24x16', '--keep', kept);
    assert.equal(file.weights, 'file');
    assert.deepEqual(array('srvgg_x4_16.safetensors.out0.npy'), out);
    const { status, err } = await bench('--keep', kept);
    assert.notEqual(status, 0);
    assert.match(err, /--keep/);
  });

  test('the pipeline, stage by stage', async () => {
    const { status, out, err } = await bench('--pipeline', path.join(fixtures, 'two.png'), '--runs', '2', '--json', '--bg_upsampler', 'srvgg_x2');
    assert.equal(status, 0, err);
    const { pipeline: p } = JSON.parse(out);
    assert.deepEqual(Object.keys(p.stages), ['decode', 'repair', 'detect', 'align', 'restore', 'parse', 'background', 'paste', 'encode']);
    assert.equal(p.runs, 2);
    assert.equal(p.faces, 2);
    assert.deepEqual([p.output.width, p.output.height], [480, 256]);
    for (const [name, stage] of Object.entries(p.stages)) {
      checkTimes(stage);
      const works = ['repair', 'detect', 'restore', 'parse', 'background'].includes(name);
      assert.ok(works ? stage.network > 0 && stage.network <= stage.p90 : stage.network === 0, `${name}: ${JSON.stringify(stage)}`);
    }
    checkTimes(p.total_ms);
    checkTimes(p.networks_ms);
    checkTimes(p.outside_networks_ms);
    assert.ok(p.networks_ms.median <= p.total_ms.p90 && p.outside_networks_ms.median <= p.total_ms.p90);
    assert.ok(Math.abs(p.outside_networks_share - p.outside_networks_ms.median / p.networks_ms.median) < 1e-6);
    assert.ok(p.memory.device_peak > 0 && p.memory.process_peak > 0);
    assert.equal(p.device.id, 'cpu');
  });

  test('a server under load: pictures a second, times, devices, stages', { timeout: 600000 }, async () => {
    const { status, out, err } = await bench('--load', path.join(fixtures, 'two.png'), '--bg_upsampler', 'none', '--faces', '0', '--runs', '10', '--connections', '3', '--json');
    assert.equal(status, 0, err);
    const [row, ...rest] = JSON.parse(out).load;
    assert.equal(rest.length, 0);
    assert.equal(row.pictures, 10);
    assert.equal(row.connections, 3);
    assert.equal(row.faces, 1, 'the options go with the requests');
    assert.ok(Math.abs(row.pictures_per_second * row.seconds - 10) < 1e-6);
    assert.ok(row.ms.least > 0 && row.ms.least <= row.ms.median && row.ms.median <= row.ms.p95);
    assert.deepEqual(row.devices.map((d) => d.id), ['cpu']);
    assert.ok(row.devices[0].busy > 0 && row.devices[0].busy < 1.5 && row.devices[0].memory_peak > 0);
    for (const stage of ['queue', 'decode', 'detect', 'align', 'restore', 'background', 'encode']) assert.ok(row.stages[stage] > 0, stage);
  });

  test('tables for people', async () => {
    const one = await bench('--model', 'parser', '--size', '32x32', '--runs', '1', '--layers');
    assert.match(one.out, /^cpu: .*\n\n\| network \| input .*\n(\|---)+\|\n\| parser \| 1×32×32 \| fp32 \| [\d.]+ \| [\d.]+ \| [\d.]+ \| \d+ \| \d+ \| \d+ \| .*\n\n\| layers of parser \|/);
    const load = await bench('--load', path.join(fixtures, 'none.png'), '--runs', '3', '--bg_upsampler', 'none', '--faces', 'none');
    assert.match(load.out, /\| devices \| connections .*\n(\|---)+\|\n\| cpu \| 8 \| 3 \| 0 \| [\d.]+ \| 1\.00× \| \d+ \| \d+ \| \d+% \| queue /);
    const two = await bench('--pipeline', path.join(fixtures, 'two.png'), '--runs', '1', '--bg_upsampler', 'none');
    assert.match(two.out, /\| encode \| [\d.]+ \|[\s\S]*Outside the networks: [\d.]+ ms, [\d.]+%/);
  });

  test('what makes no sense is refused', async () => {
    const refused = [
      [['--model', 'nothing'], 1, /no model "nothing".*built-in networks.*srvgg_x4_32/], [['--size', '4'], 2, /"4" is not WIDTHxHEIGHT/],
      [['--model', 'gfpgan', '--size', '64x64'], 1, /takes 512x512 px only/], [['--runs', '0', '--model', 'parser'], 2, /"0" is not a number from 1/],
      [['--size', '8x8'], 2, /for --model/], [['--pipeline', 'a.png', '--model', 'parser'], 2, /not for --pipeline/],
      [['--load', 'a.png', '--pipeline', 'a.png'], 2, /one at a time/], [['--connections', '3'], 2, /for --load/], [['--load', 'nowhere.png'], 1, /nowhere\.png/],
      [['parser'], 2, /takes no "parser"/], [['--pipeline', 'nowhere.png'], 1, /nowhere\.png/], [['--bogus'], 2, /unknown option --bogus/],
    ];
    for (const [args, status, text] of refused) {
      const r = await bench(...args);
      assert.equal(r.status, status, args.join(' '));
      assert.match(r.err, text);
    }
  });

  test('an output that is not finite is an error, for its times mean nothing', async () => {
    const faulty = path.join(path.dirname(binary), 'build/tests/restored'); // with the fault layer
    const { status, err } = await new Promise((resolve) => {
      const child = spawn(faulty, ['bench', '--device', 'cpu', '--model', 'srvgg_x4_16', '--size', '8x8', '--runs', '1'],
        { env: { ...process.env, RESTORED_FAULTS: 'nan@run:1,repeat' }, stdio: ['ignore', 'ignore', 'pipe'] });
      let text = '';
      child.stderr.on('data', (data) => { text += data; });
      child.on('close', (code) => resolve({ status: code, err: text }));
    });
    assert.equal(status, 1);
    assert.match(err, /restored: srvgg_x4_16: the output on cpu is not finite, or flat/);
  });
});
