// What the server says of itself, the page, and a server that lacks models.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { fixture, get, logged, metrics, ownModels, png, post, start, until } from './client.mjs';
import { fixtures, root } from './server.mjs';

let server;
before(async () => { server = await start(); });
after(() => server.stop());

test('/healthz and /readyz', async () => {
  assert.equal((await get(server, '/healthz')).status, 200);
  const { json } = await get(server, '/readyz');
  assert.deepEqual(json, { ready: true, reasons: [], devices: json.devices, models: ['detector', 'face_64', 'parser', 'upscaler'] });
  assert.ok(json.devices.length >= 1);
});

test('/v1/devices', async () => {
  const { json } = await get(server, '/v1/devices');
  const device = json.devices.find((d) => d.id === json.default);
  assert.deepEqual(Object.keys(device), ['id', 'uuid', 'name', 'type', 'backend', 'api_version', 'driver', 'memory', 'features', 'precision', 'self_test', 'state', 'current_job', 'jobs_done', 'jobs_failed', 'busy_seconds', 'utilisation', 'reason', 'remark']);
  assert.deepEqual(Object.keys(device.memory), ['total', 'budget', 'used', 'peak']);
  assert.ok(['discrete', 'integrated', 'virtual', 'software', 'cpu'].includes(device.type));
  assert.equal(device.state, 'idle');
  assert.equal(device.current_job, null);
  assert.equal(device.reason, null, 'it is used');
  if (device.type === 'software') assert.match(device.remark, /slow/);
  else assert.equal(device.remark, null);
});

test('/v1/models, with sums that come a little later', async () => {
  const json = await until('the sums', async () => {
    const answer = await get(server, '/v1/models');
    return answer.json.models.every((m) => m.sha256) && answer.json;
  });
  const face = json.models.find((m) => m.name === 'face');
  assert.deepEqual(Object.keys(face), ['name', 'file', 'kind', 'architecture', 'scale', 'bytes', 'sha256', 'known_as', 'licence', 'non_commercial', 'starter', 'default', 'card']);
  assert.equal(face.file, 'face.safetensors');
  assert.equal(face.kind, 'face');
  assert.equal(face.bytes, fixture('face.safetensors').length);
  assert.match(face.sha256, /^[0-9a-f]{64}$/);
  assert.deepEqual(json.models.filter((m) => m.default).map((m) => m.name).sort(), ['detector', 'face_64', 'parser', 'upscaler']);
  const official = json.missing.find((m) => m.file === 'GFPGANv1.3.pth');
  assert.match(official.get, /restored models get/);
});

test('/v1/capabilities', async () => {
  const { json } = await get(server, '/v1/capabilities');
  assert.match(json.version, /^\d+\.\d+\.\d+$/);
  assert.deepEqual(json.formats, { in: ['jpeg', 'png', 'webp', 'tiff', 'avif', 'heic', 'jxl', 'jp2'], out: ['jpeg', 'png', 'webp', 'tiff', 'avif', 'jxl'], missing: [], answers: ['picture', 'application/json', 'multipart/mixed'] });
  assert.equal(json.limits.body_bytes, 67108864);
  assert.equal(json.limits.queue, 64);
  const row = (name) => json.options.find((o) => o.name === name);
  for (const name of ['version', 'upscale', 'bg_upsampler', 'bg_tile', 'only_center_face', 'aligned', 'ext', 'suffix', 'weight', 'seed', 'parse', 'faces', 'device', 'precision', 'quality', 'progressive', 'png_level', 'page', 'detector', 'compat'])
    assert.ok(row(name)?.help && row(name).allowed, name);
  assert.equal(row('upscale').default, 2);
  assert.deepEqual([row('upscale').type, row('upscale').minimum, row('upscale').maximum], ['number', 1, 8]);
  assert.deepEqual([row('quality').type, row('quality').minimum, row('quality').maximum], ['integer', 1, 100]);
  assert.deepEqual([row('bg_tile').minimum, row('bg_tile').maximum, row('bg_tile').values], [32, 4096, [0, 'auto']]);
  assert.deepEqual(row('ext').values, ['auto', 'png', 'jpg', 'webp', 'tiff', 'avif', 'jxl']);
  assert.deepEqual(row('precision').values, ['auto', 'fp32', 'fp16']);
  assert.deepEqual(row('version').values, ['face', 'face_64', 'face_original', 'none']);
  assert.equal(row('version').default, 'face_64');
  assert.ok(row('bg_upsampler').values.includes('upscaler') && row('bg_upsampler').values.includes('none'));
  assert.ok(row('detector').values.includes('detector') && !row('detector').values.includes('none'));
  // the networks for damage
  assert.deepEqual(row('damage_detector').values, ['scratches', 'starter_damage', 'none']);
  assert.deepEqual(row('fill').models.map(({ name }) => name), ['filler', 'squares']);
  assert.ok(row('device').values.includes('cpu') && row('device').values.includes('auto'));
  assert.ok(new RegExp(row('faces').pattern).test('0,12') && !new RegExp(row('faces').pattern).test('0,'));
  const suffix = new RegExp(row('suffix').pattern);
  assert.ok(suffix.test('a b.c') && suffix.test('') && !suffix.test('a/b') && !suffix.test('a\\b') && !suffix.test('a\n'));
  assert.deepEqual(json.fields.map((f) => [f.name, f.type, f.default]), [['async', 'boolean', false], ['batch', 'string', null], ['faces_out', 'boolean', false], ['priority', 'enum', 'normal']]);
  assert.equal(row('compat').default, false);
  assert.equal(row('quality').default, 95);
});

