// The repair of damage over HTTP and on the command line: masks that are sent and that come back, /v1/damage, and what is
// refused. The fixture's detector takes pure green for a thin line.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import zlib from 'node:zlib';
import { after, before, test } from 'node:test';
import { chunk, decodePng, get, ownModels, plain, png, pngHeader, pngOf, pngSize, post, start, until } from './client.mjs';
import { binary } from './server.mjs';

const W = 96, H = 80;
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-repair-'));
const once = { ...plain, upscale: '1', damage_detector: 'starter' };
let server;

// The soft picture, with half of its green, and what paint(x, y) returns in place of its pixels.
function painted(paint) {
  const { pixels } = decodePng(png(W, H)), rows = [];
  for (let i = 1; i < pixels.length; i += 3) pixels[i] >>= 1;
  for (let y = 0; y < H; y++) {
    rows.push(Buffer.from([0]), pixels.subarray(y * W * 3, (y + 1) * W * 3));
    for (let x = 0; x < W; x++) paint(x, y)?.forEach((v, c) => { pixels[(y * W + x) * 3 + c] = v; });
  }
  const head = png(W, H).subarray(0, 33), idat = zlib.deflateSync(Buffer.concat(rows)), end = png(1, 1).subarray(-12);
  const chunk = Buffer.alloc(12 + idat.length);
  chunk.writeUInt32BE(idat.length, 0);
  chunk.write('IDAT', 4, 'latin1');
  idat.copy(chunk, 8);
  chunk.writeUInt32BE(crc(chunk.subarray(4, 8 + idat.length)), 8 + idat.length);
  return Buffer.concat([head, chunk, end]);
}

function crc(bytes) {
  let c = ~0;
  for (const b of bytes) {
    c ^= b;
    for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
  }
  return ~c >>> 0;
}

const scratch = (x, y) => (x >= 40 && x < 43 && y >= 10 && y < 70 ? [0, 255, 0] : null);
const damaged = painted(scratch), whole = painted(() => null);
const square = painted((x, y) => (x >= 10 && x < 20 && y >= 10 && y < 30 ? [255, 255, 255] : [0, 0, 0]));
const whites = (mask) => decodePng(mask).pixels.reduce((sum, v) => sum + (v === 255), 0);

// post() with a mask beside the picture.
function withMask(route, picture, mask, fields, headers = {}) {
  const body = new FormData();
  body.append('mask', new Blob([mask]), 'mask.png');
  for (const [key, value] of Object.entries(fields)) body.append(key, value);
  body.append('image', new Blob([picture]), 'photo.png');
  return post(server, route, { body, headers });
}

before(async () => { server = await start({ models: ownModels }); });
after(async () => {
  await server?.stop();
  fs.rmSync(folder, { recursive: true, force: true });
});

test('a scratch goes, all other pixels stay, and the report counts', async () => {
  const { status, bytes, headers } = await post(server, '/v1/restore', { picture: damaged, fields: once });
  assert.equal(status, 200);
  assert.match(headers.get('x-restored-models'), /damage="starter_damage"/);
  const got = decodePng(bytes), was = decodePng(damaged), truth = decodePng(whole);
  let other = 0, worst = 0;
  for (let i = 0; i < got.pixels.length; i++) {
    const x = Math.floor(i / 3) % W, y = Math.floor(i / 3 / W);
    if (x < 37 || x > 45 || y < 7 || y > 72) other += got.pixels[i] !== was.pixels[i];
    worst = Math.max(worst, Math.abs(got.pixels[i] - truth.pixels[i]));
  }
  assert.equal(other, 0);
  assert.ok(worst < 40, `${worst}`);
  const { json } = await post(server, '/v1/restore', { picture: damaged, fields: once, headers: { Accept: 'application/json' } });
  assert.deepEqual(json.damage.kinds.thin, { count: 1, share: json.damage.share });
  assert.ok(Math.abs(json.damage.share - (5 * 62) / (W * H)) < 1e-5);
  assert.equal(json.damage.mask, false);
  assert.equal(json.models.damage, 'starter_damage');
  assert.equal(json.models.fill, null);
  const filled = await post(server, '/v1/restore', { picture: damaged, fields: { ...once, fill: 'filler' }, headers: { Accept: 'application/json' } });
  assert.equal(filled.json.models.fill, 'filler');
  const idle = await post(server, '/v1/restore', { picture: whole, fields: { ...once, fill: 'filler' }, headers: { Accept: 'application/json' } });
  assert.deepEqual([idle.json.damage.share, idle.json.models.fill], [0, 'filler'], 'as docs/api.md has it');
});

