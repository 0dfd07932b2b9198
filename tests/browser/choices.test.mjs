// What is chosen for one picture: its faces and their strength, its mask; the presets above the options; zoom and views.
import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { png } from '../api/client.mjs';
import { fixtureModels } from '../api/server.mjs';
import { done, open, ownServer, picture, ready, text, wait } from './browser.mjs';

const plainly = (page) => page.locator('#bg_upsampler').selectOption('none');
const sent = async (page) => {
  await page.locator('#go').click();
  await done(page);
};
// Holds what the page sends back until the function that it gives is called.
async function held(page) {
  let go;
  const until = new Promise((resolve) => { go = resolve; });
  await page.route('**/v1/restore', async (route) => { await until; await route.continue(); });
  return go;
}
// The options of the newest job, as the server has understood them.
const options = (page) => page.evaluate(async () => {
  const { jobs } = await (await fetch('v1/jobs?limit=1')).json();
  return (await (await fetch(`v1/jobs/${jobs[0].id}`)).json());
});

test('faces: boxes with names, one left as it is, one restored less, the original shown in its place', async (t) => {
  const page = await open(t);
  await plainly(page);
  await page.setInputFiles('#file', picture('two.png'));
  await ready(page);
  await page.locator('#before:visible').waitFor(wait);
  await page.getByRole('button', { name: 'Faces', exact: true }).click();
  const face = (name) => page.getByRole('button', { name: `Face ${name}`, exact: true });
  await page.getByRole('button', { name: 'Face 2: Strength' }).click(); // the card, without a change
  await page.locator('#face_weight:focus').waitFor(wait);
  assert.equal(await text(page, '#face_title'), 'Face 2, will be restored');
  await face('2, will be restored').click(); // a click leaves it,
  await face('2, left as it is').click();    // the next takes it in,
  await face('2, will be restored').click();
  await face('2, left as it is').and(page.locator(':focus')).waitFor(wait);
  assert.equal(await text(page, '#say'), 'Face 2, left as it is');
  await page.getByRole('checkbox', { name: 'Restore this face' }).check(); // and so does the card
  await page.getByRole('checkbox', { name: 'Restore this face' }).uncheck();
  await page.keyboard.press('Escape');
  await face('2, left as it is').and(page.locator(':focus')).waitFor(wait);
  await page.keyboard.press('ArrowLeft'); // keys alone: the boxes are one stop, the card is the next
  await face('1, will be restored').and(page.locator(':focus')).waitFor(wait);
  await page.keyboard.press('Space');
  await face('1, left as it is').and(page.locator(':focus')).waitFor(wait);
  await page.keyboard.press('Tab');
  await page.getByRole('checkbox', { name: 'Restore this face' }).and(page.locator(':focus')).waitFor(wait);
  await page.locator('#face_weight').selectOption('0.5'); // who chooses a strength wants it restored
  await face('1, will be restored').waitFor(wait);
  await page.getByRole('button', { name: 'Close' }).click();
  await sent(page);
  const job = await options(page);
  assert.deepEqual(job.faces.map(({ id, action }) => [id, action]), [[0, 'restored'], [1, 'skipped']]);
  assert.match(String(job.options.weight), /0:0\.5/);
  const isQuiet = () => page.locator('#go').evaluate((node) => node.classList.contains('quiet'));
  const outdated = async (is) => { // told as long as the result is from other settings
    await page.locator('#status', { hasText: is ? /^You changed the settings/ : /^Done in/ }).waitFor(wait);
    assert.equal(await isQuiet(), !is);
  };
  await outdated(false);
  await face('1, restored').click();
  await face('1, restored; will be left as it is').waitFor(wait);
  await outdated(true);
  await face('1, restored; will be left as it is').click();
  await face('2, left as it is').click();
  await outdated(true);
  await face('2, not restored; will be restored').click();
  await outdated(false);
  await page.locator('#weight').selectOption('1');
  await outdated(true);
  await page.locator('#weight').selectOption('');
  await outdated(false);
  await face('1, restored').focus();
  await page.keyboard.press('Shift'); // as one who uses keys
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowLeft');
  await page.getByRole('checkbox', { name: 'Show the original here' }).check();
  await page.locator('.peek img').waitFor(wait);
  const [box, over] = await Promise.all(['.face[data-face="0"]', '.peek'].map((s) => page.locator(s).boundingBox()));
  assert.ok(Math.abs(box.x - over.x) < 2 && Math.abs(box.width - over.width) < 2);
  await page.reload(); // the choice is kept
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  await done(page);
  await page.getByRole('button', { name: 'Faces', exact: true }).click();
  await page.getByRole('button', { name: 'Face 2, left as it is' }).waitFor(wait);
  await outdated(false);
});

