// Before and after: the divider by keys, mouse and finger; pictures of odd shapes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { png } from '../api/client.mjs';
import { done, more, open, picture, ready, server, text, wait } from './browser.mjs';

const position = (page) => page.evaluate(() => parseFloat(getComputedStyle(document.getElementById('view')).getPropertyValue('--split')));
const ratio = (page, id) => page.locator(`#${id}`).evaluate((node) => { const { width, height } = node.getBoundingClientRect(); return width / height; });

async function restored(page, file) {
  await page.setInputFiles('#file', file);
  await ready(page);
  await page.locator('#go').click();
  await done(page);
}
const plainly = (page) => page.evaluate(() => {
  for (const id of ['version', 'bg_upsampler']) document.getElementById(id).value = 'none';
});

test('keys move the divider by steps, Shift and Page by more', async (t) => {
  const page = await open(t);
  await plainly(page);
  await restored(page, picture('picture.png'));
  await page.locator('#split').focus();
  const after = async (key) => { await page.keyboard.press(key); return position(page); };
  assert.equal(await after('ArrowRight'), 52);
  assert.equal(await after('ArrowLeft'), 50);
  assert.equal(await after('Shift+ArrowLeft'), 40);
  assert.equal(await after('PageUp'), 50);
  assert.equal(await after('PageDown'), 40);
  assert.equal(await after('Home'), 0);
  assert.equal(await after('ArrowLeft'), 0);
  assert.equal(await after('End'), 100);
});

test('the mouse drags it, beside a narrow picture as well', async (t) => {
  const page = await open(t);
  await plainly(page);
  await restored(page, { name: 'narrow.png', mimeType: 'image/png', buffer: png(6, 300) });
  const [left, right, view] = await Promise.all(['.tag.left', '.tag.right', '#before'].map((s) => page.locator(s).boundingBox()));
  assert.ok(left.x + left.width <= right.x, 'the labels stand side by side, in their order');
  await page.mouse.move(view.x - 100, view.y + 20);
  await page.mouse.down();
  assert.equal(await position(page), 0);
  await page.mouse.move(view.x + view.width + 100, view.y + 20);
  assert.equal(await position(page), 100);
  await page.mouse.up();
  await page.mouse.move(view.x, view.y);
  assert.equal(await position(page), 100);
});

