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

// New options may come before their translations: then their English words are shown.
const later = new Set([...Object.values(labels).flatMap(([title, help, values]) => [title, help, ...Object.values(values ?? {})]),
  ...groups.map(([title]) => title), ...Object.values(stages), ...Object.values(roles)]);

for (const [language, name] of [['de', 'German'], ['es', 'Spanish'], ['fr', 'French'], ['zh', 'Chinese']])
  test(`every text of the page is there in ${name}`, async (t) => {
    const { default: table } = await import(`../../static/js/strings_${language}.js`);
    const all = texts();
    const missing = all.filter((one) => !table[one]);
    for (const one of missing.filter((text) => later.has(text))) t.diagnostic(`not translated: ${one}`);
    assert.deepEqual(missing.filter((one) => !later.has(one)), []);
    const places = (one) => [...one.matchAll(/\{\d\}/g)].map(([place]) => place).sort().join();
    for (const [english, one] of Object.entries(table)) {
      assert.ok(one.trim(), english);
      assert.equal(places(one), places(english), `${english} / ${one}`);
      assert.ok(all.includes(english), `the page has no such text any more: ${english}`);
    }
  });

test('the browser\'s language is taken, another can be chosen, and no English is left', async (t) => {
  const page = await open(t, undefined, { locale: 'de-AT' });
  assert.equal(await page.locator('html').getAttribute('lang'), 'de');
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
  assert.match(await text(page, '#name'), /^picture\.png/, 'the picture is still there');
});

test('right to left: nothing lies beside the page, and nothing over anything else', async (t) => {
  const page = await open(t, undefined, { viewport: { width: 360, height: 740 } });
  await page.evaluate(() => { document.documentElement.dir = 'rtl'; });
  await page.setInputFiles('#file', [picture('picture.png'), picture('two.png')]);
  await ready(page);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && scrollX === 0));
});
