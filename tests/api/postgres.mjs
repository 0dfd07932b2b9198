// A database of a test's own, in the PostgreSQL that tests/postgres.sh has started; `skip` says why there is none.
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';

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
