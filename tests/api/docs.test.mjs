// README.md and docs/: their commands work as they stand and give what the pages show; their tables say what the server
// says; what they quote and link to exists.
//
// A ```sh block is run, line by line, in a folder with the pictures that prepare() puts there. A ```json block right
// after it is what its last command prints, a ```http block the status line, headers and body of `curl -i`. In JSON the
// members and their types have to be the same; in ```http also texts and the headers that are shown, but for "…", which
// stands for anything. In a problem, members may be left out. Other blocks (```text, ```) are not looked at.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { png, pngSize } from './client.mjs';
import { binary, fixtures, root, startServer } from './server.mjs';

const folder = mkdtempSync(join(tmpdir(), 'restored-docs-'));
let server;

function prepare() {
  for (const name of ['deep.png', 'two.png', 'gray.jpg']) copyFileSync(join(fixtures, name), join(folder, name));
  copyFileSync(join(fixtures, 'picture.jpg'), join(folder, 'photo.jpg'));
  copyFileSync(join(fixtures, 'srvgg_x2.safetensors'), join(folder, 'mine.safetensors'));
  writeFileSync(join(folder, 'mask.png'), png(...pngSize(readFileSync(join(fixtures, 'picture.png')))));
  mkdirSync(join(folder, 'photos'));
  mkdirSync(join(folder, 'ComfyUI/models/upscale_models'), { recursive: true });
  copyFileSync(join(fixtures, 'srvgg_x2.safetensors'), join(folder, 'ComfyUI/models/upscale_models/theirs.safetensors'));
  for (const name of ['two.png', 'gray.jpg']) copyFileSync(join(fixtures, name), join(folder, 'photos', name));
}