test('enlarged, a face that gets the focus is brought into view, and the stage itself never scrolls', async (t) => {
  const page = await open(t, undefined, { viewport: { width: 1200, height: 1100 } });
  await page.setInputFiles('#file', picture('two.png'));
  await page.locator('#before:visible').waitFor(wait);
  await page.getByRole('button', { name: 'Faces', exact: true }).click();
  await page.getByRole('button', { name: 'Face 1: Strength' }).click();
  const { x, y, width } = await page.locator('#stage').boundingBox();
  const isSeen = (id) => page.evaluate((face) => {
    const box = document.querySelector(`[data-face="${face}"]`).getBoundingClientRect(), room = document.getElementById('stage').getBoundingClientRect();
    const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2; // it may be larger than the stage
    return x > room.left && x < room.right && y > room.top && y < room.bottom;
  }, id);
  const toCorner = async () => {
    await page.mouse.move(x + width - 20, y + 20);
    for (let i = 0; i < 9; i++) await page.mouse.wheel(0, -100);
    await page.locator('#zoom', { hasText: '800' }).waitFor(wait);
    assert.equal(await isSeen(0), false);
  };
  const comes = async (id) => {
    await page.locator(`[data-face="${id}"]:focus`).waitFor(wait);
    assert.equal(await isSeen(id), true);
    assert.deepEqual(await page.evaluate(() => [...['scrollTop', 'scrollLeft'].map((name) => document.getElementById('stage')[name]), scrollY, scrollX]), [0, 0, 0, 0]);
  };
  await toCorner();
  await page.getByRole('button', { name: 'Close' }).click();
  await comes(0);
  await page.keyboard.press('0');
  await toCorner();
  await page.locator('#file').focus();
  await page.keyboard.press('Tab');
  await comes(0);
  assert.equal(await text(page, '#face_title'), 'Face 1, will be restored');
  await page.keyboard.press('ArrowRight');
  await comes(1);
});

