// restored mcp: what an assistant does with it, by the protocol's own SDK; and lines that no assistant sends.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { decodePng, fixture, ownModels, png, pngSize, until } from './client.mjs';
import { binary } from './server.mjs';

let folder, here;
before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-mcp-'));
  here = path.join(folder, 'here');
  fs.mkdirSync(here);
  for (const name of ['two.png', 'none.png', 'picture.jpg']) fs.writeFileSync(path.join(here, name), fixture(name));
  fs.writeFileSync(path.join(folder, 'outside.png'), fixture('none.png'));
});
after(() => fs.rmSync(folder, { recursive: true, force: true }));

const plain = { version: 'none', bg_upsampler: 'none' };
const env = { ...process.env, RESTORED_STARTER_MODELS: 'false' };

async function connect(t, ...args) {
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(new StdioClientTransport({ command: binary, args: ['mcp', ...ownModels, ...args], cwd: here, env }));
  t.after(() => client.close());
  const call = (name, args_, options) => client.callTool({ name, arguments: args_ }, undefined, { timeout: 600e3, ...options });
  return { client, call };
}
const text = (result) => result.content.find((c) => c.type === 'text').text;

test('an assistant lists the tools, finds faces, restores by path and by bytes, and lists models', async (t) => {
  const { client, call } = await connect(t);
  assert.equal(client.getServerVersion().name, 'restored');
  await client.ping();
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => [tool.name, tool.annotations.readOnlyHint]), [['restore', false], ['detect', true], ['models', true]]);
  const { properties } = tools[0].inputSchema;
  assert.deepEqual(properties.upscale.type, ['number', 'string']);
  assert.deepEqual(properties.fit.enum, ['inside', 'cover', 'fill']);
  assert.ok(!properties.device && !tools[1].inputSchema.properties.upscale && tools[1].inputSchema.properties.detector);

  const found = await call('detect', { path: 'two.png' });
  assert.equal(found.structuredContent.faces.length, 2);
  assert.deepEqual(JSON.parse(text(found)), found.structuredContent);

  const progress = [];
  const restored = await call('restore', { image: `data:image/png;base64,${fixture('two.png').toString('base64')}`, upscale: 1.5, ext: 'png', parse: false, seed: 7, weight: 1 }, { onprogress: (p) => progress.push(p.progress) });
  assert.ok(!restored.isError, text(restored));
  const image = restored.content.find((c) => c.type === 'image');
  assert.equal(image.mimeType, 'image/png');
  assert.deepEqual(pngSize(Buffer.from(image.data, 'base64')), [360, 192]);
  assert.equal(restored.structuredContent.faces.filter((f) => f.action === 'restored').length, 2);
  assert.ok(progress.length > 0 && progress.every((p, i) => p >= 0 && p <= 1 && (!i || p >= progress[i - 1])), `${progress}`);

  const written = await call('restore', { path: 'picture.jpg', output: 'out.png', ...plain });
  assert.equal(written.structuredContent.written, 'out.png');
  assert.deepEqual(written.content.map((c) => c.type), ['text']);
  assert.deepEqual(decodePng(fs.readFileSync(path.join(here, 'out.png'))).width, pngSize(fixture('picture.png'))[0] * 2);

  const models = (await call('models', {})).structuredContent.models;
  assert.ok(models.some((m) => m.name === 'face_64' && m.default));
});

