// What is installed beside the program: the unit, manual pages, completion, the dashboard and the alerts.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { get, metrics, start } from './client.mjs';
import { binary, root } from './server.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-operators-'));
const installed = (name) => path.join(folder, 'opt/r', name);
const has = (tool) => !spawnSync('sh', ['-c', `command -v ${tool}`]).status;
const without = (tool) => (has(tool) ? false : `${tool} is not installed`);
const help = (...command) => spawnSync(binary, [...command, '--help'], { encoding: 'utf8' }).stdout;

function must(command, ...args) {
  const r = spawnSync(command, args, { encoding: 'utf8', cwd: root });
  assert.equal(r.status, 0, `${command} ${args.join(' ')}\n${r.stdout}${r.stderr}`);
  return r.stdout + r.stderr;
}

before(() => must('make', '-s', '-o', 'restored', 'install', `DESTDIR=${folder}`, 'PREFIX=/opt/r'));
after(() => fs.rmSync(folder, { recursive: true }));

test('the unit: systemd reads it without a complaint, and it is hardened', { skip: without('systemd-analyze') }, () => {
  const unit = path.join(folder, 'restored.service');
  const text = fs.readFileSync(installed('lib/systemd/system/restored.service'), 'utf8');
  assert.match(text, /^ExecStart=\/opt\/r\/bin\/restored serve$/m);
  fs.writeFileSync(unit, text.replaceAll('/opt/r/bin/restored', binary));
  assert.equal(must('systemd-analyze', 'verify', '--man=no', unit), '');
  must('systemd-analyze', 'security', '--offline=true', '--threshold=15', unit); // tenths; 1.3 here, 9.6 without hardening
  const users = must('systemd-sysusers', '--dry-run', `--root=${folder}`, installed('lib/sysusers.d/restored.conf'));
  for (const line of [/creat\w+ user 'restored'/i, /creat\w+ group 'render'/i, /creat\w+ group 'video'/i]) assert.match(users, line);
});

// Options as their lines in help name them.
const optionsOf = (text) => [...text.matchAll(/^ {2}(-\S.*?)(?: {2}.*)?$/gm)].flatMap(([, what]) => what.split(/,? /).filter((word) => word.startsWith('-')));
const commands = [...help().matchAll(/^ {2}restored (\w+)/gm)].map(([, name]) => [name]).concat([['models', 'get'], ['models', 'add'], ['models', 'publish']]);

test('a manual page for each command, with all that its help says', () => {
  const tool = has('mandoc') ? ['mandoc', '-T', 'utf8', '-O', 'width=1000'] : has('man') ? ['man', '-l'] : null;
  const pages = fs.readdirSync(installed('share/man/man1'));
  assert.deepEqual(pages.sort(), ['restored.1', ...commands.map((words) => `restored-${words.join('-')}.1`)].sort());
  for (const words of [[], ...commands]) {
    const page = installed(`share/man/man1/${['restored', ...words].join('-')}.1`);
    const source = fs.readFileSync(page, 'utf8').replaceAll('\\-', '-').replaceAll('\\e', '\\').replaceAll('\\&', '').replace(/\s+/g, ' ');
    const said = help(...words);
    for (const section of ['NAME', 'SYNOPSIS', 'SEE ALSO']) assert.ok(source.includes(`.SH ${section} `), `${page}: ${section}`);
    for (const option of optionsOf(said)) assert.match(source, new RegExp(`\\.TP \\\\fB[^\\\\]*${option}\\b`), `${page}: ${option}`);
    for (const line of said.split('\n').slice(2)) {
      const text = line.replace(/^ {2}\S.*? {2,}/, '').trim().replace(/\s+/g, ' ');
      assert.ok(source.includes(text), `${page}: ${text}`);
    }
    if (has('mandoc')) must('mandoc', '-T', 'lint', '-W', 'error', page);
    if (has('man')) assert.equal(must('man', '--warnings', '-E', 'UTF-8', '-l', '-Tutf8', '-Z', page).replace(/^x [^]*/m, ''), '', page);
    const shown = tool && must(tool[0], ...tool.slice(1), page).replace(/.\x08/g, '').replace(/\s+/g, ' ');
    if (shown) assert.ok(shown.includes('SEE ALSO') && !/\\f|\.TP/.test(shown), page);
  }
});

