// examples/: each client restores a picture by a server with a token, and says why one cannot be restored; that for Immich
// against a double of the parts of its API that it uses.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fixture, pngSize, start } from './client.mjs';
import { root } from './server.mjs';

const token = 'the-token-of-the-examples';
let folder, server;
before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-examples-'));
  fs.writeFileSync(path.join(folder, 'two.png'), fixture('two.png'));
  fs.writeFileSync(path.join(folder, 'bad.png'), fixture('two.png').subarray(0, 500));
  fs.writeFileSync(path.join(folder, 'tokens'), `${token}\n`, { mode: 0o600 });
  server = await start({ args: ['--auth_token_file', path.join(folder, 'tokens')] });
});
after(async () => {
  await server?.stop();
  fs.rmSync(folder, { recursive: true, force: true });
});

const run = (command, args, env = {}) => new Promise((resolve) => {
  const child = spawn(command, args, { cwd: folder, env: { ...process.env, RESTORED_URL: server.url, RESTORED_TOKEN: token, no_proxy: '*', ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '', err = '';
  child.stdout.on('data', (data) => { out += data; });
  child.stderr.on('data', (data) => { err += data; });
  child.on('error', (error) => resolve({ status: -1, out, err: String(error) }));
  child.on('close', (status) => resolve({ status, out, err }));
});
const example = (name) => path.join(root, 'examples', name);

const go = spawnSync('gccgo', ['--version']).status === 0; // much smaller than the compiler of golang-go, and at once
for (const [name, command, args] of [['restore.sh', 'sh', []], ['restore.py', 'python3', []], ['restore.mjs', process.execPath, []], ['restore.go', './restore_go', null]])
  test(`examples/${name}`, { skip: !args && !go && 'gccgo is not installed' }, async () => {
    if (!args) {
      const built = await run('gccgo', ['-o', path.join(folder, 'restore_go'), example(name)]);
      assert.equal(built.status, 0, built.err);
    }
    const ask = (...words) => run(command, args ? [example(name), ...words] : words);
    const good = await ask('two.png', `${name}.png`, 'upscale=1.5', 'version=none', 'bg_upsampler=none', 'suffix=a b&c');
    assert.equal(good.status, 0, good.err);
    assert.deepEqual(pngSize(fs.readFileSync(path.join(folder, `${name}.png`))), [360, 192]);
    const wrong = await ask('two.png', 'wrong.png', 'upscale=99');
    assert.equal(wrong.status, 1);
    assert.match(wrong.err, /upscale: .*1 to 8/);
    const bad = await ask('bad.png', 'wrong.png');
    assert.equal(bad.status, 1);
    assert.ok(bad.err.length > 20, bad.err);
    const nobody = await run(command, [...(args ? [example(name)] : []), 'two.png', 'wrong.png'], { RESTORED_URL: 'http://127.0.0.1:2' });
    assert.equal(nobody.status, 1);
    assert.match(nobody.err, /127\.0\.0\.1.*(2|connect)/is); // who it is that does not answer
    assert.deepEqual(fs.readdirSync(folder).filter((file) => file.startsWith('wrong')), []);
    const told = await ask('two.png', 'wrong.png', 'version=none', 'upscale'); // a line, and not how it came about
    assert.deepEqual([told.status, told.err.trim()], [2, 'upscale: an option is written OPTION=VALUE']);
    const nowhere = await run(command, [...(args ? [example(name)] : []), 'two.png', 'wrong.png'], { RESTORED_URL: '/nowhere' });
    assert.equal(nowhere.status, 1);
    assert.match(nowhere.err, /^(?!.*Traceback).*nowhere/s);
    const bare = await ask();
    assert.deepEqual([bare.status, /RESULT/.test(bare.err)], [2, true], bare.err);
  });

test('examples/restore.sh shows its token to nobody, and works without one', async (t) => {
  const seen = path.join(folder, 'seen'), bin = path.join(folder, 'bin');
  fs.mkdirSync(bin);
  const real = spawnSync('sh', ['-c', 'command -v curl']).stdout.toString().trim();
  fs.writeFileSync(path.join(bin, 'curl'), `#!/bin/sh\necho "$*" >>'${seen}'\nexec '${real}' "$@"\n`, { mode: 0o755 });
  const PATH = `${bin}:${process.env.PATH}`;
  const ask = (env) => run('sh', [example('restore.sh'), 'two.png', 'seen.png', 'version=none', 'bg_upsampler=none'], { PATH, ...env });
  assert.equal((await ask({})).status, 0);
  assert.match(fs.readFileSync(seen, 'utf8'), /two\.png/);
  assert.ok(!fs.readFileSync(seen, 'utf8').includes(token));
  const refused = await ask({ RESTORED_TOKEN: '' });
  assert.deepEqual([refused.status, /token/i.test(refused.err)], [1, true], refused.err);
});

// The parts of Immich's API that the example uses, as its server's source (controllers asset, asset-media and stack) has them.
async function immich(t) {
  const key = 'a-key', assets = new Map(), stacks = new Map();
  const add = (id, name, bytes, more = {}) => assets.set(id, { asset: { id, type: 'IMAGE', originalFileName: name, fileCreatedAt: '1957-05-01T10:00:00.000Z', fileModifiedAt: '1957-05-02T10:00:00.000Z', stack: null, ...more }, bytes });
  const double = http.createServer(async (request, response) => {
    const body = [];
    for await (const piece of request) body.push(piece);
    const answer = (status, json) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(json));
    if (request.headers['x-api-key'] !== key) return answer(401, { message: 'Invalid API key', statusCode: 401 });
    const [, , kind, id, what] = request.url.split('/');
    const found = kind === 'assets' && id ? assets.get(id) : null;
    if (kind === 'assets' && request.method === 'GET' && !found) return answer(400, { message: 'Not found or no asset.read access', statusCode: 400 });
    if (found && what === 'original') return response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(found.bytes);
    if (found) return answer(200, found.asset);
    if (kind === 'assets' && request.method === 'POST') {
      const form = await new Response(Buffer.concat(body), { headers: { 'content-type': request.headers['content-type'] } }).formData();
      const bytes = Buffer.from(await form.get('assetData').arrayBuffer()), sum = createHash('sha1').update(bytes).digest('hex');
      for (const field of ['deviceAssetId', 'deviceId', 'fileCreatedAt', 'fileModifiedAt']) if (!form.get(field)) return answer(400, { message: [`${field} should not be empty`] });
      if (request.headers['x-immich-checksum'] !== sum) return answer(400, { message: 'checksum' });
      for (const [other, one] of assets) if (createHash('sha1').update(one.bytes).digest('hex') === sum) return answer(200, { id: other, status: 'duplicate' });
      const fresh = `new-${assets.size}`;
      add(fresh, form.get('assetData').name, bytes, { fileCreatedAt: form.get('fileCreatedAt'), fileModifiedAt: form.get('fileModifiedAt') });
      return answer(201, { id: fresh, status: 'created' });
    }
    if (kind === 'stacks' && request.method === 'POST') {
      const { assetIds } = JSON.parse(Buffer.concat(body));
      const stack = `stack-${stacks.size}`;
      stacks.set(stack, { id: stack, primaryAssetId: assetIds[0], assets: assetIds.map((one) => assets.get(one).asset) });
      for (const one of assetIds) assets.get(one).asset.stack = { id: stack, primaryAssetId: assetIds[0], assetCount: assetIds.length };
      return answer(201, stacks.get(stack));
    }
    return stacks.has(id) ? answer(200, { ...stacks.get(id), assets: stacks.get(id).assets.map(({ stack, ...one }) => one) }) : answer(404, { message: `Cannot ${request.method} ${request.url}` });
  });
  await new Promise((done) => double.listen(0, '127.0.0.1', done));
  t.after(() => { double.closeAllConnections(); double.close(); });
  return { add, assets, stacks, env: { IMMICH_URL: `http://127.0.0.1:${double.address().port}`, IMMICH_API_KEY: key } };
}

test('examples/immich: downloads, restores, uploads with the dates, stacks; leaves out what is done', async (t) => {
  const { add, assets, stacks, env } = await immich(t);
  add('a1', 'Oma & Opa.png', fixture('two.png'));
  add('b2', 'film.mp4', Buffer.from('no photo'), { type: 'VIDEO' });
  add('c3', 'bad.png', fixture('two.png').subarray(0, 500));
  const script = (...args) => run('python3', [example('immich/restore_immich.py'), ...args, '--set', 'version=none', '--set', 'bg_upsampler=none'], env);
  const first = await script('a1', 'b2', 'c3', 'd4');
  assert.equal(first.status, 1);
  assert.match(first.out, /^a1: restored as new-3\n$/);
  assert.match(first.err, /^b2: it is not a photo$/m);
  assert.match(first.err, /^c3: \/v1\/restore answered 4\d\d: /m);
  assert.match(first.err, /^d4: \/api\/assets\/d4 answered 400: Not found or no asset\.read access$/m);
  const { asset, bytes } = assets.get('new-3');
  assert.equal(asset.originalFileName, 'Oma & Opa_restored.png');
  assert.deepEqual([asset.fileCreatedAt, asset.fileModifiedAt], ['1957-05-01T10:00:00.000Z', '1957-05-02T10:00:00.000Z']);
  assert.deepEqual(pngSize(bytes), [480, 256]);
  assert.deepEqual([...stacks.values()].map((stack) => stack.assets.map((one) => one.id)), [['new-3', 'a1']], 'the restored one on top');
  assert.ok(assets.get('a1').bytes.equals(fixture('two.png')));

  const second = await script('a1');
  assert.equal(second.status, 0, second.err);
  assert.match(second.out, /a1: it has a restored version already/);
  assert.equal((await script('a1', '--again', '--set', 'upscale=1')).status, 0);
  assert.deepEqual(pngSize(assets.get('new-4').bytes), [240, 128]);
  const key = await run('python3', [example('immich/restore_immich.py'), 'a1'], { ...env, IMMICH_API_KEY: 'wrong' });
  assert.match(key.err, /answered 401: Invalid API key/);
  assert.equal((await run('python3', [example('immich/restore_immich.py'), 'a1'], { ...env, IMMICH_URL: '' })).status, 2);
  const told = await script('a1', '--set', 'upscale');
  assert.deepEqual([told.status, told.err.trim().split(': error: ').at(-1)], [2, 'upscale: an option is written OPTION=VALUE']);
});
