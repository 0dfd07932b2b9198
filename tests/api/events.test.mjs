// Server-Sent Events: what a job tells, how a listener goes on after a break, who sees what, and many listeners at once.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { get, png, post, sleep, start, until } from './client.mjs';
import { faulty } from './server.mjs';

const fields = { version: 'none', ext: 'jpg', bg_tile: '64', device: 'cpu', async: 'true' };
const picture = png(320, 240), big = png(1600, 1200);
// Large tiles take half a second more each, however fast the machine is; one of 64 px is 128 px with what lies around it.
const slowly = { program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat,plan=upscaler,over=20000' } }, slow = { bg_tile: '128' };
const submit = async (server, options = {}) => {
  const { status, json } = await post(server, '/v1/restore', { picture: options.picture ?? picture, fields: { ...fields, ...options.fields }, headers: options.headers });
  assert.equal(status, 202);
  return json.id;
};
const cancel = (server, id) => fetch(`${server.url}/v1/jobs/${id}`, { method: 'DELETE' });

// An open stream: its events so far as {id, name, data}, and its comments.
function listen(server, path, headers = {}) {
  const stream = { events: [], comments: 0, abort: new AbortController() };
  stream.over = (async () => {
    const response = await fetch(server.url + path, { headers, signal: stream.abort.signal });
    stream.response = response;
    let text = '';
    for await (const bytes of response.body) {
      text += Buffer.from(bytes).toString();
      for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
        const lines = text.slice(0, end).split('\n'), value = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
        stream.comments += lines.some((line) => line === ':');
        if (value('event')) stream.events.push({ id: value('id'), name: value('event'), data: JSON.parse(value('data')) });
      }
    }
  })();
  stream.over.catch(() => {});
  return stream;
}
const number = ({ id }) => Number(id.split('-')[1]);
const names = ({ events }) => events.map(({ name }) => name);