test('damage: what is painted is repaired, undo takes it back, keys paint too', async (t) => {
  const page = await open(t);
  await page.route('**/v1/damage', (route) => route.fulfill({ status: 400 })); // no detector
  await page.locator('#version').selectOption('none');
  await plainly(page);
  await page.setInputFiles('#file', { name: 'gray.png', mimeType: 'image/png', buffer: png(200, 160) });
  await ready(page);
  const button = page.getByRole('button', { name: 'Damage', exact: true });
  await button.click();
  await page.locator('#brush_hint', { hasText: 'Paint over what is to be repaired.' }).waitFor(wait);
  const { x, y, width, height } = await page.locator('#mask').boundingBox();
  const line = async (from, to) => {
    await page.mouse.move(x + width * from, y + height * 0.5);
    await page.mouse.down();
    await page.mouse.move(x + width * to, y + height * 0.5, { steps: 4 });
    await page.mouse.up();
  };
  const painted = () => page.evaluate(() => {
    const canvas = document.getElementById('mask');
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    return copy.getImageData(0, 0, canvas.width, canvas.height).data.filter((v, i) => i % 4 === 3 && v > 128).length;
  });
  await line(0.2, 0.4);
  const one = await painted();
  assert.ok(one > 0);
  await line(0.6, 0.8);
  assert.ok(await painted() > one);
  await page.keyboard.press('Control+z');
  assert.equal(await painted(), one);
  await page.locator('#mask').focus();
  const spot = async () => {
    const box = await page.locator('.spot').boundingBox();
    return [(box.x + box.width / 2 - x) / width, (box.y + box.height / 2 - y) / height].map((part) => Math.round(100 * part));
  };
  await page.keyboard.press('ArrowUp');
  const [left, top] = await spot(); // where the brush is can be seen
  await page.locator('#say', { hasText: `${left} % from the left, ${top} % from the top` }).waitFor({ ...wait, state: 'attached' });
  await page.keyboard.press('Space');
  assert.ok(await painted() > one);
  await page.keyboard.press('Control+z');
  assert.equal(await painted(), one);
  await page.keyboard.press('Shift+ArrowRight');
  assert.ok(await painted() > one);
  await page.keyboard.press('e');
  const shade = (name) => page.locator(`#brush_${name}`).evaluate((node) => getComputedStyle(node).backgroundColor);
  assert.notEqual(await shade('erase'), await shade('paint')); // which one is on can be seen
  await line(0.1, 0.9);
  assert.ok(await painted() < one / 2);
  // The networks for damage are chosen from lists, as the others are.
  const listed = (name) => page.locator(`#option_${name} option`).evaluateAll((all) => all.map((one) => one.value));
  for (const [name, one] of [['fill', 'squares'], ['damage_detector', 'scratches']]) {
    const values = await listed(name);
    assert.deepEqual([values[0], values.includes(one), values.at(-1)], ['', true, 'none'], `${name}: ${values}`);
  }
  const undo = page.getByRole('button', { name: 'Undo' }), isFocused = (id) => page.locator(`#${id}:focus`).waitFor(wait);
  await undo.click();
  await undo.click();
  await undo.focus();
  await page.keyboard.press('Enter');
  assert.equal(await painted(), 0);
  await isFocused('brush_paint'); // nothing is left to undo: the focus stays among the tools
  await page.keyboard.press('b');
  await line(0.2, 0.4);
  await page.keyboard.press('e');
  await page.locator('#brush_size').fill('96');
  await line(0.1, 0.5);
  await page.keyboard.press('Escape');
  await button.click(); // what has nothing in it is no mask
  await page.locator('#brush_hint', { hasText: 'Paint over what is to be repaired.' }).waitFor(wait);
  assert.equal(await page.locator('#brush_clear').isVisible(), false);
  await page.locator('#brush_size').fill('20');
  await page.keyboard.press('b');
  await line(0.2, 0.4);
  await page.keyboard.press('Escape'); // what was painted is not lost
  await page.locator('#say', { hasText: 'The mask is kept' }).waitFor(wait);
  await button.click();
  await page.locator('#brush_hint', { hasText: 'What is coloured will be repaired.' }).waitFor(wait);
  await page.waitForFunction(() => !document.getElementById('show_damage').classList.contains('busy'), null, wait);
  assert.ok(await painted() > one / 2);
  await page.mouse.move(x + width * 0.1, y + height * 0.25);
  await page.mouse.down();
  await page.mouse.move(x + width * 0.9, y + height * 0.25, { steps: 4 });
  await page.mouse.up();
  const stop = await held(page); // Restore keeps it, too, and the focus goes to Cancel and back
  await page.locator('#go').focus();
  await page.keyboard.press('Enter');
  await isFocused('cancel');
  await stop();
  await done(page);
  await isFocused('go');
  const job = await options(page);
  assert.equal(job.damage.mask, true);
  assert.match(await page.locator('#report .title').textContent(), /marked damage repaired$/);
  const mask = await page.evaluate(async (path) => {
    const picture = await createImageBitmap(await (await fetch(path.slice(1))).blob());
    const canvas = new OffscreenCanvas(picture.width, picture.height).getContext('2d', { willReadFrequently: true });
    canvas.drawImage(picture, 0, 0);
    const at = (px, py) => canvas.getImageData(px, py, 1, 1).data[0];
    return [picture.width, picture.height, at(60, 80), at(100, 40), at(150, 80), at(60, 140)];
  }, job.links.mask);
  assert.deepEqual(mask, [200, 160, 255, 255, 0, 0]);
});

