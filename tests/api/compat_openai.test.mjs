// Clients that speak OpenAI's form: its own package from npm, and the requests that Open WebUI, Nextcloud and n8n send.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI, { toFile } from 'openai';
import { decodePng, difference, fixture, get, metrics, ownModels, png, pngOf, pngSize, post, start, until } from './client.mjs';
import { root } from './server.mjs';

const W = 60, H = 44, picture = png(W, H), words = 'Restore this photo, please: version=none bg_upsampler=none repair=false';
const token = 'a-token-of-some-length';
let server, guarded, client;
before(async () => {
  server = await start({ models: ownModels });
  const file = join(root, 'build/openai-tokens');
  fs.writeFileSync(file, `somebody ${token}\n`, { mode: 0o600 });
  guarded = await start({ models: ownModels, args: ['--auth_token_file', file] });
  client = new OpenAI({ apiKey: token, baseURL: `${guarded.url}/v1`, maxRetries: 0 });
});
after(async () => {
  await server?.stop();
  await guarded?.stop();
});

const photo = (bytes = picture, name = 'photo.png') => toFile(bytes, name, { type: 'image/png' });
const bytes = (entry) => Buffer.from(entry.b64_json, 'base64');
// A form as other programs send it; a Buffer is a file.
async function edits(fields, { to = server, headers } = {}) {
  const body = new FormData();
  for (const [name, value] of fields) body.append(name, ...(Buffer.isBuffer(value) ? [new Blob([value], { type: 'image/png' }), 'photo.png'] : [String(value)]));
  return post(to, '/v1/images/edits', { body, headers });
}

