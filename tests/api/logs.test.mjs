// The log as JSON: every line of a busy server is an object with typed values; and the formats that the sources give.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { fixture, get, plain, png, post, raw, start, until } from './client.mjs';
import { root } from './server.mjs';

const lines = (server) => server.log().split('\n').slice(0, -1);

test('every line of a busy server is JSON, and a request has its ids, client and times by stage', async (context) => {
  const server = await start({ args: ['--log_format', 'json', '--log_level', 'debug', '--queue', '2'] });
  context.after(() => server.stop());
  const id = 'find-me_1';
  const requests = [];
  for (let i = 0; i < 8; i++) {
    requests.push(post(server, '/v1/restore', { picture: png(60 + i, 40), fields: plain }));
    requests.push(post(server, '/v1/restore', { picture: Buffer.from(`no picture ${i}`) }));
    requests.push(get(server, '/healthz'), get(server, '/metrics'), get(server, '/nothing"here\\%0a%ff'));
    requests.push(raw(server, `GET /\xff\xc0"\x7f HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: \xff"\\\t{}\r\nConnection: close\r\n\r\n`, 500));
  }
  await Promise.all(requests);
  const answer = await post(server, '/v1/restore', { picture: fixture('two.png'), headers: { 'x-request-id': id, 'user-agent': 'a "b" \\c' } });
  assert.equal(answer.status, 200);
  const line = await until('the line', () => lines(server).find((one) => one.includes(id)));
  await server.stop();

  const events = lines(server).map((one) => JSON.parse(one));
  assert.ok(events.length > 60);
  for (const event of events) {
    assert.match(event.time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    assert.ok(['debug', 'info', 'warn', 'error'].includes(event.level));
    assert.match(event.event, /^[\w-]+$/);
  }
  for (const name of ['start', 'device', 'self-test', 'models', 'request', 'job', 'drain', 'end']) assert.ok(events.some((one) => one.event === name), name);
  assert.equal(events.filter((one) => one.event === 'request' && one.path === '/healthz').length, 8);

  const sandbox = events.find((one) => one.event === 'sandbox');
  assert.equal(typeof sandbox.seccomp, 'boolean');
  assert.ok(events.filter((one) => one.path === '/healthz').every((one) => !('job' in one)), 'what is not there is not named');
  const request = JSON.parse(line);
  const job = events.find((one) => one.event === 'job' && one.id === request.job);
  assert.ok(job, 'the job has the id that the request names');
  assert.deepEqual({ ...request, time: 0, ms: 0, in: 0, out: 0, job: 0, picture: 0 }, {
    time: 0, level: 'info', event: 'request', id, client: '127.0.0.1', method: 'POST', path: '/v1/restore', status: 200, ms: 0, in: 0, out: 0, job: 0,
    picture: 0, result: '480x256', faces: 2, restored: 2,
    ...Object.fromEntries(Object.entries(request).filter(([name]) => name.endsWith('_ms'))), agent: 'a _b_ _c',
  });
  for (const stage of ['decode', 'detect', 'restore', 'background', 'encode']) assert.ok(request[`${stage}_ms`] > 0, stage);
  for (const name of ['ms', 'in', 'out']) assert.ok(request[name] > 0 && typeof request[name] === 'number', name);
  assert.ok(Object.entries(request).filter(([name]) => name.endsWith('_ms')).reduce((sum, [, ms]) => sum + ms, 0) <= request.ms * 2);
  assert.ok(job.ms > 0 && job.faces === 2 && job.state === 'done' && job.decode_ms > 0 && job.encode_ms > 0);
});

test('SIGHUP changes the form', async (context) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-logs-')), conf = path.join(folder, 'c');
  fs.writeFileSync(conf, 'log_format = json\n');
  const server = await start({ args: ['--config', conf] });
  context.after(async () => { await server.stop(); fs.rmSync(folder, { recursive: true }); });
  fs.writeFileSync(conf, 'log_format = text\n');
  server.process.kill('SIGHUP');
  await until('text', () => /Z info reloaded changed=1 models=\d+ /.test(server.log()));
  fs.writeFileSync(conf, 'log_format = json\n');
  server.process.kill('SIGHUP');
  await until('JSON', () => lines(server).filter((one) => one.startsWith('{') && JSON.parse(one).event === 'reloaded').length === 1);
});

// What log_event cannot check: a format of other than pairs would put words into the value before them.
test('every event of the sources is key=value pairs, and no key stands twice', () => {
  const files = (folder) => fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(folder, entry.name);
    return entry.isDirectory() ? files(name) : name.endsWith('.c') ? [name] : [];
  });
  let count = 0;
  for (const file of ['server', 'runtime'].flatMap((name) => files(path.join(root, name))))
    for (const [, , texts] of fs.readFileSync(file, 'utf8').matchAll(/\blog_(?:event\([^;"]*?(?:"[^"]+" : )?"([^"]+)",|add\(&?\w+,)\s*((?:"(?:[^"\\]|\\.)*"\s*)+)/g)) {
      const format = [...texts.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, text]) => text).join('').replaceAll('\\"', '"');
      assert.match(format, /^[\w%]+=("[^"]*"|[^\s"]*)( [\w%]+=("[^"]*"|[^\s"]*))*$/, file);
      const keys = [...format.replaceAll(/"[^"]*"/g, '').matchAll(/(\S+)=/g)].map(([, key]) => key);
      assert.equal(new Set([...keys, 'time', 'level', 'event']).size, keys.length + 3, `${file}: ${format}`);
      count++;
    }
  assert.ok(count > 60, `${count} events`);
});
