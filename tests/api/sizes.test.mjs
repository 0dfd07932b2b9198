// The result's size: width, height, max_side and fit instead of upscale.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { binary, fixtures, root } from './server.mjs';
import { chunk, decodePng, fixture, get, ownModels, plain, png, pngOf, pngSize, post, sleep, start, until } from './client.mjs';

let server;
before(async () => { server = await start({ models: [], env: { RESTORED_STARTER_MODELS: 'true' } }); });
after(() => server.stop());

const ask = (picture, fields, headers = {}) => post(server, '/v1/restore', { picture, fields: { ...plain, ext: 'png', ...fields }, headers });
const restore = async (picture, fields) => {
  const answer = await ask(picture, fields);
  assert.equal(answer.status, 200, JSON.stringify(answer.json));
  return decodePng(answer.bytes);
};
const size = ({ width, height }) => [width, height];
const picture = png(160, 120);
const refused = (answer, status, detail) => {
  assert.equal(answer.status, status, JSON.stringify(answer.json));
  assert.match(answer.json.detail, detail);
};

describe('sizes in pixels', () => {
  for (const [fields, expected] of [
    [{ width: '200' }, [200, 150]], [{ height: '33' }, [44, 33]], [{ max_side: '301' }, [301, 226]], [{ width: '1' }, [1, 1]],
    [{ width: '200', height: '300' }, [200, 150]], [{ width: '200', height: '90' }, [120, 90]],
    [{ width: '200', height: '300', fit: 'cover' }, [200, 300]], [{ width: '50', height: '11', fit: 'cover' }, [50, 11]],
    [{ width: '200', height: '300', fit: 'fill' }, [200, 300]], [{ width: '1500', height: '1', fit: 'fill' }, [1500, 1]],
  ]) {
    test(`${new URLSearchParams(fields)} is ${expected.join(' × ')}, with and without a network, as estimated`, async () => {
      assert.deepEqual(size(await restore(picture, fields)), expected);
      assert.deepEqual(size(await restore(picture, { ...fields, bg_upsampler: 'starter' })), expected);
      const { width: result_width, height: result_height, ...rest } = fields;
      const told = Object.entries({ ...plain, ...rest, result_width, result_height, width: 160, height: 120 }).filter(([, value]) => value);
      const estimate = await post(server, `/v1/estimate?${new URLSearchParams(told)}`);
      assert.equal(estimate.status, 200, JSON.stringify(estimate.json));
      assert.deepEqual(size(estimate.json.output), expected);
    });
  }

  test('a size is the same picture as the scale that gives it', async () => {
    for (const bg_upsampler of ['none', 'starter']) {
      const scaled = await ask(picture, { upscale: '1.5', bg_upsampler }), sized = await ask(picture, { max_side: '240', bg_upsampler });
      assert.ok(scaled.bytes.equals(sized.bytes), bg_upsampler);
    }
  });

  test('cover is the middle of the picture that is large enough', async () => {
    const whole = await restore(picture, { height: '200' }), cut = await restore(picture, { width: '101', height: '200', fit: 'cover' });
    const left = Math.floor((whole.width - 101) / 2);
    for (let y = 0; y < 200; y++)
      for (let i = 0; i < 3 * 101; i++) assert.equal(cut.pixels[3 * 101 * y + i], whole.pixels[3 * (whole.width * y + left) + i]);
  });

  test('fine stripes become gray, not coarser stripes', async () => {
    const stripes = pngOf(400, 40, 3, Uint8Array.from({ length: 3 * 400 * 40 }, (_, i) => (Math.floor(i / 3) % 2) * 255));
    const small = await restore(stripes, { width: '130' });
    for (let x = 8; x < 122; x++) assert.ok(Math.abs(small.pixels[3 * (6 * 130 + x)] - 127.5) < 4, `${small.pixels[3 * (6 * 130 + x)]} at ${x}`);
  });

  test('16 bits, gray and transparency stay', async () => {
    for (const channels of [1, 2, 4]) {
      const samples = Uint16Array.from({ length: channels * 60 * 40 }, (_, i) => (i * 977) & 65535);
      for (const fields of [{ width: '90', height: '30', fit: 'cover' }, { max_side: '31', bg_upsampler: 'starter' }]) {
        const got = await restore(pngOf(60, 40, channels, samples), fields);
        assert.deepEqual([got.channels, got.bits], [channels, 16]);
      }
    }
  });

  test('the resolution grows with the picture, each way', async () => {
    const density = Buffer.from('00000f6100000f6101', 'hex'), stretched = { width: '320', height: '480', fit: 'fill' }; // 3937 a metre
    const at = picture.indexOf('IDAT') - 4, dense = Buffer.concat([picture.subarray(0, at), chunk('pHYs', density), picture.subarray(at)]);
    const { bytes } = await ask(dense, stretched), found = bytes.indexOf('pHYs') + 4;
    assert.deepEqual([bytes.readUInt32BE(found), bytes.readUInt32BE(found + 4)], [7874, 15748]);
  });

  test('restored faces are where the picture has them, also where it is stretched', async (context) => {
    const own = await start({ context }), two = fixture('two.png');
    const fields = { bg_upsampler: 'none', parse: 'false', weight: '1', preserve_color: 'false', ext: 'png', width: '500', height: '250', fit: 'fill' };
    const run = async (more) => (await post(own, '/v1/restore', { picture: two, fields: { ...fields, ...more } })).bytes;
    const { faces, input } = (await post(own, '/v1/restore', { picture: two, fields, headers: { Accept: 'application/json' } })).json;
    const [plainly, restored] = [await run({ faces: 'none' }), await run({})].map(decodePng);
    const changed = (x, y) => [0, 1, 2].some((c) => plainly.pixels[3 * (500 * y + x) + c] !== restored.pixels[3 * (500 * y + x) + c]);
    assert.equal(faces.filter(({ action }) => action === 'restored').length, 2);
    const scale = [500 / input.width, 250 / input.height];
    const boxes = faces.map(({ box: [x0, y0, x1, y1] }) => ({ x: ((x0 + x1) / 2) * scale[0], y: ((y0 + y1) / 2) * scale[1], w: (x1 - x0) * scale[0], h: (y1 - y0) * scale[1] }));
    for (const { x, y } of boxes) assert.ok(changed(Math.round(x), Math.round(y)));
    for (let y = 0; y < 250; y++)
      for (let x = 0; x < 500; x++)
        if (changed(x, y)) assert.ok(boxes.some((b) => Math.abs(x - b.x) < 1.5 * b.w && Math.abs(y - b.y) < 1.5 * b.h), `${x}, ${y}`);
  });
});

