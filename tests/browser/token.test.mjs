// The page of a server that asks for a token: asked for once, kept for the tab, sent as a header alone.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fixtureModels, startServer } from '../api/server.mjs';
import { browser, done, picture, ready, text, wait } from './browser.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

test('asks for the token once and works with it', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'restored-token-')), token = 'page-0123456789abcdef';
  writeFileSync(join(folder, 'tokens'), `page ${token}\n`, { mode: 0o600 });
  const server = await startServer({ args: [...fixtureModels, '--auth_token_file', join(folder, 'tokens')] });
  const context = await browser.newContext();
  context.setDefaultTimeout(wait.timeout);
  t.after(async () => {
    await context.close();
    await server.stop();
    rmSync(folder, { recursive: true });
  });
  const page = await context.newPage();
  const addresses = [];
  page.on('request', (request) => addresses.push(request.url()));
  await page.goto(server.url);
  const dialog = page.getByRole('dialog', { name: 'This server asks for a token' });
  await dialog.waitFor(wait);
  assert.equal(await page.locator('#token_wrong').isVisible(), false);
  await page.keyboard.press('Escape');
  await dialog.waitFor(wait); // nothing works without
  await page.getByLabel('Token', { exact: true }).fill('wrong-0123456789abcdef');
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.locator('#token_wrong:visible').waitFor(wait);
  assert.ok((await page.locator('#token').boundingBox()).height >= 44);
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  assert.deepEqual(violations.map(({ id, nodes }) => `${id} ${nodes.map((n) => n.html).join(' ')}`), []);
  await page.getByLabel('Token', { exact: true }).fill(token);
  await page.keyboard.press('Enter');
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  assert.equal(await dialog.isVisible(), false);
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.locator('#go').click();
  await done(page);
  assert.match(await text(page, '#report'), /^1 face restored/);

  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  assert.equal(await dialog.isVisible(), false, 'this tab knows it');
  assert.ok(addresses.length > 10 && addresses.every((url) => !url.includes(token)));
  const other = await context.newPage();
  await other.goto(server.url);
  await other.getByRole('dialog').waitFor(wait); // sessionStorage is of one tab
});