// What bash would offer for these words, of which the last is being typed.
function complete(...words) {
  const file = installed('share/bash-completion/completions/restored');
  const script = `. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _restored; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const r = spawnSync('bash', ['--norc', '-c', script, 'bash', file, 'restored', ...words], { encoding: 'utf8', cwd: path.join(root, 'config') });
  assert.equal(r.stderr, '');
  return r.stdout.split('\n').filter(Boolean);
}

test('bash completes commands, options and their values', () => {
  assert.deepEqual(complete(''), [...commands.filter((words) => words.length === 1).flat(), '--help', '--version']);
  assert.deepEqual(complete('se'), ['serve']);
  for (const words of commands) {
    const wanted = [...optionsOf(help(...words)), ...[...help(...words).split('\n\n')[0].matchAll(/\[(--[a-z0-9_]+)/g)].map(([, name]) => name), '--help', '--config']
      .filter((option) => option !== '--KEY'); // which stands for all keys
    const offered = complete(...words, '-');
    for (const option of wanted) assert.ok(offered.includes(option), `${words.join(' ')} ${option}`);
    assert.ok(offered.length <= new Set([...wanted, ...optionsOf(help(...words))]).size + 4, offered.join(' '));
  }
  assert.deepEqual(complete('restore', '--upsc'), ['--upscale']);
  assert.deepEqual(complete('restore', '--log_f'), ['--log_format'], 'keys of the configuration, too');
  for (const words of [['--log_format', 'j'], ['--log_format', '=', 'j']]) assert.deepEqual(complete('serve', ...words), ['json']);
  assert.deepEqual(complete('serve', '--log_level', '='), ['debug', 'info', 'warn', 'error']);
  assert.deepEqual(complete('serve', '--vulkan_chain', ''), ['true', 'false']);
  assert.deepEqual(complete('restore', '--ext', ''), ['auto', 'png', 'jpg', 'webp', 'tiff', 'avif', 'jxl']);
  assert.deepEqual(complete('serve', '--config', 'restored.c'), ['restored.conf']);
  assert.deepEqual(complete('restore', 'models.'), ['models.conf']);
  assert.deepEqual(complete('models', 'g'), ['get']);
  assert.deepEqual(complete('models', 'get', 'RealESRGAN_x2'), ['RealESRGAN_x2plus']);
  assert.deepEqual(complete('models', 'get', 'def'), ['default']);
});

test('the dashboard and the alerts name metrics, labels and values that exist', async () => {
  const server = await start();
  await get(server, '/no');
  const text = (await get(server, '/metrics')).text, samples = [...(await metrics(server)).keys()];
  await server.stop();
  const dashboard = JSON.parse(fs.readFileSync(installed('share/restored/grafana.json'), 'utf8'));
  const alerts = fs.readFileSync(installed('share/restored/alerts.yml'), 'utf8');
  const queries = dashboard.panels.flatMap((panel) => (panel.targets ?? []).map((target) => target.expr));
  const rules = [...alerts.matchAll(/^ +expr: (?:>-\n)?((?:.*\n)(?: {10}[^ ].*\n)*)/gm)].map(([, expr]) => expr);
  assert.ok(queries.length > 20 && rules.length > 10, `${queries.length} queries, ${rules.length} alerts`);

  const documented = fs.readFileSync(path.join(root, 'docs/api.md'), 'utf8');
  let names = 0;
  for (const expr of [...queries, ...rules])
    for (const [, name, labels = ''] of expr.matchAll(/\b((?:restored|process)_\w+)(?:\{([^}]*)\})?/g)) {
      names++;
      const family = name.replace(/_(bucket|sum|count)$/, '');
      assert.ok(text.includes(`# TYPE ${name} `) || text.includes(`# TYPE ${family} histogram`), name);
      const row = documented.split('\n').find((line) => line.startsWith(`| \`${family}\``));
      for (const [, label, value] of labels.matchAll(/(\w+)=~?"([^"]*)"/g)) {
        if (['instance', 'job'].includes(label)) continue; // Prometheus' own
        assert.ok(row.includes(`\`${label}\``), `${name}: ${label}`);
        if (label !== 'code') for (const one of value.split('|')) assert.ok(samples.some((sample) => sample.startsWith(`${name}{`) && sample.includes(`${label}="${one}"`)), `${name}: ${label}="${one}"`);
      }
      for (const [, list] of expr.matchAll(/\bby \(([^)]*)\)/g))
        for (const label of list.split(', ')) assert.ok(['instance', 'le', 'version'].includes(label) || documented.includes(`\`${label}\``), `${expr}: ${label}`);
    }
  assert.ok(names > 30, `${names} metrics`);
  assert.equal(new Set(dashboard.panels.map((panel) => panel.id)).size, dashboard.panels.length);
  for (const [, quoted] of alerts.matchAll(/`(\w+)`/g)) assert.ok(spawnSync(binary, ['serve', '--print-config'], { encoding: 'utf8' }).stdout.includes(`${quoted} = `), quoted);
});

test('promtool accepts the alerts, the queries of the dashboard and the metrics', { skip: without('promtool') }, async () => {
  const server = await start();
  const { text } = await get(server, '/metrics');
  await server.stop();
  const r = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
  assert.equal(r.status + r.stdout + r.stderr, '0');
  must('promtool', 'check', 'rules', installed('share/restored/alerts.yml'));
  const dashboard = JSON.parse(fs.readFileSync(installed('share/restored/grafana.json'), 'utf8'));
  const queries = dashboard.panels.flatMap((panel) => (panel.targets ?? []).map(({ expr }) => expr.replaceAll('$__rate_interval', '5m').replaceAll('$instance', '.+')));
  const rules = { groups: [{ name: 'dashboard', rules: queries.map((expr, i) => ({ record: `query:${i}`, expr })) }] };
  fs.writeFileSync(path.join(folder, 'rules.yml'), JSON.stringify(rules)); // JSON is YAML
  must('promtool', 'check', 'rules', path.join(folder, 'rules.yml'));
});
