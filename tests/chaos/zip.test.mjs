// An archive of results beyond what the first form of zip can say: 4 GiB in one file, files that begin behind that, more than
// 65,535 of them. The results are sparse files put into the spool, and the archive is kept as one: no disk is filled. What
// reads it is Python's zipfile. In the long form alone: a minute or more, nine GB through a socket.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fixture, get, plain, post, start, until } from '../api/client.mjs';
import { long } from './chaos.mjs';

const GIB = 2 ** 30, sizes = [1000, 5 * GIB + 7, 3 * GIB, 2000], many = 70000;

// A job's result becomes larger (sys.argv: store, spool, then id and size of each), and one gets many copies under a name of
// their own: the last two arguments are its id and their number.
const change = `
import json, os, shutil, sqlite3, sys
store, spool, *rest = sys.argv[1:]
copied, count = rest[-2:]
db = sqlite3.connect(store)
for id, size in zip(rest[:-2:2], rest[1:-2:2]):
    number, = db.execute('SELECT number FROM jobs WHERE id = ?', (id,)).fetchone()
    parts = json.loads(db.execute('SELECT parts FROM results WHERE job = ?', (number,)).fetchone()[0])
    part = next(part for part in parts if part['kind'] == 'result')
    part['size'] = int(size)
    os.truncate(os.path.join(spool, id + '.output'), part['offset'] + int(size))
    db.execute('UPDATE results SET parts = ? WHERE job = ?', (json.dumps(parts), number))
    db.execute('UPDATE jobs SET output_bytes = ? WHERE number = ?', (part['offset'] + int(size), number))
number, = db.execute('SELECT number FROM jobs WHERE id = ?', (copied,)).fetchone()
columns = ', '.join(row[1] for row in db.execute('PRAGMA table_info(jobs)') if row[1] not in ('number', 'id'))
for i in range(1, int(count)):
    id = '%032x' % i
    new = db.execute(f'INSERT INTO jobs (id, {columns}) SELECT ?, {columns} FROM jobs WHERE number = ?', (id, number)).lastrowid
    db.execute('INSERT INTO results (job, report, parts) SELECT ?, report, parts FROM results WHERE job = ?', (new, number))
    path = os.path.join(spool, id + '.output')
    if i % 10000 == 1: # a file has at most 65,000 names on ext4
        source = shutil.copyfile(os.path.join(spool, copied + '.output'), path)
    else:
        os.link(source, path)
db.commit()
`;
// What an archive holds; every byte is read and compared with its sum.
const list = `
import json, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as file:
    assert file.testzip() is None
    print(json.dumps([[one.filename, one.file_size, one.header_offset] for one in file.infolist()]))
`;
const python = (code, ...values) => execFileSync('python3', ['-c', code, ...values.map(String)], { maxBuffer: 64 << 20 });

test('results.zip of more than 4 GiB, and of more than 65,535 files', { skip: !long && 'only in the long form', timeout: 1200000 }, async (context) => {
  const folder = fs.mkdtempSync(join(tmpdir(), 'restored-zip-')), state = join(folder, 'state'), file = join(folder, 'results.zip');
  context.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const args = ['--device', 'cpu', '--state_dir', state, '--spool_max_bytes', String(64 * GIB)];
  let server = await start({ context, args });
  const submit = async (batch) => {
    const { json } = await post(server, '/v1/restore', { picture: fixture('none.png'), name: 'a.png', fields: { ...plain, batch } });
    return until('its end', async () => (await get(server, `/v1/jobs/${json.id}`)).json.state === 'done' && json.id);
  };
  const large = [];
  for (const size of sizes) large.push([await submit('large'), size]);
  const copied = await submit('many');
  await server.stop();
  python(change, join(state, fs.readdirSync(state).find((name) => /\.db$/.test(name))), join(state, 'spool'), ...large.flat(), copied, many);

  server = await start({ context, args });
  const resident = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${server.process.pid}/status`, 'latin1'))[1]) / 1024;
  const zeros = Buffer.alloc(1 << 20);
  async function load(batch) {
    const before = resident(), fd = fs.openSync(file, 'w');
    let size = 0, most = 0, pieces = 0;
    for await (const piece of (await fetch(`${server.url}/v1/batches/${batch}/results.zip`)).body) {
      if (!zeros.subarray(0, piece.length).equals(piece)) fs.writeSync(fd, piece, 0, piece.length, size);
      size += piece.length;
      if (pieces++ % 1000 === 0) most = Math.max(most, resident() - before);
    }
    fs.ftruncateSync(fd, size);
    fs.closeSync(fd);
    context.diagnostic(`${batch}: ${size} bytes, the server grew by ${most.toFixed(1)} MiB`);
    return { size, most, entries: JSON.parse(python(list, file)) };
  }
  const first = await load('large');
  assert.deepEqual(first.entries.map(([name, size]) => [name, size]), sizes.map((size, i) => [i ? `a (${i + 1}).png` : 'a.png', size]));
  assert.ok(first.entries[2][2] > 4 * GIB, 'one begins behind 4 GiB');
  assert.ok(first.most < 32, `${first.most} MiB`);
  const second = await load('many');
  assert.equal(new Set(second.entries.map(([name]) => name)).size, many);
  assert.ok(second.most < 100, `${second.most} MiB`); // its list of names
  await server.stop();
});
