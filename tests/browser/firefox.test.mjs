// The page in Debian's Firefox, driven by WebDriver BiDi.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { done, picture, ready, server, text, wait } from './browser.mjs';

const program = process.env.FIREFOX ?? '/usr/bin/firefox-esr';
const driver = createRequire(import.meta.url)('playwright-core')._bidiFirefox;
const skip = !existsSync(program) ? `there is no ${program}` : !driver ? 'this playwright has no driver for it' : false;

test('Firefox: restores pictures, shows faces and both sides, and has them after a reload', { skip }, async (t) => {
  const firefox = await driver.launch({ executablePath: program, headless: true });
  t.after(() => firefox.close());
  const page = await (await firefox.newContext({ viewport: { width: 1200, height: 800 } })).newPage();
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
  await page.locator('#zoom').click();
  await page.locator('#zoom', { hasText: /^100 %$/ }).waitFor(wait);
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
  assert.deepEqual(complaints, []);
});
