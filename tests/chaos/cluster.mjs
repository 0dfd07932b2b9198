// Several machines in small: front ends and workers on one PostgreSQL, behind a network that is slow and cuts connections; any of them
// is killed -9 at any moment and started again. No accepted job may be lost or stuck, none may end twice, and every result must be that
// of an undisturbed run. cluster.test.mjs kills one of each; run by itself (make chaos, and make
// check for five minutes) this goes on for CHAOS_SECONDS.
import assert from 'node:assert/strict';
import { spawn, execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { fixture, plain, png, pngHeader, chunk, post, sleep, until } from '../api/client.mjs';
import { binary, fixtureModels, root, startServer } from '../api/server.mjs';
import { random } from './chaos.mjs';
import { startNodes } from './nodes.mjs';
import zlib from 'node:zlib';

const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');
const script = join(root, 'tests/postgres.sh');

// ---- the database ----

// A PostgreSQL of this run's own, since it is killed: {url, dir, ports, where(ports), kill(), start(), sql(text), stop()}; null where there is
// none. where: its URL by way of these ports.
export async function startDatabase() {
  const child = spawn('sh', [script, 'sh', '-c', 'env | grep ^RESTORED_TEST_POSTGRES; echo END; cat >/dev/null'], { stdio: ['pipe', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (data) => { text += data; });
  await until('PostgreSQL is up', () => text.includes('END\n') || child.exitCode !== null);
  const env = Object.fromEntries([...text.matchAll(/^(RESTORED_TEST_POSTGRES\w*)=(.+)$/gm)].map(([, name, value]) => [name, value]));
  const url = env.RESTORED_TEST_POSTGRES;
  const call = (program, ...words) => new Promise((done, fail) => execFile(program, words, { env: { ...process.env, ...env }, maxBuffer: 64 << 20 }, (error, out, err) => (error ? fail(new Error(`${program}: ${err}`)) : done(out.trim()))));
  const stop = async () => { child.stdin.end(); if (child.exitCode === null) await new Promise((done) => child.on('exit', done)); };
  if (!url) { await stop(); return null; }
  return {
    url, dir: env.RESTORED_TEST_POSTGRES_DIR, ports: [Number(env.RESTORED_TEST_POSTGRES_PORT)], where: ([port]) => url.replace(/:\d+\//, `:${port}/`), stop,
    kill: () => call('sh', script, '--kill'),
    start: () => call('sh', script, '--start'),
    sql: (statement) => call('psql', '-X', '-A', '-t', '-q', '-v', 'ON_ERROR_STOP=1', '-d', url, '-c', statement),
  };
}

// ---- the network ----

// What stands between a server and the database: it hands on bytes after `delay` ms, in order; cut() breaks some of the connections;
// stall() lets some of them be open and hands on nothing any more, as where a machine on the way has forgotten them; while `closed`
// nobody gets through.
export async function startNetwork(port, next) {
  const pairs = new Set();
  const network = { delay: 0, cuts: 0, stalls: 0, closed: false };
  const onward = (from, to, pair) => {
    let last = Promise.resolve();
    from.on('data', (data) => {
      const at = Date.now() + network.delay * next();
      last = last.then(async () => {
        if (at > Date.now()) await sleep(at - Date.now());
        if (!to.destroyed && !pair.stalled && !to.write(data)) from.pause();
      });
    });
    to.on('drain', () => from.resume()); // one listener, however many pieces wait
    from.on('close', () => last.then(() => { // destroy would drop what `to` has not sent yet
      if (pair.stalled) return;
      if (from.readableEnded) to.end();
      else to.destroy();
    }));
    from.on('error', () => {});
  };
  const server = net.createServer({ noDelay: true }, (near) => {
    if (network.closed) { near.destroy(); return; }
    const far = net.connect({ port, host: '127.0.0.1', noDelay: true }), pair = { near, far, stalled: false };
    pairs.add(pair);
    far.on('close', () => { if (near.destroyed) pairs.delete(pair); });
    near.on('close', () => { if (far.destroyed) pairs.delete(pair); });
    onward(near, far, pair);
    onward(far, near, pair);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  network.port = server.address().port;
  network.cut = (share) => { for (const { near, far } of pairs) if (next() < share) { network.cuts++; near.destroy(); far.destroy(); } };
  network.stall = (share) => { for (const pair of pairs) if (!pair.stalled && next() < share) { network.stalls++; pair.stalled = true; } };
  network.stop = () => { network.cut(1); server.close(); };
  return network;
}

// One before each port, which behave alike.
async function startNetworks(ports, next) {
  const all = await Promise.all(ports.map((port) => startNetwork(port, next)));
  const sum = (name) => all.reduce((total, one) => total + one[name], 0);
  return {
    ports: all.map(({ port }) => port),
    get cuts() { return sum('cuts'); },
    get stalls() { return sum('stalls'); },
    set delay(ms) { all.forEach((one) => { one.delay = ms; }); },
    set closed(is) { all.forEach((one) => { one.closed = is; }); },
    cut: (share) => all.forEach((one) => one.cut(share)),
    stall: (share) => all.forEach((one) => one.stall(share)),
    stop: () => all.forEach((one) => one.stop()),
  };
}

// ---- the servers ----

// What a server has said last, for whoever wonders why it is not as it should be.
const lastLines = (name, log, most = 20) => `--- ${name}, its last lines:\n${log.trim().split('\n').slice(-most).join('\n')}`;

export class Server {
  constructor(role, number, args, env, cpus, program) { Object.assign(this, { role, number, args, env, cpus, program, kills: 0, url: null }); }
  async start() {
    const listen = this.role === 'worker' ? ['--metrics_listen', '127.0.0.1:0'] : ['--listen', '127.0.0.1:0'];
    this.child = await startServer({ args: [...this.args, '--role', this.role, ...listen, '--log_level', 'warn'], env: this.env, cpus: this.cpus, program: this.program });
    this.url = this.child.url;
  }
  last() { return lastLines(`${this.role} ${this.number}${this.url ? '' : ' (killed)'}`, this.child?.log() ?? ''); }
  async kill() {
    this.url = null;
    this.kills++;
    await this.end('SIGKILL');
  }
  async end(signal) {
    if (signal === 'SIGKILL') this.child.process.kill(signal);
    await this.child.stop(); // which waits for the end, and removes its folders
  }
}

// ---- the pictures ----

// A PNG of about so many bytes: noise hardly shrinks.
export function noisy(bytes, seed) {
  const width = Math.max(16, Math.round(Math.sqrt(bytes / 3))), height = Math.max(16, Math.round(bytes / 3 / width));
  const rows = Buffer.alloc((3 * width + 1) * height);
  let state = seed + 1;
  for (let i = 0; i < rows.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    rows[i] = i % (3 * width + 1) ? state >>> 24 : 0;
  }
  return Buffer.concat([pngHeader(width, height), chunk('IDAT', zlib.deflateSync(rows, { level: 1 })), chunk('IEND', Buffer.alloc(0))]);
}

// ---- all together ----

export class Cluster {
  // long: with pictures of up to 5 MB, and some that take seconds. pictures: [{picture, fields}] instead. payload, env: where they lie, and
  // what servers need for that. direct: without the network between. cpus: of each worker, as taskset has them. nodes: 1 or 3
  // PostgreSQL. models, own: a server's arguments that choose models, and more of worker number i.
  constructor({ seed, fronts = 2, workers = 4, long = false, payload = 'auto', env = {}, pictures = null, direct = false, cpus = [], nodes = 1, models = fixtureModels, own = () => [], program, known = true }) {
    Object.assign(this, { next: random(seed), count: { front: fronts, worker: workers }, long, payload, env, pictures, direct, cpus, nodes, models, own, program, known });
    this.folder = fs.mkdtempSync(join(tmpdir(), 'restored-cluster-'));
    this.accepted = new Map(); // id: number of its picture
    this.kills = { front: 0, worker: 0, database: 0 };
    this.servers = [];
    this.retries = 0;
  }
  async start() {
    this.database = this.nodes > 1 ? await startNodes() : await startDatabase();
    if (!this.database) return false;
    this.network = await startNetworks(this.database.ports, this.next);
    if (this.known) await this.learn();
    const store = this.direct ? this.database.url : this.database.where(this.network.ports);
    for (const [role, count] of Object.entries(this.count))
      for (let i = 0; i < count; i++) {
        const state = join(this.folder, `${role}${i}`);
        const args = [...(role === 'front' ? [] : this.models), '--store', store, '--payload', this.payload, '--state_dir', state, '--cpu_threads', '1', '--drain_seconds', '5', '--result_ttl', '86400', ...(role === 'worker' ? this.own(i) : [])];
        this.servers.push(new Server(role, i, args, { ...this.env, XDG_CACHE_HOME: state }, role === 'worker' ? this.cpus[i] : undefined, role === 'worker' ? this.program : undefined));
      }
    await this.servers[0].start(); // it makes the tables
    await this.database.sql(`
      CREATE TABLE ends (id TEXT, state INT);
      CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO ends VALUES (NEW.id, NEW.state); RETURN NEW; END $$;
      CREATE TRIGGER note_end AFTER UPDATE OF state ON jobs FOR EACH ROW WHEN (OLD.state < 2 AND NEW.state >= 2) EXECUTE FUNCTION note_end()`);
    await Promise.all(this.servers.slice(1).map((server) => server.start()));
    await until('a front end is ready', async () => (await fetch(`${this.servers[0].url}/readyz`)).status === 200).catch((error) => this.explain(error));
    return true;
  }
  // What each picture becomes, on one machine and undisturbed.
  async learn() {
    const seconds = { version: 'none', bg_tile: '64', ext: 'jpg' }; // every one of many small tiles is a run
    this.pictures ??= [fixture('none.png'), png(97, 61), png(200, 150), noisy(100_000, 1)].map((picture) => ({ picture, fields: plain }));
    if (this.long) {
      for (const size of [300_000, 1_000_000, 5_000_000]) this.pictures.push({ picture: noisy(size, size), fields: { ...plain, ext: 'jpg' } });
      for (const width of [300, 500]) this.pictures.push({ picture: png(width, 400), fields: seconds });
    }
    const server = await startServer({ args: [...this.models, '--cpu_threads', '1', '--state_dir', join(this.folder, 'learn'), '--log_level', 'warn'] });
    await until('ready', async () => (await fetch(`${server.url}/readyz`)).status === 200);
    for (const one of this.pictures) {
      const answer = await post(server, '/v1/restore', one);
      assert.equal(answer.status, 200, String(answer.bytes));
      one.expected = hash(answer.bytes);
    }
    await server.stop();
  }
  of(role) { return this.servers.filter((server) => server.role === role); }
  // A front end that is there.
  front() {
    const list = this.of('front').filter(({ url }) => url);
    return list[Math.floor(this.next() * list.length)];
  }
  // Sends a request until a front end answers as it should; `ask` gives undefined for "again".
  async ask(what, ask) {
    return until(what, async () => {
      assert.ok(!this.stopped, 'another test of this cluster failed');
      const front = this.front();
      try {
        const answer = front && (await ask(front));
        if (answer !== undefined) return { answer };
      } catch (error) {
        if (error instanceof assert.AssertionError) throw error;
      }
      this.retries++;
      await sleep(30 + 100 * this.next());
      return null;
    }, 900e3).then(({ answer }) => answer, (error) => this.explain(error));
  }
  // The same error, and what the servers have said last.
  explain(error) {
    if (error instanceof assert.AssertionError) throw error;
    throw new Error([error.message, ...this.servers.map((server) => server.last())].join('\n'), { cause: error });
  }
  async submit(number, key) {
    const { picture, fields } = this.pictures[number];
    const id = await this.ask(`the acceptance of ${key}`, async (front) => {
      const answer = await post(front, '/v1/restore', { picture, fields: { ...fields, async: 'true' }, headers: { 'Idempotency-Key': key }, signal: undefined });
      if (answer.status === 202) return answer.json.id;
      assert.ok([429, 500, 502, 503, 504, 507].includes(answer.status), `${answer.status}: ${answer.bytes}`);
      return undefined;
    });
    this.accepted.set(id, number);
    return id;
  }
  // Waits for a job's end and looks at its result; true: it is right.
  async finish(id) {
    const number = this.accepted.get(id);
    const job = await this.ask(`the end of ${id}`, async (front) => {
      const answer = await fetch(`${front.url}/v1/jobs/${id}`), json = await answer.json();
      if (answer.status !== 200) {
        assert.ok([500, 503].includes(answer.status), `an accepted job is lost: ${answer.status} ${JSON.stringify(json)}`);
        return undefined;
      }
      if (['queued', 'running'].includes(json.state)) { this.retries--; return undefined; }
      return json;
    });
    if (job.state === 'failed' && this.long && /times|attempts/.test(job.error?.detail ?? '')) { // its workers were killed three times
      this.givenUp = (this.givenUp ?? 0) + 1;
      return;
    }
    assert.equal(job.state, 'done', `${id}: ${JSON.stringify(job.error)}`);
    const bytes = await this.ask(`the result of ${id}`, async (front) => {
      const answer = await fetch(`${front.url}/v1/jobs/${id}/result`);
      assert.ok([200, 500, 503].includes(answer.status), `the result of ${id}: ${answer.status}`);
      return answer.status === 200 ? Buffer.from(await answer.arrayBuffer()) : undefined;
    });
    assert.equal(hash(bytes), this.pictures[number].expected, `the result of ${id}`);
    this.finished = (this.finished ?? 0) + 1;
  }
  // Kills one of them and starts it again; the database is down for `pause` ms.
  async strike(role, pause = 0) {
    this.kills[role]++;
    if (role === 'database') {
      await this.database.kill();
      await sleep(pause);
      await this.database.start();
      return;
    }
    const list = this.of(role).filter(({ url }) => url), server = list[Math.floor(this.next() * list.length)];
    if (!server) return;
    const { pid } = server.child.process;
    await server.kill();
    if (role === 'worker' && !this.long) // in the short form nobody waits for half a minute
      await this.database.sql(`UPDATE jobs SET lease = 1 WHERE state = 1 AND owner IN (SELECT owner FROM workers WHERE about::json ->> 'pid' = '${pid}')`);
    await sleep(pause);
    let why = ''; // not while the database is away
    await until(`${role} ${server.number} starts`, () => server.start().then(() => true, (error) => { why = error.message; return null; }))
      .catch((error) => this.explain(new Error(`${error.message}\n${lastLines('its last try', why)}`)));
  }
  // In the end: every job has ended once, nothing waits, and no picture is there that no job has.
  async check() {
    const one = async (statement) => Number(await this.database.sql(statement));
    assert.equal(await one('SELECT count(*) FROM jobs WHERE state < 2'), 0, 'nothing is stuck');
    assert.equal(await one('SELECT count(*) FROM (SELECT id FROM ends GROUP BY id HAVING count(*) > 1) AS twice'), 0, 'no job ended twice');
    assert.equal(await one('SELECT count(*) FROM jobs') - await one('SELECT count(DISTINCT id) FROM ends'), 0, 'each has ended');
    assert.equal(await one('SELECT count(*) FROM results WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE number = job)'), 0, 'no result without its job');
    const there = (await this.database.sql('SELECT id FROM jobs')).split('\n');
    for (const id of this.accepted.keys()) assert.ok(there.includes(id), `${id} is there`);
  }
  async stop() {
    this.stopped = true;
    const there = this.servers.filter((server) => server.child);
    const timer = setTimeout(() => there.forEach((server) => server.child.process.kill('SIGKILL')), 20e3);
    await Promise.all(there.map((server) => server.end('SIGTERM')));
    clearTimeout(timer);
    this.network?.stop();
    await this.database?.stop();
    fs.rmSync(this.folder, { recursive: true, force: true });
  }
}

// ---- for long ----

async function main() {
  const seconds = Number(process.env.CHAOS_SECONDS ?? 300), seed = Number(process.env.CHAOS_SEED ?? Date.now() % 1e9);
  const nodes = Number(process.env.CHAOS_NODES ?? 1), network = process.env.CHAOS_ONLY === 'network';
  const cluster = new Cluster({ seed, long: true, nodes });
  console.log(`${seconds} s, CHAOS_SEED=${seed}, ${binary}`);
  if (!(await cluster.start())) { console.log('skipped: no PostgreSQL is installed'); return; }
  const end = Date.now() + 1000 * seconds;
  let told = Date.now();
  const tell = () => console.log(`${Math.round((Date.now() - end) / 1000 + seconds)} s: accepted ${cluster.accepted.size}, right ${cluster.finished ?? 0}, given up ${cluster.givenUp ?? 0}; killed: front ends ${cluster.kills.front}, workers ${cluster.kills.worker}, database ${cluster.kills.database}; connections cut ${cluster.network.cuts}, half-open ${cluster.network.stalls}; asked again ${cluster.retries}`);
  try {
    const clients = Array.from({ length: 6 }, async (_, client) => {
      for (let i = 0; Date.now() < end; i++) await cluster.finish(await cluster.submit(Math.floor(cluster.next() * cluster.pictures.length), `${client}-${i}`));
    });
    const trouble = (async () => {
      while (Date.now() < end) {
        await sleep(2000);
        const dice = cluster.next();
        if (!network) await cluster.strike(dice < 0.6 ? 'worker' : dice < 0.85 ? 'front' : 'database', 1000 * cluster.next());
        cluster.network.delay = cluster.next() < 0.5 ? 0 : (network ? 300 : 60) * cluster.next();
        if (cluster.next() < 0.4) cluster.network.cut(0.3);
        if (network && cluster.next() < 0.3) cluster.network.stall(0.2);
        if (network && cluster.next() < 0.1) { // nobody reaches it for a while
          cluster.network.closed = true;
          cluster.network.cut(1);
          await sleep(4000 * cluster.next());
          cluster.network.closed = false;
        }
        if (Date.now() > told + 30e3) { told = Date.now(); tell(); }
      }
      cluster.network.delay = 0;
    })();
    await Promise.all([...clients, trouble]);
    await cluster.check();
    tell();
    console.log('nothing lost, nothing stuck, no other result, none twice');
  } finally {
    await cluster.stop();
  }
}
if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