test('damage by kind: shown, left out, tried out at the place, and kept', async (t) => {
  const page = await open(t, undefined, { hasTouch: true });
  const mask = await page.evaluate(async () => {
    const canvas = new OffscreenCanvas(200, 160), context = canvas.getContext('2d');
    for (const [gray, ...box] of [[0, 0, 0, 200, 160], [240, 20, 20, 40, 20], [208, 120, 100, 30, 30]]) {
      context.fillStyle = `rgb(${gray} ${gray} ${gray})`;
      context.fillRect(...box);
    }
    return [...new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer())];
  });
  await page.route('**/v1/damage', (route) => {
    assert.match(route.request().postDataBuffer().toString('latin1'), /name="mask_kinds"\r\n\r\ntrue/);
    route.fulfill({ status: 200, contentType: 'image/png', headers: { 'X-Restored-Damage': 'thin=3, crack=0, dust=1, stain=0' }, body: Buffer.from(mask) });
  });
  await page.locator('#version').selectOption('none');
  await plainly(page);
  await page.setInputFiles('#file', { name: 'gray.png', mimeType: 'image/png', buffer: png(200, 160) });
  await ready(page);
  const look = async () => {
    await page.getByRole('button', { name: 'Damage', exact: true }).click();
    await page.locator('#brush_kinds input').nth(1).waitFor(wait);
  };
  await look();
  const shown = () => page.evaluate(() => {
    const canvas = document.getElementById('mask'), copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    return [[40, 30], [135, 115], [100, 60]].map(([x, y]) => {
      const [r, g, b, alpha] = copy.getImageData((x * canvas.width) / 200, (y * canvas.height) / 160, 1, 1).data;
      return alpha ? ['red', 'green', 'blue'][[r, g, b].indexOf(Math.max(r, g, b))] + (g > 180) : '';
    });
  });
  assert.deepEqual(await page.locator('#brush_kinds label').allInnerTexts(), ['Lines 3', 'Dust 1']);
  assert.deepEqual(await shown(), ['redtrue', 'bluetrue', '']);
  await page.getByLabel('Lines 3').uncheck();
  assert.deepEqual(await shown(), ['', 'bluetrue', '']);
  const { x, y, width, height } = await page.locator('#mask').boundingBox();
  await page.touchscreen.tap(x + width / 2, y + (height * 60) / 160);
  assert.deepEqual(await shown(), ['', 'bluetrue', 'redfalse']);
  await page.getByRole('button', { name: 'Undo' }).click();
  assert.deepEqual(await shown(), ['', 'bluetrue', '']);
  // The place that is looked at, as the server repairs it: the dust alone.
  const preview = page.getByRole('button', { name: 'Preview' });
  const [request] = await Promise.all([page.waitForRequest('**/v1/restore', wait), preview.click()]);
  assert.match(request.postDataBuffer().toString('latin1'), /name="repair_kinds"\r\n\r\ncrack,dust,stain\r\n/);
  await page.locator('.looking').waitFor({ ...wait, state: 'attached' });
  const changed = await page.evaluate(() => {
    const [repaired, before] = [document.querySelector('.look:not([hidden]) img'), document.getElementById('before')].map((image) => {
      const context = new OffscreenCanvas(200, 160).getContext('2d', { willReadFrequently: true });
      context.drawImage(image, 0, 0);
      return context.getImageData(0, 0, 200, 160).data;
    });
    const at = (px, py) => [0, 1, 2].some((c) => repaired[4 * (200 * py + px) + c] !== before[4 * (200 * py + px) + c]);
    const any = (left, top, w, h) => Array.from({ length: w * h }, (_, i) => at(left + (i % w), top + Math.floor(i / w))).some(Boolean);
    return [any(120, 100, 30, 30), any(20, 20, 40, 20)];
  });
  assert.deepEqual(changed, [true, false]);
  await preview.click();
  await page.locator('.looking').waitFor({ ...wait, state: 'detached' });
  // One that fails is told, in words and with the server's reason, and the next one works.
  const refused = { status: 507, contentType: 'application/problem+json', body: JSON.stringify({ status: 507, detail: 'no room for it' }) };
  await page.route('**/v1/restore', (route) => route.fulfill(refused), { times: 1 });
  await preview.click();
  await page.getByText('The preview could not be made.').waitFor(wait);
  await page.getByText('no room for it').waitFor({ ...wait, state: 'attached' });
  assert.equal(await preview.getAttribute('aria-pressed'), 'false');
  await preview.click();
  await page.locator('.looking').waitFor({ ...wait, state: 'attached' });
  await page.getByText('The preview could not be made.').waitFor({ ...wait, state: 'detached' });
  await preview.click();
  await page.locator('.looking').waitFor({ ...wait, state: 'detached' });
  await page.getByRole('button', { name: 'Keep' }).click();
  await page.locator('#go').click();
  await done(page);
  assert.equal((await options(page)).options.repair_kinds, 'crack,dust,stain');
  await look();
  assert.equal(await page.getByLabel('Lines 3').isChecked(), false);
  await page.getByRole('button', { name: 'Start again' }).click();
  await page.locator('#brush_kinds input:checked').nth(1).waitFor(wait);
});

