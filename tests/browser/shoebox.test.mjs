// Many pictures: the strip, what outlives a reload and a server that is killed, a zip of all, folders, cancelling.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { png } from '../api/client.mjs';
import { faulty, fixtureModels, startServer } from '../api/server.mjs';
import { close, more, open, ownServer, picture, server, text, wait } from './browser.mjs';

const many = 60;
// Of a server whose work hangs until it is cancelled.
const endless = ['--stall_seconds', '0', '--drain_seconds', '0'];

const pictures = (count, seed = 0) => Array.from({ length: count }, (_, i) => ({ name: `photo ${i + 1}.png`, mimeType: 'image/png', buffer: png(40 + i + seed, 30) }));
const quick = (page) => page.evaluate(() => {
  for (const id of ['version', 'bg_upsampler']) {
    document.getElementById(id).value = 'none';
    document.getElementById(id).dispatchEvent(new Event('input', { bubbles: true }));
  }
});
const states = (page) => page.locator('.thumb').evaluateAll((all) => all.map((thumb) => thumb.dataset.state));
const allAre = (page, state, count) => page.waitForFunction(([wanted, n]) => {
  const all = [...document.querySelectorAll('.thumb')];
  return all.length === n && all.every((thumb) => thumb.dataset.state === wanted);
}, [state, count], wait);

const fixture = (name) => ({ name, mimeType: 'image/png', buffer: readFileSync(picture(name)) });

// The names in a ZIP file's directory.
function names(zip) {
  const found = [];
  for (let at = zip.indexOf('PK\x01\x02', 0, 'latin1'); at >= 0; at = zip.indexOf('PK\x01\x02', at + 4, 'latin1'))
    found.push(zip.toString('utf8', at + 46, at + 46 + zip.readUInt16LE(at + 28)));
  return found;
}

// Counts the restorations that a page has sent.
const uploads = (page) => {
  const sent = [];
  page.on('request', (request) => { if (request.url().endsWith('/v1/restore')) sent.push(request.headers()['idempotency-key']); });
  return sent;
};

// A port that is free, and stays so while its server is down: the system gives none of these to others.
async function freePort() {
  for (;;) {
    const port = 10000 + Math.floor(9000 * Math.random()), socket = createServer().listen(port, '127.0.0.1');
    if (!(await new Promise((done) => socket.once('listening', () => done(true)).once('error', () => done(false))))) continue;
    await new Promise((done) => socket.close(done));
    return port;
  }
}

test('many at once: thumbnails, one button, all in a zip, and all of it after a reload', async (t) => {
  const page = await open(t);
  await quick(page);
  const sent = uploads(page);
  await page.setInputFiles('#file', pictures(many));
  await allAre(page, 'new', many);
  await page.waitForFunction((n) => document.querySelectorAll('.thumb img').length === n, many, wait);
  assert.equal(await text(page, '#go'), `Restore ${many} pictures`);
  await page.locator('#go').click();
  await allAre(page, 'done', many);
  assert.equal(await text(page, '#all_status'), `${many} of ${many} done`);
  assert.equal(new Set(sent).size, many);
  assert.equal(sent.length, many);

  const [download] = await Promise.all([page.waitForEvent('download'), page.locator('#download_all').click()]);
  assert.equal(download.suggestedFilename(), 'restored.zip');
  const listed = names(readFileSync(await download.path()));
  assert.deepEqual(listed.sort(), pictures(many).map(({ name }) => name.replace('.', '_restored.')).sort(), 'as each is called when it is saved alone');

  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  await allAre(page, 'done', many);
  await page.locator('.thumb').first().click();
  await page.locator('#stage[data-state="done"] #after:visible').waitFor(wait);
  assert.match(await text(page, '#name'), /^photo 1_restored\.png · 80 × 60/);
  assert.equal(sent.length, many, 'nothing is sent twice');

  let asked = '';
  page.once('dialog', (dialog) => { asked = dialog.message(); dialog.accept(); });
  await page.getByRole('button', { name: 'Remove all' }).click();
  assert.match(asked, /^Remove all pictures and their results/);
  assert.equal(await page.locator('#stage').getAttribute('data-state'), 'empty');
  await page.waitForFunction(() => new Promise((done) => {
    indexedDB.open('restored').onsuccess = ({ target: { result } }) => {
      result.transaction('items').objectStore('items').count().onsuccess = (e) => { result.close(); done(e.target.result === 0); };
    };
  }), null, wait);
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  assert.equal(await page.locator('.thumb').count(), 0);
});

