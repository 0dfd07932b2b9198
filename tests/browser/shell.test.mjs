// The page as a program: installable, opened without the server, kept small and quick.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { png } from '../api/client.mjs';
import { open, ownServer, ready, server, wait } from './browser.mjs';

test('it can be installed, opens without the server after one visit, and keeps no picture and no answer', async (t) => {
  const own = await ownServer(t);
  const page = await open(t, `${own.url}/?from=link`, { serviceWorkers: 'allow', cut: true, locale: 'de' });
  const session = await page.context().newCDPSession(page); // what the browser itself says of it
  const { errors, data } = await session.send('Page.getAppManifest'), { installabilityErrors } = await session.send('Page.getInstallabilityErrors');
  assert.deepEqual([errors, JSON.parse(data).display], [[], 'standalone']);
  assert.deepEqual(installabilityErrors.filter(({ errorId }) => errorId !== 'in-incognito'), [], 'the tests\' pages are all private');
  await page.locator('#version').selectOption('none');
  await page.locator('#bg_upsampler').selectOption('none');
  await page.setInputFiles('#file', { name: 'a.png', mimeType: 'image/png', buffer: png(40, 30) });
  await ready(page);
  await page.locator('#go').click();
  await page.locator('#stage[data-state="done"]').waitFor(wait);
  const kept = () => page.evaluate(async () => {
    const all = [];
    for (const name of await caches.keys()) {
      const cache = await caches.open(name);
      for (const request of await cache.keys()) all.push([request.url.slice(location.origin.length), (await cache.match(request)).headers.get('Content-Type')]);
    }
    return all;
  });
  const loaded = await page.evaluate(() => [...document.querySelectorAll('link[rel="modulepreload"]')].map((link) => new URL(link.href).pathname));
  const paths = ['/', '/style.css', '/js/start.js', '/js/main.js', '/js/strings_de.js', ...loaded];
  let missing = paths;
  for (const last = Date.now() + wait.timeout; missing.length && Date.now() < last; await page.waitForTimeout(50)) {
    const there = (await kept()).map(([path]) => path);
    missing = paths.filter((path) => !there.includes(path));
  }
  assert.deepEqual(missing, []);
  for (const [path, type] of await kept()) {
    assert.match(path, /^\/(js\/\w+\.js|[\w.]*)$/, 'nothing below v1/, and no address twice');
    assert.ok(!/sample/.test(path) && (!/^image\/(?!svg)/.test(type) || path === '/presets.jpg') && !/json$/.test(type.replace('manifest+json', '')), `${path} is ${type}`);
  }
  await own.stop();
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  await page.locator('#notices', { hasText: 'Der Server ist nicht erreichbar.' }).waitFor(wait);
  assert.equal(await page.locator('#version').innerText(), 'Der Server ist nicht erreichbar.', 'nobody knows what it can do');
  assert.equal(await page.locator('#models').textContent(), 'unbekannt');
});

test('a server that first refuses to tell what it has: the page is there, and learns the rest later', async (t) => {
  let refused = 0;
  const page = await open(t, undefined, { prepare: (it) => it.route('**/v1/models', (route) => (refused++ ? route.continue()
    : route.fulfill({ status: 429, contentType: 'application/problem+json', body: '{"status": 429}' }))) });
  await page.locator('#models', { hasText: 'upscaler' }).waitFor({ ...wait, state: 'attached' });
  assert.match(await page.locator('#version').innerText(), /^Restore \(recommended\)/);
});

test('the first paint waits for no style sheet, and nothing is shown without one', async (t) => {
  let painted;
  const paint = new Promise((resolve) => { painted = resolve; });
  const page = await open(t, server.url, { prepare: async (it) => {
    await it.exposeFunction('painted', painted);
    await it.addInitScript(() => new PerformanceObserver(() => globalThis.painted()).observe({ type: 'paint', buffered: true }));
    await it.route('**/style.css', async (route) => { // comes only after the first paint
      await paint;
      await route.continue();
    });
  } });
  assert.equal(await page.locator('#stage').evaluate((node) => getComputedStyle(node).position), 'relative');
  assert.match((await page.request.get(server.url)).headers()['content-security-policy'], /style-src 'self' 'sha256-[\w+/]{43}=';/);
});

