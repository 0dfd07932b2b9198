// The page behind a reverse proxy that serves it below a path of its own.
import assert from 'node:assert/strict';
import http from 'node:http';
import { test } from 'node:test';
import { close, done, open, picture, ready, server } from './browser.mjs';

test('works below a path', async (t) => {
  const astray = [];
  const proxy = http.createServer((from, to) => {
    if (!from.url.startsWith('/restore/')) {
      astray.push(from.url);
      to.writeHead(404).end();
      return;
    }
    const { port } = new URL(server.url);
    const on = http.request({ host: '127.0.0.1', port, method: from.method, path: from.url.slice('/restore'.length), headers: from.headers },
      (answer) => { to.writeHead(answer.statusCode, answer.headers); answer.pipe(to); });
    on.on('error', () => to.destroy());
    from.pipe(on);
  });
  await new Promise((listening) => proxy.listen(0, '127.0.0.1', listening));
  t.after(async () => { await close(t); proxy.closeAllConnections(); proxy.close(); });
  const page = await open(t, `http://127.0.0.1:${proxy.address().port}/restore/`);
  await page.setInputFiles('#file', picture('picture.png'));
  await ready(page);
  await page.locator('#go').click();
  await done(page);
  assert.equal(await page.evaluate(() => getComputedStyle(document.getElementById('handle'), '::after').backgroundImage.includes('/restore/handle.svg')), true);
  for (const href of await page.locator('footer a').evaluateAll((links) => links.map((a) => [a.href, a.target, a.rel]))) {
    assert.match(href[0], /\/restore\/v1\//);
    assert.deepEqual(href.slice(1), ['_blank', 'noopener']);
    assert.equal((await fetch(href[0])).status, 200);
  }
  assert.deepEqual(astray, []);
});
