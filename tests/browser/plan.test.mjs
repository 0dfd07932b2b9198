// What is told before a picture is sent: the result's size, limits, the time; and what refusals and notes say afterwards.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { png } from '../api/client.mjs';
import { fixtureModels, root } from '../api/server.mjs';
import { done, give, more, open, ownServer, picture, ready, server, text, wait } from './browser.mjs';

const json = (body, status = 200, headers = {}) => ({ status, headers, contentType: 'application/json', body: JSON.stringify(body) });
const file = (name, buffer) => ({ name, mimeType: 'image/png', buffer });

// What a server that says more than ours does would say in /v1/capabilities.
const capable = async (page, change) => page.route('**/v1/capabilities', async (route) => {
  const answer = await route.fetch();
  const capabilities = await answer.json();
  change(capabilities);
  await route.fulfill({ response: answer, json: capabilities });
});

// Answers every restoration with a problem; counts them and keeps what was sent.
async function refuse(page, status, problem, headers) {
  const bodies = [];
  await page.route('**/v1/restore', async (route) => {
    bodies.push(route.request().postDataBuffer()?.toString('latin1') ?? '');
    await route.fulfill({ status, headers, contentType: 'application/problem+json', body: JSON.stringify({ status, request_id: 'ab12', ...problem }) });
  });
  return bodies;
}
const begin = async (page, name = 'picture.png') => {
  await page.setInputFiles('#file', picture(name));
  await ready(page);
  await page.locator('#go').click();
};

test('the size of the result, in pixels and on paper', async (t) => {
  const page = await open(t);
  await page.setInputFiles('#file', file('wide.png', png(600, 300)));
  await page.locator('#plan', { hasText: 'Result: 1200 × 600 px, a print of 10 × 5 cm' }).waitFor(wait);
  await page.getByRole('radio', { name: '4×' }).check();
  await page.locator('#plan', { hasText: 'Result: 2400 × 1200 px, a print of 20 × 10 cm' }).waitFor(wait);
});

test('a format that is read and not written: the plan and the report say what the result is', async (t) => {
  const page = await open(t);
  if (!(await page.evaluate(async () => (await (await fetch('v1/capabilities')).json()).formats.in)).includes('jp2')) return t.skip('a build without JPEG 2000');
  await page.locator('#version').selectOption('none');
  await page.locator('#bg_upsampler').selectOption('none');
  await page.setInputFiles('#file', picture('formats/lossless.jp2'));
  await page.locator('#plan', { hasText: 'as JPEG or PNG, because JPEG 2000 cannot be written' }).waitFor(wait);
  await page.locator('#go').click();
  await done(page);
  assert.match(await text(page, '#report'), /JPEG 2000 cannot be written, so the result is in (JPEG|PNG)\./);
  assert.match(await page.locator('#download').getAttribute('download'), /^lossless_restored\.(jpg|png)$/);
});

test('limits are told before the upload', async (t) => {
  const narrow = await ownServer(t, { args: [...fixtureModels, '--input_pixels', '100000', '--result_pixels', '300000'] });
  const page = await open(t, narrow.url);
  let sent = 0;
  page.on('request', (request) => { sent += request.url().endsWith('/v1/restore'); });
  await page.setInputFiles('#file', file('large.png', png(400, 300)));
  await page.locator('#plan_problem', { hasText: 'This picture has 0.1 megapixels; the server accepts at most 0.1 megapixels.' }).waitFor(wait);
  assert.equal(await page.locator('#go').isDisabled(), true);

  await page.setInputFiles('#file', picture('picture.png')); // 160 × 128
  await ready(page);
  const enabled = () => page.locator('#scale input').evaluateAll((all) => all.filter((radio) => !radio.disabled).map((radio) => radio.value));
  assert.deepEqual(await enabled(), ['1', '1.5', '2', '3']);
  assert.match(await text(page, '#help_upscale'), /more than 0\.3 megapixels are not made/);
  await page.setInputFiles('#file', file('middle.png', png(300, 300)));
  await page.locator('#plan_problem', { hasText: 'larger than the server makes. Choose 1.5× or less.' }).waitFor(wait);
  assert.equal(await text(page, '#go'), 'Restore', 'one of the three can be');
  await page.getByRole('radio', { name: '1.5×' }).check();
  await page.locator('#go', { hasText: 'Restore 2 pictures' }).waitFor(wait);
  await more(page).click();
  await page.locator('#option_width').fill('999999');
  await page.locator('#plan_problem', { hasText: /The result would have \d+ megapixels; the server makes at most 0\.3 megapixels\. Choose a smaller number for “Width” under “More options”\.$/ }).waitFor(wait);
  assert.equal(sent, 0);
});

