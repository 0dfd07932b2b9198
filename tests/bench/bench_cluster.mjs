// What several machines do: the ceiling of the database with pictures in rows and in S3 (s3rver, the tests' double), without computing
// anything (BENCH_STORE=0 leaves that out); then jobs a second with BENCH_WORKERS (1,2,4,8) workers of tiny networks, one thread and one
// core each, while everything else runs on the other cores. Tables for docs/cluster.md. make bench-cluster
// With BENCH_UPSCALER=FILE each worker has a GPU of its own (vulkan:0, vulkan:1, …) in place of a core, and enlarges pictures of
// BENCH_SIZE (512x384) with this model. With BENCH_HELD=1 a job takes two seconds in which its worker sleeps, so that the queue's own
// scaling is seen on a machine of few cores; nothing is pinned then. BENCH_PAYLOAD says where pictures lie (auto: rows). Below the table
// it says what each job took: stages and device of the workers by /metrics, processor time of all by /proc.
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import { join, parse } from 'node:path';
import { startS3 } from '../api/s3.mjs';
import { metrics, png, sleep } from '../api/client.mjs';
import { faulty, fixtureModels, fixtures, root } from '../api/server.mjs';
import { Cluster, startDatabase } from '../chaos/cluster.mjs';
import { coresHere, databaseSeconds, divide, pin, postmaster, seconds } from './cores.mjs';

const run = (words, env) => new Promise((done, fail) => execFile(join(root, 'build/bench_cluster'), words.map(String), { env: { ...process.env, ...env } }, (error, out, err) => (error ? fail(new Error(err)) : done(out.trim().split(' ').map(Number)))));
const held = process.env.BENCH_HELD === '1', upscaler = process.env.BENCH_UPSCALER, size = (process.env.BENCH_SIZE || '512x384').split('x').map(Number);
const load = () => os.loadavg()[0].toFixed(1);

// ---- the store ----

async function measureStore() {
  console.log('\n| pictures in | bytes in and out, each | jobs/s | MB/s |\n|---|---|---|---|');
  const database = await startDatabase(), s3 = await startS3();
  for (const [where, payload] of [['rows', 'rows'], ['S3', `s3://${s3.bucket}/bench?endpoint=${s3.endpoint}`]])
    for (const [bytes, jobs] of [[10_000, 1000], [1_000_000, 100], [5_000_000, 30]]) {
      const [rate, flow] = await run([database.url, payload, bytes, jobs, 4], { ...s3.env });
      await database.sql('TRUNCATE jobs, results, payloads, chunks');
      console.log(`| ${where} | ${bytes} | ${rate} | ${flow} |`);
    }
  await s3.stop();
  await database.stop();
}

// ---- workers ----

// The fixtures' networks, and this upscaler as the default one, in a folder of their own.
function modelsWith(file) {
  const folder = fs.mkdtempSync(join(os.tmpdir(), 'restored-models-')), { base, name } = parse(file);
  process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
  fs.cpSync(fixtures, folder, { recursive: true });
  fs.copyFileSync(file, join(folder, base));
  return [...fixtureModels, '--models', folder, '--default_bg_upsampler', name];
}

// What the workers and the system have counted until now.
async function counted(cluster) {
  const workers = cluster.of('worker'), all = await Promise.all(workers.map(metrics)), sums = {};
  for (const [name, value] of all.flatMap((one) => [...one])) {
    const [, stage] = /^restored_stage_duration_seconds_sum\{stage="(\w+)"\}/.exec(name) ?? [];
    if (stage) sums[stage] = (sums[stage] ?? 0) + value;
    else if (name.startsWith('restored_device_busy_seconds_total')) sums.device = (sums.device ?? 0) + value;
  }
  const processors = (role) => cluster.of(role).reduce((sum, server) => sum + seconds(server.child.process.pid), 0);
  return { ...sums, 'workers, processor': processors('worker'), 'front end, processor': processors('front'), 'database, processor': databaseSeconds(postmaster(cluster.database.dir)) };
}

