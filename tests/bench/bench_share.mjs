// One large picture by one worker, and by several that share its tiles: make bench-share BENCH_ARGS='--workers 4 --cores 8 --mp 200'.
//   --workers N   so many (4)                      --cores N  that each is pinned to, one thread of each (7 of 8 of those that it may use, divided)
//   --rounds N    of one worker and of all, in turn (1)
//   --mp N        size of the panorama, 2:1 (200)  --model M  the upscaler (starter)       --upscale N  of the result (2)
//   --picture F   this file instead of one that is made
//   --tile N      bg_tile (auto)                     --held MS    each tile sleeps so long and a tiny network computes it, so that what
//                                                   sharing itself costs is seen on a machine of few cores
// Each worker has cores of its own; the database and the front end have what is left, so leave them some; taskset before the command
// leaves cores to others. The times are those of the job without a search for damage or faces, reading and writing the picture
// included, and of its background alone. The results must have the same bytes. A second table says where the time went: the owner's
// stages, what it did during the background, what the database took of its thread for that, how long tiles took the helpers, and
// how long after the job's start the first tile of each was begun, and how long before the background's and the job's end its last was done.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { get, metrics, png, post, until } from '../api/client.mjs';
import { database, sql } from '../api/postgres.mjs';
import { faulty, fixtureModels, root, startServer } from '../api/server.mjs';
import { coresHere, databaseSeconds, divide, pin, postmaster, seconds } from './cores.mjs';

const text = (name, initial) => ({ [name]: { type: 'string', default: String(initial) } });
const { values } = parseArgs({ options: { ...text('workers', 4), ...text('cores', 0), ...text('rounds', 1), ...text('mp', 200), ...text('model', ''), ...text('upscale', 2), ...text('tile', 'auto'), ...text('picture', ''), ...text('held', 0) } });
const workers = Number(values.workers), here = coresHere(), { own, count: cores, rest } = divide(here, workers, Number(values.cores));
const system = postmaster(process.env.RESTORED_TEST_POSTGRES_DIR);
if (rest) pin(rest, process.pid, system); // and whatever they start
const folder = mkdtempSync(join(os.tmpdir(), 'restored-share-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const pixels = ['--input_pixels', '4000MP', '--result_pixels', '16000MP', '--body_limit', '2GiB', '--inflight_memory', '64GiB', '--spool_max_bytes', '64GiB'];
const held = Number(values.held), starter = held ? { RESTORED_FAULTS: `slow@run:1,repeat,plan=srvgg,ms=${held}` } : { RESTORED_STARTER_MODELS: 'true' };
const models = held ? [...fixtureModels, '--default_bg_upsampler', `srvgg_x${values.upscale}`] : [], serves = held ? faulty : join(root, 'restored');

// A picture of that size: a small one, enlarged.
function panorama() {
  const height = Math.round(Math.sqrt(Number(values.mp) * 1e6 / 2) / 8), small = join(folder, 'small.png'), out = join(folder, 'out');
  writeFileSync(small, png(2 * height, height));
  execFileSync(join(root, 'restored'), ['restore', small, '-o', out, '--version', 'none', '--bg_upsampler', 'none', '--upscale', '8', '--ext', 'jpg', '--device', 'cpu'],
    { env: { ...process.env, RESTORED_INPUT_PIXELS: '4000MP', RESTORED_RESULT_PIXELS: '16000MP' }, stdio: ['ignore', 'ignore', 'inherit'] });
  const [file] = execFileSync('find', [out, '-name', '*.jpg'], { encoding: 'utf8' }).trim().split('\n');
  return readFileSync(file);
}

// A worker on cores of its own.
const worker = (url, index) => startServer({ program: serves, cpus: own[index], env: starter, args: [...models, '--store', url, '--role', 'worker', '--metrics_listen', '127.0.0.1:0', '--device', 'cpu', '--cpu_threads', String(cores), '--share_pixels', '1MP', '--log_level', 'debug', ...pixels] });

async function job(front, picture) {
  const fields = { version: 'none', repair: 'false', ext: 'jpg', upscale: values.upscale, bg_tile: values.tile, async: 'true', ...(values.model && { bg_upsampler: values.model }) };
  const { json, bytes } = await post(front, '/v1/restore', { picture, name: 'panorama.jpg', fields });
  if (!json?.id) throw new Error(String(bytes));
  const done = await until('the job', async () => {
    const now = (await get(front, `/v1/jobs/${json.id}`)).json;
    if (['failed', 'cancelled'].includes(now?.state)) throw new Error(JSON.stringify(now));
    return now?.state === 'done' && now;
  }, 24 * 3600e3);
  const answer = await fetch(`${front.url}/v1/jobs/${json.id}/result`), hash = createHash('sha256');
  for await (const part of answer.body) hash.update(part);
  await fetch(`${front.url}/v1/jobs/${json.id}`, { method: 'DELETE' });
  return { started: Date.parse(done.started), finished: Date.parse(done.finished), seconds: (Date.parse(done.finished) - Date.parse(done.started)) / 1000, stages: done.timings_ms, background: done.timings_ms.background / 1000, tiles: done.tiles, hash: hash.digest('hex') };
}

// The pairs of a log's last event of that name; undefined: there is none.
function event(log, name) {
  const line = [...log.matchAll(new RegExp(`^.* ${name} (.*)$`, 'gm'))].at(-1)?.[1];
  return line && Object.fromEntries(line.split(' ').map((pair) => pair.split('=').map((part) => (isNaN(part) ? part : Number(part)))));
}

// The tiles of a helper: when each was done, how long it took, and how long it had had none before, ms.
const helped = (log) => [...log.matchAll(/^(\S+) \S+ helped tile=\d+ ms=(\d+) idle_ms=(\d+)/gm)].map(([, time, took, idle]) => ({ done: Date.parse(time), took: Number(took), idle: Number(idle) }));
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)] ?? 0;
const sum = (list) => list.reduce((a, b) => a + b, 0);

