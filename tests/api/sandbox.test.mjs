// The sandbox of a server that works on the CPU: in force in every thread, and in nobody's way.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import https from 'node:https';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fixture, ownModels, post, start, until } from './client.mjs';
import { fixtures } from './server.mjs';

let folder;
before(() => { folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-sandbox-')); });
after(() => fs.rmSync(folder, { recursive: true, force: true }));
const at = (...names) => path.join(folder, ...names);
// As editors and tools that renew certificates write a file: another one takes its name.
const replace = (file, text) => {
  fs.writeFileSync(`${file}.new`, text, { mode: 0o600 });
  fs.renameSync(`${file}.new`, file);
};

// Of every thread: 'NoNewPrivs Seccomp'.
const threads = (server) => fs.readdirSync(`/proc/${server.process.pid}/task`).flatMap((id) => {
  let text;
  try { text = fs.readFileSync(`/proc/${server.process.pid}/task/${id}/status`, 'utf8'); } catch { return []; } // it has ended
  return ['NoNewPrivs', 'Seccomp'].map((name) => new RegExp(`^${name}:\\s*(\\d)`, 'm').exec(text)[1]).join(' ');
});
const told = (server) => /(info|warn) sandbox (.*)/.exec(server.log())?.[2];

async function reload(server) {
  const from = server.log().length;
  server.process.kill('SIGHUP');
  await until('reloaded', () => /info reloaded |error reload/.test(server.log().slice(from)));
  return server.log().slice(from);
}

test('in force in every thread, where only the CPU works', async (t) => {
  const server = await start({ args: ['--device', 'cpu'], context: t });
  assert.match(told(server), /^seccomp=true landlock=\d+ threads_outside=0 /);
  assert.equal((await post(server, '/v1/restore', { picture: fixture('picture.png') })).status, 200);
  const all = threads(server);
  assert.ok(all.length > 5 && all.every((one) => one === '1 2'), all.join(', '));
});

test('not for GPUs unless it is asked for, and never with sandbox = false', async (t) => {
  const off = await start({ args: ['--device', 'cpu', '--sandbox', 'false'], ready: false, context: t });
  assert.match(told(off), /^seccomp=false landlock=0 reason="sandbox = false"$/);
  assert.ok(threads(off).every((one) => one.endsWith(' 0')));
  const { devices } = await (await fetch(`${off.url}/v1/devices`)).json();
  const other = devices.find((device) => device.type !== 'cpu');
  if (!other) return t.diagnostic('there is no other device here');
  const end = (server) => { t.after(() => server.process.kill('SIGKILL')); return server; }; // its self-test may take long
  const gpu = end(await start({ args: ['--device', other.id], ready: false }));
  assert.match(told(gpu), /^seccomp=false landlock=0 reason="drivers of GPUs work without"$/);
  const asked = end(await start({ args: ['--device', other.id, '--sandbox', 'true'], ready: false }));
  assert.match(told(asked), /^seccomp=true /);
  assert.ok(threads(asked).every((one) => one === '1 2'));
});

test('configuration, tokens, certificate and models can still be replaced, and the cache be written', async (t) => {
  for (const name of ['conf', 'secret', 'cert/one', 'cert/two', 'live', 'models', 'elsewhere', 'cache']) fs.mkdirSync(at(name), { recursive: true });
  for (const name of ['one', 'two']) {
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', at('cert', name, 'key.pem'), '-out', at('cert', name, 'cert.pem'), '-days', '2', '-subj', `/CN=${name}`], { stdio: 'ignore' });
    fs.chmodSync(at('cert', name, 'key.pem'), 0o600);
  }
  const link = (name) => ['cert.pem', 'key.pem'].forEach((file) => { fs.rmSync(at('live', file), { force: true }); fs.symlinkSync(at('cert', name, file), at('live', file)); });
  link('one');
  for (const name of ['detector', 'face_64', 'upscaler', 'parser']) fs.copyFileSync(path.join(fixtures, `${name}.safetensors`), at('models', `${name}.safetensors`));
  fs.copyFileSync(path.join(fixtures, 'upscaler.safetensors'), at('elsewhere', 'outside.safetensors'));
  replace(at('conf', 'r.conf'), `auth_token_file = ${at('secret', 'tokens')}\ntls_cert = ${at('live', 'cert.pem')}\ntls_key = ${at('live', 'key.pem')}\ncache_dir = ${at('cache')}\nbody_limit = 1MiB\nmetrics_listen = 127.0.0.1:0\n`);
  replace(at('secret', 'tokens'), 'anna 0123456789abcdef\n');
  const server = await start({ models: ownModels.with(1, at('models')), args: ['--config', at('conf', 'r.conf'), '--device', 'cpu'], ready: false, context: t });
  const landlock = Number(/landlock=(\d+)/.exec(told(server))[1]);
  const plainly = /info admin url=(\S+)/.exec(server.log())[1];
  await until('ready', async () => (await fetch(`${plainly}/readyz`)).status === 200);

  replace(at('conf', 'r.conf'), fs.readFileSync(at('conf', 'r.conf'), 'utf8').replace('1MiB', '2MiB'));
  replace(at('secret', 'tokens'), 'anna 0123456789abcdef\nbert fedcba9876543210\n');
  for (const file of ['cert.pem', 'key.pem']) replace(at('cert', 'one', file), fs.readFileSync(at('cert', 'two', file)));
  fs.copyFileSync(path.join(fixtures, 'upscaler.safetensors'), at('models', 'later.safetensors'));
  fs.symlinkSync(at('elsewhere', 'outside.safetensors'), at('models', 'outside.safetensors'));
  await new Promise((done) => setTimeout(done, 1100)); // models are looked for once a second at most
  const log = await reload(server);
  assert.match(log, /info reload key=body_limit old="1MiB" new="2MiB"/);
  assert.match(log, /info tls certificate=/);
  assert.doesNotMatch(log, /error|the old/);
  assert.match(log, new RegExp(`reloaded changed=1 models=${landlock ? 5 : 6} tokens=2`), 'the new model, and not what a new link leads to');

  const picture = fixture('none.png'); // what is learned of it goes into the cache
  const status = await new Promise((done, fail) => https.request(`${server.url}/v1/restore?bg_upsampler=upscaler&version=none`, { method: 'POST', rejectUnauthorized: false, headers: { authorization: 'Bearer fedcba9876543210', 'content-length': picture.length } },
    (answer) => answer.resume().on('end', () => done(answer.statusCode))).on('error', fail).end(picture));
  assert.equal(status, 200);
  await server.stop();
  assert.ok(fs.readdirSync(at('cache')).includes('speed.txt'));
});
