// A database of a test's own, in the PostgreSQL that tests/postgres.sh has started; `skip` says why there is none.
import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { root } from './server.mjs';

const server = process.env.RESTORED_TEST_POSTGRES;
export const skip = server ? false : 'no PostgreSQL: run by sh tests/postgres.sh, with Debian\'s postgresql';

// What psql prints, without decoration.
export const sql = (url, text) => execFileSync('psql', ['-X', '-A', '-t', '-q', '-v', 'ON_ERROR_STOP=1', '-d', url, '-c', text], { encoding: 'utf8' }).trim();

export function database(context) {
  const name = `test_${randomBytes(6).toString('hex')}`;
  sql(server, `CREATE DATABASE ${name}`);
  context?.after(() => sql(server, `DROP DATABASE ${name} WITH (FORCE)`));
  return server.replace(/\/[^/]*$/, `/${name}`);
}

// A server of a test's own, which it may kill: {url, dir, kill(), start(), stop()}. kill is kill -9 of all of it.
export async function ownServer() {
  const script = join(root, 'tests/postgres.sh');
  const child = spawn('sh', [script, 'sh', '-c', 'env | grep ^RESTORED_TEST_POSTGRES; echo END; cat >/dev/null'], { stdio: ['pipe', 'pipe', 'inherit'] });
  let text = '';
  for await (const bytes of child.stdout) if ((text += bytes).includes('END\n')) break;
  const env = Object.fromEntries([...text.matchAll(/^(RESTORED_TEST_POSTGRES\w*)=(.*)$/gm)].map(([, name, value]) => [name, value]));
  const tell = (what) => execFileSync('sh', [script, what], { env: { ...process.env, ...env }, timeout: 120000, stdio: ['ignore', 'ignore', 'inherit'] });
  const stop = () => new Promise((done) => { child.on('close', done); child.stdin.end(); });
  return { url: env.RESTORED_TEST_POSTGRES, dir: env.RESTORED_TEST_POSTGRES_DIR, kill: () => tell('--kill'), start: () => tell('--start'), stop };
}
