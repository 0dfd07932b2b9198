// What is seen of the page from elsewhere and later: title, notification, settings, the question before it is left.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { faulty, fixtureModels } from '../api/server.mjs';
import { done, more, open, ownServer, picture, ready, server, text, wait } from './browser.mjs';

// Answers wait until release() is called.
async function hold(page) {
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  await page.route('**/v1/restore', async (route) => { await held; await route.continue(); });
  return release;
}

test('the title shows how it goes', async (t) => {
  const own = await ownServer(t, { program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat' } }); // or it would be over before it is seen
  const page = await open(t, own.url);
  assert.equal(await page.title(), 'restored');
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.evaluate(() => {
    globalThis.titles = [];
    new MutationObserver(() => titles.push(document.title)).observe(document.querySelector('title'), { childList: true });
  });
  await page.locator('#go').click();
  await done(page);
  const titles = await page.evaluate(() => globalThis.titles);
  assert.ok(titles.some((title) => /^Restoring \d+\s%/.test(title)), titles.join());
  assert.match(titles.at(-1), /^Done/);
  await more(page).click();
  await page.locator('#option_quality').fill('101');
  await page.locator('#go').click();
  await page.locator('#error:visible').waitFor(wait);
  assert.match(await page.title(), /^Failed/);
});

test('the state names the stage, the tile or face, and the time that is left', async (t) => {
  const page = await open(t);
  const id = 'cd'.repeat(16), job = { id, state: 'running', progress: 0.349, eta_seconds: 41, stage: 'background', tiles_done: 7, tiles_total: 20, faces_done: 2, faces_total: 2, links: {} };
  await page.route(`**/v1/jobs/${id}`, (route) => route.fulfill({ contentType: 'application/json', body: JSON.stringify(job) }));
  await page.route('**/v1/jobs?*', (route) => route.fulfill({ contentType: 'application/json', body: '{"jobs":[]}' }));
  let tell;
  await page.route('**/v1/events', async (route) => {
    await new Promise((resolve) => { tell = resolve; });
    const next = { ...job, progress: 0.9, eta_seconds: 3, stage: 'restore', faces_done: 0, faces_total: 3 };
    await route.fulfill({ contentType: 'text/event-stream', body: `event: progress\ndata: ${JSON.stringify(next)}\n\n` });
    Object.assign(job, next); // asked for when the stream has ended
  });
  await page.route('**/v1/restore', (route) => route.fulfill({ status: 202, contentType: 'application/json', body: JSON.stringify(job) }));
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.locator('#go').click();
  await page.locator('#status', { hasText: /^Enlarging the background\s· 8 of 20\s· 34\s%\s· about 40 seconds left$/ }).waitFor(wait);
  while (!tell) await page.waitForTimeout(20);
  tell();
  await page.locator('#status', { hasText: /^Restoring faces\s· 1 of 3\s· 90\s%\s· a few seconds left$/ }).waitFor(wait);
});

test('a notification at the end, if it was asked for by a click and the tab is hidden', async (t) => {
  const page = await open(t, server.url, { prepare: (it) => it.addInitScript(() => {
    globalThis.asked = 0;
    globalThis.told = [];
    globalThis.Notification = class {
      static permission = 'default';
      static async requestPermission() { globalThis.asked++; return (this.permission = 'granted'); }
      constructor(title, { body }) { globalThis.told.push([title, body]); }
    };
  }) });
  const release = await hold(page);
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  assert.equal(await page.locator('#notify').isVisible(), false);
  await page.locator('#go').click();
  assert.equal(await page.evaluate(() => globalThis.asked), 0, 'never unasked');
  await page.getByRole('button', { name: 'Tell me when it is done' }).click();
  assert.equal(await page.evaluate(() => globalThis.asked), 1);
  await page.locator('#notify').waitFor({ ...wait, state: 'hidden' });
  await page.evaluate(() => Object.defineProperty(document, 'hidden', { get: () => globalThis.away ?? true, configurable: true }));
  release();
  await done(page);
  await page.waitForFunction(() => globalThis.told.length, null, wait);
  assert.deepEqual(await page.evaluate(() => globalThis.told), [['Your picture is done', 'picture.png']]);
  await page.evaluate(() => { globalThis.away = false; });
  await page.locator('#go').click();
  await page.locator('#status', { hasText: 'Done' }).waitFor(wait);
  assert.equal(await page.evaluate(() => globalThis.told.length), 1, 'not while it is looked at');
});

test('settings outlive a reload, those of one picture do not', async (t) => {
  const page = await open(t);
  await page.getByRole('radio', { name: '4×' }).check();
  await page.locator('#weight').selectOption('0.5');
  await page.locator('#bg_upsampler').selectOption('none');
  await more(page).click();
  await page.locator('#option_quality').fill('80');
  await page.locator('#option_only_center_face').check();
  await page.locator('#option_faces').fill('0');
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  assert.equal(await page.getByRole('radio', { name: '4×' }).isChecked(), true);
  assert.equal(await page.locator('#weight').inputValue(), '0.5');
  assert.equal(await page.locator('#bg_upsampler').inputValue(), 'none');
  assert.match(await more(page).innerText(), /2 changed/);
  assert.equal(await page.locator('#option_quality').inputValue(), '80');
  assert.equal(await page.locator('#option_only_center_face').isChecked(), true);
  assert.equal(await page.locator('#option_faces').inputValue(), '');
  await more(page).click();
  await page.getByRole('button', { name: 'Back to the defaults' }).click();
  await page.locator('#more_count:empty').waitFor({ ...wait, state: 'attached' });
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  assert.equal(await page.getByRole('radio', { name: '2×' }).isChecked(), true);
  assert.equal(await page.locator('#weight').inputValue(), '');
});

test('a browser that keeps nothing, or keeps nonsense, gets the defaults', async (t) => {
  const broken = [() => Object.defineProperty(globalThis, 'localStorage', { get() { throw new Error('refused'); } }),
    () => localStorage.setItem('restored', '{"upscale":"7","version":"gone","bg_tile":[1'),
    () => localStorage.setItem('restored', '{"upscale":"7","version":"gone"}')];
  for (const script of broken) {
    const page = await open(t, server.url, { prepare: (it) => it.addInitScript(script) });
    assert.equal(await page.getByRole('radio', { name: '2×' }).isChecked(), true);
    assert.equal(await page.locator('#version').inputValue(), '');
    await page.locator('#weight').selectOption('0.5');
  }
});

test('asks before pictures are left that were not sent, not otherwise: the server keeps the others', async (t) => {
  const page = await open(t);
  const asks = () => page.evaluate(() => !dispatchEvent(new Event('beforeunload', { cancelable: true })));
  const release = await hold(page);
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  assert.equal(await asks(), false);
  await page.locator('#go').click();
  await page.locator('#cancel:visible').waitFor(wait);
  assert.equal(await asks(), true);
  release();
  await done(page);
  assert.equal(await asks(), false);
});

test('a phone shows state, bar and time on its first screen', async (t) => {
  const own = await ownServer(t, { program: faulty, args: [...fixtureModels, '--stall_seconds', '0', '--drain_seconds', '0'], env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=rrdb_x4' } }); // until it is cancelled
  const page = await open(t, own.url, { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  await page.setInputFiles('#file', picture('two.png'));
  await ready(page);
  await page.getByRole('radio', { name: '8×' }).check();
  await page.locator('#bg_upsampler').selectOption('rrdb_x4');
  await page.locator('#go').click();
  await page.locator('#status', { hasText: /\d+\s%/ }).waitFor(wait);
  await page.evaluate(() => scrollTo(0, 0));
  for (const id of ['status', 'progress', 'cancel']) {
    const { top, bottom } = await page.locator(`#${id}`).evaluate((node) => node.getBoundingClientRect());
    assert.ok(top >= 0 && bottom <= 844 && bottom > top, `${id}: ${top} to ${bottom}`);
  }
  await page.locator('#cancel').click();
  await page.locator('#go:visible').waitFor(wait);
});