describe("OpenAI's package", () => {
  test('gets the restored picture', async () => {
    const open = new OpenAI({ apiKey: 'any', baseURL: `${server.url}/v1`, maxRetries: 0 }), before = await metrics(server);
    const answer = await open.images.edit({ image: await photo(), prompt: words, model: 'gpt-image-1' });
    assert.equal(answer.data.length, 1);
    assert.deepEqual(pngSize(bytes(answer.data[0])), [2 * W, 2 * H]);
    assert.equal(answer.size, `${2 * W}x${2 * H}`);
    assert.equal(answer.output_format, 'png');
    assert.ok(Math.abs(answer.created - Date.now() / 1000) < 3600);
    // the same job as of POST /v1/restore, with the same bytes
    const own = await post(server, '/v1/restore', { picture, fields: { version: 'none', bg_upsampler: 'none', repair: 'false', ext: 'png' } });
    assert.ok(own.bytes.equals(bytes(answer.data[0])));
    const samples = await until('the counted request', async () => { // it is counted after the answer was sent
      const now = await metrics(server);
      return now.get('restored_http_requests_total{route="/v1/images/edits",method="POST",code="200"}') && now;
    });
    assert.equal(samples.get('restored_jobs_total{state="done"}') - (before.get('restored_jobs_total{state="done"}') ?? 0), 2);
  });

  test('sends several pictures, sizes, formats and numbers', async () => {
    const answer = await client.images.edit({ image: [await photo(), await photo(png(30, 50))], prompt: words, size: '1024x1536', n: 2, output_format: 'jpeg', output_compression: 80 });
    assert.equal(answer.data.length, 4);
    assert.deepEqual(bytes(answer.data[0]), bytes(answer.data[1]));
    assert.notDeepEqual(bytes(answer.data[1]), bytes(answer.data[2]));
    for (const entry of answer.data) assert.equal(bytes(entry).toString('hex', 0, 3), 'ffd8ff');
    assert.equal(answer.size, `1024x${Math.round(H * 1024 / W)}`);
    // a size in the prompt is meant, the field may be the program's own
    const meant = await client.images.edit({ image: await photo(), prompt: `${words} upscale=1`, size: '1024x1024' });
    assert.equal(meant.size, `${W}x${H}`);
  });

  test('gets a data URI where it asks for one', async () => {
    const answer = await client.images.edit({ image: await photo(), prompt: `${words} upscale=1`, response_format: 'url' });
    const served = Buffer.from(await (await fetch(answer.data[0].url)).arrayBuffer());
    assert.deepEqual(pngSize(served), [W, H]);
  });

  test("fills what the mask's transparent part shows, and nothing else", async () => {
    const mask = new Uint8Array(W * H * 4).fill(255);
    for (let y = 10; y < 20; y++) for (let x = 15; x < 30; x++) mask[4 * (y * W + x) + 3] = 0;
    const samples = Uint8Array.from(decodePng(picture).pixels);
    for (let y = 12; y < 18; y++) for (let x = 18; x < 27; x++) samples.fill(0, 3 * (y * W + x), 3 * (y * W + x) + 3);
    const broken = pngOf(W, H, 3, samples);
    const prompt = 'upscale=1 version=none bg_upsampler=none fill=none damage_detector=none';
    const answer = await client.images.edit({ image: await photo(broken), mask: await photo(pngOf(W, H, 4, mask), 'mask.png'), prompt });
    const filled = decodePng(bytes(answer.data[0])), whole = decodePng(picture), damaged = decodePng(broken);
    for (let i = 0; i < W * H; i++) {
      const inside = mask[4 * i + 3] === 0;
      if (!inside) for (let c = 0; c < 3; c++) assert.equal(filled.pixels[3 * i + c], damaged.pixels[3 * i + c]);
    }
    assert.ok(difference(filled, whole) < difference(damaged, whole) / 4);
  });

  test('lists the models, and uses one by its name', async () => {
    const names = [];
    for await (const { id, object } of client.models.list()) { names.push(id); assert.equal(object, 'model'); }
    assert.equal(names[0], 'restored');
    assert.ok(names.includes('upscaler') && names.includes('face_64') && !names.includes('detector'));
    assert.deepEqual(await client.models.retrieve('upscaler'), { id: 'upscaler', object: 'model', created: 0, owned_by: 'restored', licence: null, non_commercial: false });
    const missing = await client.models.retrieve('detector').then(() => assert.fail('it was found'), (reason) => reason);
    assert.ok(missing instanceof OpenAI.NotFoundError && missing.param === 'model', missing);
    const answer = await client.images.edit({ image: await photo(), model: 'upscaler', prompt: 'version=none repair=false' });
    const own = await post(guarded, '/v1/restore', { picture, fields: { version: 'none', bg_upsampler: 'upscaler', repair: 'false', ext: 'png' }, headers: { Authorization: `Bearer ${token}` } });
    assert.ok(own.bytes.equals(bytes(answer.data[0])));
    const listed = await (await fetch(`${guarded.url}/v1/models`, { headers: { Authorization: `Bearer ${token}` } })).json();
    assert.ok(listed.models.length && Array.isArray(listed.missing)); // as our own clients read it
  });

  test('understands the errors', async () => {
    const fails = async (kind, fields, { status, code, param, says }, by = client) => {
      const error = await by.images.edit({ image: await photo(), prompt: words, ...fields }).then(() => assert.fail('it was taken'), (reason) => reason);
      assert.ok(error instanceof kind, error);
      assert.deepEqual([error.status, error.code, error.param], [status, code, param], error.message);
      assert.match(error.message, says);
    };
    const reads = await client.images.edit({ image: await photo(), prompt: `${words} make E=mc2 readable, nice=yes` }); // words are no options
    assert.equal(reads.data.length, 1);
    await fails(OpenAI.BadRequestError, { prompt: 'upscale=9' }, { status: 400, code: 'invalid', param: 'upscale', says: /1 to 8/ });
    await fails(OpenAI.BadRequestError, { model: 'none-such' }, { status: 400, code: 'invalid', param: 'model', says: /GET \/v1\/models/ });
    await fails(OpenAI.BadRequestError, { size: 'large' }, { status: 400, code: 'invalid', param: 'size', says: /WIDTHxHEIGHT/ });
    await fails(OpenAI.BadRequestError, { n: 11 }, { status: 400, code: 'invalid', param: 'n', says: /1 to 10/ });
    await fails(OpenAI.BadRequestError, { prompt: 'batch=album' }, { status: 400, code: 'invalid', param: 'prompt', says: /POST \/v1\/restore/ });
    await fails(OpenAI.APIError, { image: await photo(Buffer.from('no picture')) }, { status: 415, code: 'unsupported-format', param: null, says: /./ });
    await fails(OpenAI.UnprocessableEntityError, { image: await photo(picture.subarray(0, 200)) }, { status: 422, code: 'corrupt', param: null, says: /./ });
    // in the words of the client: its fields, whatever they set here
    await fails(OpenAI.BadRequestError, { output_format: 'bmp' }, { status: 400, code: 'invalid', param: 'output_format', says: /output_format: "bmp" is not allowed/ });
    await fails(OpenAI.BadRequestError, { output_compression: 101 }, { status: 400, code: 'invalid', param: 'output_compression', says: /output_compression: "101" is not allowed/ });
    await fails(OpenAI.BadRequestError, { size: '500001x10' }, { status: 400, code: 'invalid', param: 'size', says: /size: "500001" is not allowed/ });
    await fails(OpenAI.BadRequestError, { prompt: 'ext=webp', output_format: 'png' }, { status: 400, code: 'invalid', param: 'prompt', says: /ext is what the field output_format says already/ });
    await fails(OpenAI.BadRequestError, { prompt: 'ext=bmp' }, { status: 400, code: 'invalid', param: 'ext', says: /ext: "bmp"/ }); // what somebody wrote
    // of several pictures, which one it is
    const [good, broken] = [await photo(), await photo(picture.subarray(0, 200))];
    await fails(OpenAI.UnprocessableEntityError, { image: [good, broken, good] }, { status: 422, code: 'corrupt', param: 'image', says: /image: picture 2 of 3: the PNG/ });
    await fails(OpenAI.APIError, { image: [await photo(Buffer.from('no picture')), good] }, { status: 415, code: 'unsupported-format', param: 'image', says: /image: picture 1 of 2: / });
    await fails(OpenAI.BadRequestError, { image: [good, good], prompt: 'version=none-such' }, { status: 400, code: 'invalid', param: 'version', says: /^(?!.*picture 1)/ });
    const stranger = new OpenAI({ apiKey: 'another-token-of-some-length', baseURL: `${guarded.url}/v1`, maxRetries: 0 });
    await fails(OpenAI.AuthenticationError, {}, { status: 401, code: 'invalid_api_key', param: null, says: /does not know this token/ }, stranger);
    const list = await stranger.models.list().then(() => assert.fail('it was taken'), (reason) => reason);
    assert.ok(list instanceof OpenAI.AuthenticationError);
    assert.match(list.message, /does not know this token/);
    const made = await client.images.generate({ prompt: 'a cat' }).then(() => assert.fail('it was taken'), (reason) => reason);
    assert.ok(made instanceof OpenAI.NotFoundError && made.code === 'not-found', made);
  });
});