// Jobs a second while all workers are busy, by the times at which the database says that jobs ended.
async function measureWorkers(workers, cpus, each) {
  const kind = upscaler ? { models: modelsWith(upscaler), own: (i) => ['--device', `vulkan:${i}`, '--cpu_threads', '4'] } : { own: () => ['--device', 'cpu'] };
  if (held) Object.assign(kind, { program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat,plan=upscaler' } }); // four tiles
  const picture = upscaler ? { picture: png(...size), fields: { version: 'none', ext: 'jpg', repair: 'false' } } : { picture: held ? png(120, 120) : png(480, 360), fields: { version: 'none', ext: 'jpg', bg_tile: held ? '64' : '128' } };
  const cluster = new Cluster({ seed: 1, fronts: 1, workers, direct: true, cpus: upscaler || held ? [] : cpus, pictures: [picture], payload: process.env.BENCH_PAYLOAD || 'auto', ...kind });
  await cluster.start();
  const jobs = each * workers, sql = (text) => cluster.database.sql(text);
  for (let i = 0; i < 2 * workers; i++) await cluster.submit(0, `warm ${i}`);
  const ended = async (count) => { while (Number(await sql('SELECT count(*) FROM jobs WHERE state = 2')) < count) await sleep(500); };
  await ended(2 * workers);
  // They stand still until all jobs are there: else this program, which sends them, would be measured.
  const signal = (name) => cluster.of('worker').forEach((server) => server.child.process.kill(name)), before = await counted(cluster);
  signal('SIGSTOP');
  for (let i = 0; i < jobs; i += 8) await Promise.all(Array.from({ length: Math.min(8, jobs - i) }, (_, k) => cluster.submit(0, `job ${i + k}`)));
  const sent = await sql('SELECT 1') && { front: seconds(cluster.servers[0].child.process.pid), database: databaseSeconds(postmaster(cluster.database.dir)) };
  signal('SIGCONT');
  await ended(jobs + 2 * workers);
  const after = await counted(cluster);
  const times = (await sql(`SELECT finished FROM jobs WHERE idempotency_key LIKE 'job %' ORDER BY finished`)).split('\n').map(Number);
  const twice = Number(await sql('SELECT count(*) FROM jobs WHERE attempts > 1'));
  const shares = (await sql('SELECT count(*) FROM jobs GROUP BY owner ORDER BY 1')).split('\n').join(' ');
  const bytes = Number(await sql(`SELECT coalesce(avg(size), 0) FROM payloads WHERE name LIKE 'out%'`));
  await cluster.stop();
  Object.assign(before, { 'front end, processor': sent.front, 'database, processor': sent.database });
  const edge = 2 * workers, span = times[jobs - 1 - edge] - times[edge - 1]; // at first and at last not all of them are busy
  const took = Object.entries(after).map(([name, value]) => [name, (1000 * (value - (before[name] ?? 0))) / jobs]).filter(([, ms]) => ms >= 0.05);
  const whole = times.at(-1) - times[0];
  return { rate: (jobs - 2 * edge) / (span / 1000), twice, about: `${took.map(([name, ms]) => `${name} ${ms.toFixed(1)}`).join(', ')}; devices busy ${((after.device - before.device) / workers / (whole / 1000)).toFixed(2)} of ${(whole / 1000).toFixed(1)} s; a result ${(bytes / 1000).toFixed(0)} kB; jobs of each: ${shares}` };
}

async function scale() {
  const cores = coresHere(), counts = (process.env.BENCH_WORKERS || '1,2,4,8').split(',').map(Number), most = Math.max(...counts);
  const each = Number(process.env.BENCH_JOBS || 60), { own, rest } = divide(cores, most, 1), about = [];
  if (!held && !upscaler && rest) pin(rest, process.pid); // what is started inherits it
  else if (!held && !upscaler) console.log(`\n${cores.length} cores are too few for ${most} workers and the rest: what follows says how they share them, not how they scale`);
  console.log('\n| workers | jobs/s | of linear | load before |\n|---|---|---|---|');
  let single = 0;
  for (const workers of counts) {
    const before = load(), run = await measureWorkers(workers, own.slice(0, workers), each);
    single ||= run.rate / workers;
    about.push(`${workers}: ${run.about}`);
    console.log(`| ${workers} | ${run.rate.toFixed(2)} | ${(run.rate / single / workers).toFixed(2)} | ${before} |${run.twice ? ` ${run.twice} jobs were computed again` : ''}`);
  }
  console.log(`\nA job, ms, by workers:\n${about.join('\n')}`);
}

console.log(`${os.cpus()[0].model}, ${os.cpus().length} processors, load ${load()}`);
if (process.env.BENCH_STORE !== '0') await measureStore();
await scale();