describe('one server', () => {
  let server;
  before(async () => { server = await start(slowly); });
  after(() => server.stop());

  test('from the queue to the end: each tile, growing progress, and the links', { timeout: 600000 }, async () => {
    const blocker = await submit(server, { fields: slow }), id = await submit(server); // which waits for the other one
    const stream = listen(server, `/v1/jobs/${id}/events`);
    await stream.over;
    const { response, events } = stream;
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('content-type'), 'text/event-stream');
    assert.equal(response.headers.get('cache-control'), 'no-store');
    assert.equal(response.headers.get('x-accel-buffering'), 'no');
    assert.ok(names(stream).indexOf('started') > 0, `${names(stream)}`);
    assert.equal(names(stream).at(-1), 'done');
    const running = events.filter(({ name, data }) => name === 'progress' && data.state === 'running');
    const tiles = [...new Set(running.map(({ data }) => data.tiles_done))], total = running.at(-1).data.tiles_total;
    assert.ok(total > 10);
    assert.deepEqual(tiles.filter((n) => n > 0), Array.from({ length: total }, (_, i) => i + 1));
    const told = events.filter((event) => event.id);
    for (let i = 1; i < told.length; i++) {
      assert.ok(number(told[i]) > number(told[i - 1]));
      assert.ok(told[i].data.progress >= told[i - 1].data.progress);
      assert.equal(told[i].data.id, id);
    }
    const { data } = events.at(-1);
    assert.equal(data.state, 'done');
    assert.equal(data.progress, 1);
    assert.deepEqual([data.tiles_done, data.tiles_total, data.faces_done, data.faces_total], [total, total, 0, 0]);
    assert.equal(data.links.self, `/v1/jobs/${id}`);
    assert.equal((await fetch(server.url + data.links.result)).status, 200);
    assert.deepEqual(data, (await get(server, `/v1/jobs/${id}`)).json);
    const late = listen(server, `/v1/jobs/${id}/events`);
    await late.over;
    assert.deepEqual(names(late), ['done'], 'who comes late is told the end at once');
    assert.equal((await get(server, `/v1/jobs/${blocker}`)).json.state, 'done');
  });

  test('one that connects again misses nothing, and gets nothing twice', { timeout: 600000 }, async () => {
    const all = listen(server, '/v1/events');
    await until('the answer', () => all.response);
    const id = await submit(server);
    const whole = () => all.events.filter(({ data }) => data.id === id);
    await until('the end', () => whole().at(-1)?.name === 'done');
    const ids = whole().map(({ id: at }) => at);
    assert.equal(whole()[0].name, 'queued');
    assert.ok(ids.length > 12);
    for (const [from, headers, query] of [[0, { 'last-event-id': ids[0] }, ''], [9, {}, `?last_event_id=${ids[9]}`]]) {
      const stream = listen(server, `/v1/jobs/${id}/events${query}`, headers);
      await stream.over;
      assert.deepEqual(stream.events.map(({ id: at }) => at), ids.slice(from + 1));
    }
    for (const last of ['0123456789ab-3', `${ids[0].split('-')[0]}-99999999`, 'x', `${ids[0]}x`]) { // of another start, or of none
      const stream = listen(server, `/v1/jobs/${id}/events`, { 'last-event-id': last });
      await stream.over;
      assert.deepEqual(names(stream), ['done'], last);
      const newest = listen(server, '/v1/events', { 'last-event-id': last });
      await until('the newest jobs', () => newest.events.some(({ name, data }) => name === 'done' && data.id === id));
      newest.abort.abort();
    }
    all.abort.abort();
  });

  test('cancelled, at work or waiting; places move up', { timeout: 600000 }, async () => {
    const jobs = [];
    jobs.push(await submit(server, { picture: big, fields: slow }));
    const first = listen(server, `/v1/jobs/${jobs[0]}/events`);
    await until('a job at work', () => names(first).includes('progress'));
    for (let i = 1; i < 9; i++) jobs.push(await submit(server, { picture: big, fields: slow }));
    const waiting = listen(server, `/v1/jobs/${jobs[7]}/events`), last = listen(server, `/v1/jobs/${jobs[8]}/events`);
    await until('a place', () => last.events.length);
    const place = last.events[0].data.position;
    assert.equal(last.events[0].name, 'queued');
    assert.ok(place > 0 && last.events[0].data.eta_seconds > 0, JSON.stringify(last.events[0].data));
    await cancel(server, jobs[7]);
    await waiting.over;
    assert.equal(names(waiting).at(-1), 'cancelled');
    await until('a better place', () => last.events.at(-1).data.position < place);
    for (const id of jobs.reverse()) await cancel(server, id);
    await Promise.all([first.over, last.over]);
    assert.equal(names(first).at(-1), 'cancelled');
    assert.equal(names(last).at(-1), 'cancelled');
    assert.equal(first.events.at(-1).data.error, null);
  });

  test('HEAD, and jobs that are not there', async () => {
    const head = await fetch(`${server.url}/v1/events`, { method: 'HEAD' });
    assert.equal(head.status, 200);
    assert.equal(head.headers.get('content-type'), 'text/event-stream');
    assert.equal((await fetch(`${server.url}/v1/jobs/${'0'.repeat(32)}/events`)).status, 404);
  });

  test('a comment when there is nothing else', { timeout: 600000, skip: !process.env.RESTORED_FULL && 'in the long form' }, async () => {
    const stream = listen(server, '/v1/events');
    await until('the first', () => stream.comments === 1);
    await sleep(31000);
    stream.abort.abort();
    assert.equal(stream.comments, 3);
    assert.equal(stream.events.length, 0);
  });
});

