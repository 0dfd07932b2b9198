// Three PostgreSQL that are one, as Patroni would have them: each commit is on two, and when the primary is killed the standby that has
// most goes on, the other follows it, and the old one begins anew as a standby.
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { until } from '../api/client.mjs';

const script = join(dirname(fileURLToPath(import.meta.url)), 'nodes.sh');

// As startDatabase of cluster.mjs; null where there is no PostgreSQL. start() makes another node the primary.
export async function startNodes() {
  const dir = fs.mkdtempSync(join(tmpdir(), 'restored_nodes_'));
  const first = 21000 + 3 * (process.pid % 3000), ports = [first, first + 1, first + 2];
  const exec = (program, words, env = {}) => new Promise((done, fail) => execFile(program, words.map(String), { env: { ...process.env, ...env }, maxBuffer: 64 << 20 }, (error, out, err) => (error ? fail(Object.assign(new Error(`${program} ${words.slice(0, 3)}: ${err || out}`), { code: error.code })) : done(out.trim()))));
  const tell = (...words) => exec('sh', [script, ...words], { NODES_DIR: dir, NODES_PORT: String(first) });
  const where = (list) => `postgresql://postgres@${list.map((port) => `127.0.0.1:${port}`).join(',')}/postgres?target_session_attrs=read-write`;
  const ask = (url, statement) => exec('psql', ['-X', '-A', '-t', '-q', '-v', 'ON_ERROR_STOP=1', '-d', url, '-c', statement]);
  const of = (node, statement) => ask(`postgresql://postgres@127.0.0.1:${ports[node]}/postgres`, statement);
  const nodes = { ports, where, primary: 0, failovers: 0, url: where(ports), sql: (statement) => ask(where(ports), statement) };
  const attached = () => until('both standbys stream', async () => (await of(nodes.primary, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").catch(() => '')) === '2');
  try {
    await tell('init');
  } catch (error) {
    fs.rmSync(dir, { recursive: true, force: true });
    if (error.code === 77) return null;
    throw error;
  }
  for (const node of [1, 2]) await tell('standby', node, 0);
  let whole = attached();
  await whole;
  nodes.kill = async () => { // never the second of three
    await whole;
    await tell('kill', nodes.primary);
  };
  nodes.start = async () => {
    const old = nodes.primary, others = [0, 1, 2].filter((node) => node !== old);
    const has = await Promise.all(others.map((node) => of(node, "SELECT pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')").then(Number)));
    const [next, other] = has[0] >= has[1] ? others : others.reverse();
    await tell('promote', next);
    nodes.primary = next;
    nodes.failovers++;
    await tell('follow', other, next);
    whole = tell('standby', old, next).then(attached);
    whole.catch(() => {}); // kill or stop tell of it
  };
  nodes.stop = async () => { try { await whole; } finally { await tell('stop'); } };
  return nodes;
}