test('presets set the options and follow them; the choice is kept', async (t) => {
  const page = await open(t);
  const chosen = () => page.evaluate(() => document.querySelector('#presets :checked')?.value ?? null);
  assert.equal(await chosen(), 'balanced');
  await page.getByRole('radio', { name: 'Gentle' }).check();
  assert.equal(await page.locator('#weight').inputValue(), '0.5');
  assert.equal(await page.locator('#bg_upsampler').inputValue(), 'none');
  assert.equal(await page.locator('#option_repair').inputValue(), 'false');
  assert.match(await text(page, '#help_preset'), /half strength/);
  await page.locator('#weight').selectOption('0.75');
  await page.locator('#help_preset', { hasText: 'Your own choice' }).waitFor(wait);
  assert.equal(await chosen(), null);
  await page.getByRole('radio', { name: 'Strong' }).check();
  assert.equal(await page.locator('#option_repair').inputValue(), 'true');
  assert.equal(await page.locator('#option_tone').inputValue(), 'strong');
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  assert.equal(await chosen(), 'strong');
});

for (const deviceScaleFactor of [1, 2])
  test(`zoom by keys, wheel and buttons to 800 %, both sides in step, on a screen of ${deviceScaleFactor}`, async (t) => {
    const page = await open(t, undefined, { deviceScaleFactor });
    await page.locator('#version').selectOption('none');
    await plainly(page);
    await page.setInputFiles('#file', { name: 'large.png', mimeType: 'image/png', buffer: png(900, 700) });
    await ready(page);
    await sent(page);
    const widths = () => page.evaluate(() => ['before', 'after'].map((id) => document.getElementById(id).getBoundingClientRect().width));
    const percent = async () => Number((await text(page, '#zoom')).replace(/\D/g, ''));
    const fits = await percent();
    assert.ok(fits < 100);
    await page.keyboard.press('1');
    assert.equal(await percent(), 100);
    assert.deepEqual(await widths(), [1800 / deviceScaleFactor, 1800 / deviceScaleFactor], 'a pixel of the result is one of the screen');
    for (let i = 0; i < 12; i++) await page.keyboard.press('+');
    assert.equal(await percent(), 800);
    await page.keyboard.press('0');
    assert.equal(await percent(), fits);
    const stage = await page.locator('#stage').boundingBox();
    const point = { x: stage.x + stage.width * 0.3, y: stage.y + stage.height * 0.4 };
    const under = () => page.evaluate(({ x }) => { const box = document.getElementById('after').getBoundingClientRect(); return (x - box.left) / box.width; }, point);
    const larger = (least) => page.waitForFunction((n) => Number(document.getElementById('zoom').textContent.replace(/\D/g, '')) > n, least, wait);
    await page.mouse.move(point.x, point.y);
    for (let i = 0; i < 4; i++) await page.mouse.wheel(0, -100);
    await larger(1.5 * fits); // it fills the stage
    await page.evaluate(() => new Promise(requestAnimationFrame));
    const before = await under(), was = await percent();
    await page.mouse.wheel(0, -100);
    await larger(was);
    assert.ok(Math.abs((await under()) - before) < 0.01, 'what is under the mouse stays there');

    // The other view shows the same place, as large.
    const middle = () => page.evaluate(() => {
      const box = document.getElementById('after').getBoundingClientRect(), pane = document.getElementById('pane_after').getBoundingClientRect();
      return [(pane.left + pane.width / 2 - box.left) / box.width, (pane.top + pane.height / 2 - box.top) / box.height];
    });
    for (let i = 0; i < 12; i++) await page.keyboard.press('+');
    const place = await middle();
    for (const press of [() => page.getByRole('button', { name: 'Side by side' }).click(), () => page.keyboard.press('s'), () => page.keyboard.press('s')]) {
      await press();
      assert.equal(await percent(), 800);
      (await middle()).forEach((part, i) => assert.ok(Math.abs(part - place[i]) < 0.01, 'what is in the middle stays there'));
    }
    await page.keyboard.press('0');
    await page.getByRole('button', { name: 'Larger' }).click();
    await page.getByRole('button', { name: 'Larger' }).click();
    const lefts = () => page.evaluate(() => [['before', 'pane_before'], ['after', 'pane_after']].map(([id, pane]) => document.getElementById(id).getBoundingClientRect().left - document.getElementById(pane).getBoundingClientRect().left));
    const had = await lefts();
    assert.ok(Math.abs(had[0] - had[1]) < 0.01);
    await page.mouse.move(stage.x + 100, stage.y + 200);
    await page.mouse.down();
    await page.mouse.move(stage.x + 60, stage.y + 180, { steps: 3 });
    await page.mouse.up();
    const now = await lefts();
    assert.ok(Math.abs(now[0] - now[1]) < 0.01 && Math.abs(now[0] - had[0] + 40) < 0.01, `${had} ${now}`);
    await page.keyboard.down('d');
    assert.equal(await page.locator('#view').evaluate((view) => view.classList.contains('differing')), true);
    await page.keyboard.up('d');
    assert.equal(await page.locator('#view').evaluate((view) => view.classList.contains('differing')), false);
  });

