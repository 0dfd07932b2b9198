// Clients that speak cog's form: predictions that are waited for and not, cancelled ones, webhooks and their limits.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fixture, get, ownModels, png, pngSize, post, start, startReceiver, until } from './client.mjs';
import { faulty, root } from './server.mjs';

const W = 60, H = 44, picture = png(W, H), uri = (bytes) => `data:image/png;base64,${bytes.toString('base64')}`;
let server;
before(async () => { server = await start({ models: ownModels }); });
after(async () => { await server?.stop(); });

const json = { 'Content-Type': 'application/json' }, later = { ...json, Prefer: 'respond-async' };
const predict = (input, { to = server, headers = json, ...more } = {}) => post(to, '/predictions', { body: JSON.stringify({ input, ...more }), headers });
async function put(id, body, { to = server, headers = json } = {}) {
  const response = await fetch(`${to.url}/predictions/${id}`, { method: 'PUT', body: JSON.stringify(body), headers });
  return { status: response.status, json: await response.json() };
}
const output = (prediction) => Buffer.from(prediction.output.split(',')[1], 'base64');
const ended = (id, { to = server } = {}) => until(`the end of ${id}`, async () => {
  const { json: state } = await get(to, `/predictions/${id}`);
  return !['starting', 'processing'].includes(state.status) && state;
});

