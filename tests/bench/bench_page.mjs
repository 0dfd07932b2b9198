// How fast the page is: node tests/bench/bench_page.mjs, or make bench-page. In headless Chromium, from a server on this
// machine: the first paint, also with the style sheet held back, the longest task while a picture of 12 megapixels is chosen, and
// the tab's memory while a hundred pictures are looked at.
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { launch } from '../browser/launch.mjs';
import { startServer } from '../api/server.mjs';

const runs = Number(process.argv[2] ?? 9), held = 700; // ms
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const show = (name, values, unit = 'ms') => console.log(`| ${name} | ${median(values).toFixed(0)} ${unit} | ${Math.min(...values).toFixed(0)} to ${Math.max(...values).toFixed(0)} |`);

const server = await startServer(), browser = await launch(), folder = mkdtempSync(join(tmpdir(), 'restored-page-'));
const fresh = async (slow) => {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, serviceWorkers: 'block' }), page = await context.newPage();
  await page.addInitScript(() => {
    globalThis.tasks = [];
    new PerformanceObserver((list) => globalThis.tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: 'longtask', buffered: true });
  });
  if (slow) await page.route('**/style.css', (route) => new Promise((done) => { setTimeout(done, held); }).then(() => route.continue()));
  await page.goto(server.url);
  await page.locator('main[aria-busy="false"]').waitFor({ timeout: 60e3 });
  await page.waitForFunction(() => performance.getEntriesByName('first-contentful-paint').length); // told later than it is
  return page;
};

async function paints(slow) {
  const times = { paint: [], shown: [] };
  for (let i = 0; i < runs; i++) {
    const page = await fresh(slow), began = await page.evaluate(() => performance.getEntriesByName('first-paint')[0].startTime);
    times.paint.push(began);
    times.shown.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
    await page.context().close();
  }
  return times;
}

// MB that the tab's process holds alone, after each tenth of the pictures.
async function memory(pictures) {
  const page = await fresh(false), session = await browser.newBrowserCDPSession(), heap = await page.context().newCDPSession(page);
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  const { id } = processInfo.filter(({ type }) => type === 'renderer').sort((a, b) => b.cpuTime - a.cpuTime)[0];
  const held = async () => {
    await heap.send('HeapProfiler.collectGarbage');
    return Number(/^RssAnon:\s+(\d+)/m.exec(readFileSync(`/proc/${id}/status`, 'utf8'))[1]) / 1024;
  };
  const many = Array.from({ length: pictures }, (_, i) => join(folder, `${i}.jpg`));
  for (const one of many) copyFileSync(join(folder, 'large.jpg'), one);
  await page.setInputFiles('#file', many);
  await page.waitForFunction((n) => document.querySelectorAll('.thumb img').length === n, pictures, { timeout: 300e3 });
  await page.locator('.thumb').first().focus();
  await page.keyboard.press('Home');
  const values = [];
  for (let i = 1; i < pictures; i++) {
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction((name) => document.getElementById('name').textContent.startsWith(name) && document.getElementById('before').naturalWidth > 0, `${i}.jpg`, { timeout: 300e3 });
    if (i % (pictures / 10) === 9) values.push(await held());
  }
  await page.context().close();
  return values;
}

try {
  console.log('| | median | |\n|---|---|---|');
  await fresh(false).then((page) => page.context().close()); // the browser itself is warm then
  const plain = await paints(false), slow = await paints(true);
  show('first paint', plain.paint);
  show('first paint with text', plain.shown);
  show(`first paint, the style sheet held back for ${held} ms`, slow.paint);
  const page = await fresh(false);
  const large = await page.evaluate(async () => {
    const canvas = new OffscreenCanvas(4000, 3000), context = canvas.getContext('2d');
    for (let i = 0; i < 400; i++) {
      context.fillStyle = `hsl(${i * 37} 60% 50%)`;
      context.fillRect((i % 20) * 200, Math.floor(i / 20) * 150, 200, 150);
    }
    return [...new Uint8Array(await (await canvas.convertToBlob({ type: 'image/jpeg', quality: 0.9 })).arrayBuffer())];
  });
  await page.context().close();
  writeFileSync(join(folder, 'large.jpg'), Buffer.from(large));
  const longest = [];
  for (let i = 0; i < runs; i++) {
    const one = await fresh(false);
    await one.evaluate(() => { globalThis.tasks.length = 0; });
    await one.setInputFiles('#file', join(folder, 'large.jpg'));
    await one.locator('#name', { hasText: '4000 × 3000' }).waitFor();
    await one.locator('#before:visible').waitFor();
    longest.push(Math.max(0, ...await one.evaluate(() => globalThis.tasks)));
    await one.context().close();
  }
  show('longest task while 12 megapixels are chosen (0: none above 50 ms)', longest);
  const kept = await memory(100);
  console.log(`| memory of the tab while 100 pictures of 12 megapixels are looked at, after each ten | ${median(kept).toFixed(0)} MB | ${kept.map((mb) => mb.toFixed(0)).join(', ')} |`);
} finally {
  await browser.close();
  await server.stop();
  rmSync(folder, { recursive: true });
}