test('what goes wrong is told so that it can be mended', async (t) => {
  const { client, call } = await connect(t, '--root', '.');
  fs.symlinkSync('../outside.png', path.join(here, 'link.png'));
  for (const [name, args, words] of [
    ['restore', {}, /give the picture: its path, or image, one of them/],
    ['restore', { path: 'two.png', image: 'AAAA' }, /one of them/],
    ['restore', { path: 'nowhere.png' }, /nowhere\.png: No such file/],
    ['restore', { path: '../outside.png' }, /in none of the folders that --root allows/],
    ['restore', { path: 'link.png' }, /in none of the folders that --root allows/],
    ['restore', { path: 'none.png', output: '../new.png' }, /in none of the folders/],
    ['restore', { path: 'none.png', output: 'two.png', ...plain }, /two\.png exists already; choose another name/],
    ['restore', { path: 'none.png', output: 'new.txt' }, /the file's name ends in \.png/],
    ['restore', { path: 'none.png', output: 'new.jpg', ext: 'png' }, /do not agree/],
    ['restore', { path: 'none.png', upscale: 99 }, /upscale: .*1 to 8/],
    ['restore', { path: 'none.png', upscale: [2] }, /upscale: a text, number or boolean/],
    ['restore', { path: 'none.png', scale: 2 }, /restore takes no argument "scale"/],
    ['detect', { path: 'none.png', upscale: 2 }, /detect takes no argument "upscale"/],
    ['restore', { image: '%%%' }, /image: this is not base64/],
    ['restore', { image: 'data:image/png,abc' }, /has to be in base64/],
    ['restore', { image: Buffer.from('hello world, no picture').toString('base64') }, /not a picture/],
    ['models', { all: true }, /models takes no arguments/],
  ]) {
    const result = await call(name, args);
    assert.equal(result.isError, true, JSON.stringify(args));
    assert.match(text(result), words);
  }
  await assert.rejects(call('delete', {}), /there is no tool of that name/);
  await assert.rejects(client.request({ method: 'resources/list' }, { parse: (x) => x }), /no such method/);
  assert.ok(!fs.existsSync(path.join(folder, 'new.png')));
});

test('a link that takes a folder\'s place while a call is at work leads nowhere', async (t) => {
  const away = path.join(folder, 'away'), sub = path.join(here, 'sub');
  for (const one of [away, sub]) fs.mkdirSync(one);
  fs.writeFileSync(path.join(here, 'slow.png'), png(160, 160));
  const server = raw('--root', '.');
  t.after(() => server.child.kill('SIGKILL'));
  server.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'restore', _meta: { progressToken: 'p' }, arguments: { path: 'slow.png', output: 'sub/out.png', version: 'none', upscale: 4, bg_tile: 64, bg_upsampler: 'rrdb_x4' } } }));
  await until('it works', () => server.lines.length);
  fs.renameSync(sub, path.join(here, 'moved'));
  fs.symlinkSync(away, sub);
  await until('it is done', () => server.lines.some((l) => l.id === 1));
  const done = server.lines.find((l) => l.id === 1).result;
  assert.ok(!done.isError, text(done));
  assert.deepEqual([fs.readdirSync(away), fs.readdirSync(path.join(here, 'moved'))], [[], ['out.png']]);
  server.child.stdin.end();
  assert.equal(await server.ended, 0, server.err);

  // and one that comes and goes before a picture is read
  const { call } = await connect(t, '--root', '.');
  fs.writeFileSync(path.join(folder, 'secret.png'), png(77, 77));
  fs.symlinkSync('none.png', path.join(here, 'in'));
  const turn = setInterval(() => {
    for (const target of ['none.png', '../secret.png']) {
      fs.symlinkSync(target, path.join(here, 'fresh'));
      fs.renameSync(path.join(here, 'fresh'), path.join(here, 'in'));
    }
    fs.symlinkSync('none.png', path.join(here, 'fresh'));
    fs.renameSync(path.join(here, 'fresh'), path.join(here, 'in'));
  }, 0);
  t.after(() => clearInterval(turn));
  for (let i = 0; i < 30; i++) {
    const found = await call('detect', { path: 'in' });
    if (found.isError) assert.match(text(found), /in none of the folders|No such file/);
    else assert.notEqual(found.structuredContent.width, 77, "the secret");
  }
});

