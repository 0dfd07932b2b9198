// Makes the documentation's pictures: node tests/browser/figures.mjs FOLDER, or make figures. The page with the sample
// restored by the starter models, on a desk and on a phone, the sample before and after side by side, and what the page's
// presets do with one of its faces (static/presets.jpg).
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root, startServer } from '../api/server.mjs';
import { launch } from './launch.mjs';

const folder = process.argv[2] ?? join(root, 'docs/figures');
const most = 300e3; // bytes
mkdirSync(folder, { recursive: true });

function keep(name, bytes) {
  if (bytes.length > most) throw new Error(`${name} has ${bytes.length} bytes`);
  writeFileSync(join(folder, name), bytes);
  console.log(`${join(folder, name)}: ${bytes.length} bytes`);
}

async function pageOf(browser, url, options) {
  const page = await (await browser.newContext({ reducedMotion: 'reduce', ...options })).newPage();
  await page.route('**/v1/estimate*', (route) => route.abort()); // what differs from run to run stays out of the picture
  for (let ready = false; !ready;) {
    await page.goto(url);
    await page.locator('main[aria-busy="false"]').waitFor();
    ready = await page.evaluate(async () => (await fetch('readyz')).ok);
  }
  const answered = page.waitForResponse('**/v1/jobs/*/result', { timeout: 600e3 });
  await page.getByRole('button', { name: 'Try the sample' }).click();
  await page.locator('#stage[data-state="done"] #after:visible').waitFor({ timeout: 600e3 });
  await page.evaluate(() => {
    document.getElementById('status').textContent = 'Done. 2 faces restored.';
    document.getElementById('notices').replaceChildren();
    document.activeElement?.blur();
    scrollTo(0, 0);
  });
  return [page, await (await answered).body()];
}

const server = await startServer({ args: ['--device', 'cpu'], env: { RESTORED_STARTER_MODELS: 'true' } });
const browser = await launch();
try {
  const [desk, restored] = await pageOf(browser, server.url, { viewport: { width: 1280, height: 800 } });
  keep('page.jpg', await desk.screenshot({ type: 'jpeg', quality: 88 }));
  const [phone] = await pageOf(browser, server.url, { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, colorScheme: 'dark' });
  keep('phone.jpg', await phone.screenshot({ type: 'jpeg', quality: 88 }));

  // A face as it was and after each preset, as js/presets.js sets them.
  const face = { x: 390, y: 100, side: 240 }, tile = 176; // with a scratch on its right, where the page shows what becomes of it
  const one = async (fields) => {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    form.append('image', new Blob([readFileSync(join(root, 'static/sample.jpg'))]), 'sample.jpg');
    return Buffer.from(await (await fetch(`${server.url}/v1/restore`, { method: 'POST', body: form })).arrayBuffer()).toString('base64');
  };
  const faces = [readFileSync(join(root, 'static/sample.jpg')).toString('base64'), await one({ weight: '0.5', bg_upsampler: 'none', repair: 'false' }),
    await one({}), await one({ weight: '1', repair: 'true', tone: 'strong' })];
  const row = await (await browser.newContext({ viewport: { width: 4 * tile, height: tile } })).newPage();
  await row.setContent(`<style>body{margin:0;display:flex}div{width:${tile}px;height:${tile}px;overflow:hidden}
    img{width:${(720 * tile) / face.side}px;margin:${(-face.y * tile) / face.side}px 0 0 ${(-face.x * tile) / face.side}px}</style>
    ${faces.map((bytes) => `<div><img src="data:image/jpeg;base64,${bytes}"></div>`).join('')}`);
  await row.waitForFunction(() => [...document.images].every((image) => image.complete && image.naturalWidth));
  writeFileSync(join(root, 'static/presets.jpg'), await row.screenshot({ type: 'jpeg', quality: 85 }));

  // Before and after in one picture: two halves of 480 × 384, by the browser's own resampling.
  const after = restored.toString('base64');
  const before = readFileSync(join(root, 'static/sample.jpg')).toString('base64');
  const both = await (await browser.newContext({ viewport: { width: 968, height: 384 } })).newPage();
  await both.setContent(`<style>body{margin:0;display:flex;gap:8px;background:#fff}img{width:480px;height:384px}</style>
    <img src="data:image/jpeg;base64,${before}"><img src="data:image/jpeg;base64,${after}">`);
  await both.waitForFunction(() => [...document.images].every((image) => image.complete && image.naturalWidth));
  keep('before_after.jpg', await both.screenshot({ type: 'jpeg', quality: 88 }));
} finally {
  await browser.close();
  await server.stop();
}
