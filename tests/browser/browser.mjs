// What the browser tests share: the system's Chromium, a server with the fixtures' networks, and a page of it.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { fixtures, startServer } from '../api/server.mjs';
import { launch } from './launch.mjs';

export const picture = (name) => join(fixtures, name);
export const wait = { timeout: 300e3 };
export let server, browser;

before(async () => {
  browser = await launch();
  server = await startServer();
});
after(async () => {
  await browser?.close();
  const ended = await server?.stop();
  if (ended) assert.deepEqual(ended, { code: 0, signal: null }, server.log());
});

// Drops or pastes a file on the page.
export const give = (page, event, name, bytes) => page.evaluate(([type, called, content]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(content)], called));
  document.body.dispatchEvent(type === 'drop'
    ? new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true })
    : new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
}, [event, name, [...bytes]]);

// What a test has opened. Hooks run in the order in which they were registered, so whoever ends a page's server calls close()
// before that: a page whose server has gone complains.
const opened = new Map();
export async function close(t) {
  for (const context of opened.get(t) ?? []) await context.close();
  opened.delete(t);
}

// A server for one test alone.
export async function ownServer(t, options) {
  const own = await startServer(options);
  t.after(async () => {
    await close(t);
    await own.stop();
  });
  return own;
}

// A page in a context of its own. What the browser complains of, refused statuses aside, fails the test that opened it.
// prepare: is called with the page before it loads. cut: the connection may be lost.
export async function open(t, url = server.url, { prepare, cut = false, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, serviceWorkers: 'block', ...options });
  context.setDefaultTimeout(wait.timeout);
  opened.set(t, [...(opened.get(t) ?? []), context]);
  const page = await context.newPage();
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    if (/Service Worker registration blocked/.test(message.text())) return; // by playwright, which could not see requests
    if (['error', 'warning'].includes(message.type()) && !(cut ? /Failed to load resource/ : /the server responded with a status of/).test(message.text()))
      complaints.push(message.text());
  });
  t.after(async () => {
    await close(t);
    assert.deepEqual(complaints, []);
  });
  await prepare?.(page);
  await page.goto(url);
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  return page;
}

export const ready = (page) => page.locator('#go:enabled').waitFor(wait);
export const done = (page) => page.locator('#stage[data-state="done"] #after:visible').waitFor(wait);
export const text = async (page, selector) => (await page.locator(selector).innerText()).replaceAll('\u00a0', ' ').trim();
export const more = (page) => page.locator('summary', { hasText: 'More options' });
export const details = (page) => page.locator('#report summary');
