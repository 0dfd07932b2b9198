// Models that workers fetch from the store which servers share: published, told, damaged on their way, replaced, removed.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { get, png, post, start, until } from './client.mjs';
import { database, skip, sql } from './postgres.mjs';
import { binary, fixtures } from './server.mjs';

const run = async (...args) => {
  try {
    return { ...(await promisify(execFile)(binary, ['models', 'publish', ...args, '--store', url, '--models', path.join(top, 'few')])), code: 0 };
  } catch (error) {
    return error;
  }
};
const copy = (from, to) => { fs.mkdirSync(path.dirname(to), { recursive: true }); fs.copyFileSync(path.join(fixtures, from), to); };
const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');
const few = (...more) => ['--models', path.join(top, 'few'), '--default_version', 'face_64', '--default_detector', 'detector', '--default_parser', 'parser', ...more];
const job = { version: 'none', bg_upsampler: 'extra', ext: 'png' }, picture = png(60, 40);
let url, top, front, worker;

describe('models from the store', { skip }, () => {
  before(async () => {
    url = database();
    top = fs.mkdtempSync(path.join(tmpdir(), 'restored-fleet-'));
    for (const name of ['detector', 'face_64', 'parser']) copy(`${name}.safetensors`, path.join(top, `few/${name}.safetensors`));
    copy('srvgg_x2.safetensors', path.join(top, 'one/extra.safetensors'));
    copy('srvgg_x4.safetensors', path.join(top, 'two/extra.safetensors'));
    fs.writeFileSync(path.join(top, 'one/models.conf'), '[extra]\nlicence = Ours-1.0\nactivation = leakyrelu:0.2\n');
    const shared = ['--store', url, '--device', 'cpu', '--cpu_threads', '1'];
    front = await start({ models: [], args: [...shared, '--role', 'front'], ready: false });
    worker = await start({ models: few('--default_bg_upsampler', 'none'), args: [...shared, '--role', 'worker', '--metrics_listen', '127.0.0.1:0',
      '--models_from', 'store', '--state_dir', path.join(top, 'state')] });
  });
  after(async () => {
    await Promise.allSettled([front?.stop(), worker?.stop()]);
    fs.rmSync(top, { recursive: true, force: true });
    sql(process.env.RESTORED_TEST_POSTGRES, `DROP DATABASE ${url.split('/').at(-1)} WITH (FORCE)`);
  });

  const submit = async () => {
    const accepted = await post(front, '/v1/restore', { picture, name: 'a.png', fields: { ...job, async: 'true' } });
    assert.equal(accepted.status, 202, accepted.bytes);
    return accepted.json.id;
  };
  const state = async (id) => (await get(front, `/v1/jobs/${id}`)).json;
  const done = (id) => until('it is done', async () => {
    const now = await state(id);
    assert.ok(now.state !== 'failed', JSON.stringify(now));
    return now.state === 'done' && now;
  });
  // What one machine makes of it with the models of that folder.
  const expected = async (folder) => {
    const both = path.join(top, `both-${folder}`);
    fs.cpSync(path.join(top, 'few'), both, { recursive: true });
    fs.cpSync(path.join(top, folder), both, { recursive: true });
    const server = await start({ models: ['--models', both, ...few('--default_bg_upsampler', 'none').slice(2)], args: ['--device', 'cpu', '--cpu_threads', '1'] });
    const answer = await post(server, '/v1/restore', { picture, name: 'a.png', fields: job });
    await server.stop();
    assert.equal(answer.status, 200, answer.bytes);
    return answer.bytes;
  };
  const result = async (id) => Buffer.from(await (await fetch(`${front.url}/v1/jobs/${id}/result`)).arrayBuffer());
  const listed = async () => (await get(front, '/v1/models')).json.models.find(({ name }) => name === 'extra');

  test('what cannot be published says why', { timeout: 300000 }, async () => {
    fs.mkdirSync(path.join(top, 'odd'));
    fs.writeFileSync(path.join(top, 'odd/text.pth'), 'no model');
    for (const [args, wanted] of [[[path.join(top, 'odd/text.pth')], /text\.pth/], [['nothing_here'], /no such model/], [['--remove', 'extra'], /no model is published/]]) {
      const { code, stderr } = await run(...args);
      assert.equal(code, 1);
      assert.match(stderr, wanted);
    }
    assert.equal(sql(url, "SELECT count(*) FROM chunks WHERE name LIKE 'models/%'"), '0');
    const alone = await promisify(execFile)(binary, ['serve', '--models_from', 'store', '--listen', '127.0.0.1:0']).catch((error) => error);
    assert.match(alone.stderr, /models_from = store needs store = postgresql:/);
  });

  test('a damaged transfer is told, costs no attempt, and is tried again; the job is done as where the model is', { timeout: 600000 }, async () => {
    const published = await run(path.join(top, 'one/extra.safetensors'));
    assert.equal(published.code, 0, published.stderr);
    assert.match(published.stdout, /extra: published, SHA-256 [0-9a-f]{64}; licence: Ours-1\.0/);
    const row = await until('a front tells of it', listed);
    assert.deepEqual([row.published, row.licence, row.kind, row.scale, row.default], [true, 'Ours-1.0', 'upscaler', 2, false]);
    await until("a front tells of the worker's", async () => (await get(front, '/v1/models')).json.models.some(({ name, published: yes }) => name === 'parser' && yes === false));
    const intact = sql(url, "SELECT encode(data, 'hex') FROM chunks WHERE name LIKE 'models/%' AND n = 0").length;
    assert.ok(intact > 1000);
    const flip = () => sql(url, "UPDATE chunks SET data = set_byte(data, length(data) - 1, get_byte(data, length(data) - 1) # 1) WHERE name LIKE 'models/%' AND n = 0");
    flip();
    const id = await submit();
    await until('it is told', () => /model-not-fetched model="extra".*SHA-256/.test(worker.log()));
    assert.equal((await state(id)).state, 'queued');
    await until('nothing of it is left', () => fs.readdirSync(path.join(top, 'state/models')).length === 0);
    flip();
    const { attempts } = await done(id);
    assert.equal(attempts, 1);
    assert.deepEqual(await result(id), await expected('one')); // with its activation
    assert.equal(hash(fs.readFileSync(path.join(top, 'state/models/extra.safetensors'))), row.sha256);
    assert.equal((await listed()).default, false);
  });

  test('a replacement that fails on its way leaves no section that tells the SHA-256 of another file', { timeout: 600000 }, async () => {
    const file = path.join(top, 'state/models/extra.safetensors'), conf = () => fs.readFileSync(path.join(top, 'state/models/models.conf'), 'utf8');
    const old = hash(fs.readFileSync(file)), wanted = hash(fs.readFileSync(path.join(top, 'two/extra.safetensors')));
    fs.renameSync(file, path.join(top, 'aside'));
    fs.mkdirSync(path.join(file, 'in'), { recursive: true }); // nothing replaces it
    assert.equal((await run(path.join(top, 'two/extra.safetensors'))).code, 0);
    await until('it is told', () => new RegExp(`model-not-fetched model="extra" sha256=${wanted}`).test(worker.log()));
    assert.doesNotMatch(conf(), new RegExp(wanted));
    fs.rmSync(file, { recursive: true });
    fs.renameSync(path.join(top, 'aside'), file);
    const there = (sum) => until(`${sum} is there`, () => fs.existsSync(file) && hash(fs.readFileSync(file)) === sum);
    await there(wanted);
    await until('its SHA-256 is told', () => conf().includes(wanted));
    assert.equal((await run(path.join(top, 'one/extra.safetensors'))).code, 0); // as before
    await there(old);
  });

  test('one that is replaced under its name is fetched again, and its old file goes; removed, it is not told as published', { timeout: 600000 }, async () => {
    const [old, wanted] = ['one', 'two'].map((folder) => hash(fs.readFileSync(path.join(top, folder, 'extra.safetensors'))));
    await until('the worker tells of the first', async () => (await listed()).sha256 === old);
    assert.equal((await run(path.join(top, 'two/extra.safetensors'))).code, 0);
    await until('the new file is there', () => hash(fs.readFileSync(path.join(top, 'state/models/extra.safetensors'))) === wanted);
    await until('the worker tells of it', async () => (await get(front, '/v1/models')).json.models.filter(({ name }) => name === 'extra').every(({ sha256 }) => sha256 === wanted));
    assert.equal(sql(url, `SELECT count(*) FROM payloads WHERE name = 'models/${old}'`), '0');
    const id = await submit();
    await done(id);
    assert.deepEqual(await result(id), await expected('two'));
    assert.match((await run()).stdout, new RegExp(`^extra +\\d+  ${wanted}`));
    assert.equal((await run('--remove', 'extra')).code, 0);
    assert.equal(sql(url, "SELECT count(*) FROM chunks WHERE name LIKE 'models/%'"), '0');
    await until('it is not told as published', async () => !(await listed())?.published); // the worker still has it, and may tell so
  });

  test('a server that computes, too, tells of the models of others and leaves jobs for them to these; what waits says for what', { timeout: 600000 }, async (context) => {
    const both = await start({ models: few('--default_bg_upsampler', 'none'), args: ['--store', url, '--device', 'cpu', '--cpu_threads', '1'], context });
    const row = await until('it tells of it', async () => (await get(both, '/v1/models')).json.models.find(({ name }) => name === 'extra'));
    assert.equal(row.default, false);
    const { options } = (await get(both, '/v1/capabilities')).json, upscaler = options.find(({ name }) => name === 'bg_upsampler');
    assert.deepEqual([upscaler.default, upscaler.values.includes('extra'), upscaler.models.some(({ name }) => name === 'extra')], [null, true, true]);
    const devices = (await get(both, '/v1/devices')).json.devices.filter(({ id }) => id === 'cpu');
    assert.deepEqual(devices.map(({ worker: its }) => !!its).sort(), [false, true]); // its own, and the worker's
    const answer = await post(both, '/v1/restore', { picture, name: 'a.png', fields: job });
    assert.equal(answer.status, 200, answer.bytes);
    assert.deepEqual(answer.bytes, await expected('two'));
    // a worker that has no processor for three seconds is not waited for
    const estimate = await until('an estimate', async () => { const now = await post(both, '/v1/estimate', { query: '?width=60&height=40&version=none&bg_upsampler=extra' }); return now.status === 200 && now; });
    assert.equal(estimate.status, 200, estimate.bytes);
    const edited = new FormData();
    for (const [name, value] of [['model', 'extra'], ['image', new Blob([picture], { type: 'image/png' })]]) edited.append(name, value);
    const openai = await post(both, '/v1/images/edits', { body: edited });
    assert.equal(openai.status, 200, openai.bytes);
    const unknown = await post(both, '/v1/restore', { picture, fields: { ...job, bg_upsampler: 'nowhere' } });
    assert.deepEqual([unknown.status, unknown.json.code], [400, 'invalid']);
    const { id } = (await post(front, '/v1/restore', { picture, fields: { ...job, bg_upsampler: 'nowhere', async: 'true' } })).json;
    const waiting = await until('it says for what it waits', async () => (await state(id)).waiting_for);
    assert.deepEqual(waiting, { models: ['nowhere'], reason: 'no server has the model nowhere' });
    // an option that came after shared stores: needed where it is asked for
    const progressive = await post(front, '/v1/restore', { picture, fields: { ...job, ext: 'jpg', progressive: 'true', async: 'true' } });
    assert.equal((await until('its end', async () => { const now = await state(progressive.json.id); return now.finished && now; })).state, 'done');
    assert.match(sql(url, `SELECT needs FROM jobs WHERE id = '${progressive.json.id}'`), /"#option progressive"/);
    await Promise.all([both.stop(), worker.stop()]);
    const plain = (await post(front, '/v1/restore', { picture, fields: { version: 'none', bg_upsampler: 'none', async: 'true' } })).json;
    const nobody = await until('nobody is there', async () => (await state(plain.id)).waiting_for);
    assert.deepEqual(nobody, { models: [], reason: 'no server that takes jobs is connected' });
  });
});
