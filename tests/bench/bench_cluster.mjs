// What several machines do: the ceiling of the database with pictures in rows and in S3 (s3rver, the tests' double), without computing
// anything; then jobs a second with 1, 2 and 4 workers of tiny networks. Tables for docs/cluster.md. make bench-cluster
import { execFile } from 'node:child_process';
import os from 'node:os';
import { join } from 'node:path';
import { startS3 } from '../api/s3.mjs';
import { png } from '../api/client.mjs';
import { root } from '../api/server.mjs';
import { Cluster, startDatabase } from '../chaos/cluster.mjs';

const run = (words, env) => new Promise((done, fail) => execFile(join(root, 'build/bench_cluster'), words.map(String), { env: { ...process.env, ...env } }, (error, out, err) => (error ? fail(new Error(err)) : done(out.trim().split(' ').map(Number)))));

console.log(`${os.cpus()[0].model}, ${os.cpus().length} processors, load ${os.loadavg()[0].toFixed(1)}\n`);
console.log('| pictures in | bytes in and out, each | jobs/s | MB/s |\n|---|---|---|---|');
const database = await startDatabase(), s3 = await startS3();
const credentials = { ...s3.env };
for (const [where, payload] of [['rows', 'rows'], ['S3', `s3://${s3.bucket}/bench?endpoint=${s3.endpoint}`]])
  for (const [bytes, jobs] of [[10_000, 1000], [1_000_000, 100], [5_000_000, 30]]) {
    const [rate, flow] = await run([database.url, payload, bytes, jobs, 4], credentials);
    await database.sql('TRUNCATE jobs, results, payloads, chunks');
    console.log(`| ${where} | ${bytes} | ${rate} | ${flow} |`);
  }
await s3.stop();
await database.stop();

console.log('\n| workers | jobs/s | of linear |\n|---|---|---|');
let single = 0;
for (const workers of [1, 2, 4]) {
  const cluster = new Cluster({ seed: 1, fronts: 1, workers, pictures: [{ picture: png(320, 240), fields: { version: 'none' } }] });
  await cluster.start();
  const jobs = 40 * workers;
  for (let i = 0; i < 2 * workers; i++) await cluster.finish(await cluster.submit(0, `warm ${i}`));
  const begin = Date.now();
  const ids = [];
  for (let i = 0; i < jobs; i += 8) ids.push(...await Promise.all(Array.from({ length: Math.min(8, jobs - i) }, (_, k) => cluster.submit(0, `job ${i + k}`))));
  await Promise.all(ids.map((id) => cluster.finish(id)));
  const rate = jobs / ((Date.now() - begin) / 1000);
  single ||= rate;
  console.log(`| ${workers} | ${rate.toFixed(2)} | ${(rate / single / workers).toFixed(2)} |`);
  await cluster.stop();
}