test('damage is looked for before tone changes the colours', async () => {
  const faint = painted((x, y) => scratch(x, y) && [40, 205, 20]); // as little green as the detector wants
  const reports = await Promise.all(['off', 'strong'].map(async (tone) => (await post(server, '/v1/restore', { picture: faint, fields: { ...once, tone }, headers: { Accept: 'application/json' } })).json));
  assert.ok(reports[1].tone.change > 1);
  assert.equal(reports[0].damage.kinds.thin.count, 1);
  assert.deepEqual(reports[1].damage, reports[0].damage);
});

test('POST /v1/damage: the mask, the report, both, and a job', async () => {
  const fields = { damage_detector: 'starter', repair: 'true' };
  const mask = await post(server, '/v1/damage', { picture: damaged, fields });
  assert.equal(mask.type, 'image/png');
  assert.equal(mask.headers.get('x-restored-notes'), null, 'nothing is enlarged');
  assert.deepEqual(pngSize(mask.bytes), [W, H]);
  assert.match(mask.headers.get('content-disposition'), /filename="picture_mask\.png"/);
  assert.equal(whites(mask.bytes), 5 * 62);
  const report = await post(server, '/v1/damage', { picture: whole, fields, headers: { Accept: 'application/json' } });
  assert.equal(report.json.damage.share, 0);
  assert.deepEqual(Object.keys(report.json).sort(), ['damage', 'height', 'models', 'note_codes', 'notes', 'timings_ms', 'width']);
  const none = await post(server, '/v1/damage', { picture: whole, fields });
  assert.equal(whites(none.bytes), 0);
  const both = await post(server, '/v1/damage', { picture: damaged, fields, headers: { Accept: 'multipart/mixed' } });
  assert.match(both.bytes.toString('latin1'), /name="report"[^]*name="masks"; filename="picture_mask\.png"/);
  const job = await post(server, '/v1/damage', { picture: damaged, fields: { ...fields, async: 'true' } });
  assert.equal(job.status, 202);
  const done = await until('the job', async () => {
    const { json } = await get(server, job.headers.get('location'));
    return ['done', 'failed'].includes(json.state) && json;
  });
  assert.equal(done.state, 'done', JSON.stringify(done.error));
  assert.equal(done.damage.kinds.thin.count, 1);
  const result = await fetch(server.url + done.links.result);
  assert.match(result.headers.get('content-disposition'), /filename="picture_mask\.png"/);
  assert.equal(whites(Buffer.from(await result.arrayBuffer())), 5 * 62);
  const missing = await post(server, '/v1/damage', { picture: damaged, fields: { damage_detector: 'nobody' } });
  assert.equal(missing.status, 400);
  assert.match(missing.json.detail, /^damage_detector: nobody is not installed/);
  assert.match((await post(server, '/v1/damage', { picture: damaged, fields: { damage_detector: 'none' } })).json.detail, /^damage_detector/);
});

// The scratched picture with that much of its width transparent.
function sheer(share) {
  const { pixels } = decodePng(damaged), samples = new Uint8Array(W * H * 4).fill(255);
  for (let i = 0; i < W * H; i++) {
    samples.set(pixels.subarray(3 * i, 3 * i + 3), 4 * i);
    if (i % W >= W * (1 - share)) samples[4 * i + 3] = 0;
  }
  return pngOf(W, H, 4, samples);
}

