// The page, in the system's Chromium, served by the real server with the fixtures' networks.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { hasShared, sharedModels } from '../api/client.mjs';
import { faulty, fixtureModels } from '../api/server.mjs';
import { details, done, give, more, open, ownServer, picture, ready, server, text, wait } from './browser.mjs';

test('restores a picture: before and after, its name, its report', async (t) => {
  const page = await open(t);
  assert.equal(await page.locator('#go').isDisabled(), true, 'nothing to restore yet');
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.locator('#name', { hasText: 'picture.png · 160 × 128' }).waitFor(wait);
  await page.getByRole('radio', { name: '1.5×' }).check();
  await page.locator('#go').click();
  await done(page);
  assert.deepEqual(await page.evaluate(() => {
    const { naturalWidth, naturalHeight } = document.getElementById('after');
    return [naturalWidth, naturalHeight];
  }), [240, 192]);
  assert.match(await text(page, '#report'), /^1 face restored/);
  assert.doesNotMatch(await text(page, '#report'), /Restoring faces/, 'stages are for those who open the details');
  await details(page).click();
  assert.match(await text(page, '#report'), /Restoring faces[^]*Face model\s+face/);
  assert.match(await text(page, '#name'), /^picture_restored\.png · 240 × 192 · /);

  const [download] = await Promise.all([page.waitForEvent('download'), page.locator('#download').click()]);
  assert.equal(download.suggestedFilename(), 'picture_restored.png', 'beside the input, not over it');
  const bytes = readFileSync(await download.path());
  assert.equal(bytes.toString('latin1', 1, 4), 'PNG');
  assert.equal(bytes.readUInt32BE(16), 240);

  // The divider, by keyboard: the picture's two halves share one box, and the arrow keys move the line between them.
  const split = page.getByRole('slider', { name: /Divider/ });
  const line = () => page.evaluate(() => getComputedStyle(document.getElementById('pane_after')).clipPath);
  await split.focus();
  const middle = await line();
  await page.keyboard.press('ArrowRight');
  assert.notEqual(await line(), middle);
  await page.keyboard.press('Home');
  assert.equal(await page.evaluate(() => parseFloat(document.getElementById('view').style.getPropertyValue('--line')) - document.getElementById('before').offsetLeft), 0);
  const boxes = await page.evaluate(() => ['before', 'after'].map((id) => JSON.stringify(document.getElementById(id).getBoundingClientRect())));
  assert.equal(boxes[0], boxes[1]);

  await page.setInputFiles('#file', picture('none.png'));
  await page.locator('#name', { hasText: 'none.png' }).waitFor(wait);
  assert.equal(await page.locator('#report').textContent(), '', 'the report was of the former picture');
});

test('sends the options that were chosen', async (t) => {
  const page = await open(t);
  await page.setInputFiles('#file', picture('two.png'));
  await ready(page);
  await page.locator('#version').selectOption('none');
  await page.locator('#bg_upsampler').selectOption('none');
  await page.locator('#ext').selectOption('jpg');
  await more(page).click();
  await page.locator('#option_suffix').fill('small');
  const [request] = await Promise.all([page.waitForRequest('**/v1/restore'), page.locator('#go').click()]);
  const body = request.postDataBuffer()?.toString('latin1') ?? '';
  await done(page);
  assert.match(await text(page, '#report'), /^Faces were left as they are/);
  assert.equal(await page.locator('#download').getAttribute('download'), 'two_small.jpg');
  if (body) assert.doesNotMatch(body, /name="(upscale|weight|seed|detector)"/, 'defaults are not sent');
});

test('shows a picture as EXIF turns it, dropped or pasted', async (t) => {
  const page = await open(t);
  const bytes = readFileSync(picture('exif_6.jpg'));
  for (const event of ['drop', 'paste']) {
    await give(page, event, `${event}.jpg`, bytes);
    await page.locator('#name', { hasText: `${event}.jpg · 160 × 128` }).waitFor(wait);
  }
});

