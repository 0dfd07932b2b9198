// restored doctor where servers share a store: whether this machine reaches it, who else is there, and whether pictures can be put.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { start, until } from './client.mjs';
import { database, skip, sql } from './postgres.mjs';
import { startS3 } from './s3.mjs';
import { binary } from './server.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-doctor-store-'));
after(() => fs.rmSync(folder, { recursive: true, force: true }));

// {status, report, of: its findings about the store}
const doctor = (settings, env = {}) => new Promise((done) => {
  const words = Object.entries(settings).flatMap(([key, value]) => [`--${key}`, value]);
  const all = { ...process.env, RESTORED_CONFIG: '/dev/null', RESTORED_CACHE_DIR: path.join(folder, 'cache'), VK_DRIVER_FILES: folder, ...env };
  execFile(binary, ['doctor', '--json', ...words], { cwd: folder, env: all }, (error, out) => {
    const report = JSON.parse(out), status = error?.code ?? 0;
    assert.equal(report.works, status === 0);
    done({ status, report, of: report.findings.filter(({ check }) => check === 'store') });
  });
});
const find = (of, state, pattern) => {
  const found = of.find((one) => one.state === state && pattern.test(one.found));
  assert.ok(found, `no ${state} like ${pattern}: ${JSON.stringify(of, null, 1)}`);
  assert.equal(state === 'ok', found.why === null && found.fix === null);
  return found;
};

test('a server of its own has no such store', async () => {
  const { status, of } = await doctor({});
  assert.equal(status, 0);
  assert.deepEqual(of, []);
});

test('an empty database, which stays empty', { skip }, async (t) => {
  const store = database(t), { status, of } = await doctor({ store });
  assert.equal(status, 0);
  find(of, 'note', /^the database is reached, and has no tables of ours$/);
  assert.equal(sql(store, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), '0');
});

test('where pictures lie is looked at before there are tables, too', { skip }, async (t) => {
  const store = database(t), shared = path.join(folder, 'early');
  const missing = await doctor({ store, payload: shared });
  assert.equal(missing.status, 1);
  assert.match(find(missing.of, 'problem', /^a picture could not be put there, read and removed: /).found, /early cannot be opened/);
  fs.mkdirSync(shared);
  const { status, of } = await doctor({ store, payload: shared });
  assert.equal(status, 0);
  find(of, 'ok', /put into folder, read and removed/);
});

test('an S3 that does not answer is not waited for', { skip }, async (t) => {
  const store = database(t), s3 = await startS3(), payload = `s3://${s3.bucket}/doctor?endpoint=${s3.endpoint}`;
  t.after(() => s3.stop());
  s3.fault = ({ method }) => (method === 'PUT' ? 'stall' : '');
  const { status, of } = await doctor({ store, payload }, s3.env);
  assert.equal(status, 1);
  find(of, 'problem', /PUT of .* the last 5 seconds$/);
  assert.deepEqual(s3.seen.map(({ method }) => method), ['PUT', 'PUT', 'DELETE']); // what of it came may be there
});

test('who is there, how fast it answers, and whether pictures can be put', { skip }, async (t) => {
  const store = database(t), shared = path.join(folder, 'shared');
  await start({ context: t, models: [], ready: false, args: ['--store', store, '--role', 'front'] });
  const alone = await doctor({ store });
  assert.equal(alone.status, 0);
  find(alone.of, 'ok', /^the database is reached, and its tables are up to date$/);
  find(alone.of, 'note', /^no worker was seen in the last minute \(front ends: 1\)$/);
  await start({ context: t, args: ['--store', store, '--role', 'worker', '--metrics_listen', '127.0.0.1:0', '--device', 'cpu'] });
  await until('the worker is in the table', () => sql(store, "SELECT count(*) FROM workers WHERE about::json ->> 'works' = 'true'") === '1');
  const { status, of } = await doctor({ store });
  assert.equal(status, 0);
  find(of, 'ok', /^seen in the last minute: workers: 1, front ends: 1$/);
  assert.ok(of.some(({ found }) => /^the database answers in \d+\.\d ms$/.test(found)));
  find(of, 'ok', /^a picture of 64 KiB was put into rows, read and removed in \d+\.\d ms$/);
  assert.equal(sql(store, 'SELECT (SELECT count(*) FROM payloads) + (SELECT count(*) FROM chunks)'), '0');

  const missing = await doctor({ store, payload: path.join(folder, 'gone/shared') });
  assert.equal(missing.status, 1);
  assert.match(find(missing.of, 'problem', /^a picture could not be put there, read and removed: /).fix, /payload/);
  fs.mkdirSync(shared);
  find((await doctor({ store, payload: shared })).of, 'ok', /put into folder, read and removed/);
  assert.deepEqual(fs.readdirSync(shared, { recursive: true }).filter((name) => fs.statSync(path.join(shared, name)).isFile()), []);

  const s3 = await startS3();
  t.after(() => s3.stop());
  const payload = `s3://${s3.bucket}/doctor?endpoint=${s3.endpoint}`;
  find((await doctor({ store, payload }, s3.env)).of, 'ok', /put into s3, read and removed/);
  assert.deepEqual([...new Set(s3.seen.map(({ method }) => method))], ['PUT', 'GET', 'DELETE']);
  const denied = await doctor({ store, payload }, { ...s3.env, AWS_SECRET_ACCESS_KEY: 'another' });
  assert.equal(denied.status, 1);
  find(denied.of, 'problem', /SignatureDoesNotMatch/);

  sql(store, 'UPDATE schema_version SET version = 1');
  const old = await doctor({ store });
  assert.equal(old.status, 1);
  assert.match(find(old.of, 'problem', /^the shared store cannot be used: the tables of this store are older ones/).fix, /restored store migrate/);
});

test('nobody answers there', { skip }, async () => {
  const { status, of } = await doctor({ store: 'postgresql://restored@127.0.0.1:1/restored' });
  assert.equal(status, 1);
  assert.match(find(of, 'problem', /^the shared store cannot be used: .*refused/s).fix, /pg_hba\.conf/);
});