test('the report and a job say what was asked for', async () => {
  const fields = { width: '70', height: '90', fit: 'cover' };
  const report = await ask(picture, fields, { Accept: 'application/json' });
  assert.deepEqual([report.json.output.width, report.json.output.height], [70, 90]);
  const { upscale, width, height, max_side, fit } = report.json.options;
  assert.deepEqual({ upscale, width, height, max_side, fit }, { upscale: 'auto', width: 70, height: 90, max_side: 'auto', fit: 'cover' });
  const again = await ask(picture, { upscale, width: String(width), height: String(height), max_side, fit });
  assert.equal(again.status, 200, 'the options of a report can be sent again');
  const job = await ask(picture, { ...fields, async: 'true' });
  assert.equal(job.status, 202);
  await until('the job is done', async () => (await get(server, job.headers.get('location'))).json.state === 'done');
  const result = await fetch(`${server.url}${job.headers.get('location')}/result`);
  assert.deepEqual(pngSize(Buffer.from(await result.arrayBuffer())), [70, 90]);
});

test('options that contradict each other are told, both of them', async () => {
  for (const [fields, detail] of [
    [{ upscale: '2', width: '100' }, /^upscale: .*width/], [{ upscale: '2', max_side: '100' }, /^upscale: .*max_side/],
    [{ max_side: '5', height: '5' }, /^max_side: .*height/], [{ fit: 'cover' }, /^fit: cover needs width and height/],
    [{ fit: 'fill', width: '5' }, /^fit: fill needs width and height.*only width/], [{ width: '5', compat: 'true' }, /^width: .*compat/],
    [{ max_side: '5', aligned: 'true', version: 'starter' }, /^max_side: .*aligned/], [{ width: '0' }, /^width: "0".*1 to 500000/], [{ height: '1.5' }, /^height: "1.5"/],
  ]) refused(await ask(picture, fields), 400, detail);
});

