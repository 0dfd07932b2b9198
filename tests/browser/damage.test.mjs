// The damage panel: what it says is what is done, and how the brush is used.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { png } from '../api/client.mjs';
import { done, open, ready, text, wait } from './browser.mjs';

const wide = 200, high = 160;
// A PNG of boxes [colour, x, y, width, height], made by the page's browser.
const drawn = async (page, ...boxes) => Buffer.from(await page.evaluate(async ([width, height, all]) => {
  const canvas = new OffscreenCanvas(width, height), context = canvas.getContext('2d');
  for (const [colour, ...box] of all) {
    context.fillStyle = colour;
    context.fillRect(...box);
  }
  return [...new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer())];
}, [wide, high, boxes]));
const black = ['#000', 0, 0, wide, high], lines = ['rgb(240 240 240)', 20, 20, 40, 20], dust = ['rgb(208 208 208)', 120, 100, 30, 30];

// A page with a picture, in which the server finds these boxes; sure: without repair=true; held: a promise that the second
// answer waits for.
async function looking(t, { boxes = [lines, dust], picture = png(wide, high), sure = boxes, held, before, ...options } = {}) {
  const page = await open(t, undefined, options);
  const some = await drawn(page, black, ...sure), mask = await drawn(page, black, ...boxes);
  let questions = 0;
  await page.route('**/v1/damage', async (route) => {
    const found = /name="repair"\s+true/.test(route.request().postDataBuffer().toString('latin1')) ? boxes : sure;
    const count = (box) => Number(found.includes(box));
    if (++questions === 2) await held;
    return route.fulfill({ status: 200, contentType: 'image/png', body: found === sure ? some : mask,
      headers: { 'X-Restored-Damage': `thin=${count(lines)}, crack=0, dust=${count(dust)}, stain=0` } });
  });
  await before?.(page);
  await page.locator('#version').selectOption('none');
  await page.locator('#bg_upsampler').selectOption('none');
  await page.setInputFiles('#file', { name: 'gray.png', mimeType: 'image/png', buffer: typeof picture === 'function' ? await picture(page) : picture });
  await ready(page);
  await look(page);
  return page;
}
async function look(page) {
  await page.getByRole('button', { name: 'Damage', exact: true }).click();
  await page.locator('#show_damage[aria-pressed="true"]:not(.busy)').waitFor(wait);
}
const hint = (page, words) => page.locator('#brush_hint').getByText(words, { exact: true }).waitFor(wait);
const keep = (page) => page.getByRole('button', { name: 'Keep' }).click();
// Sends it, and gives the job and what its mask is in the middle of both boxes.
async function restored(page) {
  await Promise.all([page.waitForResponse('**/v1/jobs/*/result', wait), page.locator('#go').click()]);
  await done(page);
  return page.evaluate(async () => {
    const { jobs } = await (await fetch('v1/jobs?limit=1')).json(), job = await (await fetch(`v1/jobs/${jobs[0].id}`)).json();
    if (!job.links.mask) return { ...job, white: null };
    const picture = await createImageBitmap(await (await fetch(job.links.mask.slice(1))).blob());
    const context = new OffscreenCanvas(picture.width, picture.height).getContext('2d', { willReadFrequently: true });
    context.drawImage(picture, 0, 0);
    return { ...job, white: [[40, 30], [135, 115], [100, 60]].map((at) => context.getImageData(...at, 1, 1).data[0] > 127) };
  });
}

