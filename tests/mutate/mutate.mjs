// make mutate: how many small mistakes the tests would notice. Draws mutants of the sources (mutants.mjs), compiles each
// in a copy of the working tree, and runs the nearest test programs until one fails. Prints every survivor, and the
// score: the share that was noticed of those that compile and are not known to change nothing (mutate/equivalent.txt).
//   node tests/mutate/mutate.mjs [--seed N] [--count N] [--jobs N] [--all | --programs] [--list] [--these FILE] [--within SECONDS]
//     [--tests NAMES] [FOLDER-or-FILE…]
// --list: prints those drawn and does no more; a long sample can so be tried in pieces with --these.
// --these: not drawn, but those of a file that has one a line, as survivors are printed: FILE: WAS => TEXT.
// --all: golden tests and others that need more than 20 s of a processor run, too, and every unit test.
// --programs: test programs in C alone; what they do not notice may still be seen by a test of the server.
// --within: no more tests for a mutant that has had so much time; it counts as a survivor, to be tried again with --these.
// --tests: these instead of the nearest: 'unit/test_queue api/queue'.
// The copies stay in build-mutate/ with what was built there; so do the times that the tests took (times.json).
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, realpathSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { mutants } from './mutants.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: 'string', default: '1' }, count: { type: 'string', default: '150' }, jobs: { type: 'string', default: '2' },
    all: { type: 'boolean', default: false }, list: { type: 'boolean', default: false }, programs: { type: 'boolean', default: false }, these: { type: 'string' },
    within: { type: 'string', default: 'Infinity' }, tests: { type: 'string' },
  },
});
const where = positionals.length ? positionals : ['server', 'runtime/nn', 'runtime/weights', 'runtime/models'];
const SLOW = 20; // seconds of a processor

// Tests of a folder beside those that include the file's own header; api/ is node's. Quick and likely ones first.
const near = [
  ['server/image/', 'unit/test_image unit/test_codec unit/test_codec_damage unit/test_codec_other unit/test_codec_formats unit/test_lab unit/test_codec_jpeg unit/test_jpeg_encode unit/test_hostile_pictures unit/test_restoration api/pictures unit/test_alloc golden/test_pipeline'],
  ['server/pipeline/', 'unit/test_options unit/test_tile_memory unit/test_model_store unit/test_model_conf unit/test_repair unit/test_repair_fill unit/test_restoration unit/test_crowd api/options api/pictures api/starter api/estimate unit/test_alloc unit/test_fault unit/test_overlap golden/test_pipeline'],
  ['server/job/', 'unit/test_queue unit/test_turns unit/test_devices unit/test_estimate unit/test_worker_pool unit/test_worker_jobs api/estimate api/queue api/devices api/faults api/jobs api/spool'],
  ['server/http/', 'unit/test_upload unit/test_header unit/test_site api/framing api/answers api/info api/jobs api/options api/site api/estimate api/openapi api/wire api/attack api/pictures api/queue api/signals'],
  ['server/cli/cli_healthcheck', 'api/cli api/tls'],
  ['server/cli/', 'unit/test_cli_progress unit/test_doctor api/cli api/cli_restore api/watch api/doctor api/models api/bench api/info'],
  ['server/store/', 'unit/test_store unit/test_spool unit/test_events api/jobs api/spool'],
  ['server/', 'unit/test_config unit/test_proxies api/info api/cli api/cli_restore api/signals'],
  ['runtime/nn/', 'unit/test_graph unit/test_order unit/test_plan_cache ops/test_graphs unit/test_alloc golden/test_shapes golden/test_networks'],
  ['runtime/weights/', 'unit/test_weights unit/test_pth_legacy unit/test_pth_zip unit/test_safetensors unit/test_pickle unit/test_model_file unit/test_alloc golden/test_networks'],
  ['runtime/models/', 'unit/test_model_store unit/test_model_file golden/test_shapes unit/test_restoration golden/test_networks'],
  ['runtime/', 'unit/test_plan_cache unit/test_engine'],
];