test('too large a size is refused before anything is read', async () => {
  refused(await ask(picture, { width: '30000', height: '30000', fit: 'fill' }), 422, /30000 × 30000 = 900\.0 megapixels.*smaller size/);
  refused(await ask(png(160, 2), { width: '10', height: '10000', fit: 'cover' }), 422, /before it is cut.*smaller size/);
  refused(await ask(picture, { width: '16384', height: '2', fit: 'fill', ext: 'webp' }), 422, /the longest side of a webp is 16383.*smaller size/);
});

// A result of 256 MiB and more lies in a file beside the output, of which only a part is in memory at a time.
for (const [name, long, make, scale, bytes, args] of [
  ['of 90 megapixels', false, () => png(1250, 1125), [10000, 9000], 3, ['--bg_upsampler', 'none', '--ext', 'jpg']],
  ['of 16 bits, by a network and Lanczos', true, () => pngOf(400, 300, 3, Uint16Array.from({ length: 3 * 400 * 300 }, (_, i) => 30000 + 20000 * Math.sin(i / 999) + (i % 3) * 700 + (i % 41))), [9000, 6750], 6, ['--bg_upsampler', 'srvgg_x2']],
])
  test(`a very large result ${name} needs less memory than its pixels, and is the same to the byte`, { skip: long && !process.env.RESTORED_FULL }, async (context) => {
    const inMemory = (folder) => fs.statfsSync(folder).type === 0x01021994, build = path.join(root, 'build');
    if (!fs.existsSync('/dev/shm') || !inMemory('/dev/shm') || inMemory(build)) return context.skip('this needs a folder in memory, and one on a disk');
    const peaks = [], files = [], folders = [build, '/dev/shm'].map((place) => fs.mkdtempSync(path.join(place, 'large-')));
    context.after(() => folders.forEach((folder) => fs.rmSync(folder, { recursive: true, force: true })));
    fs.writeFileSync(path.join(folders[0], 'large.png'), make());
    for (const folder of folders) {
      files.push(path.join(folder, `result.${args.includes('jpg') ? 'jpg' : 'png'}`));
      const child = spawn(binary, ['restore', path.join(folders[0], 'large.png'), '-o', files.at(-1), '--max_side', String(scale[0]), ...ownModels, '--version', 'none', '--repair', 'false', ...args], { stdio: 'ignore' });
      let peak = 0, code;
      child.on('exit', (status) => { code = status; });
      while (code === undefined) { // what the kernel counts never falls
        try {
          peak = Math.max(peak, Number(/VmHWM:\s+(\d+)/.exec(fs.readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1] ?? 0) / 1024);
        } catch { /* it has ended */ }
        await sleep(10);
      }
      assert.equal(code, 0);
      peaks.push(peak);
    }
    const canvas = (bytes * scale[0] * scale[1]) / 2 ** 20;
    assert.ok(peaks[1] - peaks[0] > canvas / 2, `with and without a file ${peaks.join(' and ')} MiB; the picture has ${canvas}`);
    assert.ok(fs.readFileSync(files[0]).equals(fs.readFileSync(files[1])));
  });