test('auto leaves a picture with transparency alone, and says so of a photo and of what was asked for', async () => {
  const json = { Accept: 'application/json' }, note = 'the picture has transparency: repair=auto leaves it alone, and repair=true repairs it';
  const told = async (picture, fields) => {
    const { damage, notes, note_codes: codes } = (await post(server, '/v1/restore', { picture, fields: { ...once, ...fields }, headers: json })).json;
    assert.equal(codes.some(({ code }) => code === 'transparent'), notes.includes(note));
    return [damage?.kinds.thin.count ?? null, notes.includes(note)];
  };
  const photo = sheer(0.1), logo = sheer(0.5), fields = { damage_detector: 'starter' };
  assert.deepEqual(await told(photo, {}), [null, true]);
  assert.deepEqual(await told(logo, {}), [null, false]);
  assert.deepEqual(await told(logo, { repair_kinds: 'thin' }), [null, true]);
  for (const other of [{ repair: 'false' }, { damage_detector: 'none' }, { compat: 'true' }]) assert.deepEqual(await told(photo, other), [null, false]);
  assert.deepEqual(await told(photo, { repair: 'true' }), [1, false]);
  const added = await withMask('/v1/restore', logo, square, { ...once, mask_mode: 'add' }, json);
  assert.deepEqual([Math.round(added.json.damage.share * W * H), added.json.notes.includes(note)], [200, true]);
  const left = await post(server, '/v1/damage', { picture: logo, fields });
  assert.deepEqual([decodePng(left.bytes).pixels.every((v) => v === 0), left.headers.get('x-restored-damage'), left.headers.get('x-restored-notes')], [true, null, JSON.stringify([note])]);
  const report = (await post(server, '/v1/damage', { picture: logo, fields, headers: json })).json;
  assert.deepEqual([report.damage, report.notes, report.note_codes], [null, [note], [{ code: 'transparent', values: [] }]]);
  const all = await post(server, '/v1/damage', { picture: logo, fields: { ...fields, repair: 'true' } });
  assert.deepEqual([whites(all.bytes), all.headers.get('x-restored-notes')], [310, null]);
});

test('compat repairs nothing, and says so of repair=true', async () => {
  for (const [route, fields] of [['/v1/restore', once], ['/v1/damage', { damage_detector: 'starter' }]]) {
    const told = async (more) => (await post(server, route, { picture: damaged, fields: { ...fields, ...more }, headers: { Accept: 'application/json' } })).json;
    const { damage, notes, note_codes: codes } = await told({ compat: 'true', repair: 'true' });
    assert.deepEqual([damage, notes.find((note) => /repair/.test(note))], [null, 'compat=true repairs nothing, as the original program: repair=true was ignored']);
    assert.ok(codes.some(({ code }) => code === 'compat-unrepaired'));
    for (const other of [{ compat: 'true' }, { repair: 'true' }, { compat: 'true', repair: 'false' }])
      assert.ok(!(await told(other)).note_codes.some(({ code }) => code === 'compat-unrepaired'), JSON.stringify(other));
  }
});

test('/v1/damage shows nothing where nothing would be repaired', async () => {
  for (const off of [{ repair: 'false' }, { repair_strength: '0' }, { compat: 'true' }, { repair: 'false', damage_detector: 'none' }]) {
    const { status, bytes, headers } = await post(server, '/v1/damage', { picture: damaged, fields: { damage_detector: 'starter', ...off } });
    assert.equal(status, 200, bytes);
    assert.deepEqual([decodePng(bytes).pixels.every((v) => v === 0), headers.get('x-restored-damage')], [true, null], JSON.stringify(off));
    const report = await post(server, '/v1/damage', { picture: damaged, fields: { damage_detector: 'starter', ...off }, headers: { Accept: 'application/json' } });
    assert.equal(report.json.damage, null);
  }
  for (const mode of ['replace', 'add', 'remove']) {
    const fields = { damage_detector: 'starter', repair: 'false', mask_mode: mode }, json = { Accept: 'application/json' };
    const shown = await withMask('/v1/damage', damaged, square, fields);
    assert.equal(whites(shown.bytes), mode === 'remove' ? 0 : 200, mode);
    const [would, does] = await Promise.all(['/v1/damage', '/v1/restore'].map((route) => withMask(route, damaged, square, { ...(route === '/v1/restore' && once), ...fields }, json)));
    assert.deepEqual(would.json.damage, does.json.damage);
  }
});

