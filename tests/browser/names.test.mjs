// The page for those who do not see it, or see it in other colours, or touch it.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { faulty } from '../api/server.mjs';
import { details, done, more, open, ownServer, picture, ready, server, wait } from './browser.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// Chromium's accessibility tree, as assistive technology reads it.
async function tree(page) {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send('Accessibility.getFullAXTree');
  return nodes.filter((node) => !node.ignored).map((node) => ({
    role: node.role?.value, name: node.name?.value ?? '',
  }));
}

const controls = ['button', 'link', 'combobox', 'slider', 'checkbox', 'radio', 'textbox', 'spinbutton', 'progressbar', 'progress', 'form', 'DisclosureTriangle'];

test('every control has a name; the strength has its own, and its value in words', async (t) => {
  const page = await open(t);
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await more(page).click();
  await page.locator('#about summary').click();
  await page.locator('#go').click();
  await done(page);
  await details(page).click();
  const found = (await tree(page)).filter(({ role }) => controls.includes(role));
  assert.ok(found.length >= 30, `${found.length} controls`);
  assert.deepEqual(found.filter(({ name }) => !name.trim()), []);
  assert.deepEqual(found.filter(({ role }) => role === 'slider').map(({ name }) => name.split(' ')[0]), ['Divider']);
  // the inspector's tree has a slider's number alone, so its words are read from the element
  assert.equal(await page.getByRole('slider', { name: /Divider/ }).getAttribute('aria-valuetext'), '50 % original');
  const strength = page.getByRole('combobox', { name: 'Strength' });
  const chosen = () => strength.evaluate((select) => select.selectedOptions[0].text);
  assert.equal(await chosen(), 'Automatic (recommended)');
  await strength.selectOption('0.5');
  assert.equal(await chosen(), '50\u00a0%');
});