test('refuses at once what is no picture, and keeps the former one', async (t) => {
  const page = await open(t);
  const refused = async (name, bytes, words) => {
    await give(page, 'drop', name, Buffer.from(bytes, 'latin1'));
    await page.locator('#error', { hasText: words }).waitFor(wait);
  };
  await refused('notes.txt', 'only some text', 'This is not a JPEG, PNG, WebP, TIFF, AVIF, HEIC, JPEG XL or JPEG 2000 picture.');
  assert.equal(await page.locator('#go').isDisabled(), true);
  assert.equal(await page.locator('.drop').isVisible(), true);
  await refused('empty.png', '', 'This file is empty.');
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  assert.equal(await page.locator('#error').isVisible(), false);
  await refused('photo.gif', 'GIF89a', 'GIF files cannot be restored yet, only JPEG, PNG, WebP, TIFF, AVIF, HEIC, JPEG XL and JPEG 2000 pictures.');
  await refused('photo.psd', '8BPS\0\x01', 'Photoshop files cannot be restored yet');
  assert.match(await text(page, '#name'), /^picture\.png/);
  assert.equal(await page.locator('#before').isVisible(), true);
  assert.equal(await page.locator('#go').isEnabled(), true);
});

test('leads to the field of a value that the server refuses', async (t) => {
  const page = await open(t);
  await page.setInputFiles('#file', picture('none.png'));
  await ready(page);
  await page.locator('#version').selectOption('none');
  await page.locator('#bg_upsampler').selectOption('none');
  await page.locator('#go').click();
  await done(page);
  await page.route(/\/v1\/estimate\?/, (route) => route.fulfill({ status: 404 })); // else it may say so before the button is clicked
  const seed = page.getByRole('textbox', { name: 'Variation', exact: true });
  await more(page).click();
  await seed.fill('x');
  await more(page).click();
  await page.locator('#go').click();
  await page.locator('#error', { hasText: /^Variation: / }).waitFor(wait);
  assert.equal(await seed.getAttribute('aria-invalid'), 'true');
  assert.equal(await seed.isVisible(), true, 'More options is open');
  assert.equal(await seed.evaluate((field) => field === document.activeElement), true);
  assert.equal(await page.locator('#error').evaluate((box) => box.getBoundingClientRect().bottom <= innerHeight), true);
  assert.equal(await page.locator('#report').textContent(), '');
  await seed.fill('7');
  assert.equal(await seed.getAttribute('aria-invalid'), null);
});

test('explains its options itself', async (t) => {
  const page = await open(t);
  const { options } = await (await fetch(`${server.url}/v1/capabilities`)).json();
  await more(page).click();
  const shown = await page.locator('#more .field').evaluateAll((all) => all.map((field) => ({
    name: field.querySelector('[name]').name, label: field.querySelector('label').innerText, help: field.querySelector('small').innerText,
  })));
  assert.ok(shown.length >= 13);
  for (const { name, label, help } of shown) {
    assert.ok(label && help, name);
    assert.notEqual(help, options.find((o) => o.name === name).help, name);
  }
});

test('says in plain words that a picture is damaged, keeps that, and goes on', async (t) => {
  const page = await open(t);
  const broken = Buffer.from('\xff\xd8\xffonly some text', 'latin1');
  await page.setInputFiles('#file', { name: 'notes.jpg', mimeType: 'image/jpeg', buffer: broken });
  await ready(page);
  const [answer] = await Promise.all([page.waitForResponse('**/v1/restore'), page.locator('#go').click()]);
  assert.equal(answer.status(), 422);
  await page.locator('#error:visible').waitFor(wait);
  const shown = await text(page, '#error');
  const form = new FormData();
  form.append('image', new Blob([broken]), 'notes.jpg');
  const problem = await (await fetch(`${server.url}/v1/restore`, { method: 'POST', body: form })).json();
  assert.match(shown, /^This file is damaged, or a part of it is missing\./);
  const small = await text(page, '#error small');
  assert.ok(problem.detail && small.startsWith(problem.detail), `${small} / ${problem.detail}`);
  assert.match(small, / · Request [0-9a-f]{32}$/);
  assert.equal(await page.locator('#unseen').isVisible(), true);
  assert.equal(await page.locator('#download').isVisible(), false);
  await more(page).click();
  assert.equal(await page.locator('#error').isVisible(), true, 'it stays until something else is done');

  await page.setInputFiles('#file', picture('none.png'));
  await page.locator('#error').waitFor({ ...wait, state: 'hidden' });
  await page.locator('#option_quality').fill('101');
  await page.locator('#go').click();
  await page.locator('#error:visible').waitFor(wait);
  assert.match(await text(page, '#error'), /^Quality: /);
  await page.locator('#option_quality').fill('');
  await page.locator('#go').click();
  await done(page);
  assert.equal(await page.locator('#error').isVisible(), false);
});