test('two fingers zoom about the point between them, and one moves what is enlarged', async (t) => {
  const page = await open(t, undefined, { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  await plainly(page);
  await page.locator('#version').selectOption('none');
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await sent(page);
  await page.locator('#side').click();
  await page.evaluate(() => scrollTo(0, 0));
  const pane = await page.locator('#pane_before').boundingBox(), x = pane.x + pane.width / 2, y = pane.y + pane.height / 3;
  const session = await page.context().newCDPSession(page);
  const touch = (type, ...points) => session.send('Input.dispatchTouchEvent', { type, touchPoints: points.map(([px, py], id) => ({ x: px, y: py, id })) });
  const boxes = () => page.evaluate(() => ['before', 'after'].map((id) => {
    const box = document.getElementById(id).getBoundingClientRect(), room = document.getElementById(`pane_${id}`).getBoundingClientRect();
    return { left: box.left - room.left, top: box.top - room.top, width: box.width, height: box.height };
  }));
  const inStep = ([a, b]) => assert.deepEqual(Object.values(a).map(Math.round), Object.values(b).map(Math.round));
  const [had] = await boxes();
  const under = (box) => [(x - pane.x - box.left) / box.width, (y - pane.y - box.top) / box.height];
  await touch('touchStart', [x - 20, y], [x + 20, y]);
  for (let apart = 30; apart <= 80; apart += 10) await touch('touchMove', [x - apart, y], [x + apart, y]);
  await touch('touchEnd');
  let now = await boxes();
  assert.ok(now[0].width / had.width > 3.5 && now[0].width / had.width < 4.2, `${now[0].width} of ${had.width}`);
  inStep(now);
  under(now[0]).forEach((part, i) => assert.ok(Math.abs(part - under(had)[i]) < 0.02, 'what is between the fingers stays there'));
  const before = now[0];
  await touch('touchStart', [x, y]);
  for (let by = 5; by <= 25; by += 5) await touch('touchMove', [x - by, y - by]);
  await touch('touchEnd');
  now = await boxes();
  assert.ok(Math.abs(now[0].left - before.left + 25) < 2 && Math.abs(now[0].top - before.top + 25) < 2, JSON.stringify([before, now[0]]));
  inStep(now);
  assert.equal(await page.evaluate(() => scrollY), 0, 'the page stays');
});

test('a model\'s licence stands beside its name, marked where it forbids commercial use', async (t) => {
  const models = mkdtempSync(join(tmpdir(), 'restored-licences-'));
  t.after(() => rmSync(models, { recursive: true, force: true }));
  for (const name of ['face', 'detector', 'parser', 'upscaler', 'srvgg_x4', 'rrdb_x4']) copyFileSync(picture(`${name}.safetensors`), join(models, `${name}.safetensors`));
  writeFileSync(join(models, 'models.conf'), '[model srvgg_x4]\nlicence = CC-BY-NC-4.0\n[rrdb_x4]\nlicence = MIT\n');
  const own = await ownServer(t, { args: ['--models', models, ...fixtureModels.slice(2)] });
  const page = await open(t, own.url);
  const shown = await page.locator('#bg_upsampler option').allTextContents();
  assert.ok(shown.includes('With srvgg_x4 (4×) · CC-BY-NC-4.0, not for commercial use'), shown.join('; '));
  assert.ok(shown.includes('With rrdb_x4 (4×) · MIT'), shown.join('; '));
});
