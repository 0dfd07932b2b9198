// Tokens: who is let in, what each may send, how the file is read again, and what the log says of it.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fixture, logged, plain, png, post, raw, start, until } from './client.mjs';
import { faulty } from './server.mjs';

const anna = 'anna-0123456789abcdef', bert = 'bert-0123456789abcdef', ops = 'ops-0123456789abcdefg', lone = 'lone-0123456789abcdef', seldom = 'seldom-0123456789abcdef';
const bearer = (token) => ({ authorization: `Bearer ${token}` });
let folder, file;
const write = (text, mode = 0o640) => { fs.writeFileSync(file, text); fs.chmodSync(file, mode); };
before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-auth-'));
  file = path.join(folder, 'tokens');
});
after(() => fs.rmSync(folder, { recursive: true, force: true }));

describe('a server with tokens', () => {
  let server, admin;
  const ask = (route, token, options = {}) => fetch(server.url + route, { ...options, headers: { ...options.headers, ...(token ? bearer(token) : {}) } });
  async function reload() {
    const from = server.log().length;
    server.process.kill('SIGHUP');
    await until('reloaded', () => /info reloaded |error reloaded-partly /.test(server.log().slice(from)));
    return server.log().slice(from);
  }

  before(async () => {
    write(`# tokens of this test\nanna ${anna}\nbert ${bert} megapixels=0.1\nseldom ${seldom} megapixels=0.00001\nops ${ops} admin\n${lone}\n`);
    server = await start({ args: ['--auth_token_file', file, '--listen', '0.0.0.0:0', '--metrics_listen', '127.0.0.1:0', '--log_level', 'debug'] });
    server.url = `http://127.0.0.1:${server.port}`;
    admin = (await logged(server, /info admin url=(\S+)/))[1];
  });
  after(() => server.stop());

  test('the page and the probes need none, everything else does', async () => {
    for (const route of ['/', '/js/main.js', '/style.css', '/healthz', '/readyz', '/health-check'])
      assert.equal((await ask(route)).status, 200, route);
    for (const route of ['/v1/devices', '/v1/models', '/v1/capabilities', '/metrics', '/nothing']) {
      const none = await ask(route);
      assert.equal(none.status, 401, route);
      assert.equal(none.headers.get('www-authenticate'), 'Bearer realm="restored"');
      assert.equal((await none.json()).code, 'unauthorized');
      const wrong = await ask(route, `${anna}x`);
      assert.equal(wrong.status, 401, route);
      assert.equal(wrong.headers.get('www-authenticate'), 'Bearer realm="restored", error="invalid_token"');
      await wrong.text();
      assert.equal((await ask(route, anna)).status, route === '/nothing' ? 404 : 200, route);
    }
    for (const headers of [{ authorization: anna }, { authorization: `Basic ${btoa(`anna:${anna}`)}` }, { authorization: 'Bearer' }])
      assert.equal((await fetch(`${server.url}/v1/devices`, { headers })).status, 401, JSON.stringify(headers));
    assert.equal((await fetch(`${server.url}/v1/devices`, { headers: { authorization: `bearer ${lone}` } })).status, 200, 'a scheme in lower case');
    assert.equal((await ask(`/v1/devices?token=${anna}&access_token=${anna}`)).status, 401, 'never from an address');
  });

  test('a picture without a token is refused before it is sent', async () => {
    const answer = await raw(server, `POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n`, 20000);
    assert.match(answer, /^HTTP\/1\.1 401 /);
  });

  test('the address for operators asks for none', async () => {
    assert.equal((await fetch(`${admin}/metrics`)).status, 200);
    assert.equal((await fetch(`${admin}/v1/devices`)).status, 200);
  });

  test('whose request and whose job it was stands in the log, the token does not', async () => {
    const answer = await post(server, '/v1/restore', { picture: fixture('none.png'), fields: plain, headers: { ...bearer(anna), 'x-request-id': 'hers' } });
    assert.equal(answer.status, 200);
    await logged(server, /info request id=hers client=127\.0\.0\.1 token=anna method=POST /);
    await logged(server, /info job id=\w+ token=anna state=done /);
    await (await ask('/v1/devices', lone)).text();
    await logged(server, /info request id=\w+ client=127\.0\.0\.1 token=token1 method=GET path=\/v1\/devices /);
    for (const token of [anna, bert, ops, lone]) assert.ok(!server.log().includes(token));
    assert.doesNotMatch(server.log(), /OPEN-TO-THE-NETWORK/);
  });

  test('megapixels a minute: a picture may overdraw them, the next one waits', async () => {
    const send = (token) => post(server, '/v1/restore', { picture: png(500, 400), fields: plain, headers: bearer(token) });
    assert.equal((await send(bert)).status, 200, 'twice what it may have in a minute, from a full minute');
    const wait = await send(bert);
    assert.equal(wait.status, 429);
    assert.equal(wait.json.code, 'rate-limited');
    assert.match(wait.json.detail, /^The token "bert" may send 0\.1 megapixels a minute/);
    assert.ok(Number(wait.headers.get('retry-after')) > 30 && Number(wait.headers.get('retry-after')) <= 60, wait.headers.get('retry-after'));
    const early = await raw(server, `POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${bert}\r\nContent-Length: 5000000\r\n\r\n`, 20000);
    assert.match(early, /^HTTP\/1\.1 429 /, 'before the body');
    assert.equal((await send(anna)).status, 200, 'nobody else waits');
    assert.equal((await post(server, '/v1/estimate', { fields: { width: 100, height: 100 }, headers: bearer(bert) })).status, 200);
    assert.equal((await send(seldom)).status, 200);
    assert.equal((await send(seldom)).headers.get('retry-after'), '86400', 'two weeks; nobody is told more than a day');
    const counted = await fetch(`${admin}/metrics`).then((r) => r.text());
    assert.match(counted, /restored_rejected_total\{reason="rate_limited"\} 3\n/);
    assert.match(counted, /restored_rejected_total\{reason="token"\} [1-9]/);
  });

  test('SIGHUP reads the file again; one that is wrong changes nothing', async () => {
    const old = fs.readFileSync(file, 'utf8'), fresh = 'anna-fedcba9876543210';
    write(`${old}anna ${fresh}\n`);
    assert.match(await reload(), /reloaded .*tokens=6/);
    for (const token of [anna, fresh]) assert.equal((await ask('/v1/devices', token)).status, 200, 'both, while it is rotated');
    write(old.replace(anna, fresh));
    await reload();
    assert.equal((await ask('/v1/devices', anna)).status, 401);
    assert.equal((await ask('/v1/devices', fresh)).status, 200);
    for (const [text, mode, says] of [['short\n', 0o600, /tokens:1: the token has 5 characters/], ['', 0o600, /there is no token in it/], [`x ${anna}\n`, 0o644, /everybody on this machine may open/]]) {
      write(text, mode);
      const log = await reload();
      assert.match(log, says);
      assert.match(log, /error reload .* result="the old tokens stay"\n(.*\n)*.*error reloaded-partly changed=0 models=\d+ tokens=5 kept="the old tokens" /);
      assert.doesNotMatch(log, /info reloaded/, 'it does not read like a success');
      assert.equal((await ask('/v1/devices', fresh)).status, 200);
      assert.equal((await ask('/v1/devices', anna)).status, 401);
    }
    write(old);
    await reload();
  });

  test('who listens to events listens no longer than his token is there, and is what it was', { timeout: 300000 }, async () => {
    const old = fs.readFileSync(file, 'utf8'), leaver = 'leaver-0123456789abcdef';
    write(`${old}leaver ${leaver} admin\n`);
    await reload();
    const listen = async (token) => {
      const answer = await ask('/v1/events', token), reader = answer.body.getReader();
      assert.equal(answer.status, 200);
      await reader.read(); // it has begun, and waits
      return reader;
    };
    const [going, anna2, ops2] = [await listen(leaver), await listen(anna), await listen(ops)];
    const open = new Set();
    const rest = async (reader) => { open.add(reader); while (!(await reader.read()).done); open.delete(reader); };
    const ended = rest(going), demoted = rest(ops2), stays = rest(anna2);
    write(old.replace(`ops ${ops} admin`, `ops ${ops}`));
    await reload();
    await ended; // or this test runs out of time
    await demoted;
    assert.deepEqual([...open], [anna2]);
    await anna2.cancel();
    await stays;
    write(old);
    await reload();
  });
});