test('a server that is killed in the middle and starts again goes on, and the page with it', async (t) => {
  const state = mkdtempSync(join(tmpdir(), 'restored-shoebox-')), port = await freePort();
  const start = () => startServer({ args: [...fixtureModels, '--listen', `127.0.0.1:${port}`, '--state_dir', state] });
  let own = await start();
  t.after(async () => {
    await close(t);
    await own.stop();
    rmSync(state, { recursive: true });
  });
  const page = await open(t, own.url, { cut: true });
  const sent = uploads(page);
  await page.setInputFiles('#file', [...pictures(many - 2), fixture('two.png'), fixture('picture.png')]);
  await allAre(page, 'new', many);
  await page.locator('#version').selectOption('none');
  let release, asked = 0; // a fast server would have done all before it is killed
  const killed = new Promise((resolve) => { release = resolve; });
  await page.route('**/v1/restore', async (route) => {
    if (++asked > many / 2) await killed;
    await route.continue().catch(() => {});
  });
  await page.locator('#go').click();
  await page.locator('.thumb[data-state="done"]').first().waitFor(wait);
  own.process.kill('SIGKILL');
  await own.stop();
  release();
  await page.locator('#status', { hasText: 'The connection is lost' }).waitFor(wait);
  own = await start();
  await allAre(page, 'done', many);
  assert.equal(new Set(sent).size, many, 'a repeated request has the key of the first');
  const { jobs } = await (await fetch(`${own.url}/v1/jobs?limit=1000`)).json();
  assert.equal(jobs.length, many, 'and makes no second job');
});

test('after a kill and a start, each picture that waits has its place and its time left again, and the page does not lose them', async (t) => {
  const state = mkdtempSync(join(tmpdir(), 'restored-shoebox-')), port = await freePort();
  const start = (faults) => startServer({ program: faulty, args: [...fixtureModels, '--listen', `127.0.0.1:${port}`, '--state_dir', state, ...endless], env: { RESTORED_FAULTS: faults } });
  let own = await start('hang@run:2,repeat,plan=upscaler'); // one is done, and all others are there when it is killed
  t.after(async () => {
    await close(t);
    await own.stop();
    rmSync(state, { recursive: true, maxRetries: 10 });
  });
  const page = await open(t, own.url, { cut: true });
  await page.locator('#version').selectOption('none'); // one run of a network each
  await page.setInputFiles('#file', pictures(30, 1100));
  await allAre(page, 'new', 30);
  await page.locator('#go').click();
  await page.waitForFunction(() => !document.querySelector('.thumb:is([data-state="waiting"], [data-state="uploading"])'), null, wait);
  await page.locator('.thumb[data-state="done"]').first().waitFor(wait);
  own.process.kill('SIGKILL');
  await own.stop();
  await page.locator('#status', { hasText: 'The connection is lost' }).waitFor(wait);
  const ended = (await states(page)).filter((one) => one === 'done').length;
  own = await start('slow@run:1,until=5,plan=upscaler hang@run:6,repeat,plan=upscaler'); // some are done, and the rest waits until it is seen
  // The events after the start tell of those that wait, then of what ends: once one has ended, both are over.
  await page.waitForFunction((least) => {
    const all = [...document.querySelectorAll('.thumb')], waiting = all.filter((thumb) => thumb.dataset.state === 'queued');
    return all.filter((thumb) => thumb.dataset.state === 'done').length > least && waiting.length > 2
      && waiting.every((thumb) => /, Waiting(, \d+ pictures? (is|are) ahead)? · .* left$/.test(thumb.getAttribute('aria-label').replaceAll('\u00a0', ' ')));
  }, ended, wait);
  assert.match(await text(page, '#all_status'), /left$/);
  await page.locator('#cancel').click();
});

