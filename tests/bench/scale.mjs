// Jobs a second with several workers of one cluster: all of them start and warm up first, then the most are measured, and fewer after some
// were told to stop. bench_cluster.mjs has the settings.
import { execFile, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import { join, parse } from 'node:path';
import { metrics, png, sleep } from '../api/client.mjs';
import { binary, faulty, fixtureModels, fixtures } from '../api/server.mjs';
import { Cluster } from '../chaos/cluster.mjs';
import { busy, coresHere, databaseSeconds, divide, pin, postmaster, seconds } from './cores.mjs';

const env = process.env, held = env.BENCH_HELD === '1', upscaler = env.BENCH_UPSCALER, size = (env.BENCH_SIZE || (upscaler ? '512x384' : '480x360')).split('x').map(Number);
const windowSeconds = Number(env.BENCH_SECONDS || 15), each = Number(env.BENCH_CORES || 1), atOnce = 16; // requests of the client at a time
const load = () => os.loadavg()[0].toFixed(1);

// The fixtures' networks, and this upscaler as the default one, in a folder of their own.
function modelsWith(file) {
  const folder = fs.mkdtempSync(join(os.tmpdir(), 'restored-models-')), { base, name } = parse(file);
  process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
  fs.cpSync(fixtures, folder, { recursive: true });
  fs.copyFileSync(file, join(folder, base));
  return [...fixtureModels, '--models', folder, '--default_bg_upsampler', name];
}

// A cluster for what BENCH_* say: GPUs, sleeping workers, or cores.
function clusterOf(workers, own) {
  const threads = ['--cpu_threads', String(each)], kind = { own: () => ['--device', 'cpu', ...threads] };
  if (upscaler) Object.assign(kind, { models: modelsWith(upscaler), own: (i) => ['--device', `vulkan:${i}`, ...threads, ...(env.BENCH_CACHE ? ['--cache_dir', join(env.BENCH_CACHE, String(i))] : [])] });
  if (held) Object.assign(kind, { program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat,plan=upscaler' } }); // four tiles
  const fields = { version: 'none', repair: 'false', ext: 'jpg', ...(!upscaler && { bg_tile: held ? '64' : '128' }) };
  const more = { RESTORED_ASYNC_QUEUE: '1000000', RESTORED_SPOOL_MAX_BYTES: '1000GiB' };
  return new Cluster({
    seed: 1, fronts: Number(env.BENCH_FRONTS || 1), workers, direct: true, known: false, cpus: held ? [] : own,
    pictures: [{ picture: held ? png(120, 120) : png(...size), fields }], payload: env.BENCH_PAYLOAD || 'auto', ...kind, env: { ...kind.env, ...more },
  });
}

// One connection for all that is asked of the database while it is measured: each new one would cost it 20 ms of a processor.
function connect(url) {
  const child = spawn('psql', ['-X', '-A', '-t', '-q', '-v', 'ON_ERROR_STOP=1', '-d', url], { stdio: ['pipe', 'pipe', 'inherit'] }), waiting = [];
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (data) => {
    text += data;
    for (let end; (end = text.indexOf('END\n')) >= 0; text = text.slice(end + 4)) waiting.shift()(text.slice(0, end).trim());
  });
  child.on('exit', () => waiting.splice(0).forEach((answer) => answer(Promise.reject(new Error('psql has ended')))));
  return {
    sql: (statement) => new Promise((answer) => { waiting.push(answer); child.stdin.write(`${statement};\n\\echo END\n`); }),
    close: () => child.stdin.end(),
  };
}

// What is asked of the database, and what runs there.
function watch({ sql }) {
  const number = async (text) => Number(await sql(text));
  return {
    sql,
    waiting: () => number('SELECT count(*) FROM jobs WHERE state = 0'),
    ended: () => number('SELECT count(*) FROM jobs WHERE state = 2'),
    clock: () => number('SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint'),
    waits: () => sql(`SELECT coalesce(wait_event_type || ' ' || wait_event, 'computes') FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()`),
  };
}

// What those who are there and the system have counted until now.
async function counted(cluster) {
  const there = cluster.of('worker').filter(({ url }) => url), all = await Promise.all(there.map(metrics)), sums = {};
  for (const [name, value] of all.flatMap((one) => [...one])) {
    const [, stage] = /^restored_stage_duration_seconds_sum\{stage="(\w+)"\}/.exec(name) ?? [];
    if (stage) sums[stage] = (sums[stage] ?? 0) + value;
    else if (name.startsWith('restored_device_busy_seconds_total')) sums.device = (sums.device ?? 0) + value;
  }
  const processors = (list) => list.reduce((sum, server) => sum + seconds(server.child.process.pid), 0), client = process.cpuUsage();
  return {
    ...sums, "workers' processors": processors(there), "front ends' processors": processors(cluster.of('front')),
    "database's processors": databaseSeconds(postmaster(cluster.database.dir)), "client's processor": (client.user + client.system) / 1e6,
  };
}

// Jobs a second of as many processes that restore the same picture by themselves, each on the processors of a worker: what the machine
// itself gives. The workers stand still meanwhile.
async function without(cluster, cpus) {
  const file = join(cluster.folder, 'picture.png'), [{ picture, fields }] = cluster.pictures;
  fs.writeFileSync(file, picture);
  const options = Object.entries(fields).flatMap(([name, value]) => [`--${name}`, value]);
  const words = ['bench', '--pipeline', file, '--device', 'cpu', '--cpu_threads', String(each), '--runs', '20', '--json', ...cluster.models, ...options];
  const rates = await Promise.all(cpus.map((own) => new Promise((done, fail) => {
    execFile('taskset', ['-c', own, binary, ...words], { env: { ...env, RESTORED_STARTER_MODELS: 'false' } }, (error, out, err) => (error ? fail(new Error(err)) : done(1000 / JSON.parse(out).pipeline.total_ms.median)));
  })));
  return rates.reduce((a, b) => a + b, 0);
}

// Sends jobs, several at a time, until so many have been sent or `enough` says so; their number.
async function feed(cluster, enough) {
  let sent = 0;
  await Promise.all(Array.from({ length: atOnce }, async (_, i) => {
    while (!(await enough(sent))) {
      sent++;
      await cluster.submit(0, `job ${cluster.accepted.size} ${i} ${sent}`);
    }
  }));
  return sent;
}

// Measures those workers that are there, for as long as jobs wait. sending: more of them come.
async function measure(cluster, db, workers, cpus, rest, sending = false) {
  const before = await counted(cluster), from = await db.clock(), start = busy(), waits = {};
  let ran, some, dry = 0;
  do {
    await sleep(300);
    ran = (await db.clock()) - from;
    for (const what of (await db.waits()).split('\n').filter(Boolean)) waits[what] = (waits[what] ?? 0) + 1;
    some = (await db.waiting()) > 0;
    dry += !some;
  } while (ran < 1000 * windowSeconds && (some || sending));
  const until = await db.clock(), stop = busy(), after = await counted(cluster), late = await db.clock();
  const [count, first, last] = (await db.sql(`SELECT count(*), min(finished), max(finished) FROM jobs WHERE finished BETWEEN ${from} AND ${until}`)).split('|').map(Number);
  const all = Number(await db.sql(`SELECT count(*) FROM jobs WHERE finished BETWEEN ${from} AND ${late}`));
  const took = Object.entries(after).map(([name, value]) => [name, (1000 * (value - (before[name] ?? 0))) / all]).filter(([, ms]) => ms >= 0.05);
  const share = (list) => (list.reduce((sum, cpu) => sum + stop.of(start, cpu), 0) / Math.max(1, list.length)).toFixed(2);
  const processors = cpus.length ? `; busy: their processors ${share(cpus.slice(0, workers).join().split(',').map(Number))}, the rest ${rest ? share(rest.split(',').map(Number)) : '-'}` : '';
  return {
    rate: (count - 1) / ((last - first) / 1000), seconds: (until - from) / 1000, dry,
    about: `${took.map(([name, ms]) => `${name} ${ms.toFixed(1)}`).join(', ')}; devices busy ${((after.device - before.device) / workers / ((late - from) / 1000)).toFixed(2)}${processors}; the database's statements: ${Object.entries(waits).sort((a, b) => b[1] - a[1]).slice(0, 5).map(([what, n]) => `${what} ${n}`).join(', ')}`,
  };
}

// Runs for the counts, the largest first: [{workers, fed, rate, …}]. fed: jobs were sent meanwhile.
export async function scale(counts, tell) {
  const cores = coresHere(), most = Math.max(...counts), { own, rest } = divide(cores, most, each), cpus = held || !rest ? [] : own;
  if (cpus.length) pin(rest, process.pid); // what is started inherits it
  else if (!held) console.log(`\n${cores.length} cores are too few for ${most} workers and the rest: what follows says how they share them, not how they scale`);
  const began = Date.now(), cluster = clusterOf(most, cpus);
  let link;
  try {
    await cluster.start();
    link = connect(cluster.database.url);
    const db = watch(link), workers = cluster.of('worker'), there = () => workers.filter(({ url }) => url);
    const ended = async (count) => { while ((await db.ended()) < count) await sleep(200); };
    const ready = async (server) => { while ((await fetch(`${server.url}/readyz`)).status !== 200) await sleep(100); };
    await Promise.all(workers.map(ready));
    console.log(`${most} workers were ready after ${((Date.now() - began) / 1000).toFixed(1)} s${cpus.length ? `; each has processors ${own.join(' / ')}, the rest ${rest}` : ''}`);
    await feed(cluster, (sent) => sent >= 4 * most);
    await ended(4 * most);
    // While the client sends; this also says how many jobs the other rows need.
    let sending = true, waiting = 0;
    const look = (async () => { while (sending) { waiting = await db.waiting(); await sleep(200); } })();
    const feeding = feed(cluster, async () => { while (sending && waiting > 100 * most) await sleep(50); return !sending; });
    await ended(6 * most);
    const fed = await measure(cluster, db, most, cpus, rest, true);
    sending = false;
    await Promise.all([look, feeding]);
    tell({ workers: most, fed: true, ...fed });
    let rate = fed.rate / most;
    for (const count of [...counts].sort((a, b) => b - a)) {
      await Promise.all(there().slice(count).map(async (server) => { server.url = null; await server.end('SIGTERM'); }));
      const signal = (name) => there().forEach((server) => server.child.process.kill(name));
      signal('SIGSTOP'); // until all jobs are there
      const needed = Math.ceil(1.3 * rate * count * windowSeconds) + 4 * count - (await db.waiting());
      if (needed > 0) await feed(cluster, (sent) => sent >= needed);
      signal('SIGCONT');
      await ended((await db.ended()) + 2 * count);
      const run = await measure(cluster, db, count, cpus, rest);
      rate = Math.max(rate, run.rate / count);
      if (cpus.length && !upscaler) {
        signal('SIGSTOP');
        run.without = await without(cluster, cpus.slice(0, count));
        signal('SIGCONT');
      }
      tell({ workers: count, fed: false, ...run });
    }
    return { twice: Number(await db.sql('SELECT count(*) FROM jobs WHERE attempts > 1')), load: load() };
  } finally {
    link?.close();
    await cluster.stop();
  }
}