test('cancels: the server stops the work', async (t) => {
  const own = await ownServer(t, { program: faulty, args: [...fixtureModels, '--stall_seconds', '0', '--drain_seconds', '0'], env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=rrdb_x4' } }); // until it is cancelled
  const cancelled = async () =>
    Number(/^restored_jobs_total\{state="cancelled"\} (\d+)/m.exec(await (await fetch(`${own.url}/metrics`)).text())?.[1] ?? 0);
  const page = await open(t, own.url);
  const had = await cancelled();
  await page.setInputFiles('#file', picture('two.png'));
  await ready(page);
  await page.getByRole('radio', { name: '8×' }).check();
  await page.locator('#bg_upsampler').selectOption('rrdb_x4');
  await page.locator('#go').click();
  await page.locator('#status', { hasText: 'Restoring' }).waitFor(wait);
  await page.locator('#cancel').click();
  assert.equal(await text(page, '#status'), 'Cancelled.');
  assert.equal(await page.locator('#go').isEnabled(), true);
  for (let i = 0; i < 3000 && (await cancelled()) === had; i++) await new Promise((r) => setTimeout(r, 100));
  assert.equal(await cancelled(), had + 1);
});

// The program's own models where it has them, else the shared ones.
test('restores the sample in one click', async (t) => {
  let own = await ownServer(t, { args: [], env: { RESTORED_STARTER_MODELS: 'true' } });
  const embedded = (await (await fetch(`${own.url}/v1/models`)).json()).models.length > 0;
  if (!embedded && !hasShared) return t.skip('neither models/starter nor ../shared holds models');
  if (!embedded) {
    await own.stop();
    own = await ownServer(t, { args: sharedModels });
  }
  const page = await open(t, own.url);
  await page.waitForFunction(async () => (await fetch('/readyz')).ok, null, wait);
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  assert.equal(await page.locator('#starter').isVisible(), embedded);
  if (embedded) assert.match(await text(page, '#starter'), /small models that come with it/);
  assert.doesNotMatch(await page.locator('body').innerText(), /make models|starter_/, 'what a browser user cannot do or need not know');
  await page.getByRole('button', { name: 'Try the sample' }).click();
  await done(page);
  assert.match(await text(page, '#report'), embedded ? /^2 faces restored, \d+ pieces of damage repaired/ : /^2 faces restored/);
  await details(page).click();
  assert.match(await text(page, '#report'), embedded ? /Face model\s+starter_face/ : /Face model\s+gfpgan_tiny/);
  assert.match(await text(page, '#name'), /^sample_restored\.jpg · 1440 × 1152 · /);
  assert.equal(await page.locator('#before').evaluate((image) => image.naturalWidth), 720);
  assert.equal(await page.getByRole('button', { name: 'Try the sample' }).isVisible(), false);
});

test('shows the sample when it cannot restore it yet', async (t) => {
  const bare = await ownServer(t, { args: ['--models', '/nonexistent'] });
  const page = await open(t, bare.url);
  assert.equal(await page.locator('#starter').isVisible(), false);
  await page.getByRole('button', { name: 'Try the sample' }).click();
  await page.locator('#name', { hasText: 'sample.jpg · 720 × 576' }).waitFor(wait);
  assert.equal(await page.locator('#go').isDisabled(), true);
});

test('says what is missing when there are no models', async (t) => {
  const bare = await ownServer(t, { args: ['--models', '/nonexistent'] });
  const page = await open(t, bare.url);
  const answer = await fetch(`${bare.url}/readyz`);
  assert.equal(answer.status, 503);
  const { reasons } = await answer.json();
  assert.match(await text(page, '#notices'), /The server cannot restore pictures at the moment/);
  assert.ok(reasons.length);
  for (const reason of reasons) assert.ok(!(await text(page, '#notices')).includes(reason.slice(1)), 'folded');
  await page.locator('#notices summary').click();
  for (const reason of reasons) assert.ok((await text(page, '#notices')).includes(reason.slice(1)), reason);
  await page.setInputFiles('#file', picture('picture.png'));
  await page.locator('#view:visible').waitFor(wait);
  assert.equal(await page.locator('#go').isDisabled(), true);
});

test('names the device, and says so when it is software', async (t) => {
  const page = await open(t);
  const { devices, default: id } = await (await fetch(`${server.url}/v1/devices`)).json();
  const device = devices.find((d) => d.id === id);
  assert.ok(!(await page.locator('body').innerText()).includes(device.name), 'not before somebody asks');
  await page.locator('#about summary').click();
  assert.ok((await text(page, '#device')).includes(device.name));
  const warned = (await page.locator('#notices').innerText()).includes('slow');
  assert.equal(warned, device.type === 'software');
});

test('fits a phone, follows dark mode, and moves nothing when a picture comes', async (t) => {
  const ground = [];
  for (const colorScheme of ['light', 'dark']) {
    const page = await open(t, server.url, { viewport: { width: 360, height: 740 }, colorScheme });
    ground.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    await more(page).click();
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'no sideways scrolling');
    const place = () => page.evaluate(() => document.getElementById('form').getBoundingClientRect().top + scrollY);
    const top = await place();
    await page.setInputFiles('#file', picture('edge.png'));
    await page.locator('#view:visible').waitFor(wait);
    assert.ok(Math.abs((await place()) - top) < 1, 'the panel stays where it was');
  }
  assert.notEqual(ground[0], ground[1]);
});

test('on a phone no piece of a label stands above the button that covers the rest of it', async (t) => {
  const page = await open(t, server.url, { viewport: { width: 360, height: 600 } });
  // Scrolls until the button's block covers all of the first label but the upper third of its letters.
  const clip = await page.evaluate(() => {
    const box = (selector) => document.querySelector(selector).getBoundingClientRect();
    for (let y = 0; y < 400; y++) {
      scrollTo(0, y);
      const letters = box('#form legend'), top = box('.actions').top;
      if (top > letters.top + 9 && top <= letters.top + 11) return { x: letters.left, y: top - 8, width: 60, height: 8 };
    }
    return null;
  });
  assert.ok(clip, 'the label goes behind the block');
  const png = [...await page.screenshot({ clip })];
  const darkest = await page.evaluate(async (bytes) => {
    const picture = await createImageBitmap(new Blob([new Uint8Array(bytes)]));
    const canvas = new OffscreenCanvas(picture.width, picture.height).getContext('2d');
    canvas.drawImage(picture, 0, 0);
    return canvas.getImageData(0, 0, picture.width, picture.height).data.reduce((least, value) => Math.min(least, value), 255);
  }, png);
  assert.ok(darkest > 128, `as dark as ${darkest}`);
});

test('a file that is chosen before the page\'s scripts are there is taken', async (t) => {
  const early = 'formats/cmyk.tif'; // which only a server that was asked is known to read
  const page = await open(t, undefined, { prepare: (it) => it.route('**/js/main.js', async (route) => {
    await it.setInputFiles('#file', [picture('picture.png'), picture(early)]);
    await route.continue();
  }) });
  await page.locator('.thumb').nth(1).waitFor(wait);
  await ready(page);
  assert.equal(await page.locator('#error').isVisible(), false);
  await page.setInputFiles('#file', picture('two.png')); // once each
  await page.locator('.thumb').nth(2).waitFor(wait);
  assert.equal(await page.locator('.thumb').count(), 3);
});