test('the time is told, with a warning where it is long or impossible; an older server says nothing', async (t) => {
  const page = await open(t);
  let answer = json({ seconds: 118, queue_seconds: 0, measured: true, fits: true });
  const queries = [];
  await page.route('**/v1/estimate*', (route) => { queries.push(new URL(route.request().url()).searchParams); return route.fulfill(answer); });
  await page.setInputFiles('#file', picture('picture.png'));
  await page.locator('#plan', { hasText: 'about 2 minutes on this computer' }).waitFor(wait);
  assert.match(await page.locator('#plan').evaluate((plan) => plan.textContent), /cm\u00a0· about/, 'no line begins with a dot');
  assert.deepEqual(Object.fromEntries(queries.at(-1)), { width: '160', height: '128' });
  answer = json({ seconds: 1500, queue_seconds: 60, measured: false, fits: true });
  await page.getByRole('radio', { name: '8×' }).check();
  await page.locator('#plan_problem', { hasText: 'This will take long: perhaps about 25 minutes on this computer, after about 1 minute of waiting.' }).waitFor(wait);
  assert.equal(queries.at(-1).get('upscale'), '8');
  assert.equal(await page.locator('#go').isEnabled(), true);
  answer = json({ seconds: 9, fits: false, reason: 'it needs 90 GB of memory' });
  await page.getByRole('radio', { name: '4×' }).check();
  await page.locator('#plan_problem', { hasText: 'It needs 90 GB of memory.' }).waitFor(wait);
  answer = json({}, 404);
  await page.getByRole('radio', { name: '3×' }).check();
  await page.locator('#plan_problem').waitFor({ ...wait, state: 'hidden' });
  assert.equal((await text(page, '#plan')).replaceAll('\u00a0', ' '), 'Result: 480 × 384 px, a print of 4 × 3 cm');
});

test('a wrong value is told at its field before it is sent; a decimal comma is a point', async (t) => {
  const page = await open(t, undefined, { locale: 'de' });
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.locator('summary', { hasText: 'Weitere Einstellungen' }).click();
  for (const [name, wrong, words] of [['width', 'abc', /^Breite: dieser Wert geht nicht/], ['quality', '101', /^Qualität: dieser Wert geht nicht/]]) {
    const field = page.locator(`#option_${name}`);
    await field.fill(wrong);
    await page.locator(`.field:has(#option_${name}) #remark`, { hasText: words }).waitFor(wait);
    assert.deepEqual([await field.getAttribute('aria-invalid'), await field.getAttribute('aria-errormessage')], ['true', 'remark']);
    assert.match(await text(page, '#plan_problem'), words);
    assert.doesNotMatch(await text(page, '#plan'), /1 × 1/);
    assert.equal(await page.locator('#go').isDisabled(), true);
    await field.fill('90');
    await ready(page);
    assert.equal(await page.locator('#remark').count(), 0);
    assert.equal(await field.getAttribute('aria-invalid'), null);
  }
  await page.locator('#plan', { hasText: '90 × 72' }).waitFor(wait);
  await page.locator('#option_width').fill('auto'); // as the server calls the default
  await page.locator('#plan', { hasText: '320 × 256' }).waitFor(wait);
  const answer = page.waitForResponse((it) => new URL(it.url()).searchParams.get('repair_strength') === '0.9', wait);
  await page.locator('#option_repair_strength').fill('0,9');
  assert.equal((await answer).status(), 200);
  await ready(page);
  assert.equal(await page.locator('#remark').count(), 0);
});

