// What is seen and when: pictures that the browser cannot show, a face's original, the difference; and what Escape closes.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { done, more, open, picture, ready, server, text, wait } from './browser.mjs';

const plainly = (page) => page.locator('#bg_upsampler').selectOption('none');
const button = (page, name) => page.getByRole('button', { name, exact: true });
const focused = (page, selector) => page.locator(`${selector}:focus`).waitFor(wait);
const natural = (page, id) => page.locator(`#${id}`).evaluate((node) => [node.naturalWidth, node.naturalHeight]);
// What the browser keeps of the page is written.
const written = (page) => page.evaluate(() => new Promise((done) => {
  const base = indexedDB.open('restored');
  base.onsuccess = () => {
    base.result.transaction('items').objectStore('items').getAll().onsuccess = () => done(base.result.close());
  };
}));
const made = async (name, fields) => {
  const form = new FormData();
  for (const [field, value] of Object.entries(fields)) form.append(field, value);
  form.append('image', new Blob([readFileSync(picture(name))]), name);
  return Buffer.from(await (await fetch(`${server.url}/v1/restore`, { method: 'POST', body: form })).arrayBuffer());
};

test('a picture that the browser cannot show is shown by the server\'s help, sent once for that, and itself restored', async (t) => {
  const page = await open(t), sent = [];
  page.on('request', (request) => { if (request.method() === 'POST' && !/estimate/.test(request.url())) sent.push(new URL(request.url()).pathname); });
  await plainly(page);
  const read = await page.evaluate(async () => (await (await fetch('v1/capabilities')).json()).formats.in);
  const some = [['heic', 'turned.heic'], ['jp2', 'lossless.jp2']].filter(([kind]) => read.includes(kind))
    .map(([kind, name]) => ({ name, mimeType: `image/${kind}`, buffer: readFileSync(picture(`formats/${name}`)) }));
  const faces = await made('two.png', { version: 'none', bg_upsampler: 'none', upscale: 1, ext: 'tiff' });
  await page.setInputFiles('#file', [{ name: 'two.tif', mimeType: 'image/tiff', buffer: faces }, ...some]);
  await page.locator('#before:visible').waitFor(wait);
  await page.waitForFunction((count) => document.querySelectorAll('.thumb img').length === count, 1 + some.length, wait);
  assert.deepEqual(sent, Array(1 + some.length).fill('/v1/restore'));
  assert.equal(await page.locator('#unseen').isVisible(), false);
  const size = await natural(page, 'before');
  assert.deepEqual(size, await page.evaluate(async (bytes) => {
    const { width, height } = await createImageBitmap(new Blob([new Uint8Array(bytes)]));
    return [width, height];
  }, [...readFileSync(picture('two.png'))]), 'as large as the picture');
  // Faces are chosen before it is restored, and what was made is still there after a reload.
  await button(page, 'Faces').click();
  await button(page, 'Face 2, will be restored').click();
  await page.locator('.face.left').waitFor(wait);
  await written(page);
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  for (let i = 0; i < some.length; i++) { // the others go
    await page.locator('.thumb').last().click();
    await page.locator('#before:visible').waitFor(wait);
    await page.locator('#remove').click();
  }
  await page.locator('#name', { hasText: 'two.tif' }).waitFor(wait);
  await page.locator('#before:visible').waitFor(wait);
  await ready(page);
  await page.locator('#go').click();
  await done(page);
  assert.deepEqual(sent.slice(1 + some.length), ['/v1/detect', '/v1/restore']);
  const job = await page.evaluate(async () => {
    const { jobs } = await (await fetch('v1/jobs?limit=1')).json();
    return (await fetch(`v1/jobs/${jobs[0].id}`)).json();
  });
  assert.equal(job.output.format, 'tiff', 'the picture itself was sent');
  assert.deepEqual(job.faces.map(({ action }) => action), ['restored', 'skipped']);
  assert.deepEqual(await natural(page, 'after'), [job.output.width, job.output.height], 'nor is the result one that it shows');
  assert.match(await page.locator('#download').getAttribute('href'), /^v1\/jobs\/[0-9a-f]+\/result$/);
});