test('a mask without any white is reported, too', async () => {
  const nothing = { thin: { count: 0, share: 0 }, crack: { count: 0, share: 0 }, dust: { count: 0, share: 0 }, stain: { count: 0, share: 0 } };
  const black = painted(() => [0, 0, 0]);
  for (const [route, fields] of [['/v1/restore', once], ['/v1/damage', { damage_detector: 'starter' }]]) {
    const { status, headers } = await withMask(route, damaged, black, fields);
    assert.deepEqual([status, headers.get('x-restored-damage')], [200, 'thin=0, crack=0, dust=0, stain=0']);
    const { json } = await withMask(route, damaged, black, fields, { Accept: 'application/json' });
    assert.deepEqual(json.damage, { share: 0, mask: false, kinds: nothing });
  }
});

test('what is transparent in a mask is not filled', async () => {
  const inside = (i) => i % W >= 10 && i % W < 20 && i / W >= 10 && i / W < 30;
  const sent = (channels, alpha) => pngOf(W, H, channels, Uint8Array.from({ length: W * H * channels }, (_, i) => ((i + 1) % channels ? 255 : inside(Math.floor(i / channels)) ? alpha : 0)));
  const rows = Buffer.concat(Array.from({ length: H }, (_, y) => Buffer.from([0, ...Array.from({ length: W }, (_, x) => Number(inside(y * W + x)))])));
  const palette = Buffer.concat([pngHeader(W, H, 8, 3), chunk('PLTE', Buffer.alloc(6, 255)), chunk('tRNS', Buffer.from([0])),
    chunk('IDAT', zlib.deflateSync(rows)), chunk('IEND', Buffer.alloc(0))]);
  for (const [what, mask, count] of [['RGBA', sent(4, 255), 200], ['gray', sent(2, 255), 200], ['half', sent(4, 128), 200], ['less', sent(4, 127), 0], ['a palette', palette, 200]]) {
    const { bytes } = await withMask('/v1/damage', damaged, mask, { damage_detector: 'starter' });
    assert.equal(whites(bytes), count, what);
  }
});

test('a mask is filled in place of what is found, as well, or is left alone', async () => {
  const shares = {};
  for (const mode of ['replace', 'add', 'remove']) {
    const { json } = await withMask('/v1/restore', damaged, square, { ...once, mask_mode: mode }, { Accept: 'application/json' });
    shares[mode] = Math.round(json.damage.share * W * H);
    assert.equal(json.damage.mask, mode !== 'remove');
    const shown = await withMask('/v1/damage', damaged, square, { damage_detector: 'starter', mask_mode: mode }, { Accept: 'application/json' });
    assert.deepEqual(shown.json.damage, json.damage);
  }
  assert.deepEqual(shares, { replace: 200, add: 200 + 310, remove: 310 });
  const answer = await withMask('/v1/restore', damaged, square, once, { Accept: 'multipart/mixed' });
  const text = answer.bytes.toString('latin1');
  const at = text.indexOf('\x89PNG', text.indexOf('name="masks"; filename="photo_mask.png"'));
  assert.equal(whites(answer.bytes.subarray(at, text.indexOf('IEND', at) + 8)), 200);
});

test('what a mask leaves alone is not counted', async () => {
  const json = { Accept: 'application/json' }, lines = [10, 40, 70], remove = { mask_mode: 'remove' };
  const picture = painted((x, y) => (lines.some((at) => x >= at && x < at + 3) && y >= 10 && y < 70 ? [0, 255, 0] : null));
  const box = (from, to, low = H) => painted((x, y) => (x >= from && x < to && y < low ? [255, 255, 255] : [0, 0, 0]));
  // all, none, one, a part of one, and all of one with a part of another
  for (const [mask, count, share] of [[box(0, W), 0, 0], [box(90, W), 3, 930], [box(35, 50), 2, 620], [box(35, 50, 30), 3, 930 - 5 * 21], [box(35, 72), 2, 620 - 3 * 62]])
    for (const [route, fields] of [['/v1/restore', once], ['/v1/damage', { damage_detector: 'starter' }]]) {
      const { headers } = await withMask(route, picture, mask, { ...fields, ...remove });
      assert.equal(headers.get('x-restored-damage'), `thin=${count}, crack=0, dust=0, stain=0`, `${route} ${count}`);
      const { damage } = (await withMask(route, picture, mask, { ...fields, ...remove }, json)).json;
      assert.deepEqual([damage.kinds.thin.count, Math.round(damage.share * W * H)], [count, share]);
    }
});

