// Clients that speak A1111's form (/sdapi/v1): its sizes, passes, blends and names, and what they send.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { decodePng, difference, fixture, get, metrics, ownModels, png, pngSize, post, start, until } from './client.mjs';
import { faulty, root } from './server.mjs';

const W = 60, H = 44, picture = png(W, H), b64 = picture.toString('base64'), faces = fixture('two.png');
const token = 'a-token-of-some-length';
let server;
before(async () => { server = await start({ models: ownModels }); });
after(async () => { await server?.stop(); });

const send = (path, body, { to = server, headers = {} } = {}) =>
  post(to, `/sdapi/v1/${path}`, { body: typeof body === 'string' ? body : JSON.stringify(body), headers: { 'Content-Type': 'application/json', ...headers } });
async function single(fields, image = b64) {
  const { status, json } = await send('extra-single-image', { image, ...fields });
  assert.equal(status, 200, JSON.stringify(json).slice(0, 400));
  assert.equal(typeof json.html_info, 'string');
  return Buffer.from(json.image, 'base64');
}
// What POST /v1/restore makes of it, without repair and as PNG.
async function restored(bytes, fields) {
  const { status, bytes: result } = await post(server, '/v1/restore', { picture: bytes, fields: { repair: 'false', ext: 'png', faces: 'none', version: 'none', bg_upsampler: 'none', ...fields } });
  assert.equal(status, 200);
  return result;
}

test('what was done is told in its words', async () => {
  const { json } = await send('extra-single-image', { image: b64, upscaler_1: 'Lanczos', upscaling_resize: 2, upscaler_2: 'upscaler', extras_upscaler_2_visibility: 0.5 });
  assert.equal(json.html_info, '<p>Postprocess upscale by: 2</p><p>Postprocess upscaler: Lanczos</p><p>Postprocess upscaler 2: upscaler</p>');
});

test('what the reports of its jobs note, as terms that forbid commercial use, is told once behind that', async (context) => {
  const folder = fs.mkdtempSync(join(tmpdir(), 'restored-a1111-'));
  context.after(() => fs.rmSync(folder, { recursive: true }));
  fs.symlinkSync(ownModels[1], join(folder, 'all'));
  fs.writeFileSync(join(folder, 'models.conf'), '[upscaler]\nlicense = CC-BY-NC-4.0 <b> & more\n');
  const to = await start({ models: ['--models', folder, ...ownModels.slice(2)], context });
  const note = '<p>upscaler is not for commercial use (licence: CC-BY-NC-4.0 &lt;b&gt; &amp; more)</p>';
  const fields = { upscaler_1: 'upscaler', upscaling_resize: 3, upscaler_2: 'Lanczos', extras_upscaler_2_visibility: 0.5 }; // the last of three passes has no network
  const { json } = await send('extra-single-image', { image: b64, ...fields }, { to });
  const words = '<p>Postprocess upscale by: 3</p><p>Postprocess upscaler: upscaler</p><p>Postprocess upscaler 2: Lanczos</p>';
  assert.equal(json.html_info, words + note);
  const batch = await send('extra-batch-images', { imageList: [{ data: b64, name: 'a' }, { data: b64, name: 'b' }], ...fields }, { to });
  assert.equal(batch.json.html_info, words + note);
});