test('a file that the server cannot read either is said to have no preview', async (t) => {
  const page = await open(t);
  await page.setInputFiles('#file', { name: 'torn.tif', mimeType: 'image/tiff', buffer: Buffer.from('49492a000800000000000000', 'hex') });
  await page.locator('#unseen', { hasText: 'No preview' }).waitFor(wait);
});

test('another page of a file is shown once it is chosen, and its faces are looked for', async (t) => {
  const page = await open(t);
  // How far what is shown is from a page of the file, on average of 255.
  const away = (name) => page.evaluate(async (bytes) => {
    const image = document.getElementById('before');
    await image.decode();
    const { naturalWidth: w, naturalHeight: h } = image;
    const [one, other] = await Promise.all([image, new Blob([new Uint8Array(bytes)])].map(async (from) => {
      const context = new OffscreenCanvas(w, h).getContext('2d');
      context.drawImage(await createImageBitmap(from), 0, 0, w, h);
      return context.getImageData(0, 0, w, h).data;
    }));
    return one.reduce((sum, value, i) => sum + Math.abs(value - other[i]), 0) / one.length;
  }, [...readFileSync(picture(`formats/${name}`))]);
  await page.setInputFiles('#file', picture('formats/pages.tif'));
  await page.locator('#before:visible').waitFor(wait);
  assert.ok(await away('pages.tif.png') < 8);
  await more(page).click();
  const first = await page.locator('#before').getAttribute('src');
  await page.locator('#option_page').fill('2');
  await page.waitForFunction((src) => !document.getElementById('before').src.endsWith(src) && document.getElementById('before').complete, first, wait);
  assert.ok(await away('pages.tif.2.png') < 8);
  await page.locator('#before:visible').waitFor(wait);
  const [request] = await Promise.all([page.waitForRequest('**/v1/detect'), button(page, 'Faces').click()]);
  assert.match(request.postDataBuffer()?.toString('latin1') ?? 'name="page"\r\n\r\n2\r\n', /name="page"\r\n\r\n2\r\n/);
  // The choice is for pictures of now: after a reload it is the first page again, as its restoration would be.
  await written(page);
  await Promise.all([page.waitForResponse('**/v1/restore'), page.reload()]);
  assert.equal(await page.locator('#option_page').inputValue(), '');
  await page.waitForFunction(() => document.querySelector('main[aria-busy="false"]') && document.getElementById('before').naturalWidth, null, wait);
});

test('a busy server is asked for previews once more, one after another, and for none of a picture that was removed', async (t) => {
  const page = await open(t);
  let asked = 0, hold;
  const held = new Promise((done) => { hold = done; });
  await page.route('**/v1/restore', (route) => (++asked === 1 ? hold(route) : route.continue())); // the others wait for the first
  const tiff = (name) => ({ name: `${name}.tif`, mimeType: 'image/tiff', buffer: readFileSync(picture(`formats/${name}.tif`)) });
  await page.setInputFiles('#file', [tiff('plain'), tiff('lzw')]);
  await page.locator('#unseen', { hasText: 'The server is making a preview.' }).waitFor(wait);
  await held;
  await page.locator('.thumb').nth(1).click();
  await page.locator('#name', { hasText: 'lzw.tif' }).waitFor(wait);
  await page.locator('#remove').click();
  await page.locator('#name', { hasText: 'plain.tif' }).waitFor(wait);
  await page.setInputFiles('#file', [tiff('tiles')]);
  await (await held).fulfill({ status: 429, headers: { 'Retry-After': '1' }, contentType: 'application/problem+json', body: '{"status": 429}' });
  await page.waitForFunction(() => document.querySelectorAll('.thumb img').length === 2, null, wait);
  assert.equal(asked, 3, 'the first twice, the last once');
});