test('what is kept is repaired, also where the repair is off', async (t) => {
  const page = await looking(t, { before: (it) => it.getByRole('radio', { name: 'Gentle' }).check() });
  await hint(page, 'What is coloured will be repaired if you keep it.');
  await page.keyboard.press('Escape'); // looked at, and not kept
  assert.equal((await restored(page)).white, null);
  await look(page);
  await hint(page, 'What is coloured will be repaired if you keep it.');
  await page.getByRole('radio', { name: 'Balanced' }).check(); // the options may change meanwhile
  await hint(page, 'What is coloured will be repaired.');
  await page.getByRole('radio', { name: 'Gentle' }).check();
  await hint(page, 'What is coloured will be repaired if you keep it.');
  await keep(page);
  await page.locator('#status', { hasText: 'You changed the settings' }).waitFor(wait);
  const job = await restored(page);
  assert.deepEqual([job.white, job.options.repair], [[true, true, false], 'false']);
  assert.match(await text(page, '#report .title'), /marked damage repaired$/);
  await look(page);
  await hint(page, 'What is coloured will be repaired.');
  await page.getByRole('button', { name: 'Start again' }).click();
  await hint(page, 'What is coloured will be repaired if you keep it.');
});

// Which of these places of the picture are coloured.
const coloured = (page, ...places) => page.evaluate(([width, height, all]) => {
  const canvas = document.getElementById('mask'), copy = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0, width, height);
  return all.map(([x, y]) => copy.getImageData(x, y, 1, 1).data[3] > 127);
}, [wide, high, places]);
// Clicks on a place of the picture.
async function dab(page, [x, y]) {
  const box = await page.locator('#mask').boundingBox();
  await page.mouse.click(box.x + (box.width * x) / wide, box.y + (box.height * y) / high);
}
const inLines = [40, 30], inDust = [135, 115], corner = [30, 140];

test('with other settings it is looked again, and what was painted and erased stays', async (t) => {
  const page = await looking(t, { sure: [dust] });
  assert.deepEqual(await coloured(page, inLines, inDust), [false, true]);
  await dab(page, corner);
  await page.getByRole('button', { name: 'Erase' }).click();
  await page.locator('#brush_size').fill('96');
  await dab(page, inDust);
  assert.deepEqual(await coloured(page, inLines, inDust, corner), [false, false, true]);
  await page.getByRole('radio', { name: 'Strong' }).check();
  await page.getByLabel('Lines 1').waitFor(wait);
  await hint(page, 'What is coloured will be repaired.');
  assert.deepEqual(await coloured(page, inLines, inDust, corner), [true, false, true]);
  await page.getByRole('radio', { name: 'Balanced' }).check();
  await page.getByLabel('Lines 1').waitFor({ ...wait, state: 'detached' });
  await hint(page, 'What is coloured will be repaired.');
  assert.deepEqual(await coloured(page, inLines, inDust, corner), [false, false, true]);
  await page.getByRole('button', { name: 'Undo' }).click();
  assert.deepEqual(await coloured(page, inLines, inDust, corner), [false, true, true]);
});

test('what was erased is left alone, also if the picture is sent while it is looked again', async (t) => {
  let release;
  const page = await looking(t, { sure: [dust], held: new Promise((resolve) => { release = resolve; }) });
  await page.getByRole('button', { name: 'Erase' }).click();
  await page.locator('#brush_size').fill('96');
  await dab(page, inDust);
  await page.getByRole('radio', { name: 'Strong' }).check();
  await hint(page, 'Finding damage');
  setTimeout(release, 500);
  assert.deepEqual((await restored(page)).white, [true, false, false]);
});

test('Restore keeps what is shown; without a kind, the rest of it', async (t) => {
  const page = await looking(t, { before: (it) => it.locator('#option_repair').evaluate((node) => {
    node.value = 'false';
    node.form.dispatchEvent(new Event('input'));
  }) });
  await page.getByLabel('Lines 1').uncheck();
  assert.deepEqual((await restored(page)).white, [false, true, false]);
});

test('pictures with transparency, of which nothing is repaired by itself', async (t) => {
  const page = await looking(t, { sure: [], picture: (it) => drawn(it, ['#888', 0, 0, wide, high - 1]) });
  await hint(page, 'What is coloured will be repaired if you keep it.');
  await keep(page);
  assert.deepEqual((await restored(page)).white, [true, true, false]);
});

