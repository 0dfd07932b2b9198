// The README: its commands work as they stand, and its tables say what the server says.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { binary, fixtures, root, startServer } from './server.mjs';

const readme = readFileSync(join(root, 'README.md'), 'utf8');
const folder = mkdtempSync(join(tmpdir(), 'restored-readme-'));
let server;

before(async () => {
  server = await startServer();
  copyFileSync(join(fixtures, 'picture.jpg'), join(folder, 'photo.jpg'));
  mkdirSync(join(folder, 'photos'));
  copyFileSync(join(fixtures, 'two.png'), join(folder, 'photos/two.png'));
  copyFileSync(join(fixtures, 'gray.jpg'), join(folder, 'photos/gray.jpg'));
  for (let i = 0; i < 600 && (await fetch(`${server.url}/readyz`)).status !== 200; i++) await new Promise((r) => setTimeout(r, 100));
});
after(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const commands = [...readme.matchAll(/^```sh\n(.*?)^```/gms)].flatMap(([, block]) => block.trim().split('\n'));

test('there are commands to run', () => assert.ok(commands.length >= 10));

for (const command of commands) {
  test(`$ ${command}`, () => {
    const r = spawnSync('sh', ['-c', command.replaceAll('http://127.0.0.1:8080', server.url)], {
      cwd: folder,
      encoding: 'utf8',
      timeout: 300e3,
      env: {
        ...process.env,
        PATH: `${dirname(binary)}:${process.env.PATH}`,
        RESTORED_MODELS_DIR: fixtures,
        RESTORED_DEFAULT_VERSION: 'face',
        RESTORED_DEFAULT_DETECTOR: 'detector',
        RESTORED_DEFAULT_BG_UPSAMPLER: 'upscaler',
        RESTORED_DEFAULT_PARSER: 'parser',
      },
    });
    assert.equal(r.status, 0, r.stdout + r.stderr);
    const file = / -o (\S+\.(?:jpg|png))/.exec(command)?.[1];
    if (file) {
      const bytes = readFileSync(join(folder, file));
      assert.equal(bytes.toString('latin1', 0, 4), file.endsWith('png') ? '\x89PNG' : '\xff\xd8\xff\xe0');
      rmSync(join(folder, file));
    } else if (command.startsWith('curl')) assert.equal(JSON.parse(r.stdout).faces.length, 1);
    else assert.notEqual(r.stdout.trim(), '');
  });
}

test('the command line leaves the files that the README names', () => {
  for (const part of ['restored_imgs/photo.jpg', 'restored_faces/photo_00.png', 'cropped_faces/photo_00.png', 'cmp/photo_00.png',
    'restored_imgs/two_restored.png', 'restored_faces/two_01_restored.png'])
    assert.ok(existsSync(join(folder, 'results', part)), part);
});

// Rows of the table under a heading, as arrays of cells.
function rows(heading) {
  const section = readme.split(`\n## ${heading}\n`)[1].split('\n## ')[0];
  return section.split('\n').filter((line) => line.startsWith('|')).map((line) => line.split('|').slice(1, -1).map((cell) => cell.trim())).slice(2);
}

test('the options are those of /v1/capabilities', async () => {
  const { options } = await (await fetch(`${server.url}/v1/capabilities`)).json();
  // The empty default of these three means the configured model, else what the README gives.
  const official = { version: '1.3', bg_upsampler: 'realesrgan', detector: 'resnet50' };
  const theirs = options.map((o) => [`\`${o.name}\``, String(o.default ?? official[o.name] ?? (o.name === 'seed' ? 'none' : ''))]);
  const ours = rows('Options').map(([name, initial]) => [name, initial]);
  assert.deepEqual(ours.sort(), theirs.sort());
});

test('every route of the API table answers', async () => {
  const paths = rows('API').flatMap(([cell]) => [...cell.matchAll(/`(?:(GET|POST) )?(\/\S*)`/g)].map(([, method, path]) => [method ?? 'GET', path]));
  assert.ok(paths.length >= 9);
  for (const [method, path] of paths) {
    const answer = await fetch(server.url + path, { method: method === 'POST' ? 'OPTIONS' : method });
    if (method === 'POST') assert.match(answer.headers.get('allow') ?? '', /POST/, path);
    else assert.equal(answer.status, 200, path);
  }
});

test("the Makefile's example of ARGS is one that the server takes", () => {
  const line = /ARGS='([^']+)' goes to the server/.exec(readFileSync(join(root, 'Makefile'), 'utf8'))[1];
  const r = spawnSync(binary, ['serve', ...line.split(' '), '--print-config'], { cwd: folder, encoding: 'utf8' });
  assert.equal(r.status, 0, r.stderr);
  assert.match(r.stdout, /flag --listen/);
});

test('what it says make models downloads is what config/models.conf says', () => {
  const sections = readFileSync(join(root, 'config/models.conf'), 'utf8').split(/^\[/m).slice(1);
  const bytes = sections.filter((s) => /^default = true$/m.test(s)).reduce((sum, s) => sum + Number(/^bytes = (\d+)$/m.exec(s)[1]), 0);
  assert.ok(readme.includes(`${Math.round(bytes / 1e6)} MB`), `${bytes} bytes`);
});
