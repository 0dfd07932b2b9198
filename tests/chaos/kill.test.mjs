// kill -9 at random moments under load: no accepted job is lost, no result is another, nothing is left behind.
import { test } from 'node:test';
import { sleep, until } from '../api/client.mjs';
import { Place, long, pictures, random } from './chaos.mjs';

const kills = long ? 20 : 5, clients = 8;

test(`${kills} times kill -9 under the load of ${clients} clients`, { timeout: 600000 }, async (context) => {
  const seed = Number(process.env.CHAOS_SEED ?? Date.now() % 1e9), next = random(seed);
  context.diagnostic(`CHAOS_SEED=${seed}`);
  const place = new Place();
  context.after(() => place.remove());
  await place.start();
  await place.learn(pictures());
  let going = true;
  const loops = Array.from({ length: clients }, async (_, client) => {
    for (let i = 0; going; i++)
      if (next() < 0.3) await place.wait();
      else await place.submit(Math.floor(next() * place.pictures.length), `${client}-${i}`);
  });
  for (let i = 0; i < kills; i++) {
    const done = await place.done();
    await sleep(200 + 600 * next());
    // A job that was in work at three kills is not tried again; those that were come first. So each server ends some.
    await until('some jobs are done', async () => await place.done() >= done + 4);
    await place.kill();
    await place.start();
  }
  going = false;
  await Promise.all(loops);
  context.diagnostic(`accepted: ${place.accepted.size}`);
  await place.check();
  await place.stop();
});