test('kinds: only those that are named are repaired, and a mask tells them by its grays', async () => {
  const grays = (bytes) => {
    const counts = {};
    for (const v of decodePng(bytes).pixels) if (v) counts[v] = (counts[v] ?? 0) + 1;
    return counts;
  };
  const json = { Accept: 'application/json' };
  const fields = { damage_detector: 'starter', repair_kinds: 'dust,crack', mask_kinds: 'true' };
  const left = await post(server, '/v1/restore', { picture: damaged, fields: { ...once, repair_kinds: 'crack,dust,stain' }, headers: json });
  assert.deepEqual([left.json.damage.share, left.json.damage.kinds.thin.count, left.json.options.repair_kinds], [0, 0, 'crack,dust,stain']);
  const none = await post(server, '/v1/damage', { picture: damaged, fields: { damage_detector: 'starter', repair_kinds: 'none' } });
  assert.equal(whites(none.bytes), 0);
  assert.equal(none.headers.get('x-restored-damage'), 'thin=0, crack=0, dust=0, stain=0');
  // What is found, a mask of all grays and a square of the user's.
  const found = await post(server, '/v1/damage', { picture: damaged, fields: { ...fields, repair_kinds: 'all' } });
  assert.deepEqual(grays(found.bytes), { 240: 5 * 62 });
  assert.equal(found.headers.get('x-restored-damage'), 'thin=1, crack=0, dust=0, stain=0');
  const shades = painted((x, y) => (y < 10 && x < 60 ? Array(3).fill([240, 224, 208, 192, 255, 127][Math.floor(x / 10)]) : [0, 0, 0]));
  const both = await withMask('/v1/damage', damaged, shades, { ...fields, repair_kinds: 'thin', mask_mode: 'add' });
  assert.deepEqual(grays(both.bytes), { 240: 5 * 62 + 100, 255: 100 - 4 }); // what was sent comes back as it was
  const some = await withMask('/v1/restore', damaged, shades, { ...once, repair_kinds: 'dust,crack' }, json);
  assert.equal(Math.round(some.json.damage.share * W * H), 300);
  const all = await withMask('/v1/restore', damaged, shades, once, json);
  assert.equal(Math.round(all.json.damage.share * W * H), 500);
  // A job, and what it keeps.
  const job = await withMask('/v1/restore', damaged, shades, { ...once, ...fields, mask_mode: 'add', repair_kinds: 'thin', async: 'true' });
  const done = await until('the job', async () => {
    const { json: now } = await get(server, job.headers.get('location'));
    return ['done', 'failed'].includes(now.state) && now;
  });
  assert.deepEqual([done.options.repair_kinds, done.options.mask_kinds], ['thin', true]);
  assert.deepEqual(grays(Buffer.from(await (await fetch(server.url + done.links.mask)).arrayBuffer())), grays(both.bytes));
  const twice = await post(server, '/v1/damage', { picture: damaged, fields: { ...fields, repair_kinds: 'THIN,thin' } });
  assert.deepEqual(grays(twice.bytes), { 240: 310 });
  for (const every of ['ALL', 'stain,dust,Dust,crack,thin'])
    assert.equal((await post(server, '/v1/restore', { picture: damaged, fields: { ...once, repair_kinds: every }, headers: json })).json.options.repair_kinds, 'all');
  for (const bad of ['', 'thin,', 'thin, dust', 'scratch', 'all,thin'])
    assert.match((await post(server, '/v1/damage', { picture: damaged, fields: { ...fields, repair_kinds: bad } })).json.detail, /^repair_kinds: /);
});