before(async () => {
  prepare();
  server = await startServer();
  for (let i = 0; i < 600 && (await fetch(`${server.url}/readyz`)).status !== 200; i++) await new Promise((r) => setTimeout(r, 100));
});
after(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const read = (path) => readFileSync(join(root, path), 'utf8');
const pages = ['README.md', ...readdirSync(join(root, 'docs')).filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`)];

// Rows of the tables under a heading, as arrays of cells; `\|` in a cell is no border.
function rows(page, heading) {
  const lines = read(page).split('\n');
  const begin = lines.findIndex((line) => /^#+ /.test(line) && line.replace(/^#+ /, '') === heading);
  assert.ok(begin >= 0, `${page} has no heading "${heading}"`);
  const depth = lines[begin].indexOf(' ');
  const end = lines.findIndex((line, i) => i > begin && /^#+ /.test(line) && line.indexOf(' ') <= depth);
  return lines.slice(begin, end < 0 ? undefined : end).filter((line) => line.startsWith('|') && !/^\|[-|]+\|$/.test(line))
    .map((line) => line.slice(1, -1).split(/(?<!\\)\|/).map((cell) => cell.trim()));
}
const code = (cell) => /^`([^`]+)`/.exec(cell)?.[1];

// The shape of JSON: 'number', 'string', 'boolean', 'null', {member: shape} or [shape of all elements together].
function shape(value) {
  if (value === null) return 'null';
  if (Array.isArray(value)) return value.map(shape).reduce(([all], one) => [all === undefined ? one : join2(all, one)], [undefined]);
  return typeof value === 'object' ? Object.fromEntries(Object.entries(value).map(([name, one]) => [name, shape(one)])) : typeof value;
}
function join2(a, b) {
  if (a === 'null' || a === undefined) return b;
  if (b === 'null' || b === undefined) return a;
  if (Array.isArray(a) && Array.isArray(b)) return [join2(a[0], b[0])];
  if (typeof a === 'object' && typeof b === 'object')
    return Object.fromEntries([...new Set([...Object.keys(a), ...Object.keys(b)])].map((name) => [name, join2(a[name], b[name])]));
  return a === b ? a : 'mixed';
}
function sameShape(shown, came, at = 'the answer') {
  if (shown === 'null' || came === 'null' || shown === 'mixed' || came === 'mixed') return;
  if (Array.isArray(shown) && Array.isArray(came)) {
    assert.ok(shown[0] === undefined || came[0] !== undefined, `${at}: shown with elements, came without`);
    if (shown[0] !== undefined) sameShape(shown[0], came[0], `${at}[]`);
  } else if (typeof shown === 'object' && typeof came === 'object') {
    assert.deepEqual(Object.keys(shown).sort(), Object.keys(came).sort(), `members of ${at}`);
    for (const name of Object.keys(shown)) sameShape(shown[name], came[name], `${at}.${name}`);
  } else assert.equal(shown, came, at);
}

// Whether a text is as shown, where "…" stands for anything.
function sameText(shown, came, at) {
  const pattern = shown.split('…').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('[^]*');
  assert.match(String(came), new RegExp(`^${pattern}$`), at);
}

function sameHttp(shown, came) {
  const [head, body] = shown.trim().split('\n\n');
  const [status, ...headers] = head.split('\n');
  const last = came.trimEnd().split(/\r\n\r\n/);
  while (last.length > 1 && /^HTTP\/1.1 1\d\d /.test(last[0])) last.shift(); // 100 Continue
  const [answer, ...lines] = last[0].split('\r\n');
  assert.equal(answer, status);
  for (const header of headers) {
    const [name, value] = header.split(/: (.*)/);
    const line = lines.find((one) => one.toLowerCase().startsWith(`${name.toLowerCase()}: `));
    assert.ok(line, `there is no header ${name}`);
    sameText(value, line.slice(name.length + 2), name);
  }
  if (!body) return;
  const wanted = JSON.parse(body), got = JSON.parse(last.slice(1).join('\r\n\r\n'));
  if (!wanted.code) return sameShape(shape(wanted), shape(got));
  for (const [name, value] of Object.entries(wanted)) {
    if (typeof value === 'string') sameText(value, got[name], name);
    else assert.equal(got[name], value, name);
  }
}

// The commands of a page, each with the answer that is shown after its block.
function commands(page) {
  const blocks = [...read(page).matchAll(/^```(sh|json|http)\n([^]*?)^```$/gm)].map(([all, kind, text, ], i) => ({ all, kind, text }));
  const source = read(page);
  let at = 0;
  for (const block of blocks) { block.begin = source.indexOf(block.all, at); at = block.end = block.begin + block.all.length; }
  const found = [];
  blocks.forEach((block, i) => {
    if (block.kind !== 'sh') return;
    const lines = block.text.trim().replaceAll('\\\n', ' ').split('\n').filter((line) => !line.startsWith('#'));
    const next = blocks[i + 1];
    const shown = next && next.kind !== 'sh' && next.begin === block.end + 1 ? next : null;
    lines.forEach((line, k) => found.push({ line, shown: k === lines.length - 1 ? shown : null }));
  });
  return found;
}

const environment = {
  ...process.env,
  HOME: folder,
  PATH: `${dirname(binary)}:${process.env.PATH}`,
  RESTORED_MODELS_DIR: fixtures,
  RESTORED_STARTER_MODELS: 'false',
  RESTORED_DEFAULT_VERSION: 'face',
  RESTORED_DEFAULT_DETECTOR: 'detector',
  RESTORED_DEFAULT_BG_UPSAMPLER: 'upscaler',
  RESTORED_DEFAULT_PARSER: 'parser',
};

for (const page of pages)
  for (const { line, shown } of commands(page))
    test(`${page}: $ ${line}`, () => {
      const command = line.replaceAll('http://127.0.0.1:8080', server.url).replaceAll('127.0.0.1:8080', new URL(server.url).host);
      const r = spawnSync('sh', ['-c', command], { cwd: folder, encoding: 'utf8', timeout: 300e3, env: environment });
      assert.equal(r.status, 0, r.stdout + r.stderr);
      const file = / -o (\S+\.(?:jpg|png|bin|zip))/.exec(line)?.[1];
      if (file) {
        const bytes = readFileSync(join(folder, file)).toString('latin1', 0, 4);
        assert.ok({ jpg: /^\xff\xd8\xff\xe0/, png: /^\x89PNG/, bin: /^--/, zip: /^PK/ }[file.slice(-3)].test(bytes), file);
        rmSync(join(folder, file));
      } else if (!line.includes('healthcheck')) assert.notEqual(r.stdout.trim(), '');
      if (shown?.kind === 'json') sameShape(shape(JSON.parse(shown.text)), shape(JSON.parse(r.stdout)));
      if (shown?.kind === 'http') sameHttp(shown.text, r.stdout);
    });

test('the pages have commands with answers', () => {
  const all = pages.flatMap(commands);
  assert.ok(all.length >= 40 && all.filter((one) => one.shown).length >= 25, `${all.length} commands`);
});

test('the README is short', () => assert.ok(read('README.md').split('\n').length <= 151));

test('the command line leaves the files that the README names', () => {
  for (const part of ['restored_imgs/photo.jpg', 'restored_faces/photo_00.png', 'cropped_faces/photo_00.png', 'cmp/photo_00.png',
    'restored_imgs/two_restored.png', 'restored_faces/two_01_restored.png'])
    assert.ok(existsSync(join(folder, 'results', part)), part);
});

test('the options are those of /v1/capabilities', async () => {
  const { options } = await (await fetch(`${server.url}/v1/capabilities`)).json();
  // What these mean by default is the server's choice of models; the page gives the official ones.
  const official = { version: '1.3', bg_upsampler: 'realesrgan', detector: 'resnet50', damage_detector: 'starter', fill: 'starter' };
  const theirs = options.map((o) => [o.name, official[o.name] ?? String(o.default ?? (o.name === 'seed' ? 'none' : ''))]);
  const ours = rows('docs/api.md', 'Options').slice(1).map(([name, initial]) => [code(name), initial]);
  assert.deepEqual(ours.sort(), theirs.sort());
});

test('the options of detection are marked', async () => {
  for (const [cell] of rows('docs/api.md', 'Options').slice(1)) {
    const form = new FormData();
    form.append(code(cell), '');
    const { detail } = await (await fetch(`${server.url}/v1/detect`, { method: 'POST', body: form })).json();
    assert.equal(!/there is no such field/.test(detail), cell.includes('†'), detail);
  }
});

test("api.md has the router's routes, and they answer", async () => {
  const routes = [...read('server/http/router.c').matchAll(/^ *\{"(\/[^"]+)", ROUTE_(\w+)/gm)].map(([, path, method]) => `${method} ${path}`);
  assert.ok(routes.length >= 9);
  const shown = rows('docs/api.md', 'Routes').slice(1).map(([cell]) => code(cell));
  assert.deepEqual([...routes, 'GET /'].sort(), [...shown].sort());
  for (const route of shown) {
    const [method, path] = route.split(' ');
    const id = '0123456789abcdef0123456789abcdef', known = method === 'GET' && !path.includes('{');
    const answer = await fetch(server.url + path.replace('{id}', id).replace('{n}', '0'), { method: known ? method : 'PATCH' });
    if (!known) assert.ok((answer.headers.get('allow') ?? '').split(', ').includes(method), path);
    else assert.equal(answer.status, 200, path);
  }
});

test("api.md has the statuses and codes of the server", () => {
  const source = read('server/http/reply.c');
  const statuses = [...source.matchAll(/\[REPLY_\w+\] = \{(\d+), "[^"]*", "([^"]*)"\}/g)].map(([, status, word]) => [status, word]);
  const codes = new Set([...statuses.map(([, word]) => word), ...[...source.matchAll(/\[ERROR_\w+\] = "([^"]+)"/g)].map(([, word]) => word)]);
  assert.ok(statuses.length >= 18 && codes.size >= 25);
  const table = rows('docs/api.md', 'Every status and code').slice(1);
  const page = read('docs/api.md').split('### Every status and code')[1].split('### Examples of errors')[0];
  for (const word of codes) assert.ok(!word || page.includes(`\`${word}\``), word);
  for (const [, word] of table) assert.ok(!word || codes.has(code(word)), word);
  for (const [status] of statuses) assert.ok(status === '200' || table.some(([cell]) => cell === status), status);
  for (const [status] of table) assert.ok(statuses.some(([known]) => known === status), status);
});

test('api.md has the metrics of /metrics', async () => {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  const theirs = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name, type]);
  const table = rows('docs/api.md', 'GET /metrics').slice(1);
  assert.deepEqual(table.map(([name, type]) => [code(name), type]).sort(), theirs.sort());
  for (const [, name, pairs] of text.matchAll(/^(restored_\w+?)(?:_bucket|_sum|_count)?\{(.*)\} \S+$/gm)) {
    const labels = table.find(([cell]) => code(cell) === name)?.[2] ?? '';
    for (const [, label, value] of pairs.matchAll(/(\w+)="([^"]*)"/g)) {
      assert.ok(label === 'le' || labels.includes(`\`${label}\``), `${name}: ${label}`);
      if (['reason', 'state', 'result', 'direction', 'kind'].includes(label)) assert.ok(labels.includes(`\`${value}\``), `${name}: ${value}`);
    }
  }
});

// Every key with its default: of --print-config and of the tables under a heading.
function keysOf(page, heading) {
  return rows(page, heading).filter(([cell]) => code(cell)).map(([name, initial]) => [code(name), initial]);
}
const config = (file) => spawnSync(binary, ['serve', '--print-config', '--config', file], {
  cwd: folder, encoding: 'utf8', env: Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('RESTORED_'))),
}).stdout.split('\n').filter((line) => line && !line.startsWith('#'));
const printed = () => config('/dev/null').map((line) => /^(\w+) = (.*?) *# default(?:: .*)?$/.exec(line)?.slice(1));

test('operations.md has every key of the configuration with its default', () => {
  const keys = printed();
  assert.ok(keys.length >= 30 && keys.every(Boolean));
  assert.deepEqual(keysOf('docs/operations.md', 'Every key').sort(), keys.map(([name, initial]) => [name, initial.trim()]).sort());
});

test("cluster.md's commands set what they say in config/restored.conf", () => {
  const [store, password, front, worker] = read('docs/cluster.md').split('\n').filter((line) => line.startsWith('sed -i '));
  for (const [name, commands, wanted] of [['front', [store, password, front], { role: 'front', listen: '0.0.0.0:8080' }], ['worker', [store, password, worker], { role: 'worker', metrics_listen: '127.0.0.1:9090' }]]) {
    const file = join(folder, `${name}.conf`);
    copyFileSync(join(root, 'config/restored.conf'), file);
    for (const command of commands) assert.equal(spawnSync('sh', ['-c', command.replace('/etc/restored/restored.conf', file)]).status, 0, command);
    const set = Object.fromEntries(config(file).map((line) => /^(\w+) = (.*?) *# /.exec(line)?.slice(1)));
    for (const [key, value] of Object.entries({ ...wanted, store: 'postgresql://restored@db/restored?sslmode=verify-full&sslrootcert=/etc/restored/db.crt', store_password_file: '/etc/restored/password' }))
      assert.equal(set[key], value, `${name}: ${key}`);
  }
});

test('api.md has the limits of /v1/capabilities and the keys that set them', async () => {
  const { limits } = await (await fetch(`${server.url}/v1/capabilities`)).json();
  const table = rows('docs/api.md', 'Limits').slice(1), keys = new Set(printed().map(([name]) => name));
  for (const name of Object.keys(limits)) assert.ok(table.some((cells) => cells.join(' ').includes(`\`${name}\``)), name);
  for (const [cell] of table) assert.ok(!code(cell) || keys.has(code(cell)), cell);
});

test("the Makefile's example of ARGS is one that the server takes", () => {
  const line = /ARGS='([^']+)' goes to the server/.exec(read('Makefile'))[1];
  const r = spawnSync(binary, ['serve', ...line.split(' '), '--print-config'], { cwd: folder, encoding: 'utf8' });
  assert.equal(r.status, 0, r.stderr);
  assert.match(r.stdout, /flag --listen/);
});

test('what models get downloads is what config/models.conf says', () => {
  const sections = read('config/models.conf').split(/^\[/m).slice(1);
  const bytes = sections.filter((s) => /^default = true$/m.test(s)).reduce((sum, s) => sum + Number(/^bytes = (\d+)$/m.exec(s)[1]), 0);
  for (const page of ['README.md', 'docs/models.md']) assert.ok(read(page).includes(`${Math.round(bytes / 1e6)} MB`), `${page}: ${bytes} bytes`);
});

test('models.md names the models that are downloaded without a published SHA-256', () => {
  const sections = read('config/models.conf').split(/^\[/m).slice(1), without = sections.filter((s) => /^url = /m.test(s) && !/^sha256 = /m.test(s)).map((s) => s.slice(0, s.indexOf(']')));
  const [, said] = /no SHA-256 is published that could be had: (.*?)\. /.exec(read('docs/models.md'));
  assert.deepEqual([...said.matchAll(/`([^`]+)`/g)].map(([, name]) => name), without);
});

test('models.md has the models of config/models.conf', () => {
  const page = read('docs/models.md');
  for (const [, name] of read('config/models.conf').matchAll(/^\[(.+)\]$/gm)) assert.ok(page.includes(`\`${name}\``), name);
});

// The texts of a source: adjacent literals joined, each as a pattern in which a conversion stands for anything.
function texts(path) {
  const source = readFileSync(path, 'utf8');
  if (path.endsWith('.js')) return [source];
  return [...source.matchAll(/"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*/g)].map(([all]) =>
    all.replace(/"\s*"/g, '').slice(1, -1).replaceAll('\\"', '"').replace(/%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j)?[a-zA-Z]/g, '…'));
}
function sources(path) {
  return readdirSync(path).flatMap((name) => {
    const one = join(path, name);
    return statSync(one).isDirectory() ? sources(one) : /\.(c|h|js)$/.test(name) ? [one] : [];
  });
}

test('the messages that troubleshooting.md quotes are those of the program', () => {
  const all = ['server', 'runtime', 'static'].flatMap((name) => sources(join(root, name))).flatMap(texts).map((text) => text.replace(/\n\s*/g, ' '));
  const lines = read('docs/troubleshooting.md').split('\n');
  const quoted = lines.filter((line) => line.startsWith('| `')).map((line) => code(line.slice(2)));
  assert.ok(quoted.length >= 20, `${quoted.length} messages`);
  const unknown = quoted.filter((message) => {
    assert.ok(message.replaceAll('…', '').trim().length >= 12, `${message}: too little to look for`);
    const pattern = new RegExp(message.split('…').map((part) => part.trim().replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('[^]*'), 'i');
    return !all.some((text) => pattern.test(text));
  });
  assert.deepEqual(unknown, []);
});

// A heading's anchor, as GitHub makes it.
const anchor = (heading) => heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase().replace(/[^\p{L}\p{N}_\- ]/gu, '').replaceAll(' ', '-');
function anchors(path) {
  const text = readFileSync(path, 'utf8').replace(/^```[^]*?^```$/gm, '');
  return new Set([...text.matchAll(/^#+ (.*)$/gm)].map(([, heading]) => anchor(heading)));
}

test('every link leads somewhere', () => {
  const files = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'], { cwd: root, encoding: 'utf8' }).stdout.split('\n').filter((name) => name && existsSync(join(root, name)));
  const checked = files.length ? files : pages;
  let count = 0;
  for (const name of checked) {
    const path = join(root, name), text = readFileSync(path, 'utf8').replace(/^```[^]*?^```$/gm, '');
    for (const [, target] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      const [file, hash] = target.split('#');
      const to = file ? join(dirname(path), file) : path;
      assert.ok(existsSync(to), `${name}: ${target}`);
      if (hash !== undefined) assert.ok(anchors(to).has(hash), `${name}: ${target}`);
      count++;
    }
  }
  assert.ok(count >= 40, `${count} links`);
});