test('a finger that scrolls leaves it alone, one that goes sideways moves it', async (t) => {
  const page = await open(t, server.url, { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  await plainly(page);
  await restored(page, picture('picture.png'));
  await page.evaluate(() => scrollTo(0, 0));
  const box = await page.locator('#before').boundingBox();
  const session = await page.context().newCDPSession(page);
  const x = box.x + box.width / 4, y = box.y + (box.height * 3) / 4;
  const swipe = async (dx, dy) => {
    const touch = (type, ...touchPoints) => session.send('Input.dispatchTouchEvent', { type, touchPoints });
    await touch('touchStart', { x, y });
    for (let i = 1; i <= 10; i++) {
      await touch('touchMove', { x: x + (dx * i) / 10, y: y + (dy * i) / 10 });
      await page.evaluate(() => new Promise(requestAnimationFrame));
    }
    await touch('touchEnd');
  };
  await swipe(3, -150);
  await page.waitForFunction(() => scrollY > 50, null, { timeout: 5000 }).catch(async () => console.log(await page.evaluate(() => [scrollY, document.documentElement.scrollHeight, innerHeight, getComputedStyle(document.getElementById('stage')).touchAction])));
  assert.equal(await position(page), 50);
  await page.evaluate(() => scrollTo(0, 0));
  await page.waitForFunction(() => scrollY === 0);
  await swipe(box.width / 2, 4);
  const now = await position(page);
  assert.ok(now > 70 && now < 80, `${now}`);
});

test('the face alone keeps its shape', async (t) => {
  const page = await open(t);
  await more(page).click();
  await page.locator('#option_aligned').check();
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.locator('#plan', { hasText: 'not square' }).waitFor(wait); // told before
  await page.locator('#go').click();
  await done(page);
  assert.ok(Math.abs((await ratio(page, 'after')) - 1) < 0.01);
  assert.ok(Math.abs((await ratio(page, 'before')) - 1) < 0.01, 'squeezed, as the network saw it');
  assert.match(await text(page, '#report'), /not square/);
});

test('a result of which the server has no room to make parts is told, and can be downloaded', async (t) => {
  const page = await open(t);
  const began = '2026-11-23T02:46:33.881Z', id = 'ab'.repeat(16);
  const job = { id, state: 'done', created: began, finished: began, links: {}, faces: [], notes: [], output: { width: 20000, height: 20000, bytes: 1e8, format: 'jpeg' } };
  await page.route('**/v1/restore', (route) => route.fulfill({ status: 202, contentType: 'application/json', body: JSON.stringify(job) }));
  const asked = [];
  await page.route('**/result*', (route) => { asked.push(route.request().url()); route.fulfill({ status: 507, contentType: 'application/json', body: '{}' }); });
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.locator('#go').click();
  await page.locator('#too_large', { hasText: '400 megapixels: too many' }).waitFor(wait);
  assert.equal(await page.locator('#download').getAttribute('href'), `v1/jobs/${id}/result`);
  assert.equal(await page.locator('#before').isVisible(), true);
  assert.deepEqual(asked.map((url) => new URL(url).search), ['?preview=2048']);
});

test('a result that no tab can hold: a preview, and pieces at full size where they are looked at', async (t) => {
  const page = await open(t);
  const [width, height] = [8000, 6160];
  await plainly(page);
  await page.evaluate(() => { document.querySelector('#scale input[value="8"]').checked = true; });
  let held = [], hold = false;
  await page.route('**/result?region=*', (route) => (hold ? held.push(route) : route.continue()));
  await restored(page, { name: 'large.png', mimeType: 'image/png', buffer: png(width / 8, height / 8) });
  assert.deepEqual(await page.locator('#after').evaluate((node) => [node.naturalWidth, node.naturalHeight]), [2048, 1577]);
  assert.match(await text(page, '#name'), /8000 × 6160/);
  const [download] = await Promise.all([page.waitForEvent('download'), page.locator('#download').click()]);
  assert.equal(download.suggestedFilename(), 'large_restored.png');
  assert.match(await text(page, '#name'), /^large_restored\.png/);
  assert.equal(await page.locator('#too_large').isVisible(), false);
  assert.equal(await page.locator('#pieces img').count(), 0, 'what fits is the preview');
  // whether all that can be seen of the result is there at full size
  const covered = () => page.waitForFunction(([w, h]) => {
    const stage = document.getElementById('stage').getBoundingClientRect(), all = document.getElementById('pieces').getBoundingClientRect();
    const boxes = [...document.querySelectorAll('#pieces img')].filter((node) => node.complete).map((node) => [node.getBoundingClientRect(), node.naturalWidth]);
    if (!boxes.every(([box, natural]) => Math.abs(box.width / all.width - natural / w) < 1e-3)) return false;
    for (let i = 0.5; i < 16; i++)
      for (let k = 0.5; k < 16; k++) {
        const x = stage.left + (stage.width * i) / 16, y = stage.top + (stage.height * k) / 16;
        const within = (box) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;
        if (within(all) && !boxes.some(([box]) => within(box))) return false;
      }
    return all.height > h / 100;
  }, [width, height], wait);
  await page.keyboard.press('1');
  assert.equal(await text(page, '#zoom'), '100 %');
  await covered();
  // A piece has the result's own pixels: the right half of the stage shows what a region holds.
  const same = await page.evaluate(async () => {
    const node = document.querySelector('#pieces img'), canvas = new OffscreenCanvas(node.naturalWidth, node.naturalHeight);
    const place = (name, of) => Math.round((parseFloat(node.style[name]) / 100) * of);
    const context = canvas.getContext('2d');
    context.drawImage(node, 0, 0);
    const [red, green, blue] = context.getImageData(7, 9, 1, 1).data;
    const x = place('left', 8000) + 7, y = place('top', 6160) + 9;
    return { green: Math.abs(green - (255 * x) / 8000), blue: Math.abs(blue - (255 * y) / 6160), red };
  });
  assert.ok(same.green < 4 && same.blue < 4, JSON.stringify(same)); // the drawn ramps, enlarged, in a JPEG
  // What is not looked at any more is not asked for any more.
  hold = true;
  const left = [];
  page.on('requestfailed', (request) => left.push(request.url()));
  await page.locator('#stage').focus();
  const far = async (key) => { for (let i = 0; i < 12; i++) await page.keyboard.press(`Shift+${key}`); };
  await far('ArrowRight');
  await far('ArrowDown');
  for (let end = Date.now() + wait.timeout; !held.length && Date.now() < end;) await page.waitForTimeout(20);
  const stale = held.map((route) => route.request().url());
  await far('ArrowLeft');
  await far('ArrowUp');
  for (let end = Date.now() + wait.timeout; !stale.every((url) => left.includes(url)) && Date.now() < end;) await page.waitForTimeout(20);
  assert.ok(stale.length && stale.every((url) => left.includes(url)));
  hold = false;
  for (const route of held) await route.continue().catch(() => {}); // some are gone
  await covered();
  for (let i = 0; i < 6; i++) await page.keyboard.press('+');
  assert.equal(await text(page, '#zoom'), '800 %');
  await covered();
  assert.ok(await page.locator('#pieces img').count() <= 129);
});