test('the pattern of repair_kinds is what the server takes', async () => {
  const { options } = (await get(server, '/v1/capabilities')).json, { values, pattern } = options.find(({ name }) => name === 'repair_kinds');
  const { anyOf } = (await get(server, '/openapi.json')).json.components.schemas.Options.properties.repair_kinds;
  assert.deepEqual(anyOf, [{ enum: values }, { type: 'string', pattern }]);
  const good = ['all', 'none', 'ALL', 'None', 'thin', 'THIN', 'Dust,dust,STAIN', 'thin,crack,dust,stain'], bad = ['thin,', ',thin', 'dusty', 'all,thin', 'thin;dust', 'thin, dust', 'ALLTHIN'];
  for (const kinds of [...good, ...bad]) {
    const { status } = await post(server, '/v1/damage', { picture: damaged, fields: { damage_detector: 'starter', repair_kinds: kinds } });
    assert.equal(status, good.includes(kinds) ? 200 : 400, kinds);
    assert.equal(values.includes(kinds) || new RegExp(pattern, 'u').test(kinds), good.includes(kinds), kinds);
  }
});

test('a job keeps its mask', async () => {
  const job = await withMask('/v1/restore', damaged, square, { ...once, mask_mode: 'add', async: 'true' });
  assert.equal(job.status, 202);
  const done = await until('the job', async () => {
    const { json } = await get(server, job.headers.get('location'));
    return ['done', 'failed'].includes(json.state) && json;
  });
  assert.equal(done.state, 'done', JSON.stringify(done.error));
  assert.equal(done.links.mask, `/v1/jobs/${done.id}/mask`);
  const { json: list } = await get(server, '/v1/jobs');
  assert.deepEqual(list.jobs.find(({ id }) => id === done.id).links, { self: done.links.self, result: done.links.result }, 'as docs/api.md has it');
  const mask = await fetch(server.url + done.links.mask);
  assert.match(mask.headers.get('content-disposition'), /photo_mask\.png/);
  assert.equal(whites(Buffer.from(await mask.arrayBuffer())), 510);
  const clean = await post(server, '/v1/restore', { picture: whole, fields: { ...once, async: 'true' } });
  const over = await until('the job', async () => {
    const { json } = await get(server, clean.headers.get('location'));
    return ['done', 'failed'].includes(json.state) && json;
  });
  assert.equal(over.links.mask, undefined);
  assert.equal((await get(server, `/v1/jobs/${over.id}/mask`)).status, 404);
});

test('masks that are refused', async () => {
  for (const [mask, status, words] of [
    [png(W, H + 1), 400, /^mask: it has 96 × 81 pixels, but the picture 96 × 80/],
    [Buffer.from('no picture'), 415, /^mask: /],
    [Buffer.alloc(0), 400, /^mask: the picture is empty/],
    [Buffer.alloc((4 << 20) + 1), 413, /^mask: it is over the limit/],
  ]) {
    const answer = await withMask('/v1/restore', damaged, mask, once);
    assert.equal(answer.status, status, answer.json?.detail);
    assert.match(answer.json.detail, words);
  }
  assert.match((await withMask('/v1/restore', damaged, square, { ...plain, compat: 'true' })).json.detail, /^mask: compat/);
  const body = new FormData();
  for (const name of ['mask', 'mask', 'image']) body.append(name, new Blob([square]), 'a.png');
  assert.match((await post(server, '/v1/restore', { body })).json.detail, /^mask: sent more than once/);
});

test('where nothing is left to fill from, a mask is refused, and what is found is left alone with a note', async () => {
  const white = painted(() => [255, 255, 255]), green = painted(() => [0, 255, 0]);
  const json = { Accept: 'application/json' }, refused = /^mask: all of it is white, so nothing is left to fill the picture from/;
  for (const fields of [once, { ...once, mask_mode: 'add' }, { ...once, fill: 'filler' }]) {
    const answer = await withMask('/v1/restore', damaged, white, fields);
    assert.equal(answer.status, 400);
    assert.match(answer.json.detail, refused);
  }
  assert.equal((await withMask('/v1/restore', damaged, white, { ...once, mask_mode: 'remove' })).status, 200);
  assert.equal((await withMask('/v1/damage', damaged, white, { damage_detector: 'starter' })).status, 200);
  const left = await post(server, '/v1/restore', { picture: green, fields: once });
  assert.equal(left.status, 200);
  assert.deepEqual(decodePng(left.bytes).pixels, decodePng(green).pixels);
  const report = await post(server, '/v1/restore', { picture: green, fields: once, headers: json });
  assert.match(report.json.notes.join(), /^all of the picture was taken for damage/);
  assert.equal(report.json.damage.share, 0);
  fs.writeFileSync(path.join(folder, 'all.png'), damaged);
  fs.writeFileSync(path.join(folder, 'white.png'), white);
  const r = spawnSync(binary, ['restore', 'all.png', '-o', 'none.png', '--mask', 'white.png', '--version', 'none', '--bg_upsampler', 'none',
    '--device', 'cpu'], { cwd: folder, encoding: 'utf8' });
  assert.notEqual(r.status, 0);
  assert.match(r.stderr, /mask: all of it is white/);
  assert.equal(fs.existsSync(path.join(folder, 'none.png')), false);
});

