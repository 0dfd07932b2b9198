// Signals other than those that end the server: SIGHUP reads the configuration and looks for models again, SIGUSR1 logs a
// line; and what the log says of requests.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fixture } from './client.mjs';
import { fixtureModels, fixtures, startServer } from './server.mjs';

let folder;
before(() => { folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-signals-')); });
after(() => fs.rmSync(folder, { recursive: true, force: true }));

// Waits until it is so, which is bounded only so that a server that never gets there fails its test.
async function until(server, what) {
  for (let i = 0; i < 6000; i++) {
    const found = await what();
    if (found) return found;
    assert.equal(server.process.exitCode, null, server.log());
    await new Promise((r) => setTimeout(r, 20));
  }
  assert.fail(`it is not so within minutes: ${what}\n${server.log()}`);
}
// Until the log, from `from` on, has the pattern; its match.
const logged = (server, pattern, from = 0) => until(server, () => pattern.exec(server.log().slice(from)));
const ready = (server) => until(server, async () => (await fetch(`${server.url}/readyz`)).status === 200);

describe('signals', () => {
  let server, conf;
  const write = (text) => fs.writeFileSync(conf, text);
  async function reload() {
    const from = server.log().length;
    server.process.kill('SIGHUP');
    await logged(server, /(info reloaded|error reload) /, from);
    return server.log().slice(from);
  }
  const limits = async () => (await (await fetch(`${server.url}/v1/capabilities`)).json()).limits;

  before(async () => {
    conf = path.join(folder, 'restored.conf');
    fs.cpSync(fixtures, path.join(folder, 'models'), { recursive: true });
    write('body_limit = 1MiB\nlog_level = info\n');
    server = await startServer({ args: ['--config', conf, ...fixtureModels.with(1, path.join(folder, 'models')), '--result_pixels', '50MP'] });
    await ready(server);
  });
  after(() => server?.stop());

  test('SIGHUP takes what a server that runs can take, and says so', async () => {
    assert.equal((await limits()).body_bytes, 1 << 20);
    write('body_limit = 2KiB\nlog_level = info\nworkers = 2\nresult_pixels = 1MP\n');
    const log = await reload();
    assert.match(log, /info reload key=body_limit old="1MiB" new="2KiB" source=".*restored\.conf:1"/);
    assert.match(log, /warn reload key=workers old="1" new="2" text="needs a restart; the old value stays"/);
    assert.doesNotMatch(log, /key=result_pixels/); // its flag still goes before the file
    assert.match(log, /info reloaded changed=1/);
    assert.equal((await limits()).body_bytes, 2048);
    write('body_limit = 2KiB\nlog_level = info\njob_seconds = 77\nstall_seconds = 5\n');
    assert.match(await reload(), /reload key=job_seconds old="0" new="77".*\n.*reload key=stall_seconds old="120" new="5"/);
    assert.equal((await limits()).job_seconds, 77);
    const big = await fetch(`${server.url}/v1/restore`, { method: 'POST', headers: { 'content-type': 'image/jpeg' }, body: new Uint8Array(4096) });
    assert.equal(big.status, 413);
    write('body_limit = 1MiB\nlog_level = info\n');
    await reload();
  });

  test('a file that is wrong changes nothing, and the log says why', async () => {
    write('body_limit = 1MiB\nlog_level = info\n');
    await reload();
    for (const [text, says] of [
      ['body_limit = 5MiB\ncolour = blue\n', /error reload text=".*restored\.conf:2: unknown key 'colour'" result="the old configuration stays"\n/],
      ['body_limit = 5MiB\ntrusted_proxies = proxy\n', /error reload text="trusted_proxies: 'proxy' is not an address/],
      ['body_limit = 5MiB\nallowed_hosts = a/b\n', /error reload text="allowed_hosts: /],
      ['body_limit = lots\n', /error reload text=".*restored\.conf:1: body_limit = 'lots' [^"]*" result="[^"]*"\n/],
    ]) {
      write(text);
      assert.match(await reload(), says);
      assert.equal((await limits()).body_bytes, 1 << 20);
    }
    fs.rmSync(conf);
    assert.match(await reload(), /error reload text=".*restored\.conf: No such file/);
    write('body_limit = 1MiB\nlog_level = info\n');
    assert.match(await reload(), /reloaded changed=0/);
  });

  test('the level of the log', async () => {
    write('body_limit = 1MiB\nlog_level = error\n');
    await reload();
    let from = server.log().length;
    await (await fetch(`${server.url}/v1/models`)).text();
    server.process.kill('SIGUSR1'); // written at any level
    await logged(server, /info status /, from);
    assert.doesNotMatch(server.log().slice(from), /info request/);
    write('body_limit = 1MiB\nlog_level = info\n');
    assert.match(await reload(), /info reload key=log_level old="error" new="info"/);
    from = server.log().length;
    await (await fetch(`${server.url}/v1/models`)).text();
    await logged(server, /info request .* path=\/v1\/models /, from);
  });

  test('models that came meanwhile are found', async () => {
    const names = async () => (await (await fetch(`${server.url}/v1/models`)).json()).models.map((m) => m.name);
    assert.ok(!(await names()).includes('later'));
    fs.writeFileSync(path.join(folder, 'models/half.safetensors'), fs.readFileSync(path.join(fixtures, 'upscaler.safetensors')).subarray(0, 1000));
    fs.copyFileSync(path.join(fixtures, 'upscaler.safetensors'), path.join(folder, 'models/later.safetensors'));
    await until(server, async () => /reloaded changed=0 models=[1-9]/.test(await reload()));
    await until(server, async () => (await names()).includes('later'));
    const body = new FormData();
    body.append('image', new Blob([fixture('picture.jpg')]), 'picture.jpg');
    body.append('bg_upsampler', 'later');
    const answer = await fetch(`${server.url}/v1/restore`, { method: 'POST', body });
    assert.equal(answer.status, 200, await answer.clone().text());
    // one whose copy was not at its end
    fs.copyFileSync(path.join(fixtures, 'upscaler.safetensors'), path.join(folder, 'models/half.safetensors'));
    await until(server, async () => { await reload(); return (await names()).includes('half'); });
  });

  test('SIGUSR1 logs what the server is doing', async () => {
    const from = server.log().length;
    server.process.kill('SIGUSR1');
    const [line] = await logged(server, /info status .*\n/, from);
    assert.match(line, /ready=true jobs=0 waiting=0 queue=64 done=\d+ failed=0 cancelled=0 connections=\d+ memory_mib=[1-9]\d* devices="\S+:(idle|unused):\d+MiB.*"\n/);
  });

  test('it still ends by SIGTERM', async () => assert.deepEqual(await server.stop(), { code: 0, signal: null }));
});

test('a server that began without models works when they have come', async () => {
  const models = path.join(folder, 'none');
  fs.mkdirSync(models);
  const server = await startServer({ args: fixtureModels.with(1, models) });
  assert.equal((await fetch(`${server.url}/readyz`)).status, 503);
  for (const name of fs.readdirSync(fixtures).filter((n) => n.endsWith('.safetensors'))) fs.copyFileSync(path.join(fixtures, name), path.join(models, name));
  await logged(server, /info self-test /);
  server.process.kill('SIGHUP');
  await ready(server);
  await server.stop();
});

test("the log's line of a request: client, picture, faces, stages, agent; polls at debug", async () => {
  const server = await startServer({ args: [...fixtureModels, '--trusted_proxies', '127.0.0.0/8'] });
  await ready(server);
  const send = (headers) => fetch(`${server.url}/v1/restore?bg_upsampler=none`, { method: 'POST', headers: { 'content-type': 'image/jpeg', ...headers }, body: fixture('picture.jpg') });
  await (await send({ 'x-forwarded-for': '203.0.113.9, 198.51.100.1', 'user-agent': 'me/1 "x"\\ y=1' })).arrayBuffer();
  const [line] = await logged(server, /info request .*\n/);
  assert.match(line, / client=198\.51\.100\.1 method=POST path=\/v1\/restore status=200 /);
  assert.match(line, / picture=\d+x\d+ result=\d+x\d+ faces=1 restored=1( \w+_ms=[\d.]+)+ agent="me\/1 _x__ y=1"\n/);
  assert.doesNotMatch(server.log(), /request .*path=\/(healthz|readyz|metrics)/);
  await server.stop();

  const plain = await startServer({ args: [...fixtureModels, '--log_level', 'debug'] });
  await (await fetch(`${plain.url}/healthz`, { headers: { 'x-forwarded-for': '203.0.113.9' } })).text();
  await logged(plain, /debug request .* client=127\.0\.0\.1 method=GET path=\/healthz status=200 /);
  await plain.stop();
});