test('a picture that is cancelled while its place in the queue is asked for stays cancelled', async (t) => {
  const own = await ownServer(t, { program: faulty, args: [...fixtureModels, ...endless], env: { RESTORED_FAULTS: 'hang@run:1,repeat' } }); // the others wait until it is cancelled
  const page = await open(t, own.url);
  await page.locator('#version').selectOption('none');
  await page.setInputFiles('#file', pictures(5, 1200));
  await allAre(page, 'new', 5);
  await page.locator('#go').click();
  await page.waitForFunction(() => !document.querySelector('.thumb:is([data-state="new"], [data-state="waiting"], [data-state="uploading"])'), null, wait);
  const { jobs } = await (await fetch(`${own.url}/v1/jobs?limit=2`)).json(), isAsked = (request) => request.method() === 'GET' && /jobs\/[0-9a-f]{32}$/.test(request.url());
  let release, held = false;
  const cancelled = new Promise((resolve) => { release = resolve; });
  const begun = new Promise((resolve) => {
    page.route('**/v1/jobs/*', async (route) => {
      if (held || !isAsked(route.request()) || !jobs.some(({ id }) => route.request().url().endsWith(id))) return route.continue();
      held = true;
      resolve();
      await cancelled;
      return route.fulfill({ status: 404 }); // the server has forgotten it already
    });
  });
  await begun;
  for (const i of [3, 4]) {
    await page.locator('.thumb').nth(i).click();
    await page.locator('#remove').click();
    await page.locator(`.thumb[data-state="cancelled"] >> nth=${i - 3}`).waitFor(wait);
  }
  const next = page.waitForRequest(isAsked, wait); // of the first in the queue
  release();
  await next;
  assert.deepEqual((await states(page)).slice(3), ['cancelled', 'cancelled']);
  await page.locator('#cancel').click();
});

// Uploads wait until the function that it resolves to is called.
async function holdUploads(page) {
  let release;
  const held = new Promise((done) => { release = done; });
  await page.route('**/v1/restore', async (route) => { await held; await route.continue().catch(() => {}); });
  return release;
}

// Loads the page again, and lets it go on: all four are finished.
async function comesBack(page, release) {
  page.on('dialog', (dialog) => dialog.accept());
  await page.reload();
  release();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  await allAre(page, 'done', 4);
}

test('a page that is closed while its pictures are on the way finishes them when it comes back', async (t) => {
  const page = await open(t), release = await holdUploads(page);
  await quick(page);
  await page.setInputFiles('#file', pictures(4, 100));
  await allAre(page, 'new', 4);
  await page.waitForFunction(() => document.querySelectorAll('.thumb img').length === 4, null, wait);
  await page.locator('#go').click();
  await page.locator('.thumb[data-state="uploading"]').first().waitFor(wait);
  await comesBack(page, release);
});

// A page beside it that shares its database and its locks.
async function beside(page) {
  const other = await page.context().newPage();
  await other.goto(new URL('icon.svg', page.url()).href);
  return other;
}

test('nothing is on the way before the database has it, so that a page that is closed on a slow disk finishes it, too', async (t) => {
  const page = await open(t), release = await holdUploads(page);
  await quick(page);
  await page.setInputFiles('#file', pictures(4, 150));
  await page.waitForFunction(() => document.querySelectorAll('.thumb img').length === 4, null, wait);
  const other = await beside(page);
  await other.evaluate(() => new Promise((done) => {
    indexedDB.open('restored').onsuccess = ({ target: { result: database } }) => {
      const items = database.transaction('items', 'readwrite').objectStore('items');
      window.slow = true;
      const again = () => { if (window.slow) items.count().onsuccess = again; };
      items.count().onsuccess = () => { again(); done(); };
    };
  }));
  await page.locator('#go').click();
  await page.waitForFunction(() => document.querySelectorAll('.thumb[data-state="waiting"]').length === 4, null, wait);
  await page.waitForTimeout(300);
  assert.deepEqual(await states(page), Array(4).fill('waiting'));
  await other.evaluate(() => { window.slow = false; });
  await page.locator('.thumb[data-state="uploading"]').first().waitFor(wait);
  await comesBack(page, release);
});

test('a page that is loaded again has its pictures, though the browser is slow to end the page of before', async (t) => {
  const page = await open(t);
  await page.setInputFiles('#file', pictures(2, 170));
  await page.waitForFunction(() => document.querySelectorAll('.thumb img').length === 2, null, wait);
  const other = await beside(page);
  await other.evaluate(() => {
    navigator.locks.request('restored', () => new Promise((done) => { setTimeout(done, 2000); })); // has it as soon as the page is left
  });
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  assert.deepEqual(await states(page), ['new', 'new']);
});