describe('predictions', () => {
  test("GFPGAN's inputs", async () => {
    const { status, json: made } = await predict({ img: uri(picture), scale: 2, unknown: 1 });
    assert.equal(status, 200);
    assert.equal(made.status, 'succeeded');
    assert.match(made.output, /^data:image\/png;base64,/);
    assert.deepEqual(pngSize(output(made)), [4 * W, 4 * H]); // a low picture is doubled first
    assert.ok(made.metrics.predict_time >= 0 && made.id && made.completed_at);
    const high = png(40, 300), { json: twice } = await predict({ img: uri(high), version: 'face_64', scale: 1.5 });
    assert.deepEqual(pngSize(output(twice)), [60, 450]);
    const own = await post(server, '/v1/restore', { picture: fixture('two.png'), fields: { width: 2 * 2 * pngSize(fixture('two.png'))[0], height: 2 * 2 * pngSize(fixture('two.png'))[1], fit: 'fill', repair: 'false' } });
    const { json: faces } = await predict({ img: uri(fixture('two.png')) });
    if (pngSize(fixture('two.png'))[1] < 300) assert.ok(own.bytes.equals(output(faces)));
  });

  test("Real-ESRGAN's inputs", async () => {
    const high = png(20, 300);
    const { json: made } = await predict({ image: uri(high), scale: 2, face_enhance: false, model: 'upscaler', tile: 200 });
    assert.equal(made.status, 'succeeded', made.error);
    const own = await post(server, '/v1/restore', { picture: high, fields: { bg_tile: 200, width: 40, height: 600, fit: 'fill', version: 'none', faces: 'none', bg_upsampler: 'upscaler', repair: 'false' } });
    assert.ok(own.bytes.equals(output(made)));
    assert.deepEqual(pngSize(output((await predict({ image: uri(high) })).json)), [80, 1200]); // four times, as there
  });

  test('what the report notes, as terms of a model that forbid commercial use, is in the logs', async (context) => {
    const folder = fs.mkdtempSync(join(tmpdir(), 'restored-cog-'));
    context.after(() => fs.rmSync(folder, { recursive: true }));
    fs.symlinkSync(ownModels[1], join(folder, 'all'));
    fs.writeFileSync(join(folder, 'models.conf'), '[upscaler]\nlicense = CC-BY-NC-4.0\n');
    const to = await start({ models: ['--models', folder, ...ownModels.slice(2)], context }), input = { image: uri(png(20, 300)), model: 'upscaler' };
    const { json: made } = await predict(input, { to }), { json: asked } = await predict(input, { to, headers: later });
    for (const one of [made, await ended(asked.id, { to })]) assert.equal(one.logs, 'upscaler is not for commercial use (licence: CC-BY-NC-4.0)\n');
  });

  test('the upscaler and the face network inside the program are called starter', async (context) => {
    const to = await start({ models: ownModels, env: { RESTORED_STARTER_MODELS: 'true' }, context }), high = png(20, 300);
    const { status, json: made } = await predict({ image: uri(high), scale: 2, model: 'starter' }, { to });
    assert.equal(status, 200, JSON.stringify(made));
    const own = await post(to, '/v1/restore', { picture: high, fields: { width: 40, height: 600, fit: 'fill', version: 'none', faces: 'none', bg_upsampler: 'starter', repair: 'false' } });
    assert.ok(own.bytes.equals(output(made)));
    const { json: face } = await predict({ img: uri(high), scale: 2, version: 'starter' }, { to }); // a version of faces
    assert.equal(face.status, 'succeeded', face.error);
    assert.ok(!output(face).equals(output(made)));
    assert.equal((await predict({ image: uri(high), model: 'starter' })).status, 422); // a server without it
    const { json: version } = await predict({ image: uri(high), scale: 2, version: 'starter' }, { to }); // one of upscalers
    assert.ok(output(version).equals(output(made)));
  });

  test('a face model and an upscaler may both be named, and what is one is not taken for the other', async () => {
    const faces = fixture('two.png'), fields = { repair: 'false', fit: 'fill' };
    const { json: both } = await predict({ img: uri(faces), version: 'face_64', model: 'upscaler', scale: 1.5 });
    assert.equal(both.status, 'succeeded', JSON.stringify(both));
    const [width, height] = pngSize(output(both));
    assert.ok(output(both).equals((await post(server, '/v1/restore', { picture: faces, fields: { ...fields, width, height, version: 'face_64', faces: 'all', bg_upsampler: 'upscaler' } })).bytes));
    const wrong = async (input) => { const { status, json: { detail } } = await predict(input); return [status, detail?.[0]?.msg]; };
    assert.deepEqual(await wrong({ image: uri(faces), model: 'face_64' }), [422, 'model: "face_64" is a face model, and no upscaler; version names those']);
    assert.deepEqual(await wrong({ image: uri(faces), version: 'face_64' }), [422, 'version: "face_64" is no upscaler of this server; a face model is used with face_enhance']);
    assert.deepEqual(await wrong({ image: uri(faces), version: 'nothing' }), [422, 'version: "nothing" is no upscaler of this server']);
  });

  test('what is wrong with a picture is a failure, what is wrong with the input is 422', async () => {
    const broken = (await predict({ img: uri(picture.subarray(0, 200)) }));
    assert.deepEqual([broken.status, broken.json.status, broken.json.output], [200, 'failed', null]);
    assert.ok(broken.json.error);
    const none = await predict({ img: uri(Buffer.from('no picture')) });
    assert.deepEqual([none.status, none.json.status], [200, 'failed']);
    const refused = async (answer, field, says) => {
      const { status, json: problem } = await answer;
      assert.equal(status, 422, JSON.stringify(problem));
      assert.deepEqual(problem.detail[0].loc, ['body', ...field]);
      assert.match(problem.detail[0].msg, says);
    };
    await refused(predict({}), ['input', 'img'], /field required/);
    await refused(predict({ img: uri(picture), scale: 'two' }), ['input', 'scale'], /has to be a number/);
    await refused(predict({ img: uri(picture), scale: 0.001 }), ['input', 'scale'], /nothing would be left/);
    await refused(predict({ img: uri(picture), version: 'General - RealESRGANplus' }), ['input', 'version'], /there is no.*restored models get RealESRGAN_x4plus/);
    await refused(predict({ img: uri(picture), version: 'v9' }), ['input', 'version'], /./);
    await refused(predict({ img: 'https://example.com/a.png' }), ['input', 'img'], /fetches no pictures.*fetch_origins/);
    await refused(predict({ img: `https://example.com/a.png?signature=${'a'.repeat(2000)}` }), ['input', 'img'], /fetches no pictures.*fetch_origins/);
    await refused(predict({ img: `https://example.com/a.png?signature=${'a'.repeat(5000)}` }), ['input', 'img'], /fetches no pictures/);
    await refused(predict({ img: uri(picture) }, { webhook: 'https://hooks.example.com/x' }), ['webhook'], /not one of the server's webhook_origins/);
    await refused(predict({ img: uri(picture) }, { id: 'a/b' }), ['id'], /letters/);
    await refused(predict({ img: '/etc/passwd' }), ['input', 'img'], /^img: /);
    const other = await put('one', { id: 'another', input: { img: uri(picture) } });
    assert.deepEqual([other.status, other.json.detail[0].loc], [422, ['body', 'id']]);
    const streamed = await predict({ img: uri(picture) }, { headers: { ...json, Accept: 'text/event-stream' } });
    assert.equal(streamed.status, 406);
  });

  test('that are not waited for', async () => {
    const { status, json: begun } = await predict({ img: uri(picture), version: 'face_64' }, { headers: later });
    assert.deepEqual([status, Object.keys(begun).sort(), begun.status], [202, ['id', 'status'], 'starting']);
    const done = await ended(begun.id);
    assert.equal(done.status, 'succeeded');
    const { json: now } = await predict({ img: uri(picture), version: 'face_64' });
    assert.ok(output(done).equals(output(now)));
    assert.ok(done.started_at && done.completed_at >= done.created_at);
    const again = await put('mine', { input: { img: uri(picture) } }, { headers: later });
    assert.deepEqual([again.status, again.json.id], [202, 'mine']);
    const first = await ended('mine');
    const once = await put('mine', { input: { img: uri(png(8, 8)) } }, { headers: later }); // known: it is not made again
    assert.deepEqual([once.status, once.json.completed_at], [200, first.completed_at]);
    const failed = await predict({ img: uri(picture.subarray(0, 1500)) }, { headers: later });
    if (failed.status === 202) assert.equal((await ended(failed.json.id)).status, 'failed');
    else assert.deepEqual([failed.status, failed.json.status], [200, 'failed']);
    const missing = await get(server, '/predictions/none');
    assert.equal(missing.status, 404);
    assert.match(missing.json.detail, /there is no prediction none/i);
  });

  test('can be cancelled', async (context) => {
    const held = await start({ program: faulty, models: ownModels, args: ['--device', 'cpu', '--queue', '1'], env: { RESTORED_FAULTS: 'hang@run:1,repeat,plan=upscaler' }, context });
    const cancel = async (id) => (await post(held, `/predictions/${id}/cancel`, { body: '' })).status;
    const waited = put('waited', { input: { image: uri(picture) } }, { to: held });
    await until('it to begin', async () => (await get(held, '/predictions/waited')).status === 200);
    assert.equal((await put('waited', { input: { image: uri(picture) } }, { to: held })).status, 202);
    await until('it to run', async () => (await get(held, '/v1/devices')).json.devices.some((one) => one.current_job));
    const second = put('second', { input: { image: uri(picture) } }, { to: held });
    await until('a full queue', async () => (await get(held, '/health-check')).json.status === 'BUSY');
    const third = await put('third', { input: { image: uri(picture) } }, { to: held });
    assert.deepEqual([third.status, third.json.status], [409, 'failed']);
    assert.equal((await put('patient', { input: { image: uri(picture) } }, { to: held, headers: later })).status, 202);
    assert.equal(await cancel('patient'), 200);
    await until('the second cancellation', async () => (await cancel('second')) === 404);
    assert.equal((await second).json.status, 'canceled');
    await until('the cancellation', async () => (await cancel('waited')) === 404);
    const { status, json: end } = await waited;
    assert.deepEqual([status, end.status, end.output], [200, 'canceled', null]);
    assert.equal((await put('stored', { input: { image: uri(picture) } }, { to: held, headers: later })).status, 202);
    assert.equal(await cancel('stored'), 200);
    assert.equal((await ended('stored', { to: held })).status, 'canceled');
    assert.equal(await cancel('stored'), 404);
    await held.stop();
  });
});

test('health and index', async () => {
  const { status, json: health } = await get(server, '/health-check');
  assert.deepEqual([status, health.status, health.setup.status], [200, 'READY', 'succeeded']);
  const index = await get(server, '/', { headers: { Accept: 'application/json' } });
  assert.equal(index.json.predictions_url, '/predictions');
  for (const Accept of ['text/html,application/json;q=0.9', '*/*']) assert.match((await get(server, '/', { headers: { Accept } })).text, /<!doctype html>/i);
  assert.equal((await fetch(new URL('/', server.url))).headers.get('vary'), 'Accept, Accept-Encoding'); // for caches: one address, two forms
});

test("predictions are the token's own", async (context) => {
  const file = join(root, 'build/cog-tokens'), tokens = { anna: 'anna-token-of-some-length', bert: 'bert-token-of-some-length' };
  fs.writeFileSync(file, Object.entries(tokens).map((row) => row.join(' ')).join('\n'), { mode: 0o600 });
  const guarded = await start({ models: ownModels, args: ['--auth_token_file', file], context });
  const as = (name, more = {}) => ({ Authorization: `Bearer ${tokens[name]}`, ...more });
  assert.equal((await put('p', { input: { img: uri(picture) } }, { to: guarded, headers: as('anna', later) })).status, 202);
  assert.equal((await get(guarded, '/predictions/p', { headers: as('bert') })).status, 404);
  assert.equal((await get(guarded, '/predictions/p', { headers: as('anna') })).status, 200);
  assert.equal((await get(guarded, '/predictions/p')).status, 401);
  assert.equal((await get(guarded, '/health-check')).status, 200); // a probe
  await guarded.stop();
});

describe('pictures at addresses', () => {
  let shop, other, origin, elsewhere, asked = [];
  const listen = (server) => new Promise((done) => server.listen(0, '127.0.0.1', () => done(`http://127.0.0.1:${server.address().port}`)));
  const answers = {
    '/a.png': (response) => response.end(picture),
    '/none.png': (response) => { response.statusCode = 404; response.end('secret of the shop'); },
    '/empty.png': (response) => response.end(),
    '/text.png': (response) => response.end('no picture'),
    '/on': (response) => response.writeHead(302, { Location: '/a.png' }).end('on'),
    '/round': (response) => response.writeHead(307, { Location: '/round' }).end(),
    '/away': (response) => response.writeHead(301, { Location: `${elsewhere}/a.png` }).end(),
    '/file': (response) => response.writeHead(302, { Location: 'file:///etc/passwd' }).end(),
    '/endless': (response) => { const more = () => response.write(Buffer.alloc(65536), (failed) => !failed && more()); more(); },
    '/never': () => {},
  };
  before(async () => {
    shop = http.createServer((request, response) => {
      asked.push([request.url, request.headers.authorization]);
      answers[request.url.split('?')[0]](response);
    });
    other = http.createServer((request, response) => { asked.push(['other']); response.end(picture); });
    [origin, elsewhere] = [await listen(shop), await listen(other)];
  });
  after(() => { for (const one of [shop, other]) { one.closeAllConnections(); one.close(); } });

  test('are fetched from listed origins, and what comes of it is the same', async (context) => {
    const open = await start({ models: ownModels, args: ['--fetch_origins', origin, '--fetch_private', '127.0.0.0/8', '--body_limit', '1MiB'], context });
    const { json: sent } = await predict({ img: uri(picture) }, { to: open });
    const long = `${origin}/a.png?signature=${'a'.repeat(2000)}`;
    for (const img of [`${origin}/a.png`, long, `${origin}/on`]) {
      const { status, json: made } = await predict({ img }, { to: open });
      assert.deepEqual([status, made.status], [200, 'succeeded'], made.error);
      assert.ok(made.output === sent.output, img);
    }
    const escaped = JSON.stringify({ input: { img: `${origin}/a.png` } }).replaceAll('/', '\\/'); // as PHP writes it
    assert.equal((await post(open, '/predictions', { body: escaped, headers: json })).json.status, 'succeeded');
    const { status, json: begun } = await predict({ img: `${origin}/a.png` }, { to: open, headers: later });
    assert.deepEqual([status, begun.status], [202, 'starting']);
    assert.ok((await ended(begun.id, { to: open })).output === sent.output);

    const fails = async (path, says, more = {}) => {
      const { status: got, json: made } = await predict({ img: origin + path }, { to: open, ...more });
      assert.deepEqual([got, made.status, made.output], [200, 'failed', null], path);
      assert.match(made.error, says);
      assert.doesNotMatch(made.error, /secret/);
    };
    await fails('/none.png?key=secret', /^img: http:\/\/127\.0\.0\.1:\d+ answered 404/);
    await fails('/none.png', /answered 404/, { headers: later });
    await fails('/empty.png', /sent nothing/);
    await fails('/text.png', /./);
    await fails('/round', /leads on more than 3 times/);
    await fails('/away', /leads on to where it may not: .* is not one of the server's fetch_origins/);
    await fails('/file', /leads on to where it may not|answered 302/);
    await fails('/endless', /over the limit of 1 MiB/);
    const refused = async (img, says) => {
      const { status: got, json: problem } = await predict({ img }, { to: open });
      assert.deepEqual([got, problem.detail[0].loc], [422, ['body', 'input', 'img']], img);
      assert.match(problem.detail[0].msg, says);
    };
    await refused(`${elsewhere}/a.png`, /is not one of the server's fetch_origins/);
    for (const url of [origin.replace('//', '//me@'), `${origin}.example.com/a.png`, `http://localhost:${shop.address().port}/a.png`, `${origin}@example.com/`, `${origin}\\@example.com/`, 'http://']) await refused(url, /./);
    assert.ok(!asked.some(([url]) => url === 'other'), 'nobody else was asked');
    assert.ok(!asked.some(([, token]) => token), 'no token goes along');
    const a1111 = await post(open, '/sdapi/v1/extra-single-image', { body: JSON.stringify({ image: `${origin}/a.png` }), headers: json });
    assert.equal(a1111.status, 422);

    const waits = predict({ img: `${origin}/never` }, { to: open, id: 'waits' }).catch(() => ({})); // the server's end ends it
    await until('the question', () => asked.some(([url]) => url === '/never'));
    assert.equal((await get(open, '/predictions/waits')).status, 200); // and it is known meanwhile
    assert.equal((await get(open, '/healthz')).status, 200);
    for (let i = 0; i < 7; i++) void predict({ img: `${origin}/never` }, { to: open }).catch(() => {});
    await until('eight at once', () => asked.filter(([url]) => url === '/never').length === 8);
    assert.equal((await predict({ img: `${origin}/a.png` }, { to: open })).status, 503); // one too many
    await open.stop();
    await waits;
  });

  test('never from an address that is not public, unless it is listed', async (context) => {
    const named = `http://localhost:${shop.address().port}`;
    const closed = await start({ models: ownModels, args: ['--fetch_origins', `${origin}, ${named}`], context });
    asked = [];
    for (const one of [origin, named]) {
      const { status, json: made } = await predict({ img: `${one}/a.png` }, { to: closed });
      assert.deepEqual([status, made.status], [200, 'failed']);
      assert.match(made.error, /no public address.*fetch_private/);
    }
    assert.deepEqual(asked, []);
    await closed.stop();
  });

  test('bad lists stop the start', async () => {
    await assert.rejects(start({ args: ['--fetch_origins', 'photos'], ready: false }), /fetch_origins: "photos"/);
    await assert.rejects(start({ args: ['--fetch_private', 'home'], ready: false }), /fetch_private: "home"/);
  });
});

describe('webhooks', () => {
  let receiver, origin, told = [], answers = [];
  before(async () => {
    receiver = http.createServer(async (request, response) => {
      let body = '';
      for await (const part of request) body += part;
      told.push({ path: request.url, authorization: request.headers.authorization, trace: [request.headers.traceparent, request.headers.tracestate], json: JSON.parse(body) });
      response.statusCode = answers.shift() ?? 200;
      if (response.statusCode === 302) response.setHeader('Location', `${origin}/elsewhere`);
      response.end();
    });
    await new Promise((done) => receiver.listen(0, '127.0.0.1', done));
    origin = `http://127.0.0.1:${receiver.address().port}`;
  });
  after(() => receiver.close());

  test('tell of the start and the end, and again while the receiver fails', async (context) => {
    const secret = 'secret'.repeat(200); // tokens that are signed texts are as long
    const open = await start({ models: ownModels, args: ['--webhook_origins', origin, '--webhook_private', '127.0.0.0/8'], env: { WEBHOOK_AUTH_TOKEN: secret }, context });
    answers = [200, 503, 500];
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', tracestate = 'rojo=00f067aa0ba902b7';
    const { status, json: begun } = await predict({ img: uri(picture) }, { to: open, headers: { ...later, traceparent, tracestate }, webhook: `${origin}/hook?x=1` });
    assert.equal(status, 202);
    await until('the webhooks', () => told.length >= 4);
    assert.deepEqual(told.map(({ json: { status: one } }) => one), ['starting', 'succeeded', 'succeeded', 'succeeded']);
    for (const one of told) assert.deepEqual([one.path, one.authorization, one.json.id, ...one.trace], ['/hook?x=1', `Bearer ${secret}`, begun.id, traceparent, tracestate]);
    assert.deepEqual(told[3].json, (await get(open, `/predictions/${begun.id}`)).json);

    told = [];
    answers = [302]; // not followed, and not tried again
    const { json: second } = await predict({ img: uri(picture) }, { to: open, headers: later, webhook: `${origin}/`, webhook_events_filter: ['completed'] });
    await until('the webhook', () => told.length === 1);
    await until('the log', () => open.log().includes(`webhook prediction=${second.id} status=302`));
    assert.deepEqual(told.map(({ path, trace, json: { status: one } }) => [path, one, ...trace]), [['/', 'succeeded', undefined, undefined]]);

    const waited = await predict({ img: uri(picture) }, { to: open, webhook: `${origin}/` });
    assert.deepEqual([waited.status, waited.json.detail[0].loc.at(-1)], [422, 'webhook']);
    for (const url of [`http://localhost:${receiver.address().port}/`, `http://user@127.0.0.1:${receiver.address().port}/`, `${origin}.example.com/`, 'file:///etc/passwd', 7]) {
      const { status: refused } = await predict({ img: uri(picture) }, { to: open, headers: later, webhook: url });
      assert.equal(refused, 422, String(url));
    }
    const filter = await predict({ img: uri(picture) }, { to: open, headers: later, webhook: `${origin}/`, webhook_events_filter: ['end'] });
    assert.equal(filter.status, 422);
    for (const wrong of [['end'], ['start', 7], 'start', { start: true }]) { // as cog itself has it, even without a webhook
      const alone = await predict({ img: uri(picture) }, { to: open, webhook_events_filter: wrong });
      assert.deepEqual([alone.status, alone.json.detail[0].loc.at(-1)], [422, 'webhook_events_filter'], JSON.stringify(wrong));
    }
    assert.equal((await predict({ img: uri(picture) }, { to: open, webhook_events_filter: ['start', 'logs'] })).status, 200);
    assert.equal((await predict({ img: uri(picture) }, { to: open, webhook_events_filter: null })).status, 200);
    await open.stop();
  });

  test('a receiver that never answers holds a few connections, and nobody else', async (context) => {
    let held = 0;
    const dead = http.createServer(() => held++); // an answer never comes
    await new Promise((done) => dead.listen(0, '127.0.0.1', done));
    const silent = `http://127.0.0.1:${dead.address().port}`;
    const open = await start({ models: ownModels, args: ['--webhook_origins', `${silent}, ${origin}`, '--webhook_private', '127.0.0.0/8'], context });
    for (let i = 0; i < 6; i++) assert.equal((await predict({ img: uri(picture) }, { to: open, headers: later, webhook: `${silent}/` })).status, 202);
    await until('four at once', () => held >= 4);
    [told, answers] = [[], []];
    assert.equal((await predict({ img: uri(picture) }, { to: open, headers: later, webhook: `${origin}/` })).status, 202);
    await until('the other', () => told.length === 2);
    const connections = await new Promise((done) => dead.getConnections((_, count) => done(count)));
    assert.ok(connections <= 4, `${connections} connections`);
    await open.stop(); // at once, whatever is on its way
    assert.match(open.log(), /webhook prediction=\w+ text="the server ended before it was sent"/);
    dead.closeAllConnections();
    dead.close();
  });

  test('what a killed server has not told its next start tells', async (context) => {
    const dir = fs.mkdtempSync(join(tmpdir(), 'restored-hooks-')), { origin: to, told: heard, answers: says } = await startReceiver(context);
    context.after(() => fs.rmSync(dir, { recursive: true, force: true }));
    const args = ['--state_dir', dir, '--webhook_origins', to, '--webhook_private', '127.0.0.0/8'];
    const killed = await start({ models: ownModels, args, context });
    says.push(200, ...Array(12).fill(503)); // the end is refused, and tried for minutes
    const { json: begun } = await predict({ img: uri(picture) }, { to: killed, headers: later, webhook: `${to}/` });
    await until('the first try', () => heard.length >= 2);
    killed.process.kill('SIGKILL');
    await killed.stop().catch(() => {});
    [heard.length, says.length] = [0, 0];
    const next = await start({ models: ownModels, args, context });
    await until('the end', () => heard.some(({ json }) => json.status === 'succeeded')); // the start perhaps again, if it was not noted in time
    assert.deepEqual([heard.at(-1).json.id, heard.at(-1).json.status], [begun.id, 'succeeded']);
    await next.stop();
  });

  test('never go to an address that is not public, unless it is listed', async (context) => {
    const named = `http://localhost:${receiver.address().port}`;
    const closed = await start({ models: ownModels, args: ['--webhook_origins', `${origin}, ${named}`], context });
    told = [];
    for (const url of [origin, named]) {
      const { status, json: begun } = await predict({ img: uri(picture) }, { to: closed, headers: later, webhook: `${url}/` });
      assert.equal(status, 202);
      await until('the log', () => closed.log().includes(`webhook prediction=${begun.id} status=-1`));
    }
    assert.deepEqual(told, []);
    await closed.stop();
  });

  test('bad lists stop the start', async () => {
    await assert.rejects(start({ args: ['--webhook_origins', 'hooks'], ready: false }), /webhook_origins: "hooks"/);
    await assert.rejects(start({ args: ['--webhook_private', 'home'], ready: false }), /webhook_private: "home"/);
  });
});