describe('sizes', () => {
  test('None leaves the size as it is', async () => {
    const same = await single({ upscaling_resize: 4 });
    assert.deepEqual(decodePng(same).pixels, decodePng(picture).pixels);
  });

  test('the default is twice, and sides are cut to multiples of 8', async () => {
    assert.deepEqual(pngSize(await single({ upscaler_1: 'Lanczos' })), [120, 88]);
    assert.deepEqual(pngSize(await single({ upscaler_1: 'Lanczos', upscaling_resize: 1.5 })), [88, 64]);
    assert.deepEqual(pngSize(await single({ upscaler_1: 'Lanczos', upscaling_resize: 0.5 })), [24, 16]);
    const { status, json } = await send('extra-single-image', { image: b64, upscaler_1: 'Lanczos', upscaling_resize: 0.1 });
    assert.equal(status, 422);
    assert.match(json.detail, /nothing would be left/);
  });

  test('to a size, cut or not', async () => {
    const to = { resize_mode: 1, upscaler_1: 'Lanczos', upscaling_resize_w: 100, upscaling_resize_h: 100 };
    assert.deepEqual(pngSize(await single(to)), [100, 100]);
    assert.deepEqual(pngSize(await single({ ...to, upscaling_crop: false })), [136, 96]); // the factor 100/44
  });

  test('a network of ×2 runs as often as it takes, three times at most', async () => {
    const runs = async (fields) => {
      const before = (await metrics(server)).get('restored_jobs_total{state="done"}') ?? 0;
      const result = await single({ upscaler_1: 'upscaler', ...fields });
      return { result, runs: (await metrics(server)).get('restored_jobs_total{state="done"}') - before };
    };
    const once = await runs({ upscaling_resize: 2 });
    assert.equal(once.runs, 1);
    assert.ok(once.result.equals(await restored(picture, { bg_upsampler: 'upscaler', width: 120, height: 88, fit: 'fill' })));
    const twice = await runs({ upscaling_resize: 3 });
    assert.equal(twice.runs, 2);
    assert.deepEqual(pngSize(twice.result), [176, 128]);
    const half = await restored(picture, { bg_upsampler: 'upscaler', upscale: 2 });
    assert.ok(twice.result.equals(await restored(half, { bg_upsampler: 'upscaler', width: 176, height: 128, fit: 'fill' })));
    const often = await runs({ upscaling_resize: 10 });
    assert.equal(often.runs, 3);
    assert.deepEqual(pngSize(often.result), [600, 440]);
  });
});

describe('blends', () => {
  test('upscaler 2 by its visibility', async () => {
    const both = await single({ upscaler_1: 'Lanczos', upscaler_2: 'upscaler', extras_upscaler_2_visibility: 0.25 });
    const one = decodePng(await single({ upscaler_1: 'Lanczos' })).pixels, other = decodePng(await single({ upscaler_1: 'upscaler' })).pixels;
    const mixed = decodePng(both).pixels;
    let apart = 0;
    for (let i = 0; i < mixed.length; i++) {
      assert.ok(Math.abs(mixed[i] - (0.75 * one[i] + 0.25 * other[i])) <= 0.51, `${i}: ${mixed[i]} of ${one[i]} and ${other[i]}`);
      apart = Math.max(apart, Math.abs(one[i] - other[i]));
    }
    assert.ok(apart > 8);
    const first = await single({ upscaler_1: 'Lanczos', upscaler_2: 'upscaler' });
    assert.deepEqual(decodePng(first).pixels, Buffer.from(one));
  });

  test('GFPGAN by its visibility, on the picture as it is or enlarged', async () => {
    const image = faces.toString('base64');
    const all = decodePng(await single({ gfpgan_visibility: 1 }, image)), half = decodePng(await single({ gfpgan_visibility: 0.5 }, image)), none = decodePng(faces);
    assert.ok(difference(all, none) > 0.5);
    assert.ok(Math.abs(difference(half, none) / difference(all, none) - 0.5) < 0.05);
    const larger = await single({ upscaler_1: 'upscaler', gfpgan_visibility: 1 }, image);
    const [width, height] = pngSize(faces).map((side) => Math.floor(side * 2 / 8) * 8);
    assert.ok(larger.equals(await restored(faces, { bg_upsampler: 'upscaler', width, height, fit: 'fill', version: 'face_64', faces: 'all', weight: 1 })));
  });
});