test('a large picture is chosen without a long task', async (t) => {
  const page = await open(t, server.url, { prepare: (it) => it.addInitScript(() => {
    globalThis.tasks = [];
    new PerformanceObserver((list) => globalThis.tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: 'longtask', buffered: true });
  }) });
  const large = await page.evaluate(async () => { // 12 megapixels, as a camera's
    const canvas = new OffscreenCanvas(4000, 3000), context = canvas.getContext('2d');
    for (let i = 0; i < 400; i++) {
      context.fillStyle = `hsl(${i * 37} 60% 50%)`;
      context.fillRect((i % 20) * 200, Math.floor(i / 20) * 150, 200, 150);
    }
    return [...new Uint8Array(await (await canvas.convertToBlob({ type: 'image/jpeg', quality: 0.9 })).arrayBuffer())];
  });
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  await page.evaluate(() => { globalThis.tasks.length = 0; });
  const folder = mkdtempSync(join(tmpdir(), 'restored-large-'));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'large.jpg'), Buffer.from(large)); // a real file: the page would spend its time on making one
  await page.setInputFiles('#file', join(folder, 'large.jpg'));
  await page.locator('#name', { hasText: '4000 × 3000' }).waitFor(wait);
  await page.locator('#before:visible').waitFor(wait);
  const tasks = await page.evaluate(() => globalThis.tasks);
  // Had it been decoded in the page, one task would have taken as long as this.
  const decoding = await page.evaluate(async () => {
    const image = new Image();
    image.src = document.getElementById('before').src;
    await new Promise((done) => { image.onload = done; });
    const context = new OffscreenCanvas(8, 8).getContext('2d', { willReadFrequently: true });
    const began = performance.now();
    context.drawImage(image, 0, 0, 8, 8);
    context.getImageData(0, 0, 1, 1);
    return performance.now() - began;
  });
  const longest = Math.max(0, ...tasks);
  t.diagnostic(`longest task ${Math.round(longest)} ms, decoding ${Math.round(decoding)} ms`);
  assert.ok(longest < Math.max(50, decoding), `${tasks} ${decoding}`);
});

test('the memory of the tab does not grow with the pictures that were looked at', async (t) => {
  const count = process.env.RESTORED_FULL ? 100 : 16;
  const page = await open(t);
  const session = await page.context().newCDPSession(page);
  const heap = async () => {
    await session.send('HeapProfiler.collectGarbage');
    return (await session.send('Runtime.getHeapUsage')).usedSize;
  };
  const blobs = () => page.evaluate(() => globalThis.urls.size);
  await page.evaluate(() => {
    globalThis.urls = new Set();
    const { createObjectURL, revokeObjectURL } = URL;
    URL.createObjectURL = (blob) => { const url = createObjectURL.call(URL, blob); globalThis.urls.add(url); return url; };
    URL.revokeObjectURL = (url) => { globalThis.urls.delete(url); revokeObjectURL.call(URL, url); };
  });
  await page.setInputFiles('#file', Array.from({ length: count }, (_, i) => ({ name: `${i}.png`, mimeType: 'image/png', buffer: png(300 + i, 200) })));
  await page.waitForFunction((n) => document.querySelectorAll('.thumb img').length === n, count, wait);
  const visit = async () => {
    await page.locator('.thumb').first().focus();
    await page.keyboard.press('Home');
    for (let i = 1; i < count; i++) {
      await page.keyboard.press('ArrowRight');
      await page.waitForFunction((name) => document.getElementById('name').textContent.startsWith(name) && document.getElementById('before').naturalWidth > 0, `${i}.png`, wait);
    }
  };
  await visit();
  const first = await heap(), had = await blobs();
  await visit();
  await visit();
  assert.ok(await blobs() <= had, 'every picture that is shown no more is given back');
  assert.ok((await heap()) < first + 2e6, `${first} became ${await heap()}`);
});