test('with tokens a client sees its own jobs alone, an admin all', { timeout: 600000 }, async (context) => {
  const folder = fs.mkdtempSync(join(tmpdir(), 'restored-events-'));
  context.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const tokens = { ann: 'ann-0123456789abcdef', bob: 'bob-0123456789abcdef', ops: 'ops-0123456789abcdef' };
  fs.writeFileSync(join(folder, 'tokens'), `ann ${tokens.ann}\nbob ${tokens.bob}\nops ${tokens.ops} admin\n`, { mode: 0o600 });
  const server = await start({ context, args: ['--auth_token_file', join(folder, 'tokens')] });
  const as = (name) => ({ authorization: `Bearer ${tokens[name]}` });
  const [ann, bob, ops] = ['ann', 'bob', 'ops'].map((name) => listen(server, '/v1/events', as(name)));
  await until('three listeners', () => ann.response && bob.response && ops.response);
  const hers = await submit(server, { headers: as('ann') }), his = await submit(server, { headers: as('bob') });
  await until('both ends', () => ops.events.filter(({ name }) => name === 'done').length === 2);
  await until('hers', () => names(ann).includes('done'));
  await until('his', () => names(bob).includes('done'));
  assert.ok(ann.events.every(({ data }) => data.id === hers));
  assert.ok(bob.events.every(({ data }) => data.id === his));
  assert.equal((await fetch(`${server.url}/v1/jobs/${his}/events`, { headers: as('ann') })).status, 404);
  assert.equal((await fetch(`${server.url}/v1/events`)).status, 401);
  await server.stop(); // with three open streams
  for (const stream of [ann, bob, ops]) await stream.over;
});

test('a client that does not read is closed, one that reads is not', { timeout: 600000, skip: !process.env.RESTORED_FULL && 'in the long form' }, async (context) => {
  const server = await start({ context, args: ['--idle_seconds', '2'] });
  const stuck = net.connect(server.port, '127.0.0.1', () => stuck.write('GET /v1/events HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: stuck\r\n\r\n'));
  context.after(() => stuck.destroy());
  stuck.on('error', () => {}).pause();
  const good = listen(server, '/v1/events', { 'x-request-id': 'good' });
  await until('the answer', () => good.response);
  const over = (id) => new RegExp(`request id=${id} `).test(server.log());
  while (!over('stuck')) { // until the buffers between them are full, and for idle_seconds more
    const id = await submit(server, { picture: png(640, 480), fields: { bg_tile: '32' } });
    await until('the end', () => good.events.at(-1)?.name === 'done' && good.events.at(-1).data.id === id);
  }
  assert.ok(!over('good'));
  good.abort.abort();
  await server.stop();
});

test('500 listeners take no thread each, and all hear the end', { timeout: 600000 }, async (context) => {
  const server = await start({ context, args: ['--connections', '700'] });
  const threads = () => fs.readdirSync(`/proc/${server.process.pid}/task`).length;
  const first = await submit(server); // what it starts and keeps is not the listeners'
  await until('a picture is done', async () => (await get(server, `/v1/jobs/${first}`)).json.state === 'done');
  const before = threads();
  let answered = 0, ended = 0;
  const open = (path) => {
    const socket = net.connect(server.port, '127.0.0.1', () => socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`));
    let tail = '';
    socket.once('data', () => { answered++; });
    socket.on('data', (data) => {
      const text = tail + data.toString('latin1');
      if (/event: done/.test(text) && !socket.told) { socket.told = true; ended++; }
      tail = text.slice(-20);
    });
    return socket;
  };
  const sockets = Array.from({ length: 250 }, () => open('/v1/events'));
  await until('all listen', () => answered === 250); // who comes after the end of a job does not hear of it there
  const id = await submit(server, { picture: png(640, 480) });
  for (let i = 0; i < 250; i++) sockets.push(open(`/v1/jobs/${id}/events`));
  await until('all ends', () => ended === 500);
  assert.ok(threads() <= before + 2, `${threads()}, ${before} before`); // one of the decoder's or encoder's may be ending
  assert.equal((await get(server, '/healthz')).status, 200);
  for (const socket of sockets) socket.destroy();
  const left = () => fs.readdirSync(`/proc/${server.process.pid}/fd`).filter((fd) => {
    try { return fs.readlinkSync(`/proc/${server.process.pid}/fd/${fd}`).startsWith('socket:'); } catch { return false; }
  }).length;
  await until('closed connections', () => left() < 20);
  await server.stop();
});