test('the server itself says how long it takes', async (t) => {
  const page = await open(t);
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.locator('#plan', { hasText: /(seconds|minutes?) on this computer/ }).waitFor(wait);
});

test('a file that is not read: which are, and how to convert it', async (t) => {
  const page = await open(t);
  for (const [name, head, words] of [['a.gif', 'GIF89a', /GIF[^]*only JPEG, PNG,[^]*save it as JPEG or PNG/], ['a.bmp', 'BM\0\0', /BMP/], ['a.cr2', 'II\x2a\0\x10\0\0\0CR', /RAW/], ['a.pdf', '%PDF-1.4', /PDF/]]) {
    await give(page, 'drop', name, Buffer.from(head, 'latin1'));
    await page.locator('#error', { hasText: words }).waitFor(wait);
  }
  assert.equal(await page.locator('#go').isDisabled(), true);
  // Several at once, with pictures: each kind has its advice.
  const other = (name, text) => ({ name, mimeType: '', buffer: Buffer.from(text) });
  await page.setInputFiles('#file', [other('real.pdf', '%PDF-1.4'), other('one.png', png(64, 48)), other('t.pdf', 'text'), other('second.pdf', '%PDF-1.7')]);
  await page.locator('#error', { hasText: '3 files are no pictures' }).waitFor(wait);
  const lines = await page.locator('#error p').allTextContents();
  assert.match(lines[1], /^real\.pdf, second\.pdf · PDF files cannot be restored yet, only JPEG, PNG.* Save the page as a picture/);
  assert.match(lines[2], /^t\.pdf · This is not a JPEG, PNG.* picture\. The file may be something else/);
  assert.equal(lines.length, 3);
});

test('a damaged picture is restored as far as it goes, when asked', async (t) => {
  const page = await open(t, server.url, { prepare: (it) => capable(it, (c) => {
    if (!c.options.some((o) => o.name === 'damaged')) c.options.push({ name: 'damaged', type: 'enum', default: 'refuse', allowed: 'refuse or accept', help: '' });
  }) });
  const bodies = await refuse(page, 202, { id: 'ab'.repeat(16), state: 'failed', error: { status: 422, code: 'corrupt', detail: 'the JPEG is cut short' } });
  await more(page).click();
  assert.equal(await page.locator('#option_damaged').count(), 0);
  await begin(page);
  await page.getByRole('button', { name: 'Restore what is there' }).click();
  await page.locator('#error', { hasText: 'Too little of this file is left' }).waitFor(wait);
  assert.equal(await page.getByRole('button', { name: 'Restore what is there' }).count(), 0);
  assert.equal(bodies.length, 2);
  if (bodies[1]) {
    assert.doesNotMatch(bodies[0], /name="damaged"/);
    assert.match(bodies[1], /name="damaged"\r\n\r\naccept/);
  }
});

test('of a file that ends before its picture begins, nothing is there to be restored', async (t) => {
  const page = await open(t);
  const head = readFileSync(join(root, 'static/sample.jpg')).subarray(0, 100);
  await page.setInputFiles('#file', { name: 'cut.jpg', mimeType: 'image/jpeg', buffer: head });
  await ready(page);
  await page.locator('#go').click();
  await page.locator('#error', { hasText: 'ends before the picture begins' }).waitFor(wait);
  assert.equal(await page.locator('#error button').count(), 0);
  assert.doesNotMatch(await text(page, '#error'), /can be read can be restored/);
});

test('refusals say in plain words what to do', async (t) => {
  for (const [status, headers, words] of [
    [403, {}, /refused this request[^]*Whoever runs the server can allow it/], [421, {}, /does not answer under this address[^]*127\.0\.0\.1/],
    [503, {}, /cannot take the picture right now[^]*Try again/], [507, {}, /no room left[^]*Try again later/], [504, {}, /took too long/]]) {
    const page = await open(t);
    await refuse(page, status, { detail: `the server's words of ${status}` }, headers);
    await begin(page);
    await page.locator('#error', { hasText: words }).waitFor(wait);
    assert.match(await text(page, '#error small'), new RegExp(`words of ${status} · Request ab12`));
  }
  const page = await open(t);
  await refuse(page, 422, { code: 'too-large', detail: 'The picture has 20000 × 20000 = 400.0 megapixels; at most 120.0 are taken.' });
  await begin(page);
  await page.locator('#error', { hasText: /at most 120\.0 are taken\.\s*Make it smaller in a photo program, or choose less enlargement\./ }).waitFor(wait);
});