test('what the server repairs by itself is promised without a mask', async (t) => {
  const page = await looking(t);
  await hint(page, 'What is coloured will be repaired.');
  await keep(page);
  assert.equal(await page.locator('#brush_clear').isVisible(), false);
  await look(page);
  assert.equal(await page.getByRole('button', { name: 'Start again' }).isVisible(), false);
});

test('what was kept is repaired with settings that repair less, too', async (t) => {
  const page = await looking(t, { sure: [dust] });
  await page.getByRole('radio', { name: 'Strong' }).check();
  await page.getByLabel('Lines 1').waitFor(wait);
  await hint(page, 'What is coloured will be repaired.');
  await keep(page);
  await page.getByRole('radio', { name: 'Balanced' }).check();
  await look(page);
  await hint(page, 'What is coloured will be repaired.');
  assert.deepEqual(await coloured(page, inLines, inDust), [true, true]);
  await page.getByRole('button', { name: 'Start again' }).click();
  await page.getByLabel('Lines 1').waitFor({ ...wait, state: 'detached' });
  await hint(page, 'What is coloured will be repaired.');
  await keep(page);
  await page.getByRole('radio', { name: 'Gentle' }).check();
  let job = await restored(page);
  assert.deepEqual([job.white, job.options.repair], [[false, true, false], 'false']);
  await look(page);
  await hint(page, 'What is coloured will be repaired.');
  assert.deepEqual(await coloured(page, inLines, inDust), [false, true]);
  await page.keyboard.press('Escape');
  await page.reload(); // it is kept with the picture
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  await page.locator('#bg_upsampler').selectOption(''); // any other setting
  await page.locator('#bg_upsampler').selectOption('none');
  job = await restored(page);
  assert.deepEqual(job.white, [false, true, false]);
  await page.getByRole('radio', { name: 'Strong' }).check(); // this repairs more, by itself
  await look(page);
  await page.getByLabel('Lines 1').waitFor(wait);
  await hint(page, 'What is coloured will be repaired.');
  assert.equal(await page.getByRole('button', { name: 'Start again' }).isVisible(), false);
});

test('of what was kept, kinds may be left out', async (t) => {
  const page = await looking(t);
  await page.getByLabel('Lines 1').uncheck();
  await keep(page);
  await page.getByRole('radio', { name: 'Gentle' }).check();
  assert.deepEqual((await restored(page)).white, [false, true, false]);
});

test('the panel says that nothing was found, or that nothing is left of it', async (t) => {
  const nothing = await looking(t, { boxes: [] });
  await hint(nothing, 'No damage was found. Paint over what is to be repaired.');
  const { x, y } = await nothing.locator('#mask').boundingBox();
  await nothing.mouse.click(x + 40, y + 40);
  await hint(nothing, 'What is coloured will be repaired.');
  await nothing.getByRole('button', { name: 'Undo' }).click();
  await hint(nothing, 'No damage was found. Paint over what is to be repaired.');

  const page = await looking(t);
  await page.getByLabel('Lines 1').uncheck();
  await hint(page, 'What is coloured will be repaired.');
  await page.getByLabel('Dust 1').uncheck();
  await hint(page, 'Nothing will be repaired. Paint over what is to be repaired.');
  assert.match(await text(page, '#say'), /^Nothing will be repaired/);
});

test('what was found and erased, or painted and erased, is not said to be repaired', async (t) => {
  const page = await looking(t, { boxes: [['rgb(240 240 240)', 34, 24, 12, 12]] }), none = 'Nothing will be repaired. Paint over what is to be repaired.';
  await page.locator('#brush_size').fill('96');
  await page.keyboard.press('e');
  await dab(page, corner);
  await hint(page, 'What is coloured will be repaired.');
  await dab(page, inLines);
  await hint(page, none);
  await page.keyboard.press('Control+z');
  await hint(page, 'What is coloured will be repaired.');
  await page.keyboard.press('Control+y');
  await hint(page, none);
  await page.keyboard.press('b');
  await dab(page, corner);
  await hint(page, 'What is coloured will be repaired.');
  await page.keyboard.press('e');
  await dab(page, corner);
  await hint(page, none);
  await keep(page);
  const job = await restored(page);
  assert.equal(job.white, null);
  assert.match(JSON.stringify(job), /empty-mask/);
});