describe('the requests of other programs', () => {
  test('Open WebUI', async () => {
    for (const name of ['image', 'image[]']) {
      const { status, json } = await edits([['model', 'restored'], ['prompt', words], ['n', 1], ['size', '512x512'], ['background', 'auto'], ['response_format', 'b64_json'], [name, picture]]);
      assert.equal(status, 200);
      assert.deepEqual(pngSize(bytes(json.data[0])), [512, Math.round(H * 512 / W)]);
    }
  });

  test('Nextcloud', async () => {
    const { status, json } = await edits([['prompt', words], ['model', 'gpt-image-1'], ['size', '1024x1024'], ['image[]', picture], ['image[]', fixture('two.png')]]);
    assert.equal(status, 200);
    assert.equal(json.data.length, 2);
  });

  test('n8n', async () => {
    const { status, json } = await edits([['image[]', picture], ['prompt', words], ['model', 'gpt-image-1'], ['n', 1], ['size', 'auto'], ['quality', 'high'], ['output_format', 'webp'], ['mask', picture]]);
    assert.equal(status, 200, JSON.stringify(json));
    assert.equal(bytes(json.data[0]).toString('latin1', 8, 12), 'WEBP');
  });
});

test('what is no form, or no whole one, is refused in the same form', async () => {
  const refused = async ({ status, json, type }, wanted, says) => {
    assert.equal(status, wanted);
    assert.equal(type, 'application/json');
    assert.match(json.error.message, says);
  };
  await refused(await post(server, '/v1/images/edits', { body: '{"image": "x"}', headers: { 'Content-Type': 'application/json' } }), 415, /multipart\/form-data/);
  await refused(await edits([['prompt', words]]), 400, /there is no picture/);
  await refused(await edits([['prompt', words], ['prompt', words], ['image', picture]]), 400, /more than once/);
  await refused(await edits([['colour', 'red'], ['image', picture]]), 400, /colour: there is no such field/);
  await refused(await edits([['image', picture], ['prompt', 'x'.repeat(140000)]]), 400, /prompt: it is longer/);
  await refused(await edits(Array.from({ length: 17 }, () => ['image[]', picture])), 400, /more than 16/);
  await refused(await edits([['image[]', picture], ['image[]', Buffer.alloc(0)], ['prompt', words]]), 400, /image: picture 2 of 2: it is empty/);
  await refused(await edits([['image', picture], ['mask', Buffer.alloc(5 << 20)]]), 413, /mask/);
  await refused(await get(server, '/v1/images/edits').then((answer) => ({ ...answer, type: answer.headers.get('content-type') })), 405, /takes POST/);
  const other = await post(server, '/v1/images/generations', { body: '{"prompt": "x"}', headers: { 'Content-Type': 'application/json' } });
  await refused(other, 404, /nothing at this path.*POST \/v1\/images\/edits/);
  for (const path of ['chat/completions', 'completions', 'responses', 'embeddings', 'audio/transcriptions', 'files', 'moderations'])
    await refused(await post(server, `/v1/${path}`, { body: '{"model": "x"}', headers: { 'Content-Type': 'application/json' } }), 404, /POST \/v1\/images\/edits/);
  const none = await post(server, '/v1/images/edits', { body: 'x', headers: { 'Content-Type': 'multipart/form-data' } });
  await refused(none, 400, /boundary/);
});

test('it is not there when it is switched off', async (context) => {
  const plain = await start({ models: ownModels, args: ['--compat', 'none'], context });
  const { status, json } = await edits([['image', picture]], { to: plain });
  assert.deepEqual([status, json.code, json.error], [404, 'not-found', undefined]);
  assert.equal((await get(plain, '/openapi.json')).json.paths['/v1/images/edits'], undefined);
  await plain.stop();
  await assert.rejects(start({ models: ownModels, args: ['--compat', 'openai,others'], ready: false }), /there is no "others"/);
});
