// The S3 client (server/store/s3.h) against a double from npm: what is stored comes back, what fails is tried again, and errors say
// what to do. build/s3_tool calls it.
import { test, before, after } from 'node:test';
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from './server.mjs';
import { startS3 } from './s3.mjs';

const MIB = 1 << 20;
let s3, folder;
before(async () => { s3 = await startS3(); folder = mkdtempSync(join(tmpdir(), 'restored-s3-')); });
after(async () => { await s3?.stop(); rmSync(folder, { recursive: true, force: true }); });
const file = (name) => join(folder, name);

// Runs the tool: {code, error, size, memory}, memory in MiB.
function tool(words, env = {}) {
  return new Promise((done) => {
    const all = { PATH: process.env.PATH, S3_ENDPOINT: s3.endpoint, S3_BUCKET: s3.bucket, ...s3.env, ...env };
    execFile(join(root, 'build/s3_tool'), words.map(String), { env: all, timeout: 120e3 }, (failed, stdout, stderr) => {
      const numbers = stdout.trim().split('\n').map(Number);
      done({ code: failed ? failed.code ?? failed.signal : 0, error: stderr, size: numbers.length > 1 ? numbers[0] : undefined, memory: numbers.at(-1) / 1024 });
    });
  });
}
async function good(words, env) {
  const answer = await tool(words, env);
  assert.equal(answer.code, 0, answer.error);
  return answer;
}
async function bad(words, env, ...patterns) {
  const answer = await tool(words, env);
  assert.equal(answer.code, 1);
  for (const pattern of patterns) assert.match(answer.error, pattern);
  return answer;
}

test('an object comes back as it was stored, by both styles, with its hash told and true', { timeout: 120e3 }, async () => {
  for (const [style, env] of [['path', {}], ['host', { S3_STYLE: 'host', S3_ENDPOINT: `http://s3.localhost:${s3.port}` }]]) {
    for (const size of [0, 1, 300_001]) {
      const bytes = randomBytes(size), key = `in/${style}-${size}`;
      writeFileSync(file('a'), bytes);
      s3.seen.length = 0;
      await good(['put', key, file('a')], { ...env, S3_PREFIX: 'archive/one' });
      assert.equal(s3.seen.length, 1);
      assert.equal(s3.seen[0].url, style === 'path' ? `/pictures/archive/one/${key}` : `/archive/one/${key}`);
      assert.equal(s3.seen[0].hash, s3.seen[0].sha256);
      assert.equal((await good(['head', `archive/one/${key}`], env)).size, size);
      assert.equal((await good(['get', `archive/one/${key}`, file('b')], env)).size, size);
      assert.deepEqual(readFileSync(file('b')), bytes);
    }
  }
  await good(['part', 'archive/one/in/path-300001', file('b'), 1000, 50_000]);
  writeFileSync(file('c'), '');
  await good(['get', 'archive/one/in/path-300001', file('c')]);
  assert.deepEqual(readFileSync(file('b')), readFileSync(file('c')).subarray(1000, 51_000));
  await good(['delete', 'archive/one/in/path-300001']);
  await bad(['get', 'archive/one/in/path-300001', file('b')], {}, /^not-found: .*archive\/one\/in\/path-300001 in bucket pictures/);
  await bad(['head', 'archive/one/in/path-300001'], {}, /^not-found/);
  await good(['delete', 'archive/one/in/path-300001']);
});

test('a large object goes in parts, in little memory, and one that fails leaves nothing', { timeout: 180e3 }, async () => {
  const bytes = Buffer.alloc(70 * MIB, randomBytes(MIB + 1));
  writeFileSync(file('large'), bytes);
  s3.seen.length = 0;
  const put = await good(['put', 'out/large/1', file('large')]);
  assert.deepEqual(s3.seen.map((one) => one.method), ['POST', 'PUT', 'PUT', 'POST']);
  for (const one of s3.seen) assert.equal(one.hash, one.sha256);
  const get = await good(['get', 'out/large/1', file('back')]);
  assert.ok(readFileSync(file('back')).equals(bytes));
  assert.ok(put.memory < 48 && get.memory < 48, `${put.memory} and ${get.memory} MiB for 70 MiB`);
  await good(['delete', 'out/large/1']);

  s3.seen.length = 0;
  s3.fault = (request) => (request.url.includes('partNumber=2') ? 'refuse' : '');
  await bad(['put', 'out/large/2', file('large')], { S3_TRIES: 2 }, /out\/large\/2 in bucket pictures was answered by 503 SlowDown/);
  s3.fault = null;
  assert.deepEqual(s3.seen.map((one) => one.method), ['POST', 'PUT', 'PUT', 'PUT', 'DELETE']);
  await bad(['head', 'out/large/2'], {}, /^not-found/);
});