describe('what clients send', () => {
  test('IntraPaint: a data URI and a size; a bot: a name and a factor; PHP: escaped slashes; text for numbers', async () => {
    const uri = `data:image/png;base64,${b64}`;
    assert.deepEqual(pngSize(await single({ resize_mode: 1, show_extras_results: false, upscaling_resize_w: 96, upscaling_resize_h: 72, upscaler_1: 'Lanczos' }, uri)), [96, 72]);
    assert.deepEqual(pngSize(await single({ upscaling_resize: '2', upscaler_1: 'upscaler', upscale_first: true, unknown: { to: ['it'] } })), [120, 88]);
    const { status } = await send('extra-single-image', JSON.stringify({ image: uri, upscaler_1: 'Lanczos' }).replaceAll('/', '\\/'));
    assert.equal(status, 200);
    const small = png(2, 2).toString('base64'); // shorter than what becomes a file at once
    assert.ok(small.length < 512);
    assert.deepEqual(pngSize(await single({}, small)), [2, 2]);
    assert.deepEqual(pngSize(await single({}, small.replace(/.{40}/g, '$&\n'))), [2, 2]);
  });

  test('a batch comes back in its order', async () => {
    const imageList = [picture, png(80, 30), png(8, 8)].map((bytes, i) => ({ data: bytes.toString('base64'), name: `${i}.png` }));
    const { status, json } = await send('extra-batch-images', { imageList, upscaler_1: 'Lanczos' });
    assert.equal(status, 200);
    assert.deepEqual(json.images.map((image) => pngSize(Buffer.from(image, 'base64'))), [[120, 88], [160, 56], [16, 16]]);
    imageList[1].data = picture.toString('base64', 0, 200); // its end is missing
    const broken = await send('extra-batch-images', { imageList, upscaler_1: 'Lanczos' });
    assert.equal(broken.status, 422);
    assert.match(broken.json.detail, /imageList: picture 2 of 3: /);
  });

  test('lists, settings and memory', async () => {
    const list = async (path) => (await get(server, `/sdapi/v1/${path}`)).json;
    const upscalers = await list('upscalers');
    assert.deepEqual(upscalers.slice(0, 2).map(({ name }) => name), ['None', 'Lanczos']);
    const free = { licence: null, non_commercial: false };
    assert.deepEqual(upscalers.find(({ name }) => name === 'upscaler'), { name: 'upscaler', model_name: 'upscaler', model_path: null, model_url: null, scale: 2, ...free });
    assert.deepEqual((await list('face-restorers')).at(-1), { name: 'GFPGAN', cmd_dir: null, ...free });
    assert.ok(Array.isArray(await list('realesrgan-models')));
    const memory = await list('memory');
    assert.ok(memory.ram.total >= memory.ram.used && memory.cuda);
    const options = await list('options');
    assert.equal(options.samples_format, 'png');
    assert.equal((await send('options', options)).status, 200);
    const { status, json } = await send('options', { samples_format: 'jpg' });
    assert.equal(status, 422);
    assert.match(json.detail, /samples_format: this server's settings/);
    const idle = await until('no work', async () => { const now = await list('progress?skip_current_image=true'); return now.state.job_count === 0 && now; });
    assert.deepEqual([idle.progress, idle.current_image], [0, null]);
  });

  test('the official names stand for the official models, and CodeFormer for any file of it', async (context) => {
    const folder = fs.mkdtempSync(join(root, 'build/a1111-'));
    context.after(() => fs.rmSync(folder, { recursive: true, force: true }));
    for (const file of fs.readdirSync(join(root, 'build/fixtures'))) {
      if (/\.(pth|safetensors)$/.test(file)) fs.copyFileSync(join(root, 'build/fixtures', file), join(folder, file.replace(/^upscaler\./, 'RealESRGAN_x2plus.')));
    }
    fs.copyFileSync(join(root, 'tests/golden/families/codeformer.safetensors'), join(folder, 'mine.safetensors'));
    const upscaler = fs.readdirSync(join(root, 'build/fixtures')).find((file) => /^upscaler\.(pth|safetensors)$/.test(file));
    fs.copyFileSync(join(root, 'build/fixtures', upscaler), join(folder, upscaler.replace('upscaler', 'R-ESRGAN 4x+')));
    const models = ['--models', folder, ...ownModels.slice(2).map((one) => (one === 'upscaler' ? 'RealESRGAN_x2plus' : one))];
    const named = await start({ models, context });
    const listed = (await get(named, '/sdapi/v1/upscalers')).json.find(({ name }) => name === 'R-ESRGAN 2x+');
    assert.equal(listed?.model_name, 'RealESRGAN_x2plus');
    const { status } = await send('extra-single-image', { image: b64, upscaler_1: 'R-ESRGAN 2x+' }, { to: named });
    assert.equal(status, 200);
    assert.equal((await send('extra-single-image', { image: b64, upscaler_1: 'R-ESRGAN 4x+' }, { to: named })).status, 200, 'a file of that name');
    assert.equal((await get(named, '/sdapi/v1/realesrgan-models')).json[0].name, 'R-ESRGAN 2x+');
    assert.deepEqual((await get(named, '/sdapi/v1/face-restorers')).json, [{ name: 'CodeFormer', cmd_dir: null, licence: 'S-Lab-1.0, non-commercial', non_commercial: true }, { name: 'GFPGAN', cmd_dir: null, licence: null, non_commercial: false }]);
    const result = async (fields) => decodePng(Buffer.from((await send('extra-single-image', { image: faces.toString('base64'), ...fields }, { to: named })).json.image, 'base64'));
    const whole = await result({ codeformer_visibility: 1, codeformer_weight: 1 }), free = await result({ codeformer_visibility: 1 });
    assert.ok(difference(whole, decodePng(faces)) > 0.5 && difference(whole, free) > 0.05);
    const after = await result({ gfpgan_visibility: 1, codeformer_visibility: 0.5 }); // of GFPGAN's result
    assert.ok(difference(after, await result({ gfpgan_visibility: 1 })) > 0.05);
    await named.stop();
  });
});

test('errors have its form', async () => {
  const refused = async (body, wanted, says, path = 'extra-single-image') => {
    const { status, json, type } = await send(path, body);
    assert.equal(status, wanted, JSON.stringify(json));
    assert.equal(type, 'application/json');
    assert.deepEqual(Object.keys(json).sort(), ['body', 'detail', 'error', 'errors']);
    assert.match(json.detail, says);
  };
  await refused({ image: b64, upscaler_1: 'R-ESRGAN 4x+' }, 422, /upscaler_1: there is no "R-ESRGAN 4x\+".*restored models get RealESRGAN_x4plus/);
  await refused({ image: b64, gfpgan_visibility: 2 }, 422, /gfpgan_visibility: it has to be a number from 0 to 1/);
  await refused({ image: b64, upscaling_resize: 'much' }, 422, /upscaling_resize/);
  const restorers = (await get(server, '/sdapi/v1/face-restorers')).json.map(({ name }) => name);
  if (!restorers.includes('CodeFormer')) await refused({ image: b64, codeformer_visibility: 1 }, 422, /codeformer_visibility: there is no CodeFormer/);
  else assert.equal((await send('extra-single-image', { image: b64, codeformer_visibility: 1, codeformer_weight: 0.5 })).status, 200);
  await refused({ image: 'http://127.0.0.1/photo.png' }, 422, /fetches no pictures/);
  await refused({ image: 7 }, 422, /^image: it has to be a picture, as text in base64$/);
  await refused({ image: '/etc/passwd' }, 422, /^image: /);
  await refused({ imageList: [{ name: 'x' }] }, 422, /^imageList: data: it has to be a picture/, 'extra-batch-images');
  for (const before of ['', '\r\n', '\0'])
    await refused(`${before}--x\r\nContent-Disposition: form-data; name="image"\r\n\r\n${b64}\r\n--x--\r\n`, 422, /not JSON: it has to begin with {/);
  await refused({ image: [0] }, 422, /not text in base64/);
  await refused({ image: 'AAAA' }, 415, /./);
  await refused({ image: b64.slice(0, -9) + '!' }, 422, /not in base64|cut short/);
  const long = 'A'.repeat(1001);
  await refused({ upscaler_1: 'None', image: long }, 422, /^image: a picture's base64 is cut short$/);
  await refused({ image: `${long}!` }, 422, /^image: a picture is not in base64$/);
  await refused({ image: `data:image/png,${long}` }, 422, /^image: a picture is in a data URI without/);
  await refused({ imageList: [{ name: 'x', data: b64 }, { name: 'y', data: long }] }, 422, /^data: a picture's base64 is cut short$/, 'extra-batch-images');
  await refused([long], 422, /^A picture's base64 is cut short$/);
  await refused({ 'a\n"ü': long }, 422, /^A picture's base64 is cut short$/);
  await refused({ image: b64.slice(0, 600) }, 422, /./);
  await refused({}, 422, /text in base64/);
  await refused('{"image": "', 422, /not JSON/);
  await refused('[1 2]', 422, /not JSON/);
  await refused('{"image": NaN}', 422, /not JSON/);
  await refused('['.repeat(100), 422, /more than 16 deep/);
  await refused({ imageList: [] }, 422, /imageList/, 'extra-batch-images');
  await refused({ imageList: Array.from({ length: 65 }, () => ({ data: b64 })) }, 413, /more than 64 pictures/, 'extra-batch-images');
  const missing = await get(server, '/sdapi/v1/txt2img');
  assert.deepEqual([missing.status, missing.json.error], [404, 'HTTPException']);
  assert.match(missing.json.detail, /POST \/sdapi\/v1\/extra-single-image/);
});

test('HTTP Basic takes a token as the password', async (context) => {
  const file = join(root, 'build/a1111-tokens');
  fs.writeFileSync(file, `somebody ${token}\n`, { mode: 0o600 });
  const guarded = await start({ models: ownModels, args: ['--auth_token_file', file], context });
  const basic = (password) => ({ Authorization: `Basic ${Buffer.from(`user:${password}`).toString('base64')}` });
  const lists = async (headers, path = '/sdapi/v1/upscalers') => await get(guarded, path, { headers });
  assert.equal((await lists(basic(token))).status, 200);
  assert.equal((await lists({ Authorization: `Bearer ${token}` })).status, 200);
  for (const headers of [{}, basic('another-token-of-length'), basic(''), { Authorization: 'Basic !!!' }, basic('x'.repeat(500))]) {
    const { status, headers: sent, json } = await lists(headers);
    assert.equal(status, 401);
    assert.match(sent.get('www-authenticate'), /^Basic realm=/);
    assert.equal(json.error, 'HTTPException');
    assert.match(json.detail, /^This server asks for a token; send it as the password of HTTP Basic, with any user's name, or in a header: "Authorization: Bearer TOKEN"$|does not know this token/);
  }
  const ours = await lists(basic(token), '/v1/devices');
  assert.equal(ours.status, 401); // there alone
  assert.match(ours.json.detail, /^This server asks for a token; send it in a header: /);
  await guarded.stop();
});

test('progress tells of the work, and interrupt ends it', async (context) => {
  const held = await start({ program: faulty, models: ownModels, args: ['--device', 'cpu'], env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=upscaler' }, context });
  const answer = send('extra-batch-images', { imageList: [{ data: b64 }, { data: b64 }, { data: b64 }], upscaler_1: 'upscaler' }, { to: held });
  const at = await until('the work', async () => {
    const { json } = await get(held, '/sdapi/v1/progress');
    return json.state.job_count === 3 && json;
  });
  assert.equal(at.state.job, 'extras');
  assert.ok(at.progress >= 0 && at.progress < 1);
  await until('the interruption', async () => {
    assert.deepEqual((await send('interrupt', '', { to: held })).json, {});
    return (await get(held, '/sdapi/v1/progress')).json.state.job_count === 0;
  });
  const { status, json } = await answer;
  assert.equal(status, 200);
  assert.ok(json.images.length < 3);
  await held.stop();
});