test('a mask without any white says that it did nothing', async () => {
  const json = { Accept: 'application/json' }, note = /^nothing of the mask is white/, of = async (mask, fields) =>
    (await withMask('/v1/restore', damaged, mask, { ...once, ...fields }, json)).json.notes.join();
  for (const mask_mode of ['replace', 'add', 'remove']) {
    assert.match(await of(painted(() => [255, 0, 0]), { mask_mode }), note);
    assert.doesNotMatch(await of(square, { mask_mode }), note);
  }
});

test('--mask, --save_mask and kinds', () => {
  fs.writeFileSync(path.join(folder, 'photo.png'), damaged);
  fs.writeFileSync(path.join(folder, 'square.png'), square);
  const run = (...args) => spawnSync(binary, ['restore', ...args, ...ownModels, '--version', 'none', '--bg_upsampler', 'none', '--upscale', '1',
    '--damage_detector', 'starter', '--device', 'cpu'], { cwd: folder, encoding: 'utf8', env: { ...process.env, RESTORED_STARTER_MODELS: 'false' } });
  let r = run('photo.png', '--mask', 'square.png', '--mask-mode', 'add', '--save-mask');
  assert.equal(r.status, 0, r.stderr);
  assert.equal(whites(fs.readFileSync(path.join(folder, 'results/masks/photo.png'))), 510);
  r = run('photo.png', '-o', 'new.png', '--save_mask');
  assert.equal(r.status, 0, r.stderr);
  assert.equal(whites(fs.readFileSync(path.join(folder, 'new_mask.png'))), 310);
  r = run('photo.png', '-o', 'new.png', '--save_mask', '--mask-kinds', 'true');
  assert.equal(decodePng(fs.readFileSync(path.join(folder, 'new_mask.png'))).pixels.filter((v) => v === 240).length, 310, r.stderr);
  r = run('photo.png', '-o', 'left.png', '--save_mask', '--repair_kinds', 'dust');
  assert.deepEqual([r.status, fs.existsSync(path.join(folder, 'left_mask.png'))], [0, false], r.stderr);
  assert.equal(run('photo.png', 'square.png', '--mask', 'square.png').status, 2);
  assert.equal(run('photo.png', '-o', '-', '--save_mask').status, 2);
  assert.equal(run('photo.png', '--mask', 'nowhere.png').status, 2);
});

test('--dry-run refuses a mask, and a result, as the run does', () => {
  const there = fs.mkdtempSync(path.join(folder, 'dry-'));
  for (const [name, bytes] of Object.entries({ 'photo.png': damaged, 'square.png': square, 'other.png': png(W, H + 1), 'none.png': 'none' })) fs.writeFileSync(path.join(there, name), bytes);
  const run = (...args) => spawnSync(binary, ['restore', 'photo.png', ...ownModels, '--version', 'none', '--bg_upsampler', 'none', '--device', 'cpu', ...args],
    { cwd: there, encoding: 'utf8', env: { ...process.env, RESTORED_STARTER_MODELS: 'false' } });
  for (const [words, ...args] of [[/^restored: photo\.png: mask: it has 96 × 81 pixels, but the picture 96 × 80\n$/, '--mask', 'other.png'],
    [/^restored: photo\.png: mask: .+\n$/, '--mask', 'none.png'], [/^restored: photo\.png: mask: compat repairs nothing/, '--mask', 'square.png', '--compat', 'true'],
    [/^restored: photo\.png: the result would be/, '--ext', 'jpg', '--width', '70000', '--height', '1', '--fit', 'fill']]) {
    const would = run(...args, '--dry-run'), does = run(...args);
    assert.match(does.stderr, words);
    assert.deepEqual([would.stderr, would.status, would.stdout], [does.stderr, does.status, does.stdout]);
  }
  const { status, stdout } = run('--mask', 'square.png', '--dry-run');
  assert.deepEqual([status, stdout], [0, 'photo.png -> results/restored_imgs/photo.png\n']);
  assert.equal(fs.existsSync(path.join(there, 'results/restored_imgs/photo.png')), false);
});