// A server of raw lines: {send(line), lines, ended, child}.
function raw(...args) {
  const child = spawn(binary, ['mcp', ...ownModels, ...args], { cwd: here, env, stdio: ['pipe', 'pipe', 'pipe'] });
  const server = { child, lines: [], err: '', send: (line) => child.stdin.write(`${line}\n`), ended: new Promise((done) => child.on('close', (status) => done(status))) };
  let rest = '';
  child.stdin.on('error', () => {}); // it may have ended
  child.stderr.on('data', (data) => { server.err += data; });
  child.stdout.on('data', (data) => {
    rest += data;
    const lines = rest.split('\n');
    rest = lines.pop();
    server.lines.push(...lines.map((line) => JSON.parse(line)));
  });
  return server;
}
const ask = (id, name, args) => JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } });

test('lines that no assistant sends are answered by errors, and the next one is served', async () => {
  const server = raw('--body_limit', '100KiB');
  for (const line of ['', '      ', '   ', 'x', '"\\é"', '[]', '[{"jsonrpc":"2.0","id":1,"method":"ping"}]', '{}', '"ping"', '{"jsonrpc":"1.0","id":1,"method":"ping"}', '{"jsonrpc":"2.0","id":null,"method":"ping"}', '{"jsonrpc":"2.0","id":{},"method":"ping"}', '{"jsonrpc":"2.0","id":1,"method":7}',
    `${'['.repeat(1e5)}`, 'y'.repeat(4e5), '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":[]}', '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[[]]}}', '{"jsonrpc":"2.0","id":5,"result":{}}',
    ask(4, 'restore', { path: 'a\u0000b.png' })]) // who asks waits for an answer to this id
    server.send(line);
  server.send(ask('big', 'restore', { image: Buffer.alloc(110e3).toString('base64') }));
  server.child.stdin.end(JSON.stringify({ jsonrpc: '2.0', id: 'last', method: 'ping' })); // without an end of the line
  assert.equal(await server.ended, 0, server.err);
  assert.deepEqual(server.lines.filter((l) => l.error).map((l) => [l.id, l.error.code]), [...Array(2).fill([null, -32700]), ...Array(8).fill([null, -32600]), [null, -32700], [null, -32600], [null, -32700], [3, -32602], [4, -32700]]);
  assert.match(text(server.lines.find((l) => l.id === 'big').result), /more than 102400 bytes; give its path/);
  assert.deepEqual(server.lines.find((l) => l.id === 'last').result, {});
});

test('a ping is answered while a call is at work; a cancelled call stops and gives no answer; SIGTERM ends it', async () => {
  fs.writeFileSync(path.join(here, 'large.png'), png(1200, 900));
  const slow = { path: 'large.png', version: 'none', upscale: 4, bg_tile: 64, bg_upsampler: 'rrdb_x4' };
  const server = raw();
  server.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'restore', arguments: slow, _meta: { progressToken: 'p' } } }));
  server.send(ask(2, 'restore', slow));
  server.send(ask(3, 'models', {}));
  await until('it works', () => server.lines.some((l) => l.method === 'notifications/progress'));
  server.send('{"jsonrpc":"2.0","id":4,"method":"ping"}');
  await until('pong', () => server.lines.some((l) => l.id === 4));
  assert.ok(!server.lines.some((l) => l.id === 1 || l.id === 3));
  for (const id of [2, 1]) server.send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id } }));
  await until('the models', () => server.lines.some((l) => l.id === 3));
  assert.ok(!server.lines.some((l) => l.id === 1 || l.id === 2), 'no answers to what was cancelled');
  server.send(JSON.stringify({ jsonrpc: '2.0', id: 5, method: 'tools/call', params: { name: 'restore', arguments: slow, _meta: { progressToken: 'q' } } }));
  await until('it works again', () => server.lines.some((l) => l.params?.progressToken === 'q'));
  server.child.kill('SIGTERM');
  assert.equal(await server.ended, 0, server.err);
  assert.ok(!server.lines.some((l) => l.id === 5));
});