test('a busy server is asked again when it wants to be, without a click', async (t) => {
  const page = await open(t);
  const bodies = await refuse(page, 429, { detail: 'the queue is full' }, { 'Retry-After': '600' });
  await begin(page);
  await page.locator('#status', { hasText: /^The server is busy: too many pictures are waiting\.\s· next try in \d+ s$/ }).waitFor(wait);
  assert.equal(await page.locator('#error').isVisible(), false);
  assert.equal(bodies.length, 1);
  const other = await open(t); // which knows nothing of the pause, nor of the picture
  await refuse(other, 429, { detail: 'the queue is full' }, { 'Retry-After': '1' });
  await begin(other);
  await other.locator('#status', { hasText: /^The server is busy/ }).waitFor(wait);
  await other.unroute('**/v1/restore');
  await done(other);
});

test('the notes are shown; no face found and no face restored are two things', async (t) => {
  const page = await open(t);
  let job = {};
  const finished = '2026-11-23T02:46:33.881Z';
  let began = finished, timings;
  const face = { id: 0, box: [1, 1, 9, 9], action: 'restored' };
  await page.route('**/v1/restore', (route) => route.fulfill(json({ id: 'ab'.repeat(16), state: 'done', created: began, finished, timings_ms: timings, links: {}, faces: [], notes: [], ...job }, 202)));
  await page.route('**/v1/jobs/*/result', (route) => route.fulfill({ status: 200, contentType: 'image/png', body: readFileSync(picture('picture.png')) }));
  const report = async (faces, ...notes) => {
    job = { faces, notes: notes.map(([, note]) => note), note_codes: notes.map(([code]) => ({ code, values: [] })) };
    await begin(page);
    await done(page);
    return text(page, '#report');
  };
  assert.match(await report([], ['gray-to-rgb', 'gray samples became RGB'], ['starter-models', 'small starter models were used (face)']), /^No face found\s+Gray samples became RGB\.\s+Details$/);
  assert.match(await report([{ ...face, action: 'skipped' }], ['face-missing', 'face 7 was asked for, but the picture has 1 face']), /^No face restored\s+Face 7 was asked for/);
  assert.match(await report([face]), /^1 face restored/);
  assert.match(await report([face, { ...face, id: 1, action: 'kept' }, { ...face, id: 2, action: 'skipped' }]), /^1 of 3 faces restored, 1 kept/);
  began = '2026-11-23T02:45:33.881Z';
  timings = { queue: 58766, decode: 34, restore: 1200, total: 1234 };
  await report([face]);
  assert.match(await text(page, '#status'), /^Done in 1\.2 s\./, 'a minute of waiting is no part of it');
});

test('after the last job the waiting is asked for anew', async (t) => {
  const page = await open(t);
  let waiting = 60, release;
  const until = new Promise((resolve) => { release = resolve; });
  await page.route('**/v1/estimate?*', (route) => route.fulfill({ json: { seconds: 20, queue_seconds: waiting, fits: true, measured: true } }));
  await page.route('**/v1/restore', async (route) => { await until; await route.continue(); });
  await page.locator('#version').selectOption('none');
  await page.locator('#bg_upsampler').selectOption('none');
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.locator('#go').click();
  await page.setInputFiles('#file', picture('none.png'));
  await page.getByRole('button', { name: /none\.png/ }).click();
  await page.waitForFunction(() => document.getElementById('plan').textContent.includes('after about 1 minute of waiting'), null, wait);
  waiting = 0;
  release();
  await page.locator('#plan', { hasText: /about 20 seconds on this computer$/ }).waitFor(wait);
});