async function measure(count, picture) {
  const url = database(), servers = [];
  const front = await startServer({ env: starter, args: ['--store', url, '--role', 'front', ...pixels] });
  try {
    for (let i = 0; i < count; i++) servers.push(await worker(url, i));
    for (const server of [front, ...servers]) await until('ready', async () => (await fetch(`${server.url}/readyz`)).status === 200);
    const busy = () => ({ workers: servers.map((server) => seconds(server.process.pid)), front: seconds(front.process.pid), database: databaseSeconds(system) }), before = busy();
    const result = await job(front, picture);
    const after = busy();
    const received = await Promise.all(servers.map(async (server) => (await metrics(server)).get('restored_shared_tiles_total{direction="received"}')));
    const owner = servers.find((server) => event(server.log(), 'share-times'))?.log() ?? '', helpers = servers.map((server) => helped(server.log())).filter((tiles) => tiles.length);
    return {
      ...result, count, received: sum(received), owner: event(owner, 'share-times') ?? {}, desk: event(owner, 'share-desk') ?? {}, helpers, shared: Date.parse(/^(\S+) \S+ share-times /m.exec(owner)?.[1]),
      cpu: { workers: sum(after.workers.map((one, i) => one - before.workers[i])), front: after.front - before.front, database: after.database - before.database },
    };
  } finally {
    await Promise.all([front, ...servers].map((server) => server.stop()));
    sql(process.env.RESTORED_TEST_POSTGRES, `DROP DATABASE ${url.split('/').at(-1)} WITH (FORCE)`);
  }
}

// Where the time of a run went.
function explain({ count, stages, owner, desk, helpers, cpu, started, shared, finished }) {
  const others = helpers.flat(), took = others.map((tile) => tile.took), ends = helpers.map((tiles) => tiles.at(-1).done);
  const text = (pairs) => Object.entries(pairs).map(([name, value]) => `${name} ${typeof value === 'number' ? +value.toFixed(1) : value}`).join(', ');
  console.log(`\n${count} worker${count > 1 ? 's' : ''}: stages, ms: ${text(stages)}`);
  console.log(`  the owner: ${text(owner)}; a tile of its own ${Math.round((owner.made_ms + owner.ahead_ms) / (owner.made + owner.ahead) || 0)} ms`);
  console.log(`  its thread for the database: ${text(desk)}`);
  if (others.length) {
    console.log(`  helpers: ${others.length} tiles, median ${median(took)} ms, longest ${Math.max(...took)}; between two of them ${sum(helpers.flatMap((tiles) => tiles.slice(1).map(({ idle }) => idle)))} ms in all`);
    console.log(`  first tile begun after, ms: ${helpers.map(([first]) => first.done - first.took - started).join(', ')} (${helpers.map(([first]) => first.took).join(', ')} long); last one done before the background's end: ${ends.map((end) => shared - end).join(', ')}, the job's: ${ends.map((end) => finished - end).join(', ')}`);
  }
  console.log(`  processor seconds: ${text(cpu)}`);
}

const picture = values.picture ? readFileSync(values.picture) : panorama();
console.log(`${os.cpus()[0].model}, ${os.cpus().length} processors, ${here.length} cores for this, load ${os.loadavg()[0].toFixed(1)}; ${values.mp} MP, ${cores} core${cores > 1 ? 's' : ''} a worker${rest ? `, the rest on processors ${rest}` : ', which the rest shares'}\n`);
console.log('| workers | job, s | background, s | tiles | of others | job, ratio | background, ratio |\n|---|---|---|---|---|---|---|');
const runs = [];
for (let round = 0; round < Number(values.rounds); round++)
  for (const count of [1, workers]) {
    const run = await measure(count, picture), single = runs.find((one) => one.count === 1) ?? run;
    runs.push(run);
    console.log(`| ${count} | ${run.seconds.toFixed(1)} | ${run.background.toFixed(1)} | ${run.tiles} | ${run.received} | ${(single.seconds / run.seconds).toFixed(2)} | ${(single.background / run.background).toFixed(2)} |`);
    if (runs[0].hash !== run.hash) throw new Error('the results have other bytes');
  }
console.log('\nThe results have the same bytes.');
runs.forEach(explain);