// A small generator with a seed: equal seeds draw equal mutants of equal sources.
let state = BigInt(values.seed) * 0x9e3779b97f4a7c15n & 0xffffffffffffffffn;
function draw(below) {
  state = (state + 0x9e3779b97f4a7c15n) & 0xffffffffffffffffn;
  let z = state;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & 0xffffffffffffffffn;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & 0xffffffffffffffffn;
  return Number((z ^ (z >> 31n)) % BigInt(below));
}

const git = (...args) => execFileSync('git', args, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 28 });
const listed = (...args) => [...new Set(git('ls-files', '-z', '--cached', '--others', '--exclude-standard', '--', ...args).split('\0'))]
  .filter((file) => file && existsSync(join(root, file)) && statSync(join(root, file)).isFile());
const lines = (file) => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').map((line) => line.split(' # ')[0].trim()).filter((line) => line && !line.startsWith('#')) : []);
const oneLine = (text) => text.replace(/\s+/g, ' ');
const name = (m) => `${m.file}: ${oneLine(m.was)} => ${oneLine(m.text)}`;
const whole = (m) => `${name(m)} in ${m.around}`;

const all = listed(...where).filter((file) => file.endsWith('.c')).flatMap((file) => mutants(file, readFileSync(join(root, file), 'utf8')));
const chosen = [];
if (values.these) {
  const wanted = new Set(lines(resolve(values.these)));
  chosen.push(...all.filter((m) => wanted.has(whole(m))));
} else
  while (chosen.length < Number(values.count) && all.length) chosen.push(all.splice(draw(all.length), 1)[0]);
const known = new Set(lines(join(root, 'tests/mutate/equivalent.txt')));
if (values.list) {
  for (const m of chosen) console.log(whole(m));
  process.exit(0);
}

// One at a time: two would write to the same copies. What runs ends with this process.
const lock = join(root, 'build-mutate/pid');
mkdirSync(dirname(lock), { recursive: true });
if (existsSync(lock) && existsSync(`/proc/${readFileSync(lock, 'utf8')}`)) {
  console.error(`process ${readFileSync(lock, 'utf8')} is at work in build-mutate/`);
  process.exit(2);
}
writeFileSync(lock, `${process.pid}`);
const running = new Set();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
  process.on(signal, () => {
    for (const child of running) try { process.kill(-child.pid, 'SIGTERM'); } catch { /* it has ended */ }
    process.exit(2);
  });
process.on('exit', () => rmSync(lock, { force: true }));

// Processor seconds of each test, where it passed.
const timesFile = join(root, 'build-mutate/times.json');
const times = existsSync(timesFile) ? JSON.parse(readFileSync(timesFile, 'utf8')) : {};
const programs = ['unit', 'golden', 'ops'].flatMap((folder) => readdirSync(join(root, 'tests', folder))
  .filter((file) => /^test_.*\.c$/.test(file)).map((file) => `${folder}/${file.slice(0, -2)}`));
const sources = Object.fromEntries(programs.map((program) => [program, readFileSync(join(root, 'tests', `${program}.c`), 'utf8')]));
// Tests of the server that have a word of the file's name: job_json.c's are api/jobs.
const served = readdirSync(join(root, 'tests/api')).filter((file) => file.endsWith('.test.mjs')).map((file) => file.slice(0, -9));
const named = (file) => basename(file, '.c').split('_').flatMap((part) => served.filter((test) => [part, `${part}s`, `${part}es`].includes(test)))
  .map((test) => `api/${test}`);