test('one is cancelled alone or by its removal, the rest by one button; keys go through the strip', async (t) => {
  const own = await ownServer(t, { program: faulty, args: [...fixtureModels, ...endless], env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=rrdb_x4' } }); // until it is cancelled
  const page = await open(t, own.url);
  await page.setInputFiles('#file', [fixture('two.png'), ...pictures(4, 200)]);
  await allAre(page, 'new', 5);
  await page.getByRole('radio', { name: '8×' }).check();
  await page.locator('#bg_upsampler').selectOption('rrdb_x4');
  await page.locator('#go').click();
  await page.locator('.thumb[data-state="running"]').first().waitFor(wait);
  await page.locator('.thumb').first().focus();
  await page.keyboard.press('End');
  await page.locator('.thumb[aria-current]:focus').waitFor(wait);
  assert.match(await page.locator('.thumb[aria-current]').getAttribute('aria-label'), /^photo 4\.png, /);
  await page.keyboard.press('ArrowLeft');
  assert.match(await page.locator('.thumb[aria-current]').getAttribute('aria-label'), /^photo 3\.png, /);
  await page.keyboard.press('Delete');
  await page.waitForFunction(() => document.querySelectorAll('.thumb').length === 4, null, wait);
  await page.getByRole('button', { name: 'Cancel this one' }).click();
  assert.equal(await page.locator('.thumb[aria-current]').getAttribute('data-state'), 'cancelled');
  await page.getByRole('button', { name: 'Cancel all' }).click();
  await page.waitForFunction(() => !document.querySelector('.thumb:is([data-state="running"], [data-state="queued"], [data-state="uploading"], [data-state="waiting"])'), null, wait);
  for (let live = 1, tries = 0; live && tries < 600; tries++) {
    ({ jobs: { length: live } } = await (await fetch(`${own.url}/v1/jobs?state=queued,running`)).json());
    if (live) await new Promise((done) => setTimeout(done, 100));
  }
  assert.equal((await (await fetch(`${own.url}/v1/jobs?state=queued,running`)).json()).jobs.length, 0, 'the server has stopped, too');
});

test('files that are no pictures are left out and named; the same one comes once', async (t) => {
  const page = await open(t);
  await page.setInputFiles('#file', [...pictures(2, 300), { name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('text') }]);
  await allAre(page, 'new', 2);
  assert.match(await text(page, '#error'), /^One file is no picture that can be restored, and was left out\.\s+notes\.txt · This is not a JPEG, PNG[^]* picture\. The file may be something else/);
  assert.equal((await states(page)).length, 2);
  const bytes = [...readFileSync(picture('picture.png'))];
  await page.evaluate((content) => {
    for (const lastModified of [5, 6]) { // what is pasted has the time of the paste
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(content)], 'one.png', { lastModified }));
      document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
    }
  }, bytes);
  await page.locator('#error.mild', { hasText: 'one.png is already in the list.' }).waitFor(wait);
  await allAre(page, 'new', 3);
});

test('what is there already is not sent again, unless its button is pressed; the same picture is shown after a reload', async (t) => {
  const page = await open(t);
  await quick(page);
  const sent = uploads(page), files = [...pictures(3, 800), fixture('two.png')];
  await page.setInputFiles('#file', files);
  await allAre(page, 'new', 4);
  await page.locator('#go').click();
  await allAre(page, 'done', 4);
  await page.setInputFiles('#file', files.slice(1));
  await page.locator('#error.mild', { hasText: '3 of these pictures are already in the list.' }).waitFor(wait);
  await allAre(page, 'done', 4);
  assert.match(await text(page, '#name'), /^photo 2/, 'and the first of them is shown');
  assert.equal(await page.locator('#go').innerText(), 'Restore again');
  assert.equal(sent.length, 4);
  await page.getByRole('radio', { name: '1×' }).check();
  const [request] = await Promise.all([page.waitForRequest('**/v1/restore'), page.locator('#go').click()]);
  await page.locator('#error').waitFor({ ...wait, state: 'hidden' });
  assert.match(request.postDataBuffer()?.toString('latin1') ?? 'name="upscale"\r\n\r\n1\r\n', /name="upscale"\r\n\r\n1\r\n/);
  await allAre(page, 'done', 4);
  assert.equal(sent.length, 5);
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  assert.match(await text(page, '#name'), /^photo 2/);
});