test('a face as it was, by its eye and by a key, without a change of what is chosen; Escape closes what is open', async (t) => {
  const page = await open(t, undefined, { hasTouch: true });
  await plainly(page);
  await page.setInputFiles('#file', picture('two.png'));
  await ready(page);
  await page.locator('#go').click();
  await done(page);
  await button(page, 'Faces').click();
  await button(page, 'Face 1, restored').waitFor(wait);
  const eye = button(page, 'Face 2: Show the original here'), peeks = (count) => page.waitForFunction((n) => document.querySelectorAll('.peek').length === n, count, wait);
  await eye.tap();
  await peeks(1);
  assert.equal(await eye.getAttribute('aria-pressed'), 'true');
  await eye.click();
  await peeks(0);
  await page.locator('.face').first().focus();
  await page.keyboard.press('Shift'); // as one who uses keys
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('o');
  await peeks(1);
  assert.equal(await page.locator('#face_peek').isChecked(), true);
  for (const face of [1, 2]) await button(page, `Face ${face}, restored`).waitFor(wait); // and neither is left
  await focused(page, '[data-face="1"]');

  await page.locator('#face_take').focus();
  await page.keyboard.press('Escape'); // the card,
  await focused(page, '[data-face="1"]');
  assert.equal(await page.locator('#face_card').isVisible(), false);
  await page.keyboard.press('Escape'); // then the faces
  await focused(page, '#show_faces');
  assert.equal(await page.locator('.face').count(), 0);
  await page.locator('#show_damage').click();
  await page.locator('#brush_paint').focus();
  await page.keyboard.press('Escape');
  await focused(page, '#show_damage');
  assert.equal(await page.locator('#brush').isVisible(), false);
  await more(page).click();
  await page.locator('#option_seed').focus();
  await page.locator('#show_faces').click();
  await page.locator('#option_seed').focus();
  await page.keyboard.press('Escape'); // what has the focus comes first
  await page.locator('summary:focus', { hasText: 'More options' }).waitFor(wait);
  assert.equal(await page.locator('#option_seed').isVisible(), false);
  assert.ok(await page.locator('.face').count());
});

test('the difference is as bright as is needed, and says by how much', async (t) => {
  const page = await open(t);
  await plainly(page);
  await page.locator('#version').selectOption('none');
  // The result is the picture with 3 of 255 more: a difference that is black to the eye.
  await page.route('**/result', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, body: Buffer.from(brighter) });
  });
  const shades = (level) => page.evaluate(async (at) => {
    const canvas = new OffscreenCanvas(64, 48), context = canvas.getContext('2d');
    context.fillStyle = `rgb(${at} ${at} ${at})`;
    context.fillRect(0, 0, 64, 48);
    return [...new Uint8Array(await (await canvas.convertToBlob({ type: 'image/png' })).arrayBuffer())];
  }, level);
  const brighter = await shades(103);
  await page.setInputFiles('#file', { name: 'gray.png', mimeType: 'image/png', buffer: Buffer.from(await shades(100)) });
  await ready(page);
  await page.locator('#go').click();
  await done(page);
  const words = 'Difference, 32 times as bright. On average: 3 of 255.';
  const shown = async () => {
    await page.locator('#differing', { hasText: words }).waitFor(wait);
    assert.equal(await text(page, '#say'), words);
    const { x, y, width, height } = await page.locator('#view').boundingBox();
    const shot = await page.screenshot({ clip: { x: x + width / 4, y: y + height / 2, width: 8, height: 8 } });
    return page.evaluate(async (bytes) => {
      const context = new OffscreenCanvas(8, 8).getContext('2d');
      context.drawImage(await createImageBitmap(new Blob([new Uint8Array(bytes)])), 0, 0);
      return context.getImageData(4, 4, 1, 1).data[0];
    }, [...shot]);
  };
  await page.locator('#side').click(); // both lie over each other there, too
  await page.keyboard.down('d');
  assert.equal(await shown(), 96);
  await page.keyboard.up('d');
  await page.locator('#differing').waitFor({ state: 'hidden' });
  await page.locator('#difference').focus();
  await page.keyboard.down(' ');
  await shown();
  await page.keyboard.up(' ');
  await page.locator('#differing').waitFor({ state: 'hidden' });
  await page.locator('#difference').evaluate((node) => node.click()); // as assistive technology does
  await shown();
});