// The tests of a file: those that have its name or include its header, the quick ones first; then its folder's.
function testsOf(file) {
  if (values.tests) return values.tests.split(' ');
  const own = `unit/test_${basename(file, '.c')}`, header = `"${file.replace(/\.c$/, '.h')}"`;
  const rank = (program) => (program === own ? -1 : times[program] ?? 1);
  const using = programs.filter((program) => program === own || sources[program].includes(header)).sort((a, b) => rank(a) - rank(b));
  const quick = using.filter((program) => rank(program) < 3);
  const folder = near.find(([prefix]) => file.startsWith(prefix))?.[1].split(' ') ?? [];
  const rest = values.all ? programs.filter((program) => program.startsWith('unit/')) : [];
  return [...new Set([...quick, ...(file.startsWith('server/') ? named(file) : []), ...folder, ...using, ...rest])]
    .filter((test) => existsSync(join(root, 'tests', test.startsWith('api/') ? `${test}.test.mjs` : `${test}.c`)))
    .filter((test) => !(values.programs && test.startsWith('api/')))
    .filter((test) => values.all || test === own || (times[test] ?? (test.startsWith('golden/') ? Infinity : 0)) <= SLOW);
}

const environment = { ...process.env, RESTORED_SHARED: process.env.RESTORED_SHARED ?? resolve(root, '../shared'), CI: '1' };
// {ok, text, what, seconds}: whether the command ended well within the time, what `until` found in its output, at which it is
// ended, and the processor's time that it took. Its memory is bounded: a mutant may ask for more and more.
function run(tree, limit, command, until) {
  return new Promise((done) => {
    const child = spawn('sh', ['-c', `ulimit -d 12000000; ${command}; code=$?; times; exit $code`],
                        { cwd: tree, env: environment, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    running.add(child);
    let text = '', what = '';
    const end = () => { try { process.kill(-child.pid, 'SIGKILL'); } catch { /* it has ended */ } };
    const keep = (data) => { // ends at the first test that fails
      text = (text + data).slice(-4000);
      const failed = until && text.match(until);
      if (!failed || what) return;
      what = failed[1];
      end();
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    const timer = setTimeout(end, limit * 1e3);
    child.on('close', (code) => {
      clearTimeout(timer);
      running.delete(child);
      const [user, system] = [...text.matchAll(/(\d+)m([\d.]+)s/g)].slice(-2).map(([, m, s]) => 60 * m + Number(s));
      done({ ok: code === 0, text, what, seconds: (user ?? 0) + (system ?? 0) });
    });
  });
}
const linker = ['lld', 'gold'].find((one) => existsSync(`/usr/bin/ld.${one}`));
const make = (tree, ...targets) => run(tree, 1800, `make -s ${linker ? `LDFLAGS=-fuse-ld=${linker}` : ''} ${targets.join(' ')}`);
const targetsOf = (test) => (test.startsWith('api/') ? ['restored', 'build/tests/restored', 'fixtures']
  : [`build/tests/${test}`, ...(sources[test].includes('"build/tests/restored"') ? ['build/tests/restored'] : [])]);
async function runTest(tree, test) {
  const built = await make(tree, ...targetsOf(test));
  if (!built.ok) return { ...built, compile: true };
  const limit = times[test] ? Math.max(30, 15 * times[test]) : 300;
  return test.startsWith('api/') ? run(tree, limit, `node --test --test-reporter=tap tests/${test}.test.mjs`, /^ *not ok \d+ - (.*)\n/m)
    : run(tree, limit, `build/tests/${test}`, /^\[  FAILED  \] ([a-z]\w*)\n/m);
}
// Whether a test passes without a mutant: asked where it failed with one, until it has passed once.
const passed = new Map();
function note(test, outcome) {
  passed.set(test, outcome.ok);
  if (!outcome.ok) return;
  times[test] = Math.max(times[test] ?? 0, outcome.seconds);
  writeFileSync(timesFile, JSON.stringify(times, null, 1));
}

// Brings a copy to what the working tree is; only what differs is written, so that little is built again.
function copy(tree) {
  const files = listed();
  mkdirSync(tree, { recursive: true });
  const there = existsSync(join(tree, '.files')) ? lines(join(tree, '.files')) : [];
  for (const file of there.filter((one) => !files.includes(one))) rmSync(join(tree, file), { force: true });
  for (const file of files) {
    const from = readFileSync(join(root, file)), to = join(tree, file);
    if (existsSync(to) && readFileSync(to).equals(from)) continue;
    mkdirSync(dirname(to), { recursive: true });
    writeFileSync(to, from, { mode: statSync(join(root, file)).mode });
  }
  writeFileSync(join(tree, '.files'), files.join('\n'));
}

async function prepare(tree, from) {
  const twin = from && !existsSync(tree);
  if (twin) execFileSync('cp', ['-a', from, tree]);
  copy(tree);
  if (twin) { // the folder's name is among the flags; the objects are good nevertheless
    await make(tree, 'build/flags');
    execFileSync('find', [join(tree, 'build'), '-name', '*.o', '-exec', 'touch', '{}', '+']);
  }
  if (existsSync(join(root, 'tests/node_modules')) && !existsSync(join(tree, 'tests/node_modules')))
    symlinkSync(realpathSync(join(root, 'tests/node_modules')), join(tree, 'tests/node_modules'));
  const built = await make(tree, 'objects', 'fixtures');
  if (!built.ok) throw new Error(`the tree does not build:\n${built.text}`);
}

const results = [];
let next = 0;
async function judge(tree, m, change, restore) {
  if (known.has(whole(m)) || known.has(name(m))) return { result: 'equivalent' };
  const started = Date.now();
  change();
  const built = await make(tree, `build/${m.file.replace(/\.c$/, '.o')}`);
  if (!built.ok) return { result: 'compiler' };
  for (const test of testsOf(m.file).filter((one) => passed.get(one) !== false)) {
    if (Date.now() - started > 1e3 * values.within) break;
    const outcome = await runTest(tree, test);
    if (outcome.ok) {
      note(test, outcome);
      continue;
    }
    if (outcome.compile) return { result: 'compiler' };
    if (passed.get(test)) return { result: 'killed', by: `${test} ${outcome.what}`.trim() };
    restore();
    note(test, await runTest(tree, test));
    if (passed.get(test)) return { result: 'killed', by: `${test} ${outcome.what}`.trim() };
    console.log(`${test} fails without any mutant and is left out`);
    change();
  }
  return { result: 'survived' };
}
async function work(tree) {
  while (next < chosen.length) {
    const m = chosen[next++], path = join(tree, m.file), source = readFileSync(path, 'utf8');
    const started = Date.now();
    const restore = () => writeFileSync(path, source);
    const { result, by } = await judge(tree, m, () => writeFileSync(path, source.slice(0, m.begin) + m.text + source.slice(m.end)), restore);
    restore();
    results.push({ ...m, result });
    console.log(`${String(results.length).padStart(4)} ${result.padEnd(10)} ${m.file}:${m.line} ${m.kind}: ${oneLine(m.was)} => ${oneLine(m.text)} ` +
      `(${by ? `${by}, ` : ''}${Math.round((Date.now() - started) / 1e3)} s)`);
  }
}
const trees = Array.from({ length: Number(values.jobs) }, (_, i) => join(root, `build-mutate/${i}`));
for (const [i, tree] of trees.entries()) await prepare(tree, i && trees[0]);
await Promise.all(trees.map(work));

const count = (result, list = results) => list.filter((m) => m.result === result).length;
console.log('\nsurvivors:');
for (const m of results.filter((one) => one.result === 'survived')) console.log(`# ${m.file}:${m.line} ${m.kind}\n${whole(m)}`);
console.log();
for (const folder of [...new Set(results.map((m) => dirname(m.file)))].sort().concat('')) {
  const list = results.filter((m) => !folder || dirname(m.file) === folder), killed = count('killed', list), survived = count('survived', list);
  console.log(`${folder || `seed ${values.seed}, all`}: ${list.length} mutants, the compiler stopped ${count('compiler', list)}, ${count('equivalent', list)} change nothing, ` +
    `tests noticed ${killed}, ${survived} survived; score ${(100 * killed / Math.max(1, killed + survived)).toFixed(1)} %`);
}
