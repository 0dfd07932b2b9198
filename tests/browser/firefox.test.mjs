// The page in Debian's Firefox, driven by WebDriver BiDi.
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { done, picture, ready, server, text, wait } from './browser.mjs';

const program = process.env.FIREFOX ?? '/usr/bin/firefox-esr';
const driver = createRequire(import.meta.url)('playwright-core')._bidiFirefox;
const skip = !existsSync(program) ? `there is no ${program}` : !driver ? 'this playwright has no driver for it' : false;

test('Firefox: restores pictures, shows faces and both sides, and has them after a reload', { skip }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'restored-firefox-'));
  let firefox = null;
  t.after(async () => {
    await firefox?.close();
    rmSync(folder, { recursive: true });
  });
  let page;
  try { // some containers let no Firefox run; all after this is about the page
    firefox = await driver.launch({ executablePath: program, headless: true,
      firefoxUserPrefs: { 'browser.download.folderList': 2, 'browser.download.dir': folder, 'browser.download.useDownloadDir': true } });
    page = await (await firefox.newContext({ viewport: { width: 1200, height: 800 } })).newPage();
    page.setDefaultTimeout(wait.timeout);
  } catch (error) {
    return t.skip(`Firefox does not start here: ${error.message.split('\n')[0]}`);
  }
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => { if (/Content-Security-Policy|blocked/i.test(message.text())) complaints.push(message.text()); });
  await page.goto(server.url);
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  await page.evaluate(() => addEventListener('securitypolicyviolation', (e) => console.error(`blocked ${e.blockedURI}`)));
  await page.locator('#bg_upsampler').selectOption('none');
  await page.setInputFiles('#file', [picture('two.png'), picture('picture.png')]);
  await page.waitForFunction(() => document.querySelectorAll('.thumb img').length === 2, null, wait);
  await ready(page);
  assert.equal(await text(page, '#go'), 'Restore 2 pictures');
  await page.locator('#go').click();
  await done(page);
  await page.waitForFunction(() => document.querySelectorAll('.thumb[data-state="done"]').length === 2, null, wait);
  assert.match(await text(page, '#report'), /^2 faces restored/);
  const saved = async (id, name, end) => { // the driver tells nothing of downloads
    await page.locator(id).click();
    for (const last = Date.now() + wait.timeout; Date.now() < last; await page.waitForTimeout(50)) {
      const found = readdirSync(folder).find((one) => name.test(one)), bytes = found ? readFileSync(join(folder, found)) : Buffer.of();
      if (bytes.includes(end)) return bytes;
    }
    throw new Error(`nothing like ${name} was saved: ${readdirSync(folder)}`);
  };
  const result = await saved('#download', /^two_restored\.png$/, 'IEND');
  assert.equal(result.readUInt32BE(16), await page.locator('#after').evaluate((node) => node.naturalWidth));
  const zip = await saved('#download_all', /\.zip$/, 'PK\x05\x06');
  for (const name of ['two_restored.png', 'picture_restored.png']) assert.ok(zip.includes(name), name);
  const line = () => page.evaluate(() => document.getElementById('view').style.getPropertyValue('--line'));
  const middle = await line();
  await page.locator('#split').focus();
  await page.keyboard.press('ArrowRight');
  assert.notEqual(await line(), middle);
  await page.keyboard.down('d');
  await page.locator('#view.differing').waitFor(wait);
  await page.keyboard.up('d');
  await page.locator('#view:not(.differing)').waitFor(wait);
  await page.locator('#zoom').click();
  await page.locator('#zoom', { hasText: /^100\s%$/ }).waitFor(wait);
  await page.keyboard.press('0');
  await page.waitForFunction(() => document.getElementById('zoom').textContent !== '100\u00a0%', null, wait);
  await page.locator('#side').click();
  await page.locator('#show_faces').click();
  await page.getByRole('button', { name: 'Face 2, restored' }).click();
  await page.getByRole('checkbox', { name: 'Show the original here' }).check();
  await page.locator('.peek img').waitFor(wait);
  await page.locator('#show_damage').click();
  await page.locator('#show_damage:not(.busy)').waitFor(wait);
  await page.locator('#brush_done').click();

  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  await page.waitForFunction(() => document.querySelectorAll('.thumb[data-state="done"] img').length === 2, null, wait);
  await done(page);
  const kept = await page.evaluate(async () => {
    await navigator.serviceWorker.ready;
    const cache = await caches.open('restored-shell');
    let all = [];
    for (let i = 0; i < 2000 && !all.includes('/js/main.js'); i++) {
      all = (await cache.keys()).map(({ url }) => new URL(url).pathname);
      await new Promise((next) => setTimeout(next, 50));
    }
    return all;
  });
  assert.ok(kept.includes('/js/main.js'), kept.join());
  assert.deepEqual(kept.filter((path) => !/^\/(js\/\w+\.js|[\w.]*)$/.test(path)), [], 'the service worker keeps the shell alone');
  await page.locator('#language').selectOption('de');
  await page.locator('html[lang="de"]').waitFor({ ...wait, state: 'attached' });
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  assert.equal(await text(page, '#go'), 'Erneut restaurieren');
  assert.deepEqual(complaints, []);
});