test('restored restore: masks that are none, and what it says of a repair', () => {
  const there = fs.mkdtempSync(path.join(folder, 'cli-')), masks = path.join(there, 'results/masks/photo.png');
  fs.writeFileSync(path.join(there, 'photo.png'), damaged);
  fs.writeFileSync(path.join(there, 'square.png'), square);
  fs.writeFileSync(path.join(there, 'empty.png'), '');
  const run = (...args) => spawnSync(binary, ['restore', 'photo.png', ...ownModels, '--version', 'none', '--bg_upsampler', 'none', '--upscale', '1',
    '--damage_detector', 'starter', '--device', 'cpu', ...args], { cwd: there, encoding: 'utf8', env: { ...process.env, RESTORED_STARTER_MODELS: 'false' } });
  let r = run('--mask', 'empty.png');
  assert.deepEqual([r.status, r.stderr], [2, 'restored: --mask empty.png: the file is empty\n']);
  for (const args of [['--mask', '-o', 'x'], ['--mask', ''], ['--mask=']]) {
    r = run(...args);
    assert.deepEqual([r.status, r.stderr], [2, 'restored: --mask needs a value: a file\n'], args);
  }
  assert.match(run().stdout, /, 0 of 0 faces restored, 1 piece of damage repaired, [\d.]+ s on cpu\n/);
  assert.match(run('--mask', 'square.png').stdout, /, 0 of 0 faces restored, the mask filled, [\d.]+ s on cpu\n/);
  assert.match(run('--mask', 'square.png', '--mask_mode', 'add').stdout, /, 1 piece of damage repaired, the mask filled, [\d.]+ s on cpu\n/);
  for (const args of [['--repair', 'false'], ['--repair_strength', '0'], ['--mask', 'square.png', '--repair_strength', '0']]) assert.match(run(...args).stdout, /, 0 of 0 faces restored, [\d.]+ s on cpu\n/, args);
  assert.equal(run('--save_mask').status, 0);
  assert.equal(whites(fs.readFileSync(masks)), 310);
  assert.equal(run('--repair', 'false').status, 0);
  assert.ok(fs.existsSync(masks), 'nobody asked about masks');
  assert.equal(run('--save_mask', '--repair', 'false').status, 0);
  assert.ok(!fs.existsSync(masks), 'it belongs to the result before');
  fs.writeFileSync(path.join(there, 'black.png'), painted(() => [0, 0, 0]));
  fs.cpSync(path.join(there, 'black.png'), masks);
  assert.equal(run('--save_mask', '--mask', masks).status, 0);
  assert.ok(fs.existsSync(masks), 'it was sent');
  fs.cpSync(path.join(there, 'photo.png'), path.join(there, 'new_mask.png'));
  fs.linkSync(path.join(there, 'new_mask.png'), path.join(there, 'x.png'));
  assert.equal(run('--save_mask', '--mask', 'black.png', '-o', 'new.png').status, 0);
  assert.ok(!fs.existsSync(path.join(there, 'new_mask.png')));
  fs.rmSync(path.join(there, 'photo.png'));
  fs.linkSync(path.join(there, 'x.png'), path.join(there, 'photo.png'));
  fs.linkSync(path.join(there, 'x.png'), path.join(there, 'new_mask.png')); // a file of two names
  assert.equal(run('--save_mask', '--repair', 'false', '-o', 'new.png').status, 0);
  assert.ok(fs.existsSync(path.join(there, 'new_mask.png')), 'it is the input');
  fs.rmSync(masks);
  const result = path.join(there, 'results/restored_imgs/photo.png');
  fs.rmSync(result);
  fs.mkdirSync(result); // nothing can be written there
  assert.equal(run('--save_mask').status, 1);
  assert.ok(!fs.existsSync(masks), 'of a picture that failed');
});
