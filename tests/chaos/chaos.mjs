// What the chaos tests share: a server that can be killed at any moment and started again, clients that go on asking as
// real ones do, and what must hold in the end.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { fixture, plain, png, post, sleep, until } from '../api/client.mjs';
import { fixtureModels, startServer } from '../api/server.mjs';

export const long = process.env.RESTORED_FULL === '1';
const here = dirname(fileURLToPath(import.meta.url));
const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');

// Random numbers that can be had again: mulberry32. The seed is printed by those who use it.
export const random = (seed) => () => {
  seed = (seed + 0x6d2b79f5) | 0;
  let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
};

// The preload library and its control file: 7 words, see fault.c.
export function faults(folder) {
  const library = join(folder, 'fault.so'), path = join(folder, 'control');
  execFileSync(process.env.CC?.split(' ').at(-1) ?? 'cc', ['-shared', '-fPIC', '-O1', '-D_GNU_SOURCE', '-o', library, join(here, 'fault.c'), '-ldl']);
  fs.writeFileSync(path, Buffer.alloc(28));
  const set = (words, first = 0) => { const fd = fs.openSync(path, 'r+'); fs.writeSync(fd, Buffer.from(Uint32Array.from(words).buffer), 0, 4 * words.length, 4 * first); fs.closeSync(fd); };
  const get = () => { const bytes = fs.readFileSync(path); return [0, 1, 2, 3, 4, 5, 6].map((i) => bytes.readUInt32LE(4 * i)); };
  return {
    env: (state) => ({ LD_PRELOAD: library, CHAOS_CONTROL: path, CHAOS_FOLDER: state }),
    // The from-th call from now and those after it, `count` in all, fail with this errno; 0: the process is killed.
    arm: (from, count, errno) => set([0, from, count, errno, 0]),
    calls: () => get()[0],
    failed: () => get()[4],
    // fsync does not come back while it is held.
    hold: (held) => set([held ? 1 : 0], 5),
    held: () => get()[6],
  };
}

export class Place {
  constructor(env = () => ({}), args = []) {
    this.folder = fs.mkdtempSync(join(tmpdir(), 'restored-chaos-'));
    this.state = join(this.folder, 'state');
    this.env = env;
    this.args = args;
  }
  async start() {
    this.server = await startServer({ args: [...fixtureModels, '--state_dir', this.state, '--log_level', 'warn', ...this.args], env: this.env(this.state) });
    this.url = this.server.url;
    await until('ready', async () => (await fetch(`${this.url}/readyz`)).status === 200);
  }
  // As after a loss of power, as far as one process can tell.
  async kill() {
    this.url = null;
    this.server.process.kill('SIGKILL');
    await this.dead();
  }
  async dead() {
    if (this.server.process.exitCode === null && this.server.process.signalCode === null)
      await new Promise((done) => this.server.process.on('exit', done));
    this.url = null;
  }
  async stop() {
    const how = await this.server.stop();
    assert.equal(how.code, 0, this.server.log());
  }
  remove() {
    this.server?.process.kill('SIGKILL'); // of a test that failed: nobody has stopped it
    fs.rmSync(this.folder, { recursive: true, force: true });
  }
  // How many asynchronous jobs are done.
  async done() {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    return Number(/^restored_async_jobs\{state="done"\} (\d+)$/m.exec(text)[1]);
  }

  // What each picture becomes, without disturbance.
  async learn(pictures) {
    this.expected = [];
    for (const picture of pictures) {
      const answer = await post(this, '/v1/restore', { picture, fields: plain });
      assert.equal(answer.status, 200);
      this.expected.push(hash(answer.bytes));
    }
    this.pictures = pictures;
    this.accepted = new Map(); // id: number of its picture
  }
  // One asynchronous job; after an error the same request is sent again under the same key, as clients do.
  async submit(number, key, going = () => true) {
    while (going()) {
      try {
        const answer = await post(this, '/v1/restore', { picture: this.pictures[number], fields: { ...plain, async: 'true' }, headers: { 'Idempotency-Key': key } });
        if (answer.status === 202) {
          this.accepted.set(answer.json.id, number);
          return answer.json.id;
        }
        assert.ok([429, 500, 503, 507].includes(answer.status), JSON.stringify(answer.json));
      } catch (error) {
        if (error instanceof assert.AssertionError) throw error;
      }
      await sleep(20);
    }
    return null;
  }
  async wait() {
    if (this.url) return post(this, '/v1/restore', { picture: this.pictures[0], fields: plain }).then(({ status, bytes }) => {
      if (status === 200) assert.equal(hash(bytes), this.expected[0], 'a synchronous result');
    }, () => {});
    return sleep(20);
  }
  // Every accepted job is there and done, with the picture that it should have.
  async settle() {
    for (const [id, number] of this.accepted) {
      const job = await until(`the end of ${id}`, async () => {
        const answer = await fetch(`${this.url}/v1/jobs/${id}`), json = await answer.json();
        assert.equal(answer.status, 200, `an accepted job is lost: ${JSON.stringify(json)}`);
        return !['queued', 'running'].includes(json.state) && json;
      });
      assert.equal(job.state, 'done', JSON.stringify(job.error));
      const answer = await fetch(`${this.url}/v1/jobs/${id}/result`);
      assert.equal(answer.status, 200);
      assert.equal(hash(Buffer.from(await answer.arrayBuffer())), this.expected[number], `the result of ${id}`);
    }
  }
  // The same, and when all are forgotten nothing is left.
  async check() {
    await this.settle();
    for (let path = '/v1/jobs?limit=1000'; path; ) {
      const { jobs, next } = await (await fetch(this.url + path)).json();
      for (const { id } of jobs) // among them those whose 202 was lost on the way
        await until(`${id} is forgotten`, async () => [204, 404].includes((await fetch(`${this.url}/v1/jobs/${id}`, { method: 'DELETE' })).status));
      path = next && '/v1/jobs?limit=1000';
    }
    await until('an empty spool', () => !this.files().length);
  }
  files() { return fs.readdirSync(join(this.state, 'spool')).filter((name) => name !== 'lock' && name !== '.lock'); }
}

export const pictures = () => [fixture('none.png'), fixture('two.png'), png(97, 61), png(200, 150)];