test('a server that stands still: the connection is called lost, no time goes by, and the page goes on when it is back', async (t) => {
  const own = await ownServer(t, { program: faulty, args: [...fixtureModels, ...endless], env: { RESTORED_FAULTS: 'slow@run:1,until=12 hang@run:13,repeat' } });
  t.after(() => own.process.kill('SIGCONT'));
  const page = await open(t, own.url, { cut: true, prepare: (it) => it.clock.install() });
  await page.setInputFiles('#file', [fixture('two.png'), ...pictures(19, 900)]); // the last of them are not begun when it stops
  await allAre(page, 'new', 20);
  await page.locator('#go').click();
  await page.locator('.thumb[data-state="running"]').first().waitFor(wait);
  await page.locator('#all_status', { hasText: 'left' }).waitFor(wait);
  own.process.kill('SIGSTOP');
  await page.clock.fastForward(40e3);
  await page.locator('#status', { hasText: 'The connection is lost' }).waitFor(wait);
  assert.doesNotMatch(await text(page, '#all_status'), /left/);
  assert.match(await page.locator('#say').textContent(), /^The connection is lost/);
  assert.equal((await page.locator('.thumb_state').allTextContents()).join(''), '');
  own.process.kill('SIGCONT');
  await page.clock.fastForward(20e3);
  await page.locator('#all_status', { hasText: 'left' }).waitFor(wait);
  assert.doesNotMatch(await text(page, '#status'), /lost/);
  await page.locator('#cancel').click();
});

test('a reload in the middle: the times left and the places of those that wait are as before, and the shown one is in view', async (t) => {
  const own = await ownServer(t, { program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat' } });
  const page = await open(t, own.url);
  await page.setInputFiles('#file', pictures(20, 1000));
  await allAre(page, 'new', 20);
  await page.locator('.thumb').last().click();
  await more(page).click();
  await page.locator('#option_bg_tile').fill('256'); // more tiles: so many seconds each that some still wait on a slow machine
  await page.locator('#go').click();
  await page.waitForFunction(() => document.querySelectorAll('.thumb:is([data-state="waiting"], [data-state="uploading"])').length === 0, null, wait);
  page.on('dialog', (dialog) => dialog.accept());
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  await page.locator('#all_status', { hasText: 'left' }).waitFor(wait);
  const labels = await page.locator('.thumb[data-state="queued"]').evaluateAll((all) => all.map((thumb) => thumb.getAttribute('aria-label').replaceAll('\u00a0', ' ')));
  assert.ok(labels.length > 2);
  for (const label of labels) assert.match(label, /, Waiting(, \d+ pictures? (is|are) ahead)? · .* left$/);
  const places = labels.map((label) => Number(/(\d+) pictures?/.exec(label)?.[1] ?? 0)).sort((a, b) => a - b); // two are sent at once
  assert.deepEqual(places, places.map((_, i) => places[0] + i));
  await page.waitForFunction((was) => [...document.querySelectorAll('.thumb[data-state="queued"]')].some((thumb) => { // it comes nearer
    const [, ahead] = /(\d+).pictures? (?:is|are) ahead/.exec(thumb.getAttribute('aria-label').replaceAll('\u00a0', ' ')) ?? [];
    return thumb === [...document.querySelectorAll('.thumb')].at(-1) && ahead && Number(ahead) < was;
  }), places.at(-1), wait);
  await page.waitForFunction(() => {
    const { left, right } = document.querySelector('.thumb[aria-current]').getBoundingClientRect(), strip = document.getElementById('strip').getBoundingClientRect();
    return left >= strip.left && right <= strip.right + 1;
  }, null, wait);
  const { jobs } = await (await fetch(`${own.url}/v1/jobs?state=queued,running`)).json(); // the server need not finish them
  await Promise.all(jobs.map(({ id }) => fetch(`${own.url}/v1/jobs/${id}`, { method: 'DELETE' })));
});

test('a folder is dropped: its pictures are taken, those of its folders as well, other files are left out without a word', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'restored-album-'));
  t.after(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, 'album', '1954', 'summer'), { recursive: true });
  const all = pictures(3, 700);
  ['album/a.png', 'album/1954/b.png', 'album/1954/summer/c.png'].forEach((name, i) => writeFileSync(join(folder, name), all[i].buffer));
  writeFileSync(join(folder, 'album/Thumbs.db'), 'no picture');
  const page = await open(t);
  const session = await page.context().newCDPSession(page);
  const drag = (type) => session.send('Input.dispatchDragEvent', { type, x: 300, y: 300, data: { items: [], files: [join(folder, 'album')], dragOperationsMask: 1 } });
  await drag('dragEnter');
  await page.locator('body.dragging').waitFor(wait);
  await drag('dragOver');
  await drag('drop');
  await allAre(page, 'new', 3);
  const labels = await page.locator('.thumb').evaluateAll((nodes) => nodes.map((node) => node.getAttribute('aria-label')));
  assert.deepEqual(labels.sort(), ['a.png', 'b.png', 'c.png']);
  assert.equal(await page.locator('#error').isVisible(), false);
  assert.equal(await page.locator('body.dragging').count(), 0);
});

