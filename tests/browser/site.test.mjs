// Pages of another origin in Chromium, and one whose name was pointed at this machine: none of them may use the server.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { chromium } from 'playwright-core';
import { fixtures, startServer } from '../api/server.mjs';

const wait = { timeout: 300e3 };
const picture = [...readFileSync(join(fixtures, 'none.png'))];
let server, browser, elsewhere;

before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', '--host-resolver-rules=MAP *.example 127.0.0.1'],
  });
  server = await startServer();
  elsewhere = http.createServer((request, answer) => {
    answer.setHeader('Content-Type', 'text/html');
    answer.end('<!doctype html><title>elsewhere</title><form method="post" enctype="multipart/form-data"><input name="upscale" value="2"></form>');
  });
  await new Promise((done) => elsewhere.listen(0, '127.0.0.1', done));
});
after(async () => {
  await browser?.close();
  elsewhere?.close();
  const ended = await server?.stop();
  if (ended) assert.deepEqual(ended, { code: 0, signal: null }, server.log());
});

// What the server answered to the page's requests, by its log: the page itself may not see it.
const statuses = (id) => server.log().split('\n').filter((line) => line.includes('path=/v1/')).slice(id).map((line) => / status=(\d+) /.exec(line)?.[1]);
const lines = () => statuses(0).length;
async function logged(from, count) {
  for (let i = 0; i < 12000 && lines() < from + count; i++) await new Promise((done) => setTimeout(done, 25));
  return statuses(from);
}

// A simple request: a browser sends it without asking the server first.
const send = ([url, bytes]) => fetch(`${url}/v1/restore?version=none&bg_upsampler=none`, { method: 'POST', mode: 'no-cors', headers: { 'Content-Type': 'text/plain' }, body: new Uint8Array(bytes) })
  .then((answer) => `${answer.type} ${answer.status}`, (error) => `refused: ${error.message}`);

for (const [name, host] of [['another port of this machine', '127.0.0.1'], ['another name', 'localhost'], ['another site', 'evil.example']])
  test(`a page of ${name} gets nothing done`, async () => {
    const page = await browser.newPage();
    await page.goto(`http://${host}:${elsewhere.address().port}/`);
    const from = lines();
    await page.evaluate(send, [server.url, picture]);
    assert.deepEqual(await logged(from, 1), ['403']);
    await page.evaluate((url) => fetch(`${url}/v1/models`, { mode: 'no-cors' }).catch(() => {}), server.url);
    assert.deepEqual(await logged(from, 2), ['403', '403']);
    await page.evaluate((url) => { const form = document.querySelector('form'); form.action = `${url}/v1/restore`; form.submit(); }, server.url);
    assert.deepEqual(await logged(from, 3), ['403', '403', '403']);
    await page.close();
  });

test('a page in a frame without an origin gets nothing done', async () => {
  const page = await browser.newPage();
  await page.goto(`http://localhost:${elsewhere.address().port}/`);
  const from = lines();
  await page.evaluate((url) => {
    const frame = document.createElement('iframe');
    frame.sandbox = 'allow-scripts';
    frame.srcdoc = `<script>fetch('${url}/v1/restore', { method: 'POST', mode: 'no-cors', body: 'x' })</script>`;
    document.body.append(frame);
  }, server.url);
  assert.deepEqual(await logged(from, 1), ['403']);
  await page.close();
});

test('a name that was pointed at this machine shows nothing', async () => {
  const page = await browser.newPage();
  const url = `http://rebound.example:${new URL(server.url).port}`;
  const answer = await page.goto(`${url}/`);
  assert.equal(answer.status(), 421);
  assert.match(await answer.text(), /allowed_hosts/);
  assert.equal(await page.evaluate(() => fetch('/v1/devices').then((a) => a.status)), 421);
  assert.equal(await page.evaluate(send, [url, picture]), 'basic 421');
  await page.close();
});

test('a link from elsewhere leads to the page, and the page works', async () => {
  const page = await browser.newPage();
  await page.goto(`http://localhost:${elsewhere.address().port}/`);
  await page.evaluate((url) => { location.href = url; }, `${server.url}/`);
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  const answer = await page.evaluate(send, [server.url, picture]);
  assert.equal(answer, 'basic 200');
  await page.close();
});