test('the page and its files, and nothing else that is embedded', async () => {
  const page = await get(server, '/');
  assert.equal(page.status, 200);
  assert.equal(page.headers.get('content-type'), 'text/html; charset=utf-8');
  const policy = page.headers.get('content-security-policy');
  for (const rule of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"]) assert.ok(policy.includes(rule), rule);
  const names = [...page.text.matchAll(/(?:src|href)="([^"#:]+)"/g)].map((m) => m[1]).filter((n) => /\.\w+$/.test(n));
  assert.ok(names.length >= 2);
  for (const name of names) {
    const file = await get(server, `/${name.replace(/^\//, '')}`);
    assert.equal(file.status, 200, name);
    assert.ok(file.headers.get('content-type'));
    const again = await get(server, `/${name.replace(/^\//, '')}`, { headers: { 'If-None-Match': file.headers.get('etag') } });
    assert.equal(again.status, 304);
  }
});

test('the page is sent compressed to those that take it, and is small', async () => {
  const raw = (path, headers) => new Promise((done, fail) => {
    http.get(`${server.url}${path}`, { headers }, (answer) => {
      const parts = [];
      answer.on('data', (part) => parts.push(part)).on('end', () => done({ headers: answer.headers, body: Buffer.concat(parts) }));
    }).on('error', fail);
  });
  const plain = await raw('/', {}), small = await raw('/', { 'Accept-Encoding': 'br, gzip' });
  assert.equal(plain.headers['content-encoding'], undefined);
  assert.equal(small.headers['content-encoding'], 'gzip');
  assert.equal(small.headers.vary, 'Accept, Accept-Encoding'); // GET / has a form for cog's clients, too
  assert.notEqual(small.headers.etag, plain.headers.etag);
  assert.equal(gunzipSync(small.body).toString(), plain.body.toString());
  assert.equal((await raw('/', { 'Accept-Encoding': 'gzip;q=0' })).headers['content-encoding'], undefined);
  assert.equal((await raw('/', { 'Accept-Encoding': 'br, gzip;q=0.5' })).headers['content-encoding'], 'gzip');
  assert.equal((await raw('/sample.jpg', { 'Accept-Encoding': 'gzip' })).headers['content-encoding'], undefined);
  // The page and all scripts, those that are imported later and by workers, too; another language than English comes on top,
  // and the style sheet.
  const scripts = fs.readdirSync(path.join(root, 'static/js')).filter((name) => name.endsWith('.js')).map((name) => `/js/${name}`);
  const size = async (name) => (await raw(name, { 'Accept-Encoding': 'gzip' })).body.length;
  let sum = 0, language = 0;
  for (const name of ['/', '/worker.js', ...scripts])
    if (/strings_/.test(name)) language = Math.max(language, await size(name));
    else sum += await size(name);
  const sheet = await size('/style.css');
  assert.ok(scripts.length > 30 && language > 1000);
  assert.ok(sum < 60000 && sum + sheet < 64500 && language < 11600, `${sum} bytes, ${sheet} for the sheet and ${language} for a language`);
});

// The rules of the text format, as promtool checks them.
function check(text) {
  const types = new Map(), helped = new Set(), series = new Set(), histograms = new Map();
  let current = '';
  assert.ok(text.endsWith('\n'));
  for (const line of text.trimEnd().split('\n')) {
    let m;
    if ((m = line.match(/^# HELP ([a-z_:][a-z0-9_:]*) (.+)$/))) {
      assert.ok(!helped.has(m[1]), `two HELP of ${m[1]}`);
      helped.add(m[1]);
      continue;
    }
    if ((m = line.match(/^# TYPE (\S+) (counter|gauge|histogram)$/))) {
      assert.ok(helped.has(m[1]) && !types.has(m[1]), m[1]);
      types.set(m[1], m[2]);
      current = m[1];
      if (m[2] === 'counter') assert.match(m[1], /_total$/);
      else assert.doesNotMatch(m[1], /_total$/);
      continue;
    }
    m = line.match(/^([a-z_]+)(\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)$/);
    assert.ok(m, `not a sample: ${line}`);
    const [, name, , labels = '', value] = m;
    assert.ok(Number.isFinite(Number(value)), line);
    assert.ok(!series.has(name + labels), `twice: ${line}`);
    series.add(name + labels);
    const family = types.get(name) ? name : name.replace(/_(bucket|sum|count)$/, '');
    assert.equal(family, current, `${line} stands under ${current}`);
    if (types.get(family) !== 'histogram') continue;
    const key = family + labels.replace(/,?le="[^"]*"/, '');
    const h = histograms.get(key) ?? histograms.set(key, { last: -1, bound: -Infinity }).get(key);
    if (name.endsWith('_bucket')) {
      const le = labels.match(/le="([^"]*)"/)[1], bound = le === '+Inf' ? Infinity : Number(le);
      assert.ok(bound > h.bound && Number(value) >= h.last, line);
      Object.assign(h, { bound, last: Number(value) });
    } else h[name.slice(family.length + 1)] = Number(value);
  }
  for (const [key, h] of histograms) assert.ok(h.bound === Infinity && h.count === h.last && h.sum >= 0, key);
  return types;
}

test('/metrics keeps the format and has all that it should', async () => {
  await post(server, '/v1/restore', { picture: fixture('two.png') });
  await post(server, '/v1/restore', { picture: Buffer.from('text') });
  await get(server, '/no"thing\\');
  const refused = ['route="/v1/restore",method="POST",code="415"', 'route="other",method="GET",code="404"'].map((labels) => `restored_http_requests_total{${labels}} 1\n`);
  const answer = await until('all are counted', async () => { const now = await get(server, '/metrics'); return refused.every((line) => now.text.includes(line)) && now; }); // when their answers have gone
  assert.match(answer.headers.get('content-type'), /^text\/plain; version=0\.0\.4/);
  const types = check(answer.text);
  const want = { http_requests_total: 'counter', http_request_duration_seconds: 'histogram', stage_duration_seconds: 'histogram', jobs_total: 'counter', queue_depth: 'gauge', queue_capacity: 'gauge', queue_wait_seconds: 'histogram', rejected_total: 'counter', faces_total: 'counter', tiles_total: 'counter', pixels_total: 'counter', device_memory_bytes: 'gauge', device_busy_seconds_total: 'counter', device_lost_total: 'counter', fallbacks_total: 'counter', model_loaded: 'gauge', build_info: 'gauge' };
  for (const [name, type] of Object.entries(want)) assert.equal(types.get(`restored_${name}`), type, name);
  for (const line of ['restored_jobs_total{state="done"} 1', 'restored_faces_total{result="restored"} 2', 'restored_queue_capacity 64', 'restored_model_loaded{model="face_64"} 1', `restored_pixels_total{direction="in"} ${240 * 128}`, `restored_pixels_total{direction="out"} ${480 * 256}`, 'restored_stage_duration_seconds_count{stage="background"} 1'])
    assert.ok(answer.text.includes(`${line}\n`), line);
});

// Against what the system says of this process from outside.
test('/metrics tells what the process takes', async () => {
  const pid = server.process.pid, before = await metrics(server);
  await post(server, '/v1/restore', { picture: png(200, 200) });
  const samples = await metrics(server), of = (name) => samples.get(`process_${name}`);
  const statm = fs.readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ').map((pages) => pages * 4096);
  assert.ok(of('cpu_seconds_total') > before.get('process_cpu_seconds_total'));
  for (const [name, bytes] of [['virtual', statm[0]], ['resident', statm[1]]])
    assert.ok(Math.abs(of(`${name}_memory_bytes`) / bytes - 1) < 0.5, `${name}: ${of(`${name}_memory_bytes`)} and ${bytes}`);
  assert.ok(Math.abs(of('open_fds') - fs.readdirSync(`/proc/${pid}/fd`).length) <= 4);
  assert.equal(of('max_fds'), Number(/Max open files +(\d+)/.exec(fs.readFileSync(`/proc/${pid}/limits`, 'utf8'))[1]));
  assert.equal(of('start_time_seconds'), before.get('process_start_time_seconds'));
  const started = spawnSync('date', ['-d', spawnSync('ps', ['-o', 'lstart=', '-p', pid], { encoding: 'utf8' }).stdout, '+%s'], { encoding: 'utf8' }).stdout;
  assert.ok(Math.abs(of('start_time_seconds') - started) < 3, `${of('start_time_seconds')} and ${started}`);
});

test('one log line a request, and nothing in it that ends a line', async () => {
  await get(server, '/log%0aforged%20line%20status=200', { headers: { 'X-Request-Id': 'find-me', 'User-Agent': 'a "b" \\c' } });
  const lines = await until('the line', () => { const found = server.log().split('\n').filter((l) => l.includes('id=find-me')); return found.length && found; });
  assert.equal(lines.length, 1);
  assert.match(lines[0], /^\d{4}-\d\d-\d\dT[\d:.]+Z info request id=find-me client=127\.0\.0\.1 method=GET path=\/log_forged_line_status_200 status=404 ms=[\d.]+ in=0 out=\d+ agent="a _b_ _c"$/);
});

describe('without models', () => {
  let bare, folder;
  before(async () => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-bare-'));
    bare = await start({ models: ['--models', folder], ready: false });
  });
  after(async () => { await bare.stop(); fs.rmSync(folder, { recursive: true }); });

  test('the server starts, says what is missing and how to get it, and refuses work with the same sentence', async () => {
    assert.equal((await get(bare, '/healthz')).status, 200);
    assert.equal((await get(bare, '/')).status, 200);
    const ready = await get(bare, '/readyz');
    assert.equal(ready.status, 503);
    assert.equal(ready.json.ready, false);
    assert.match(ready.json.reasons[0], /restored models get/);
    assert.ok(ready.json.reasons[0].includes(folder), 'where it was looked for');
    const refused = await post(bare, '/v1/restore', { picture: fixture('picture.png') });
    assert.equal(refused.status, 503);
    assert.equal(refused.json.detail, ready.json.reasons[0]);
    for (const route of ['/readyz', '/v1/restore']) {
      const headers = { 'X-Forwarded-For': '203.0.113.7' };
      const far = route === '/readyz' ? await get(bare, route, { headers }) : await post(bare, route, { picture: fixture('picture.png'), headers });
      assert.equal(far.status, 503);
      const words = far.json.detail ?? far.json.reasons[0];
      assert.ok(!words.includes(folder) && !/models get|looked for/.test(words), `a client elsewhere is told no paths and commands: ${words}`);
      assert.match(words, /^There is no |whoever runs this server/);
    }
    const models = await get(bare, '/v1/models');
    assert.deepEqual(models.json.models, []);
    assert.ok(models.json.missing.length >= 4);
    for (const m of models.json.missing) assert.match(m.get, /^restored models get /);
    const far = await get(bare, '/v1/models', { headers: { 'X-Forwarded-For': '203.0.113.7' } });
    assert.deepEqual(far.json.missing, models.json.missing.map((m) => ({ ...m, get: null })), 'no commands for clients elsewhere');
    await logged(bare, /no-models/);
    assert.equal(bare.log().match(/restored models get/g).length, 1, bare.log());
  });
});

test('a default model that is lost: /readyz says what requests get, and the log warns', async (context) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-lost-'));
  context.after(() => fs.rmSync(folder, { recursive: true }));
  for (const name of fs.readdirSync(fixtures).filter((n) => n.endsWith('.safetensors'))) fs.copyFileSync(path.join(fixtures, name), path.join(folder, name));
  const server = await start({ models: ownModels.with(1, folder), context });
  const file = path.join(folder, 'upscaler.safetensors'), whole = fs.readFileSync(file);
  const wrong = Buffer.from(whole.toString('latin1').replace('conv2.bias"', 'conv2.bios"'), 'latin1'); // a tensor is missing
  const spoil = { 'cannot be used': () => fs.writeFileSync(file, wrong), 'is not installed': () => fs.rmSync(file) };
  for (const [what, how] of Object.entries(spoil)) {
    how();
    const lost = await until('not ready', async () => { const r = await get(server, '/readyz'); return r.status === 503 && r.json; });
    assert.match(lost.reasons[0], new RegExp(`^default_bg_upsampler: upscaler ${what}`));
    const refused = await post(server, '/v1/restore', { picture: fixture('picture.png') });
    assert.equal(refused.status, 503);
    assert.deepEqual(lost.reasons, [refused.json.detail]);
    const { models, unread } = (await get(server, '/v1/models')).json;
    assert.ok(!models.some((model) => model.name === 'upscaler'));
    assert.deepEqual(unread.map((u) => u.file), what === 'cannot be used' ? ['upscaler.safetensors'] : []);
    assert.ok(unread.every((u) => /^RRDBNet: tensor .*conv2\.bias is missing$/.test(u.reason)), JSON.stringify(unread));
    assert.equal((await post(server, '/v1/restore', { picture: fixture('picture.png'), fields: { bg_upsampler: 'none' } })).status, 200, 'others go on');
    await logged(server, new RegExp(`warn default-model-lost role=bg_upsampler text="default_bg_upsampler: upscaler ${what}`));
    server.process.kill('SIGUSR1');
    await until('the status', () => /status ready=false .* reason="default_bg_upsampler: upscaler /.test(server.log()));
    fs.writeFileSync(file, whole);
    await until('ready', async () => (await get(server, '/readyz')).status === 200);
  }
  await until('both returns in the log', () => server.log().match(/info default-model-back role=bg_upsampler text="upscaler"/g)?.length === 2);
  assert.equal((await post(server, '/v1/restore', { picture: fixture('picture.png') })).status, 200);
});

test('without a Vulkan driver it works on the CPU', async (context) => {
  const alone = await start({ context, env: { VK_ICD_FILENAMES: '/nonexistent.json', VK_DRIVER_FILES: '/nonexistent.json' } });
  const devices = (await get(alone, '/v1/devices')).json;
  assert.deepEqual(devices.devices.map((device) => device.id), ['cpu']);
  assert.equal(devices.default, 'cpu');
  const answer = await post(alone, '/v1/restore', { picture: fixture('picture.png') });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get('x-restored-device'), 'cpu');
  await alone.stop();
});

test('without upsampler and parser it works, and the report says so', async (context) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-few-'));
  for (const name of ['detector', 'face_64']) fs.copyFileSync(path.join(fixtures, `${name}.safetensors`), path.join(folder, `${name}.safetensors`));
  const few = await start({ context, models: ['--models', folder, '--default_version', 'face_64', '--default_detector', 'detector'] });
  const { status, json } = await post(few, '/v1/restore', { picture: fixture('picture.png'), headers: { Accept: 'application/json' } });
  assert.equal(status, 200);
  assert.equal(json.models.parser, null);
  assert.equal(json.models.background, null);
  assert.ok(json.notes.some((n) => /square mask|parser/i.test(n)), JSON.stringify(json.notes));
  assert.ok(json.notes.some((n) => /Lanczos4/.test(n)), JSON.stringify(json.notes));
  const refused = await post(few, '/v1/restore', { picture: fixture('picture.png'), fields: { parse: 'true' } });
  assert.equal(refused.status, 400);
  assert.match(refused.json.detail, /parsing_parsenet\.pth/);
  await few.stop();
  fs.rmSync(folder, { recursive: true });
});