test('a screen reader is told what was chosen, the beginning, the end, a failure and a lost connection, once each', async (t) => {
  const own = await ownServer(t, { program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat' } });
  const page = await open(t, own.url);
  await page.evaluate(() => {
    const told = globalThis.told = [];
    let last = '';
    new MutationObserver(() => { // the live regions: each text that comes
      const now = [...document.querySelectorAll('[role="status"], [role="alert"]')].filter((node) => !node.hidden).map((node) => node.innerText).filter(Boolean);
      if (now.join() !== last) told.push(...now.filter((text) => !last.includes(text)));
      last = now.join();
    }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
  });
  const told = () => page.evaluate(() => globalThis.told.splice(0).map((text) => text.replaceAll('\u00a0', ' ')));
  const unnamed = async () => (await tree(page)).filter(({ role, name }) => controls.includes(role) && !name.trim());
  await page.setInputFiles('#file', picture('two.png'));
  await ready(page);
  await page.locator('#say', { hasText: '240' }).waitFor({ ...wait, state: 'attached' });
  assert.deepEqual(await told(), ['two.png · 240 × 128 · 3 KB']);
  await page.locator('#go').click();
  await page.locator('#say', { hasText: 'Restoring' }).waitFor({ ...wait, state: 'attached' });
  assert.deepEqual(await unnamed(), []);
  await done(page);
  await page.locator('#say', { hasText: 'Done' }).waitFor({ ...wait, state: 'attached' });
  const run = (await told()).filter((text) => text !== 'Restoring 50 %'); // the picture may be quicker than that
  assert.equal(run.length, 3, run.join(' | '));
  assert.match(run.join(' | '), /^Uploading \| Restoring \| Done in .*faces restored\.$/);
  await page.route('**/v1/restore', (route) => route.fulfill({ status: 422, contentType: 'application/problem+json', body: JSON.stringify({ status: 422, code: 'corrupt', detail: 'The PNG is cut short' }) }));
  await page.locator('#go').click();
  await page.locator('#error:visible').waitFor(wait);
  assert.deepEqual(await unnamed(), []);
  const failure = await told();
  assert.deepEqual(failure.map((text) => text.split('\n')[0]), ['Uploading', 'This file is damaged, or a part of it is missing.']);
  await page.unroute('**/v1/restore');
  await page.setInputFiles('#file', [picture('none.png'), picture('picture.png')]);
  await page.waitForFunction(() => document.querySelectorAll('.thumb').length === 3, null, wait);
  await page.locator('#go').click();
  await page.locator('#say', { hasText: /^2 of 3 done/ }).waitFor({ ...wait, state: 'attached' });
  assert.match((await told()).join(' | '), /^3 pictures \| Uploading \| Restoring \| 2 of 3 done · 1 failed$/);
});

test('axe finds nothing to mend, in any state and both schemes', async (t) => {
  for (const colorScheme of ['light', 'dark']) {
    const page = await open(t, server.url, { colorScheme });
    const check = async (state) => {
      // colours are those of the end of a fade; what pulses has none
      await page.waitForFunction(() => document.getAnimations().every((one) => one.playState !== 'running' || one.effect.getComputedTiming().endTime === Infinity), null, wait);
      await page.evaluate(axe);
      // The schemes differ in colours alone.
      const { violations } = await page.evaluate((only) => globalThis.axe.run(only), colorScheme === 'dark' ? { runOnly: ['color-contrast'] } : {});
      assert.deepEqual(violations.map(({ id, nodes }) => `${state}: ${id} ${nodes.map((n) => n.html).join(' ')}`), []);
    };
    await check('empty');
    await page.setInputFiles('#file', { name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('text') });
    await page.locator('#error:visible').waitFor(wait);
    await check('refused');
    await page.setInputFiles('#file', picture('picture.png'));
    await ready(page);
    await more(page).click();
    await page.locator('#about summary').click();
    await check('chosen, all open');
    await page.route('**/v1/restore', async (route) => { await check('working'); await route.continue(); });
    await page.locator('#go').click();
    await done(page);
    await details(page).click();
    await check('done');
    await page.locator('#side').click();
    await page.locator('#show_faces').click();
    await page.locator('.face').first().click();
    await check('side by side, a face');
    await page.locator('#show_faces').click();
    await page.locator('#show_damage').click();
    await page.locator('#show_damage:not(.busy)').waitFor(wait);
    await check('brush');
    await page.unroute('**/v1/restore');
    await page.setInputFiles('#file', [picture('two.png'), picture('none.png')]);
    await page.waitForFunction(() => document.querySelectorAll('.thumb img').length === 3, null, wait);
    await check('several');
    await page.route('**/v1/restore', (route) => route.fulfill({ status: 422, contentType: 'application/problem+json', body: JSON.stringify({ status: 422, code: 'corrupt', title: 'Unprocessable Content', detail: 'The PNG is damaged or cut short', request_id: 'ab12' }) }));
    await page.locator('#go').click();
    await page.locator('#all_status', { hasText: '2 failed' }).waitFor(wait);
    await page.locator('.thumb').nth(1).click();
    await page.locator('#error:visible').waitFor(wait);
    await check('failed');
  }
});

test('keys alone: from choosing to the download, and what has the focus is seen', async (t) => {
  const page = await open(t);
  const reach = async (selector, key = 'Tab') => {
    for (let i = 0; i < 120; i++) {
      await page.keyboard.press(key);
      const [is, seen, open] = await page.evaluate((wanted) => {
        const node = document.activeElement, near = [node, node.nextElementSibling, node.parentElement, document.getElementById('another')];
        const marked = near.some((one) => one && ['outlineStyle', 'boxShadow'].some((name) => !['none', ''].includes(getComputedStyle(one)[name])) || (one && getComputedStyle(one, '::after').outlineStyle === 'solid'));
        const { x, y, width, height } = node.getBoundingClientRect(), covers = document.elementFromPoint(x + width / 2, y + height / 2)?.closest('.actions');
        return [node.matches(wanted), node === document.body || marked, !covers || covers.contains(node)];
      }, selector);
      assert.ok(seen, `the focus is not seen on the way to ${selector}: ${await page.evaluate(() => document.activeElement.outerHTML.slice(0, 200))}`);
      assert.ok(open, `the button covers what has the focus on the way to ${selector}: ${await page.evaluate(() => document.activeElement.outerHTML.slice(0, 200))}`);
      if (is) return;
    }
    throw new Error(`no key leads to ${selector}`);
  };
  await reach('#file');
  await page.setInputFiles('#file', picture('two.png')); // the system's dialog
  await ready(page);
  await reach('#presets input');
  await page.keyboard.press('ArrowLeft');
  assert.equal(await page.locator('#presets :checked').getAttribute('value'), 'gentle');
  await reach('#go');
  await page.keyboard.press('Enter');
  await done(page);
  await page.locator('#go:focus').waitFor(wait);
  await reach('#split', 'Shift+Tab');
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.locator('#split').inputValue(), '52');
  await reach('#zoom_in');
  await page.keyboard.press('Enter');
  assert.equal(await page.locator('#stage').evaluate((node) => node.classList.contains('zoomed')), true);
  await reach('#show_faces');
  await page.keyboard.press('Enter');
  await page.locator('.face').first().waitFor(wait);
  await reach('.face', 'Shift+Tab');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Face 1, restored; will be left as it is' }).waitFor(wait);
  await reach('#face_take');
  await page.keyboard.press('Space');
  await page.getByRole('button', { name: 'Face 1, restored' }).waitFor(wait);
  await reach('#side', 'Shift+Tab');
  await page.keyboard.press('Space');
  await page.locator('#view[data-mode="side"]').waitFor(wait);
  await reach('#download');
  const [download] = await Promise.all([page.waitForEvent('download'), page.keyboard.press('Enter')]);
  assert.equal(download.suggestedFilename(), 'two_restored.png');
});

test('targets are 44 px high', async (t) => {
  const page = await open(t, server.url, { viewport: { width: 320, height: 640 }, hasTouch: true, isMobile: true });
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await more(page).click();
  await page.locator('#about summary').click();
  await page.locator('#go').click();
  await done(page);
  await page.locator('#show_faces').click();
  await page.locator('.face').first().click();
  const small = await page.evaluate(() => [...document.querySelectorAll('a, button, summary, select, input, label.button')]
    .filter((node) => node.checkVisibility() && node.id !== 'file' && node.id !== 'split' && !node.matches('.face')) // whose area is larger than they look
    .map((node) => [node.outerHTML.slice(0, 80), (node.type === 'checkbox' ? node.closest('label') ?? node.closest('.field').querySelector('label') : node).getBoundingClientRect().height])
    .filter(([, height]) => height < 43.5 && height > 0));
  assert.deepEqual(small, []);
  const stage = await page.locator('#stage').boundingBox();
  for (const box of await page.locator('.tools button:visible').evaluateAll((all) => all.map((node) => node.getBoundingClientRect().toJSON())))
    assert.ok(box.left >= stage.x && box.right <= stage.x + stage.width, 'each tool is within the stage');
});

test('in forced colours the chosen scale differs by more than its weight', async (t) => {
  const page = await open(t, server.url, { forcedColors: 'active' });
  const ground = (selector) => page.locator(selector).first().evaluate((node) => getComputedStyle(node).backgroundColor);
  assert.notEqual(await ground('#scale :checked + span'), await ground('#scale :not(:checked) + span'));
});

test('in forced colours an eye is seen on its button', async (t) => {
  const page = await open(t, server.url, { forcedColors: 'active' });
  await page.locator('#bg_upsampler').selectOption('none');
  await page.setInputFiles('#file', picture('two.png'));
  await ready(page);
  await page.locator('#go').click();
  await done(page);
  await page.getByRole('button', { name: 'Faces', exact: true }).click();
  const { x, y, width, height } = await page.locator('.eye[data-eye="0"]').boundingBox();
  const shot = await page.screenshot({ clip: { x: x + width / 3, y: y + height / 3, width: width / 3, height: height / 3 } }); // within the disc
  const [least, most] = await page.evaluate(async (bytes) => {
    const shown = await createImageBitmap(new Blob([new Uint8Array(bytes)]));
    const context = new OffscreenCanvas(shown.width, shown.height).getContext('2d');
    context.drawImage(shown, 0, 0);
    const greens = context.getImageData(0, 0, shown.width, shown.height).data.filter((_, i) => i % 4 === 1);
    return [Math.min(...greens), Math.max(...greens)];
  }, [...shot]);
  assert.ok(most - least > 120, `${least} to ${most}`);
});
