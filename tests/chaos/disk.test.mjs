// Each call that changes the disk fails once, or is the last one before the process dies.
import assert from 'node:assert/strict';
import net from 'node:net';
import { test } from 'node:test';
import { fixture, plain, post, sleep, until } from '../api/client.mjs';
import { Place, faults, long, pictures } from './chaos.mjs';

const EIO = 5, ENOSPC = 28;

// Some jobs, of which one is forgotten; requests that fail are repeated.
async function work(place, name, going) {
  const ids = await Promise.all([0, 1].map((i) => place.submit(i, `${name}-${i}`, going)));
  if (!ids[0] || !place.url) return;
  await sleep(30);
  const gone = await fetch(`${place.url}/v1/jobs/${ids[0]}`, { method: 'DELETE' }).catch(() => null);
  if (!gone || gone.status < 500) place.accepted.delete(ids[0]); // cancelled, forgotten, or perhaps so
}

for (const [word, errno, count] of [['EIO', EIO, 1], ['a full disk', ENOSPC, 1], ['a full disk for a while', ENOSPC, 40]])
  test(`${word} at each call in turn: nothing that was accepted is lost, and the server goes on`, { timeout: 600000 }, async (context) => {
    const place = new Place(), fault = faults(place.folder);
    context.after(() => place.remove());
    place.env = fault.env;
    await place.start();
    await place.learn(pictures());
    fault.arm(0, 0, 0);
    await work(place, 'first');
    const calls = fault.calls();
    assert.ok(calls > 10, `${calls} calls`);
    let failed = 0;
    for (let at = 1; at <= calls; at += long ? 1 : 5) {
      fault.arm(at, count, errno);
      await work(place, `${errno}-${at}`);
      await sleep(20);
      failed += fault.failed() > 0;
      fault.arm(0, 0, 0);
    }
    context.diagnostic(`${calls} calls, ${failed} runs with faults`);
    assert.ok(failed > 3);
    await place.check();
    await place.stop();
  });

test('killed at each call in turn', { timeout: 900000 }, async (context) => {
  const place = new Place(), fault = faults(place.folder);
  context.after(() => place.remove());
  place.env = fault.env;
  await place.start();
  await place.learn(pictures());
  let kills = 0;
  for (let at = 1; at <= (long ? 120 : 90); at += long ? 1 : 11) {
    fault.arm(at, 1, 0);
    let going = true;
    const dead = place.dead().then(() => { going = false; kills++; });
    await Promise.race([work(place, `k-${at}`, () => going), dead]);
    await Promise.race([sleep(300), dead]);
    fault.arm(0, 0, 0);
    if (going) await place.kill();
    await place.start();
    await place.settle(); // else the same job might be at work in three kills
  }
  context.diagnostic(`${kills} kills`);
  await place.check();
  await place.stop();
});

test('a request that waits for the disk is not taken for the idle connection that makes room for others', async (context) => {
  const place = new Place(undefined, ['--connections', '4']), fault = faults(place.folder), sockets = [];
  context.after(async () => {
    fault.hold(false);
    for (const socket of sockets) socket.destroy();
    await place.stop();
    place.remove();
  });
  place.env = fault.env;
  await place.start();
  fault.hold(true);
  const answer = post(place, '/v1/restore', { picture: fixture('none.png'), fields: { ...plain, async: 'true' } });
  answer.catch(() => {}); // looked at below
  await until('the keeper waits', () => fault.held() > 0);
  let cut = 0;
  for (let i = 0; i < 8; i++) {
    const socket = net.connect(Number(new URL(place.url).port), '127.0.0.1');
    sockets.push(socket);
    socket.on('close', () => cut++).on('error', () => {});
    await new Promise((done) => socket.once('connect', done));
    socket.write('GET /healthz HTTP/1.1\r\n');
  }
  await until('others are cut', () => cut >= 4);
  fault.hold(false);
  assert.equal((await answer).status, 202);
});