test('a preview of a part is framed, and said to be one', async (t) => {
  const page = await looking(t, { picture: png(1400, 160) }), preview = page.getByRole('button', { name: 'Preview' });
  const frame = () => page.locator('.look img').evaluate((node) => [getComputedStyle(node).outlineStyle, node.getBoundingClientRect().width / document.getElementById('before').getBoundingClientRect().width]);
  await preview.click();
  await hint(page, 'Only what lies within the frame is previewed.');
  const [style, part] = await frame();
  assert.equal(style, 'solid');
  assert.ok(Math.abs(part - 1024 / 1400) < 0.01, String(part));
  await preview.click();
  await hint(page, 'What is coloured will be repaired.');
  await page.setInputFiles('#file', { name: 'small.png', mimeType: 'image/png', buffer: png(wide, high) });
  await page.locator('#name', { hasText: 'small.png' }).waitFor(wait);
  await look(page);
  await preview.click();
  await page.locator('.looking').waitFor({ ...wait, state: 'attached' });
  await hint(page, 'What is coloured will be repaired.');
  assert.equal((await frame())[0], 'none');
});

// Fingers on the page, each [x, y].
async function fingers(page) {
  const session = await page.context().newCDPSession(page);
  return (type, ...points) => session.send('Input.dispatchTouchEvent', { type, touchPoints: points.map(([x, y], id) => ({ x, y, id })) });
}

test('a picture that is painted all over cannot be repaired, which is said in the words of the page', async (t) => {
  const before = (it) => it.getByRole('radio', { name: 'Gentle' }).check(), all = ['#fff', 0, 0, wide, high];
  const said = 'All of the picture is painted, so nothing is left to repair it from.', error = (page) => page.locator('#error:visible');
  const page = await looking(t, { before, boxes: [all] });
  await page.getByRole('button', { name: 'Preview' }).click();
  await error(page).waitFor(wait);
  assert.equal(await text(page, '#error'), `The preview could not be made.\n\n${said}`);
  await keep(page);
  await page.locator('#go').click();
  await error(page).getByText(said).waitFor(wait);
  assert.doesNotMatch(await text(page, '#error'), /mask|white/);

  const long = await looking(t, { before, boxes: [all], picture: png(1400, 160) });
  await long.getByRole('button', { name: 'Preview' }).click();
  await error(long).waitFor(wait);
  assert.equal(await text(long, '#error'), 'The preview could not be made.\n\nAll that is previewed is painted: a repair needs some of the picture around it.');
});

