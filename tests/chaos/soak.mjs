// A server that is asked for all kinds of things, slowly and for long: what it holds must not grow. It is no test; `make
// soak ARGS=60` runs it for 60 minutes and prints a table: each quarter of the time, after a tenth to warm up.
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fixture, get, ownModels, plain, png, pngHeader, post, sleep, start, until } from '../api/client.mjs';
import { random } from './chaos.mjs';

const minutes = Number(process.argv[2] ?? 60), next = random(1);
const state = fs.mkdtempSync(join(tmpdir(), 'restored-soak-'));
const server = await start({ args: ['--state_dir', state, '--result_ttl', '60', '--device', 'cpu', '--log_level', 'warn'], models: ownModels });
process.on('exit', () => server.process.kill('SIGKILL')); // where this program fails
const many = (n) => Math.floor(next() * n);
const counts = {};
const count = (what) => { counts[what] = (counts[what] ?? 0) + 1; };
const expect = (answer, ...statuses) => { if (!statuses.includes(answer.status)) count(`unexpected ${answer.status} ${answer.json?.detail}`); return answer; };

// ---- what is asked ----

const faces = fixture('two.png'), large = png(1200, 900), slow = { version: 'none', bg_tile: '64' };
const picture = () => [faces, fixture('none.png'), fixture('picture.jpg'), fixture('gray.jpg'), fixture('rgba.png'), png(20 + many(300), 20 + many(200))][many(6)];
const restore = (fields, options) => post(server, '/v1/restore', { picture: picture(), fields, ...options });
async function submit(fields, what = picture()) {
  const { json } = expect(await post(server, '/v1/restore', { picture: what, fields: { async: 'true', ...fields } }), 202);
  return json.id;
}
const ended = (id) => until('its end', async () => !['queued', 'running'].includes((await get(server, `/v1/jobs/${id}`)).json?.state), 600000);
const remove = (path) => fetch(server.url + path, { method: 'DELETE' }).then((answer) => answer.text());

const kinds = {
  sync: async () => expect(await restore({ weight: next() }), 200),
  plain: async () => expect(await restore({ ...plain, upscale: 1 + many(4), ext: ['png', 'jpg'][many(2)] }), 200),
  parts: async () => expect(await restore({ faces_out: 'true' }, { headers: { accept: 'multipart/mixed' } }), 200),
  detect: async () => expect(await post(server, '/v1/detect', { picture: picture() }), 200),
  estimate: async () => expect(await post(server, '/v1/estimate', { query: `?width=${1 + many(9000)}&height=${1 + many(5000)}` }), 200, 422),
  async: async () => {
    const id = await submit({ faces_out: 'true' });
    await ended(id);
    for (const path of ['', '/result', '/faces/0']) await fetch(`${server.url}/v1/jobs/${id}${path}`).then((answer) => answer.arrayBuffer());
    if (many(2)) await remove(`/v1/jobs/${id}`);
  },
  detects: async () => ended((await post(server, '/v1/detect', { picture: picture(), fields: { async: 'true' } })).json.id),
  events: async () => {
    const id = await submit({});
    const listeners = [fetch(`${server.url}/v1/jobs/${id}/events`).then((answer) => answer.text())];
    const abort = new AbortController();
    const all = fetch(`${server.url}/v1/events`, { signal: abort.signal }).then((answer) => answer.text()).catch(() => {});
    await Promise.all(listeners);
    abort.abort();
    await all;
  },
  batch: async () => {
    const batch = `b${many(1e9)}`, ids = [];
    for (let i = 0; i < 3; i++) ids.push(await submit({ ...plain, batch }));
    for (const id of ids) await ended(id);
    expect(await fetch(`${server.url}/v1/batches/${batch}/results.zip`).then(async (answer) => { await answer.arrayBuffer(); return answer; }), 200);
  },
  cancel: async () => {
    const id = await submit(slow, large);
    await sleep(many(300));
    await remove(`/v1/jobs/${id}`);
    await ended(id);
    await remove(`/v1/jobs/${id}`);
  },
  'hang up': async () => {
    const abort = new AbortController();
    const job = post(server, '/v1/restore', { picture: large, fields: slow, signal: abort.signal }).catch(() => {});
    await sleep(many(300));
    abort.abort();
    await job;
  },
  broken: async () => {
    expect(await restore({ upscale: 'x' }), 400);
    for (const what of [faces.subarray(0, 1500), pngHeader(64000, 64000), fixture('picture.jpg').subarray(0, 3000)])
      expect(await post(server, '/v1/restore', { picture: what }), 422);
    expect(await post(server, '/v1/restore', { picture: Buffer.alloc(300000) }), 415);
    expect(await get(server, '/nothing'), 404);
  },
  look: async () => { for (const path of ['/metrics', '/healthz', '/v1/jobs?limit=1000', '/v1/devices', '/v1/models', '/']) expect(await get(server, path), 200); },
};

// ---- what it holds ----

function size(folder) {
  let bytes = 0;
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    try { bytes += entry.isDirectory() ? size(path) : fs.statSync(path).blocks * 512; } catch { /* just removed */ }
  }
  return bytes;
}
function sample() {
  const proc = `/proc/${server.process.pid}`, status = fs.readFileSync(`${proc}/status`, 'latin1');
  const value = (name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)[1]);
  const pss = Number(/^Pss:\s+(\d+)/m.exec(fs.readFileSync(`${proc}/smaps_rollup`, 'latin1'))[1]);
  return { 'VmRSS, MiB': value('VmRSS') / 1024, 'RssAnon, MiB': value('RssAnon') / 1024, 'PSS, MiB': pss / 1024, descriptors: fs.readdirSync(`${proc}/fd`).length,
    threads: value('Threads'), 'state folder, MiB': size(state) / 1048576, 'of it spool, MiB': size(join(state, 'spool')) / 1048576 };
}

const samples = [], end = Date.now() + minutes * 60000;
const lanes = Array.from({ length: 3 }, async (_, lane) => {
  for (let i = lane * 4; Date.now() < end; i++) {
    const [name, ask] = Object.entries(kinds)[i % Object.keys(kinds).length];
    await ask().catch((error) => count(`error ${error.message}`));
    count(name);
    await sleep(500 * next());
  }
});
while (Date.now() < end) {
  await sleep(Math.min(15000, minutes * 3000));
  samples.push(sample());
  if (process.env.SOAK_LOG) fs.appendFileSync(process.env.SOAK_LOG, `${new Date().toISOString()} ${JSON.stringify(samples.at(-1))} ${JSON.stringify(counts)}\n`);
}
await Promise.all(lanes);
const warm = samples.slice(Math.ceil(samples.length / 10)), quarter = Math.max(1, Math.floor(warm.length / 4));
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
console.log('| median of | first quarter | second | third | last | most |\n|---|---|---|---|---|---|');
for (const name of Object.keys(warm[0])) {
  const of = warm.map((one) => one[name]), parts = [0, 1, 2, 3].map((i) => median(of.slice(i * quarter, i === 3 ? undefined : (i + 1) * quarter)));
  console.log(`| ${name} | ${[...parts, Math.max(...of)].map((value) => value.toFixed(/MiB/.test(name) ? 1 : 0)).join(' | ')} |`);
}
console.log(`\n${minutes} minutes; ${JSON.stringify(counts)}`);
await server.stop();
fs.rmSync(state, { recursive: true, force: true });