test('a request that is repeated by its Idempotency-Key costs nothing, and no limit refuses it', async (t) => {
  // anna's second picture would be more than she may send, bert's first one is, and nothing is done, so that all wait
  const picture = fixture('picture.png'), megapixels = picture.readUInt32BE(16) * picture.readUInt32BE(20) / 1e6;
  write(`anna ${anna} jobs=1 megapixels=${(1.5 * megapixels).toFixed(6)}\nbert ${bert} megapixels=${(0.5 * megapixels).toFixed(6)}\n`);
  const server = await start({ program: faulty, args: ['--auth_token_file', file, '--device', 'cpu', '--async_queue', '1', '--drain_seconds', '0'], env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=detector' }, context: t });
  const send = (token, key, more = {}) => post(server, '/v1/restore', { picture, fields: { async: 'true', ...more }, headers: { ...bearer(token), ...(key && { 'idempotency-key': key }) } });
  const first = await send(anna, 'one');
  assert.equal(first.status, 202);
  await until('it is at work', async () => /"busy"/.test(await (await fetch(`${server.url}/v1/devices`, { headers: bearer(bert) })).text())); // and waits no longer
  for (let i = 0; i < 4; i++) {
    const again = await send(anna, 'one');
    assert.equal(again.status, 202, JSON.stringify(again.json));
    assert.equal(again.json.id, first.json.id);
  }
  assert.equal((await send(anna, 'one', { upscale: '3' })).status, 422);
  assert.equal((await send(bert, 'mine')).status, 202);
  assert.equal((await send(bert, 'mine')).status, 202, 'though it has sent what it may');
  assert.equal((await send(bert, 'yours')).json.code, 'rate-limited');
});

test('jobs that wait: only so many of one token', async (t) => {
  write(`anna ${anna} jobs=2\nbert ${bert}\n`);
  const server = await start({ program: faulty, args: ['--auth_token_file', file, '--device', 'cpu'], env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=detector' }, context: t });
  const stop = new AbortController(), jobs = [];
  const send = (token) => jobs.push(post(server, '/v1/restore', { picture: fixture('picture.png'), headers: bearer(token), signal: stop.signal }).catch(() => {}));
  const told = (route) => fetch(server.url + route, { headers: bearer(bert) }).then((r) => r.text());
  const wait = (count) => until(`${count} wait`, async () => (await told('/metrics')).includes(`restored_queue_depth ${count}\n`));
  send(anna);
  await until('one is at work', async () => /"busy"/.test(await told('/v1/devices')));
  send(anna);
  send(anna);
  await wait(2);
  const refused = await post(server, '/v1/restore', { picture: fixture('picture.png'), headers: bearer(anna) });
  assert.equal(refused.status, 429);
  assert.equal(refused.json.code, 'too-many-jobs');
  assert.match(refused.json.detail, /^The token "anna" may have 2 jobs wait at once/);
  assert.ok(Number(refused.headers.get('retry-after')) >= 1);
  send(bert); // is not kept out
  await wait(3);
  stop.abort();
  await Promise.all(jobs);
});

test('jobs that are not waited for belong to their token', async (t) => {
  write(`anna ${anna} megapixels=0.5\nbert ${bert} jobs=1\nops ${ops} admin\n`);
  const state = path.join(folder, 'state');
  const server = await start({ args: ['--auth_token_file', file, '--device', 'cpu', '--state_dir', state], context: t });
  const ask = (token, method, route) => fetch(server.url + route, { method, headers: bearer(token) });
  const send = (token, key, fields = {}) => post(server, '/v1/restore', { picture: png(200, 150), fields: { ...plain, async: 'true', batch: 'album', ...fields }, headers: { ...bearer(token), 'idempotency-key': key } });
  const stop = new AbortController();
  let heard = '';
  const listening = await fetch(`${server.url}/v1/events`, { headers: bearer(bert), signal: stop.signal });
  assert.equal(listening.status, 200);
  (async () => { for await (const part of listening.body) heard += Buffer.from(part); })().catch(() => {});
  const sent = await send(anna, 'first');
  assert.equal(sent.status, 202, sent.bytes.toString());
  const { id } = sent.json;
  await until('it is done', async () => (await (await ask(anna, 'GET', `/v1/jobs/${id}`)).json()).state === 'done');
  await logged(server, new RegExp(`info job id=${id} token=anna `));

  for (const route of [`/v1/jobs/${id}`, `/v1/jobs/${id}/result`, `/v1/jobs/${id}/faces/0`, `/v1/jobs/${id}/events`, '/v1/batches/album', '/v1/batches/album/results.zip']) {
    const other = await ask(bert, 'GET', route);
    assert.equal(other.status, 404, `${route} of another`);
    await other.text();
  }
  assert.equal((await ask(bert, 'DELETE', `/v1/jobs/${id}`)).status, 404);
  const behind = async (job) => (await (await ask(bert, 'GET', `/v1/jobs?after=${job}`)).json()).detail.replace(job, 'ID');
  assert.equal(await behind(id), await behind('0'.repeat(32)), 'a list does not tell whether there is such a job');
  assert.equal((await ask(bert, 'DELETE', '/v1/batches/album')).status, 404);
  const list = async (token) => (await (await ask(token, 'GET', '/v1/jobs')).json()).jobs.map((job) => job.id);
  assert.deepEqual([await list(anna), await list(bert), await list(ops)], [[id], [], [id]]);
  for (const who of [anna, ops]) {
    assert.equal((await (await ask(who, 'GET', `/v1/jobs/${id}`)).json()).token, 'anna');
    assert.equal((await (await ask(who, 'GET', '/v1/jobs')).json()).jobs[0].token, 'anna');
  }
  assert.equal((await ask(ops, 'GET', `/v1/jobs/${id}/result`)).status, 200, 'an admin');
  assert.equal((await send(anna, 'first')).json.id, id, 'the same key, the same job');
  const theirs = await send(bert, 'first');
  assert.equal(theirs.status, 202, 'the same key of another token is another one');
  assert.notEqual(theirs.json.id, id);
  await until('the event of their own job', () => heard.includes(theirs.json.id) && /event: done/.test(heard));
  assert.ok(!heard.includes(id), 'and of no other');
  stop.abort();

  const answers = [];
  for (let i = 0; i < 30 && answers.at(-1) !== 429; i++) answers.push((await send(anna, `more ${i}`)).status);
  assert.equal(answers.at(-1), 429, `megapixels count for jobs, too: ${answers}`);
  assert.ok(answers.length > 10);
  assert.equal((await ask(ops, 'DELETE', `/v1/jobs/${id}`)).status, 204, 'an admin may forget the jobs of all');
  assert.deepEqual((await list(anna)).includes(id), false);
});

test('what is no file of tokens stops the start, with file and line', async () => {
  for (const [text, mode, says] of [['anna short\n', 0o600, /tokens:1: the token has 5 characters; 16 to 256 are allowed/], [`anna ${anna}\nanna ${bert} admin\n`, 0o600, /tokens:2: this name has other rights or limits in line 1/],
    [`${anna}\n`, 0o604, /everybody on this machine may open .*chmod o= /]]) {
    write(text, mode);
    await assert.rejects(start({ args: ['--auth_token_file', file], ready: false }), says);
  }
  await assert.rejects(start({ args: ['--auth_token_file', path.join(folder, 'none')], ready: false }), /none: No such file/);
});

test('without tokens a server that listens elsewhere says loudly that it is open', async (t) => {
  const server = await start({ args: ['--listen', '0.0.0.0:0'], ready: false, context: t });
  assert.match(server.log(), /warn OPEN-TO-THE-NETWORK .*auth_token_file/);
});
