// What several machines do: the ceiling of the database with pictures in rows and in S3 (s3rver, the tests' double), without computing
// anything, the best of three each (BENCH_STORE=0 leaves that out, BENCH_WORKERS=0 what follows); then jobs a second with BENCH_WORKERS
// (1,2,4,8) workers of tiny networks, each with BENCH_CORES (1) cores of its own, one thread of each, while everything else runs on the
// other cores; and, at once after each count, of as many processes without a server on the same cores. Tables for docs/cluster.md.
// make bench-cluster
// With BENCH_UPSCALER=FILE each worker has a GPU of its own, too (vulkan:0, vulkan:1, …), and enlarges pictures of BENCH_SIZE (512x384)
// with this model; the folders 0, 1, … in BENCH_CACHE have what
// was measured of the GPUs before. With BENCH_HELD=1 a job takes two seconds in
// which its worker sleeps, so that the queue's own scaling is seen on a machine of few cores; nothing is pinned then. BENCH_PAYLOAD says
// where pictures lie (auto: rows), BENCH_FRONTS how many front ends take them (1), BENCH_SECONDS how long each count of workers is
// measured (15). The first line is that of all workers while the jobs are sent; for the others all jobs are there before. The lines
// below each say what a job took: stages and device of the workers by /metrics, processor time of all by /proc, and what the
// database's connections did, looked at three times a second.
import { execFile } from 'node:child_process';
import os from 'node:os';
import { join } from 'node:path';
import { startS3 } from '../api/s3.mjs';
import { root } from '../api/server.mjs';
import { startDatabase } from '../chaos/cluster.mjs';
import { scale } from './scale.mjs';

const run = (words, env) => new Promise((done, fail) => execFile(join(root, 'build/bench_cluster'), words.map(String), { env: { ...process.env, ...env } }, (error, out, err) => (error ? fail(new Error(err)) : done(out.trim().split(' ').map(Number)))));
const load = () => os.loadavg()[0].toFixed(1);

// ---- the store ----

async function measureStore() {
  console.log('\n| pictures in | bytes in and out, each | jobs/s | MB/s |\n|---|---|---|---|');
  const database = await startDatabase(), s3 = await startS3();
  for (const [bytes, jobs] of [[10_000, 1000], [1_000_000, 100], [5_000_000, 30]])
    for (const [where, payload] of [['rows', 'rows'], ['S3', `s3://${s3.bucket}/bench?endpoint=${s3.endpoint}`]]) {
      const rounds = [];
      for (let i = 0; i < 3; i++) {
        rounds.push(await run([database.url, payload, bytes, jobs, 4], { ...s3.env }));
        await database.sql('TRUNCATE jobs, results, payloads, chunks');
      }
      const [rate, flow] = rounds.sort(([a], [b]) => b - a)[0];
      console.log(`| ${where} | ${bytes} | ${rate} | ${flow} |`);
    }
  await s3.stop();
  await database.stop();
}

// ---- workers ----

async function measureWorkers() {
  const counts = (process.env.BENCH_WORKERS || '1,2,4,8').split(',').map(Number), runs = [];
  console.log('');
  const { twice } = await scale(counts, (run) => {
    runs.push(run);
    console.log(`${run.workers} workers${run.fed ? ', jobs come meanwhile' : ''}: ${run.rate.toFixed(2)} jobs/s for ${run.seconds.toFixed(0)} s${run.dry ? `, in which no job waited ${run.dry} times` : ''}, load ${load()}\n  a job, ms: ${run.about}`);
  });
  const still = runs.filter(({ fed }) => !fed).sort((a, b) => a.workers - b.workers), [first] = still;
  const linear = (rate, workers, one) => `${rate.toFixed(2)} | ${(rate / one / workers).toFixed(2)}`;
  console.log(`\n| workers | jobs/s | of linear |${first.without ? ' as many processes without a server, jobs/s | of linear | the server of that |' : ''}\n|---|---|---|${first.without ? '---|---|---|' : ''}`);
  for (const { workers, rate, fed, without } of [...still, ...runs.filter((run) => run.fed)]) {
    const beside = without ? ` ${linear(without, workers, first.without / first.workers)} | ${(rate / without).toFixed(2)} |` : first.without ? ' | | |' : '';
    console.log(`| ${workers}${fed ? ', while jobs are sent' : ''} | ${linear(rate, workers, first.rate / first.workers)} |${beside}`);
  }
  if (twice) console.log(`${twice} jobs were computed again`);
}

console.log(`${os.cpus()[0].model}, ${os.cpus().length} processors, load ${load()}`);
if (process.env.BENCH_STORE !== '0') await measureStore();
if (process.env.BENCH_WORKERS !== '0') await measureWorkers();
