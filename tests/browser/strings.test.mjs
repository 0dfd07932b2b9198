// The page's languages: every text of the page is in every language, with the same places for values.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from '../api/server.mjs';
import { groups, labels, roles, stages } from '../../static/js/words.js';
import { open, picture, ready, text, wait } from './browser.mjs';

const folder = join(root, 'static/js');
const quoted = /'((?:[^'\\\n]|\\.)*)'/g;

// The texts in the code: the quoted arguments of t() and many(), and whole tables of texts.
export function texts() {
  const found = new Set();
  for (const name of readdirSync(folder)) {
    if (/^(strings_|words)/.test(name) || !name.endsWith('.js')) continue;
    const source = readFileSync(join(folder, name), 'utf8');
    for (const call of source.matchAll(/(?<![\w.])(t|many|mark)\(/g)) {
      let depth = 1, end = call.index + call[0].length;
      for (let within = false; depth && end < source.length; end++) {
        const c = source[end];
        if (c === '\'' && source[end - 1] !== '\\') within = !within;
        else if (!within) depth += (c === '(') - (c === ')');
      }
      for (const [, text] of source.slice(call.index, end).matchAll(quoted)) if (/[A-Za-z]{2}/.test(text)) found.add(text);
    }
    for (const [, text] of source.matchAll(/'([A-Z][^'\n]* [^'\n]*[.!?:])'/g)) found.add(text);
  }
  for (const [title, help, values] of Object.values(labels)) [title, help, ...Object.values(values ?? {})].forEach((one) => found.add(one));
  for (const one of [...groups.map(([title]) => title), ...Object.values(stages), ...Object.values(roles)]) found.add(one);
  const html = readFileSync(join(root, 'static/index.html'), 'utf8').replace(/<code>.*?<\/code>|<(script|style).*?<\/\1>/gs, '<>');
  for (const [, part] of html.matchAll(/>([^<>]*[A-Za-z]{2}[^<>]*)</g)) found.add(part.trim().replace(/\s+/g, ' '));
  for (const [, part] of html.matchAll(/(?:aria-label|title|alt|placeholder)="([^"]*)"/g)) found.add(part.replace(/\s+/g, ' '));
  for (const [, part] of html.matchAll(/name="description" content="([^"]*)"/g)) found.add(part);
  for (const same of ['restored', 'sRGB', 'px', 'cm']) found.delete(same); // in all languages
  return [...found].filter(Boolean).sort();
}

// What the server says in reports and problems, by the codes in its sources: 'note turned', 'problem too-large' …
function codes() {
  const folders = ['server/pipeline', 'server/job', 'server/cli', 'server/http', 'server/image'], found = new Set();
  const source = Object.fromEntries(folders.flatMap((path) => readdirSync(join(root, path)).map((name) => [name, readFileSync(join(root, path, name), 'utf8')])));
  for (const text of Object.values(source))
    for (const [, code] of text.matchAll(/restoration_note\([^,;{]+,\s*"([a-z-]+)"/g)) found.add(`note ${code}`);
  for (const [, code] of source['image_metadata.c'].matchAll(/\{IMAGE_NOTE_\w+, "([a-z-]+)",/g)) found.add(`note ${code}`);
  const reply = source['reply.c'], status = {}, replies = {};
  for (const [, name, number, code] of reply.matchAll(/\[(REPLY_\w+)\] = \{(\d+), "[^"]+", "([a-z-]*)"\}/g)) {
    status[name] = Number(number);
    if (Number(number) >= 400) replies[code] = Number(number);
  }
  let waiting = [], otherwise = 500;
  for (const [, error, name] of reply.slice(reply.indexOf('enum reply reply_for('), reply.indexOf('own_codes[]')).matchAll(/case (\w+):|return (REPLY_\w+);/g)) {
    if (error) waiting.push(error);
    else {
      for (const one of waiting) status[one] = status[name];
      waiting = [];
    }
  }
  for (const [, error, code] of reply.matchAll(/\[(ERROR_\w+)\] = "([a-z-]+)"/g)) replies[code] = status[error] ?? otherwise;
  for (const [, code] of source['route_estimate.c'].matchAll(/why = "([a-z-]+)"/g)) replies[code] = 0;
  // What nobody meets here: the page asks for nothing like that.
  const never = ['method-not-allowed', 'not-acceptable', 'length-required', 'expectation-failed', 'header-too-large', 'client-gone'];
  const elsewhere = ['note starter-models', 'problem corrupt']; // the page has its own words
  assert.ok(found.size > 30 && Object.keys(replies).length > 25, 'the sources look different now');
  for (const [code, number] of Object.entries(replies)) if (!never.includes(code) && !statuses.includes(number)) found.add(`problem ${code}`);
  return [...found, 'problem option'].filter((code) => !elsewhere.includes(code));
}

// The statuses that refused.js has words for.
const statuses = [...readFileSync(join(folder, 'refused.js'), 'utf8').matchAll(/^ {2}(\d{3}): \[/gm)].map(([, status]) => Number(status));

// New options may come before their translations: then their English words are shown.
const later = new Set([...Object.values(labels).flatMap(([title, help, values]) => [title, help, ...Object.values(values ?? {})]),
  ...groups.map(([title]) => title), ...Object.values(stages), ...Object.values(roles)]);

for (const [language, name] of [['de', 'German'], ['es', 'Spanish'], ['fr', 'French'], ['zh', 'Chinese']])
  test(`every text of the page is there in ${name}`, async (t) => {
    const { default: table } = await import(`../../static/js/strings_${language}.js`);
    const all = [...texts(), ...codes()];
    const missing = all.filter((one) => !table[one]);
    for (const one of missing.filter((text) => later.has(text))) t.diagnostic(`not translated: ${one}`);
    assert.deepEqual(missing.filter((one) => !later.has(one)), []);
    const places = (one) => [...one.matchAll(/\{\d\}/g)].map(([place]) => place).sort().join();
    for (const [english, one] of Object.entries(table)) {
      assert.ok(one.trim(), english);
      if (!/^(note|problem) /.test(english)) assert.equal(places(one), places(english), `${english} / ${one}`);
      assert.ok(all.includes(english), `the page has no such text any more: ${english}`);
    }
  });

test('the browser\'s language is taken, another can be chosen, and no English is left', async (t) => {
  const page = await open(t, undefined, { locale: 'de-AT' });
  assert.equal(await page.locator('html').getAttribute('lang'), 'de');
  assert.deepEqual(await page.locator('#more [title]:not([title=""])').evaluateAll((all) => all.map((node) => node.title)), [], 'nothing of the server\'s English');
  assert.equal(await text(page, '#go'), 'Restaurieren');
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.locator('#before:visible').waitFor(wait);
  const { default: table } = await import('../../static/js/strings_de.js');
  const english = await page.evaluate((known) => {
    const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) if (known.includes(node.data.trim())) found.push(node.data.trim());
    return found;
  }, Object.keys(table).filter((one) => table[one] !== one));
  assert.deepEqual(english.filter((one) => !Object.values(table).includes(one)), []);
  for (const language of ['es', 'zh', 'de', 'fr']) {
    await page.locator('#language').selectOption(language);
    await page.locator(`html[lang="${language}"]`).waitFor({ ...wait, state: 'attached' });
    await page.locator('main[aria-busy="false"]').waitFor(wait);
    const wide = await page.locator('#presets *, #scale *, .button').evaluateAll((all) => all.filter((node) => node.scrollWidth > node.clientWidth + 1 && node.clientWidth).map((node) => node.textContent));
    assert.deepEqual(wide, [], `${language}: words are wider than what they stand in`);
  }
  assert.equal(await text(page, '#go'), 'Restaurer');
  assert.match(await text(page, '#scale'), /1,5×/);
  assert.match(await text(page, '#name'), /\d Ko$/);
  assert.match(await text(page, '#name'), /^picture\.png/, 'the picture is still there');
});

test('what the server says is said in the page\'s language; in its own words where there are none', async (t) => {
  const page = await open(t, undefined, { locale: 'de' });
  await page.setInputFiles('#file', picture('two.png'));
  await ready(page);
  await page.locator('form details summary').first().click();
  await page.locator('#option_faces').fill('0,5');
  await page.locator('#go').click();
  await page.locator('#stage[data-state="done"]').waitFor(wait);
  const notes = await page.locator('#report .note').allTextContents();
  assert.deepEqual(notes.filter((note) => /5/.test(note)), ['Gesicht 5 (ab 0 gezählt) wurde verlangt, aber im Bild sind nur 2.']);
  assert.equal(await page.evaluate(async () => (await import('./js/lang.js')).said('note', 'moon', 'The moon was full.')), 'The moon was full.');
  await page.route('**/v1/estimate?*', (route) => route.fulfill({ status: 404 })); // which would tell it before
  await page.locator('#option_faces').fill('nobody');
  await page.locator('#go').click();
  await page.locator('#error:visible').waitFor(wait);
  assert.equal(await page.locator('#error p').first().innerText(), 'Welche Gesichter: dieser Wert geht nicht, oder nicht zusammen mit den anderen Einstellungen.');
  assert.match(await page.locator('#error [lang="en"]').innerText(), /^faces: "nobody" is not allowed/);
});

test('what each kind of model is for is said in words', async (t) => {
  const kinds = ['detector', 'face', 'parser', 'upscaler', 'damage', 'filler'];
  const page = await open(t, undefined, { locale: 'de', prepare: (it) => it.route('**/v1/models', async (route) => {
    const answer = await route.fetch(), json = await answer.json();
    for (const kind of kinds) json.models.find((model) => model.kind === kind).default = true;
    await route.fulfill({ response: answer, json });
  }) });
  await page.locator('#about summary').click();
  const shown = await text(page, '#models');
  assert.match(shown, /\(füllt Schäden\)/);
  for (const kind of kinds) assert.ok(!shown.includes(`(${kind})`), shown);
});

test('right to left: nothing lies beside the page, and nothing over anything else', async (t) => {
  const page = await open(t, undefined, { viewport: { width: 360, height: 740 } });
  await page.evaluate(() => { document.documentElement.dir = 'rtl'; });
  await page.setInputFiles('#file', [picture('picture.png'), picture('two.png')]);
  await ready(page);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && scrollX === 0));
});