test('two fingers zoom and move, and paint nothing; one finger paints', async (t) => {
  const page = await looking(t, { boxes: [], viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  await page.evaluate(() => scrollTo(0, 0));
  const frame = () => page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))); // fingers are told with a frame
  const box = () => frame().then(() => page.locator('#mask').boundingBox()), undo = page.getByRole('button', { name: 'Undo' }), had = await box();
  const touch = await fingers(page), x = had.x + had.width / 2, y = had.y + had.height / 2;
  await touch('touchStart', [x - 20, y]); // the fingers come one after the other, and the first one has moved
  await touch('touchMove', [x - 22, y]);
  await touch('touchStart', [x - 22, y], [x + 22, y]);
  for (let apart = 30; apart <= 60; apart += 10) await touch('touchMove', [x - apart, y], [x + apart, y]);
  const zoomed = await box();
  assert.ok(zoomed.width / had.width > 2.4 && zoomed.width / had.width < 3, `${zoomed.width} of ${had.width}`);
  for (let by = 10; by <= 40; by += 10) await touch('touchMove', [x - 60 + by, y + by / 2], [x + 60 + by, y + by / 2]);
  const moved = await box();
  assert.ok(Math.abs(moved.x - zoomed.x - 40) < 2 && Math.abs(moved.y - zoomed.y - 20) < 2, JSON.stringify([zoomed, moved]));
  await touch('touchEnd');
  assert.equal(await undo.isDisabled(), true);
  await hint(page, 'No damage was found. Paint over what is to be repaired.');
  const blank = () => page.evaluate(() => {
    const canvas = document.getElementById('mask'), copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    return copy.getImageData(0, 0, canvas.width, canvas.height).data.every((value) => !value);
  });
  assert.equal(await blank(), true);
  await touch('touchStart', [x, y]);
  for (let by = 10; by <= 40; by += 10) await touch('touchMove', [x + by, y]);
  await touch('touchEnd');
  assert.equal(await undo.isDisabled(), false);
  assert.equal(await blank(), false);
  assert.deepEqual(await box(), moved, 'the picture stays');
  assert.equal(await page.evaluate(() => scrollY), 0);
});

test('redo brings back what was undone, until something else is painted; a field keeps its own keys', async (t) => {
  const page = await looking(t, { boxes: [] }), redo = page.getByRole('button', { name: 'Redo' });
  const { x, y } = await page.locator('#mask').boundingBox();
  const painted = () => page.evaluate(() => {
    const canvas = document.getElementById('mask'), copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    return copy.getImageData(0, 0, canvas.width, canvas.height).data.filter((v, i) => i % 4 === 3 && v > 128).length;
  });
  const counts = [await painted()];
  for (const at of [40, 90, 140]) {
    await page.mouse.click(x + at, y + 40);
    counts.push(await painted());
  }
  assert.deepEqual([...new Set(counts)].sort((a, b) => a - b), counts);
  await redo.and(page.locator(':disabled')).waitFor(wait);
  for (const [key, left] of [['z', 2], ['z', 1], ['y', 2], ['Shift+Z', 3], ['y', 3], ['z', 2], ['z', 1], ['z', 0], ['z', 0], ['Shift+Z', 1]]) {
    await page.keyboard.press(`Control+${key}`);
    assert.equal(await painted(), counts[left], key);
  }
  await redo.click();
  assert.equal(await painted(), counts[2]);
  await page.mouse.click(x + 40, y + 90);
  const other = await painted();
  assert.equal(await redo.isDisabled(), true);
  await page.keyboard.press('Control+y');
  assert.equal(await painted(), other);
  await page.keyboard.press('Control+z');
  await redo.focus();
  await page.keyboard.press('Enter');
  await page.locator('#brush_paint:focus').waitFor(wait); // nothing is left to redo: the focus stays among the tools
  assert.equal(await painted(), other);

  await page.locator('summary', { hasText: 'More options' }).click();
  await page.locator('#option_suffix').focus();
  await page.keyboard.type('be');
  assert.equal(await page.locator('#option_suffix').inputValue(), 'be');
  await page.keyboard.press('Control+z');
  assert.equal(await painted(), other);
});