test('a server that keeps no jobs restores them, too', async (t) => {
  const own = await ownServer(t, { env: { HOME: '', XDG_STATE_HOME: '' } });
  const page = await open(t, own.url);
  await page.locator('#bg_upsampler').selectOption('none');
  await page.setInputFiles('#file', [fixture('two.png'), ...pictures(1, 400)]);
  await allAre(page, 'new', 2);
  await page.locator('#go').click();
  await allAre(page, 'done', 2);
  await page.locator('#stage[data-state="done"] #after:visible').waitFor(wait);
  assert.match(await text(page, '#report'), /^2 faces restored/);
  assert.equal(await page.locator('#download').getAttribute('download'), 'two_restored.png');
  await page.reload();
  await page.locator('main[aria-busy="false"]').waitFor(wait);
  await page.locator('#stage[data-state="done"] #after:visible').waitFor(wait);
});

test('a second tab works beside the first, with pictures of its own', async (t) => {
  const page = await open(t);
  await quick(page);
  await page.setInputFiles('#file', pictures(2, 500));
  await allAre(page, 'new', 2);
  const second = await page.context().newPage();
  await second.goto(server.url);
  await second.locator('main[aria-busy="false"]').waitFor(wait);
  assert.equal(await second.locator('.thumb').count(), 0);
  await second.setInputFiles('#file', pictures(2, 600));
  await allAre(second, 'new', 2);
  await second.locator('#go').click();
  await allAre(second, 'done', 2);
  assert.deepEqual(await states(page), ['new', 'new']);
});

test('damage that is found late, of a picture that is no longer shown, counts for no other, and is no longer looked for', async (t) => {
  const page = await open(t);
  const mask = Buffer.from(await page.evaluate(async () => {
    const canvas = new OffscreenCanvas(200, 160), context = canvas.getContext('2d');
    context.fillRect(0, 0, 200, 160);
    context.fillStyle = 'rgb(208 208 208)';
    context.fillRect(120, 100, 30, 30);
    return [...new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer())];
  }));
  let release;
  const first = new Promise((resolve) => { release = resolve; });
  let asked = 0;
  await page.route('**/v1/damage', async (route) => {
    const late = ++asked === 1;
    if (late) await first;
    await route.fulfill({ status: 200, contentType: 'image/png', headers: { 'X-Restored-Damage': late ? 'thin=3, crack=0, dust=0, stain=0' : 'thin=0, crack=0, dust=1, stain=0' }, body: mask });
  });
  await page.locator('#version').selectOption('none');
  await page.setInputFiles('#file', ['a.png', 'b.png'].map((name) => ({ name, mimeType: 'image/png', buffer: png(200, 160) })));
  await page.waitForFunction(() => document.querySelectorAll('.thumb img').length === 2, null, wait);
  const look = () => page.getByRole('button', { name: 'Damage', exact: true }).click();
  const labels = () => page.locator('#brush_kinds label').allInnerTexts();
  await page.locator('.thumb').nth(0).click();
  await Promise.all([page.waitForRequest('**/v1/damage', wait), look()]);
  await page.locator('.thumb').nth(1).click();
  await page.locator('#mask:visible').waitFor({ ...wait, state: 'hidden' });
  await Promise.all([page.waitForEvent('requestfailed', { ...wait, predicate: (request) => request.url().endsWith('/v1/damage') }), look()]);
  await page.locator('#brush_kinds label', { hasText: 'Dust 1' }).waitFor(wait);
  release();
  const { x, y, width, height } = await page.locator('#mask').boundingBox();
  await page.mouse.click(x + width / 4, y + height / 4);
  await page.keyboard.press('Escape'); // keeps it
  await page.locator('#say', { hasText: 'The mask is kept' }).waitFor({ ...wait, state: 'attached' });
  await look();
  await page.locator('#brush_hint', { hasText: 'What is coloured will be repaired.' }).waitFor(wait);
  await page.waitForFunction(() => !document.getElementById('show_damage').classList.contains('busy'), null, wait);
  assert.deepEqual(await labels(), ['Dust 1']);
});