test('what a network does is tried again, and a download goes on where it was cut', { timeout: 180e3 }, async () => {
  const bytes = randomBytes(3 * MIB);
  writeFileSync(file('a'), bytes);
  s3.fault = (request, tries) => (tries <= 2 ? 'refuse' : '');
  await good(['put', 'in/tough', file('a')]);
  s3.seen.length = 0;
  s3.fault = (request, tries) => (tries <= 2 ? 'cut' : '');
  await good(['get', 'in/tough', file('b')]);
  assert.ok(readFileSync(file('b')).equals(bytes));
  assert.ok(s3.seen.length >= 2);
  s3.fault = (request, tries) => (tries === 1 ? 'stall' : '');
  await good(['head', 'in/tough'], { S3_STALL: 1 });
  s3.fault = () => 'refuse';
  await bad(['delete', 'in/tough'], { S3_TRIES: 2 }, /^io: S3: DELETE of in\/tough in bucket pictures was answered by 503 SlowDown: Please reduce/);
  s3.fault = null;
  await bad(['head', 'in/tough'], { S3_ENDPOINT: 'http://127.0.0.1:1', S3_TRIES: 2 }, /^io: S3: HEAD of in\/tough in bucket pictures: /);
});

test('wrong settings and credentials are told, never the credentials themselves', { timeout: 120e3 }, async () => {
  const secret = 'wJalrXUtnFEMI';
  const refused = await bad(['get', 'in/x', file('b')], { AWS_SECRET_ACCESS_KEY: secret }, /^io: .*in\/x in bucket pictures was answered by 403 SignatureDoesNotMatch/, /clock/);
  assert.ok(!refused.error.includes(secret));
  await bad(['get', 'in/x', file('b')], { S3_BUCKET: 'nowhere' }, /^io: .*there is no bucket nowhere/);
  await bad(['head', 'in/x'], { AWS_ACCESS_KEY_ID: '' }, /^not-found: .*AWS_ACCESS_KEY_ID/);
  for (const [name, value, say] of [['S3_BUCKET', 'A_b', 'bucket'], ['S3_PREFIX', 'a/../b', 'prefix'], ['S3_REGION', 'a b', 'region'],
    ['S3_ENDPOINT', 'ftp://x', 'endpoint'], ['S3_ENDPOINT', 'http://x/y', 'endpoint'], ['S3_CREDENTIALS', file('none'), 'cannot be read']])
    await bad(['head', 'in/x'], { [name]: value }, /^(invalid|not-found): /, new RegExp(say));
  writeFileSync(file('credentials'), '[default]\naws_access_key_id = S3RVER\naws_secret_access_key=S3RVER\n');
  writeFileSync(file('a'), 'text');
  await good(['put', 'in/x', file('a')], { S3_CREDENTIALS: file('credentials'), AWS_ACCESS_KEY_ID: 'other', AWS_SECRET_ACCESS_KEY: 'other' });
  writeFileSync(file('credentials'), 'nothing\n');
  await bad(['head', 'in/x'], { S3_CREDENTIALS: file('credentials') }, /aws_secret_access_key/);
});

test('payloads are objects: the setting names bucket, prefix, endpoint and the rest', { timeout: 120e3 }, async () => {
  writeFileSync(file('credentials'), 'aws_access_key_id = S3RVER\naws_secret_access_key = S3RVER\n');
  writeFileSync(file('a'), randomBytes(200_000));
  const where = `s3://pictures/jobs?endpoint=${s3.endpoint}&region=eu-central-1&style=path&credentials=${file('credentials')}`;
  const env = { S3_PAYLOAD: where, AWS_ACCESS_KEY_ID: '', AWS_SECRET_ACCESS_KEY: '' };
  s3.seen.length = 0;
  await good(['put', 'out/0123/2', file('a')], env);
  assert.equal(s3.seen[0].url, '/pictures/jobs/out/0123/2');
  rmSync(file('b'), { force: true });
  await good(['get', 'out/0123/2', file('b')], env);
  assert.deepEqual(readFileSync(file('b')), readFileSync(file('a')));
  await good(['delete', 'out/0123/2'], env);
  await bad(['get', 'out/0123/2', file('b')], env, /^not-found: /);
  await bad(['get', 'x', file('b')], { S3_PAYLOAD: 's3://pictures?style=odd' }, /^invalid: payload: "style=odd"/);
  await bad(['get', 'x', file('b')], { S3_PAYLOAD: 's3://UPPER' }, /^invalid: "UPPER" is no S3 bucket/);
});