test('the tools tell their keys, and these do what they tell', async (t) => {
  const page = await looking(t, { boxes: [] });
  const told = await page.locator('#brush [aria-keyshortcuts]').evaluateAll((nodes) => nodes.map((node) => [node.id, node.closest('[title]').title, node.getAttribute('aria-keyshortcuts')]));
  assert.deepEqual(told, [['brush_paint', 'Paint (B)', 'b'], ['brush_erase', 'Erase (E)', 'e'], ['brush_size', 'Smaller or larger ([ and ])', '[ ]'],
    ['brush_undo', 'Undo (Ctrl+Z)', 'Control+Z Meta+Z'], ['brush_redo', 'Redo (Ctrl+Y)', 'Control+Y Meta+Y']]);
  const is = (what) => page.locator(what).waitFor(wait), size = () => page.locator('#brush_size').inputValue();
  for (const [key, id] of [['e', 'brush_erase'], ['b', 'brush_paint']]) {
    await page.keyboard.press(key);
    await is(`#${id}[aria-pressed="true"]`);
  }
  const had = Number(await size());
  await page.keyboard.press(']');
  assert.ok(Number(await size()) > had);
  await page.keyboard.press('[');
  assert.equal(Number(await size()), had);
  await dab(page, corner);
  for (const [by, key, off, on] of [['Control', 'z', 'undo', 'redo'], ['Control', 'y', 'redo', 'undo'], ['Meta', 'z', 'undo', 'redo'], ['Meta', 'y', 'redo', 'undo']]) {
    await page.keyboard.press(`${by}+${key}`);
    await is(`#brush_${off}:disabled`);
    await is(`#brush_${on}:enabled`);
  }
});

test('two dabs at one place are two dabs, and no zoom', async (t) => {
  const page = await looking(t, { boxes: [] }), mask = page.locator('#mask'), had = await mask.boundingBox();
  await page.mouse.dblclick(had.x + 40, had.y + 40);
  assert.deepEqual(await mask.boundingBox(), had);
  const undo = page.getByRole('button', { name: 'Undo' });
  await undo.click();
  await undo.click();
  assert.equal(await undo.isDisabled(), true);
});

test('with the option that repairs nothing the panel says so, and the picture is sent without a mask', async (t) => {
  const page = await looking(t);
  await page.locator('summary', { hasText: 'More options' }).click();
  await page.getByLabel('Exactly like GFPGAN').check();
  await hint(page, 'With “Exactly like GFPGAN”, nothing is repaired.');
  await page.locator('#option_repair').selectOption('false');
  await keep(page);
  assert.equal((await restored(page)).white, null);
});

test('where the server does not say what is damaged, what is painted is added to what it repairs by itself', async (t) => {
  const page = await looking(t, { before: (it) => it.route('**/v1/damage', (route) => route.fulfill({ status: 503, body: '{}' })) });
  await hint(page, 'The server did not say what is damaged. Open this again to ask it once more. Paint over what is to be repaired.');
  await page.locator('#mask').click({ position: { x: 20, y: 20 } });
  await hint(page, 'What is coloured will be repaired.');
  const sent = [];
  page.on('request', (request) => sent.push(request.url().includes('/v1/restore') ? request.postDataBuffer()?.toString('latin1') ?? '' : ''));
  await restored(page);
  assert.match(sent.join(), /name="mask_mode"\s+add/);
});

test('a mask that is taken back while its picture waits to be sent is not sent, and the picture is', async (t) => {
  let release;
  const page = await looking(t, { sure: [dust], held: new Promise((resolve) => { release = resolve; }) });
  const sent = [];
  await page.route('**/v1/restore', (route) => {
    sent.push(/name="mask"; filename/.test(route.request().postDataBuffer().toString('latin1')));
    return sent.length > 1 ? route.continue() : route.fulfill({ status: 429, headers: { 'Retry-After': '4' }, contentType: 'application/problem+json', body: '{"status": 429}' });
  });
  await page.locator('#brush_erase').click();
  await page.locator('#brush_size').fill('96');
  await dab(page, inDust);
  await page.getByRole('radio', { name: 'Strong' }).check();
  await hint(page, 'Finding damage');
  const refused = page.waitForResponse('**/v1/restore', wait);
  await page.locator('#go').click();
  await page.getByRole('button', { name: 'Damage', exact: true }).click(); // opened again before the mask is made
  release();
  await refused;
  await page.getByRole('button', { name: 'Start again' }).click();
  await page.keyboard.press('Escape');
  await done(page);
  assert.deepEqual(sent, [true, false]);
});
