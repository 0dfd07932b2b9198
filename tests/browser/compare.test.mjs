// Before and after: the divider by keys, mouse and finger; pictures of odd shapes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { png } from '../api/client.mjs';
import { done, more, open, picture, ready, server, text } from './browser.mjs';

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
  assert.match(await text(page, '#plan'), /not square/, 'told before');
  await page.locator('#go').click();
  await done(page);
  assert.ok(Math.abs((await ratio(page, 'after')) - 1) < 0.01);
  assert.ok(Math.abs((await ratio(page, 'before')) - 1) < 0.01, 'squeezed, as the network saw it');
  assert.match(await text(page, '#report'), /not square/);
});

test('a result that no tab can hold is not loaded, and can be downloaded', async (t) => {
  const page = await open(t);
  const began = '2026-11-23T02:46:33.881Z', id = 'ab'.repeat(16);
  const job = { id, state: 'done', created: began, finished: began, links: {}, faces: [], notes: [], output: { width: 20000, height: 20000, bytes: 1e8 } };
  await page.route('**/v1/restore', (route) => route.fulfill({ status: 202, contentType: 'application/json', body: JSON.stringify(job) }));
  let asked = 0;
  page.on('request', (request) => { asked += request.url().endsWith('/result'); });
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.locator('#go').click();
  await page.locator('#too_large', { hasText: '400 megapixels' }).waitFor({ timeout: 300e3 });
  assert.equal(await page.locator('#download').getAttribute('href'), `v1/jobs/${id}/result`);
  assert.equal(await page.locator('#before').isVisible(), true);
  assert.equal(asked, 0);
});
