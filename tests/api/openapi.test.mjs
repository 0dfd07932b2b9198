// /openapi.json: it is valid, it describes the routes, options, codes and limits that there are, what it describes is what
// the server answers, its examples work, and so does a client that is generated from it.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { after, before, describe, test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import Ajv from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import openapiTS, { astToString } from 'openapi-typescript';
import ts from 'typescript';
import { fixture, get, plain, png, pngSize, post, raw, start, until } from './client.mjs';
import { faulty, root } from './server.mjs';

const picture = fixture('two.png'), big = png(1500, 1000);
const slow = { version: 'none', faces: 'none', bg_tile: '32', ext: 'jpg', bg_upsampler: 'rrdb_x4' }; // of which each tile takes half a second
const read = (path) => fs.readFileSync(join(root, path), 'utf8');
let server, doc, valid;
before(async () => {
  server = await start({ program: faulty, env: { RESTORED_FAULTS: 'slow@run:1,repeat,plan=rrdb_x4' }, args: ['--async_queue', '4'] });
  doc = (await get(server, '/openapi.json')).json;
  // Objects are closed here, so that a member which is not described is found; for clients they are open.
  const closed = JSON.parse(JSON.stringify(doc.components.schemas));
  for (const schema of Object.values(closed)) if (schema.properties) schema.additionalProperties = false;
  const ajv = new Ajv({ strict: false, allErrors: true, formats: { binary: true } });
  addFormats(ajv);
  ajv.addSchema({ $id: 'doc', components: { schemas: closed } });
  const compiled = new Map();
  valid = (schema, value, what) => {
    const key = JSON.stringify(schema);
    if (!compiled.has(key)) compiled.set(key, ajv.compile(JSON.parse(key.replaceAll('"#/', '"doc#/'))));
    const check = compiled.get(key);
    assert.ok(check(value), `${what}: ${ajv.errorsText(check.errors)} in ${JSON.stringify(value).slice(0, 2000)}`);
  };
});
after(() => server.stop());

const resolve = (value) => (value.$ref ? value.$ref.slice(2).split('/').reduce((at, name) => at[name], doc) : value);
const operations = () => Object.entries(doc.paths).flatMap(([path, item]) => Object.entries(item).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })));
const find = (id) => operations().find(({ operation }) => operation.operationId === id);

// The data of a stream's events; of the one that never ends, of those that come at once.
async function events(response, content, id) {
  const reader = response.body.getReader();
  let text = '';
  for (let part; !part?.done && (id === 'watchJob' || !text.includes('\n\n')); text += Buffer.from(part.value ?? '').toString()) part = await reader.read();
  await reader.cancel();
  const data = [...text.matchAll(/^data: (.*)$/gm)].map(([, json]) => JSON.parse(json));
  for (const one of data) valid(content['x-event-data'], one, id);
  return data;
}

// Whether an answer is one that the operation has: its status, type, headers and body. Gives the body.
async function answers(id, response) {
  const { operation } = find(id), what = `${id} ${response.status}`, type = (response.headers.get('content-type') ?? '').split(';')[0];
  const described = resolve(operation.responses[response.status] ?? operation.responses.default);
  for (const name of ['location', 'preference-applied', 'retry-after', 'etag', 'content-disposition', 'server-timing', 'allow', 'www-authenticate', 'x-request-id',
    'x-restored-faces', 'x-restored-device', 'x-restored-models', 'x-restored-notes'])
    if (response.headers.has(name) && !(name === 'retry-after' && described === doc.components.responses.Problem))
      assert.ok(Object.keys(described.headers).some((one) => one.toLowerCase() === name), `${what}: the header ${name} is not described`);
  for (const [name, header] of Object.entries(described.headers))
    if (resolve(header).schema.type === 'integer' && response.headers.has(name)) valid(resolve(header).schema, Number(response.headers.get(name)), `${what} ${name}`);
  if (type === 'text/event-stream') return events(response, described.content[type], id);
  const bytes = Buffer.from(await response.arrayBuffer());
  if (!described.content) return assert.equal(bytes.length, 0, `${what} has no body`);
  const content = described.content[type];
  assert.ok(content, `${what}: ${type} is none of ${Object.keys(described.content)}`);
  if (!/json$/.test(type)) return bytes;
  const json = JSON.parse(bytes);
  valid(content.schema, json, what);
  return json;
}
const ask = async (id, path, options) => answers(id, await fetch(server.url + path, options));
const send = async (id, fields, { query = '', headers = {}, to = server } = {}) => {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, Buffer.isBuffer(value) ? new Blob([value]) : String(value), ...(Buffer.isBuffer(value) ? ['photo.png'] : []));
  return answers(id, await fetch(to.url + find(id).path + query, { method: 'POST', body: form, headers }));
};
const ended = (id, state) => until(`the job ${state}`, async () => { const job = await ask('getJob', `/v1/jobs/${id}`); return job.state === state && job; });

describe('the document', () => {
  test('is valid OpenAPI 3.1', async () => {
    const validator = new Validator();
    const { valid: good, errors } = await validator.validate(JSON.parse(JSON.stringify(doc)));
    assert.ok(good, JSON.stringify(errors, null, 1));
    assert.equal(validator.version, '3.1');
  });

  test('every reference leads somewhere, every component is used, every id is there once', () => {
    const used = new Set(JSON.stringify(doc).match(/"\$ref":"[^"]+"/g).map((text) => text.slice(8, -1)));
    for (const ref of used) assert.ok(resolve({ $ref: ref }), ref);
    for (const [kind, all] of Object.entries(doc.components))
      for (const name of Object.keys(all))
        if (!['responses', 'securitySchemes'].includes(kind)) assert.ok(used.has(`#/components/${kind}/${name}`), `nothing refers to ${kind}/${name}`);
    const ids = operations().map(({ operation }) => operation.operationId);
    assert.equal(new Set(ids).size, ids.length);
  });

  test('has every route of the router, and no other', () => {
    const folder = join(root, 'server/compat'), files = fs.readdirSync(folder).map((name) => `server/compat/${name}`);
    const tables = ['server/http/router.c', ...files.filter((name) => /\.c$/.test(name))].map(read).join('\n');
    const routes = [...tables.matchAll(/^ *\{"(\/[^"]+)", ROUTE_(\w+)/gm)].map(([, path, method]) => `${method} ${path}`);
    const shown = operations().map(({ method, path }) => `${method} ${path}`);
    const rows = [...read('server/http/openapi.c').matchAll(/\{ROUTE_(\w+),\s*"(\/[^"]+)"/g)].map(([, method, path]) => `${method} ${path}`);
    for (const name of files.filter((one) => /\.json$/.test(one)))
      for (const [path, item] of Object.entries(JSON.parse(read(name)).paths)) rows.push(...Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`));
    assert.ok(routes.length >= 18);
    assert.deepEqual(routes.filter((route) => !shown.includes(route)), [], 'routes that server/http/openapi.c has no row for');
    assert.deepEqual(rows.filter((route) => !routes.includes(route)), [], 'rows of server/http/openapi.c that are no routes');
    assert.deepEqual(shown.filter((route) => !routes.includes(route)), []);
  });

  test('names the parts of each path', () => {
    for (const { path, operation } of operations()) {
      const named = operation.parameters.map(resolve).filter((one) => one.in === 'path').map(({ name }) => name);
      assert.deepEqual(named.sort(), [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name).sort(), path);
    }
  });

  test('has the options, fields and limits of /v1/capabilities', async () => {
    const { options, fields, limits } = (await get(server, '/v1/capabilities')).json;
    const form = (name) => Object.keys(doc.components.requestBodies[name].content['multipart/form-data'].schema.properties);
    const query = (id) => find(id).operation.parameters.map(resolve).filter((one) => one.in === 'query').map(({ name }) => name);
    const all = options.map(({ name }) => name), answers = fields.map(({ name }) => name), detection = [];
    for (const name of [...all, ...answers]) { // as the server itself says
      const { json } = await post(server, '/v1/detect', { fields: { [name]: '' } });
      if (!/there is no such field/.test(json.detail)) detection.push(name);
    }
    const wanted = { Restore: [...all, ...answers], Detect: detection, Damage: detection, Estimate: [...all, 'face_count', 'result_width', 'result_height'] };
    for (const [name, names] of Object.entries(wanted)) {
      assert.deepEqual(form(name).sort(), [...names, 'image', ...(name === 'Estimate' ? [] : ['mask'])].sort(), name);
      assert.deepEqual(query(name.toLowerCase()).sort(), [...names].sort(), name);
    }
    assert.deepEqual(doc['x-limits'], limits);
    assert.ok(doc.components.requestBodies.Restore.description.includes(` ${limits.body_bytes} bytes`));
    const { properties } = doc.components.requestBodies.Restore.content['multipart/form-data'].schema;
    assert.deepEqual(['priority', 'async', 'batch'].map((name) => properties[name].default), ['normal', false, undefined]);
  });

  test('has the codes of the server, each in the answer of its status', () => {
    const source = read('server/http/reply.c'), { code } = doc.components.schemas.Problem.properties;
    const statuses = [...source.matchAll(/\[REPLY_\w+\] = \{(\d+), "([^"]*)", "([^"]+)"\}/g)].map(([, status, title, word]) => [status, title, word]);
    const more = [...source.matchAll(/\[ERROR_\w+\] = "([^"]+)"/g)].map(([, word]) => word);
    assert.ok(statuses.length >= 20 && more.length >= 9);
    assert.deepEqual([...code.examples].sort(), [...statuses.map(([, , word]) => word), ...more].sort());
    const told = Object.values(doc.components.responses).map(({ description }) => description);
    for (const [status, title, word] of statuses) assert.ok(status === '499' || told.some((text) => text.startsWith(`${title}. code:`) && text.includes(` ${word}`)), word);
    for (const word of more) assert.equal(told.filter((text) => text.split(/[ ,]+/).includes(word)).length, 1, word);
  });

  test('is sent with an ETag, to HEAD and to everybody, and not twice', async () => {
    const first = await fetch(`${server.url}/openapi.json`), etag = first.headers.get('etag');
    assert.equal(first.headers.get('content-type'), 'application/json');
    const again = await fetch(`${server.url}/openapi.json`, { headers: { 'If-None-Match': etag } });
    assert.equal(again.status, 304);
    assert.equal((await again.arrayBuffer()).byteLength, 0);
    await first.arrayBuffer();
    const whole = { headers: { 'Accept-Encoding': 'identity' } };
    const plain = await fetch(`${server.url}/openapi.json`, whole);
    const head = await fetch(`${server.url}/openapi.json`, { ...whole, method: 'HEAD' });
    assert.equal(head.headers.get('content-length'), String((await plain.arrayBuffer()).byteLength));
    assert.equal(head.headers.get('etag'), plain.headers.get('etag'));
  });

  test('asks for a token where the server does, and there alone', async (context) => {
    assert.deepEqual([doc.security, ...operations().map(({ operation }) => operation.security ?? [])].flat(), []);
    const file = join(root, 'build/openapi-tokens');
    fs.writeFileSync(file, 'somebody a-token-of-some-length\n', { mode: 0o600 });
    const guarded = await start({ context, args: ['--auth_token_file', file] });
    const { json } = await get(guarded, '/openapi.json');
    assert.equal(json.components.securitySchemes.bearer.scheme, 'bearer');
    for (const [path, item] of Object.entries(json.paths))
      for (const [method, { security, operationId, responses }] of Object.entries(item)) {
        const { status, headers } = await fetch(guarded.url + path, { method });
        assert.deepEqual(security, status === 401 ? [{ bearer: [] }] : [], `${method} ${path}`);
        assert.equal('401' in responses, status === 401, `${method} ${path}`);
        if (status === 401) assert.ok(headers.get('www-authenticate'), operationId);
      }
    await guarded.stop();
  });
});

describe('answers are as described', () => {
  test('of the routes without a body, and examples of all their parameters', async () => {
    await ended((await send('restore', { image: picture, ...plain, batch: 'album' })).id, 'done'); // the batch of the examples
    for (const { path, method, operation } of operations()) {
      if (method !== 'GET') continue;
      const rows = operation.parameters.map(resolve);
      for (const row of rows) if (row.example !== undefined) valid(row.schema, row.example, row.name);
      const to = rows.filter((row) => row.in === 'path').reduce((at, row) => at.replace(`{${row.name}}`, row.example), path);
      await ask(operation.operationId, to);
      for (const row of rows) {
        if (row.example === undefined || row.in === 'path') continue;
        if (row.in === 'header') await ask(operation.operationId, to, { headers: { [row.name]: row.example } });
        else await ask(operation.operationId, `${to}?${row.name}=${encodeURIComponent(row.example)}`);
      }
    }
    assert.equal((await ask('listJobs', '/v1/jobs?limit=1')).jobs.length, 1);
    assert.equal((await ask('getBatchResults', '/v1/batches/album/results.zip')).toString('latin1', 0, 2), 'PK');
    assert.equal((await ask('cancelBatch', '/v1/batches/album', { method: 'DELETE' })).jobs, 1);
  });

  test('of every example of a body', async () => {
    for (const id of ['restore', 'detect', 'damage', 'estimate']) {
      const { path, operation } = find(id), { content } = resolve(operation.requestBody);
      for (const [type, { schema, examples }] of Object.entries(content))
        for (const [name, example] of Object.entries(examples)) {
          valid(schema, example.value, `${id} ${name}`);
          const form = type === 'multipart/form-data', fields = type === 'application/x-www-form-urlencoded';
          const answer = form ? await send(id, { ...example.value, ...(example.value.image && { image: picture }), ...(example.value.mask && { mask: picture }) })
            : await ask(id, path, fields ? { method: 'POST', body: new URLSearchParams(example.value) } : { method: 'POST', body: picture, headers: { 'Content-Type': type } });
          assert.ok(!answer.code, JSON.stringify(answer));
        }
    }
  });

  test('of restoring in every type', async () => {
    const { operation } = find('restore');
    for (const type of Object.keys(operation.responses[200].content)) {
      const fields = { image: picture, ...(type === 'multipart/mixed' && { faces_out: true }) };
      const answer = await send('restore', fields, { headers: { Accept: type } });
      if (type === 'application/json') assert.ok(answer.faces.length === 2 && answer.output);
      else assert.ok(answer.length > 500, type);
    }
    await send('restore', { image: fixture('deep.png'), ...plain }); // with a note
  });

  test("of other programs' clients", async () => {
    const prompt = 'version=none bg_upsampler=none', image = png(20, 16).toString('base64');
    const json = (id, body) => ask(id, find(id).path, { method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } });
    assert.equal((await send('openaiEdit', { image: picture, prompt })).data.length, 1);
    assert.equal((await send('openaiEdit', { image: picture, prompt: 'upscale=9' })).error.param, 'upscale');
    assert.ok((await json('a1111Single', { image })).image);
    assert.equal((await json('a1111Batch', { imageList: [{ data: image }] })).images.length, 1);
    assert.ok((await json('a1111Single', { image: 1 })).detail);
    const made = await json('cogPredict', { input: { img: image } });
    assert.equal(made.status, 'succeeded');
    assert.ok((await json('cogPredict', { input: {} })).detail.length);
    const stored = await ask('cogPredict', '/predictions', { method: 'POST', body: JSON.stringify({ input: { img: image } }), headers: { 'Content-Type': 'application/json', Prefer: 'respond-async' } });
    await until('the prediction', async () => (await ask('cogPrediction', `/predictions/${stored.id}`)).status === 'succeeded');
    await ask('cogCancel', `/predictions/${stored.id}/cancel`, { method: 'POST' });
    for (const id of ['a1111Interrupt', 'a1111SetOptions']) assert.deepEqual(await json(id, {}), {});
  });

  test('of jobs in each state', async () => {
    const done = await ended((await send('restore', { image: picture, faces_out: true, async: true })).id, 'done');
    assert.ok(done.links.faces.length && done.input && done.options);
    await ask('getResult', done.links.result);
    assert.equal((await ask('watchJob', `${done.links.self}/events`)).at(-1).state, 'done');
    const watched = await send('restore', { image: png(120, 60), ...slow, async: true });
    const told = await ask('watchJob', `${watched.links.self}/events`);
    assert.ok(told.length > 3 && told.at(-1).state === 'done');
    for (const { href } of done.links.faces) await ask('getFace', href);
    const masked = await ended((await send('restore', { image: picture, mask: picture, async: true })).id, 'done');
    await ask('getMask', masked.links.mask);
    for (const type of ['image/png', 'application/json', 'multipart/mixed']) await send('damage', { image: picture }, { headers: { Accept: type } });
    const searched = await ended((await send('damage', { image: picture, async: true })).id, 'done');
    assert.ok(searched.damage && searched.links.result);
    const found = await ended((await send('detect', { image: picture, async: true })).id, 'done');
    assert.equal(found.width, pngSize(picture)[0]);
    const failed = await ended((await send('restore', { image: picture.subarray(0, 1500), async: true })).id, 'failed');
    assert.equal(failed.error.code, 'corrupt');
    const ids = [];
    const waiting = await until('a full queue', async () => {
      const { id, code } = await send('restore', { image: big, ...slow, batch: 'many' });
      if (code !== 'queue-full') ids.push(id);
      return code === 'queue-full' && ids.at(-1);
    });
    const running = await until('a running job', async () => {
      for (const id of ids) if ((await ask('getJob', `/v1/jobs/${id}`)).stage === 'background') return id;
    });
    await ended(waiting, 'queued');
    assert.equal((await ask('getResult', `/v1/jobs/${waiting}/result`)).code, 'conflict');
    await ask('listJobs', '/v1/jobs');
    await ask('listDevices', '/v1/devices');
    await ask('deleteJob', `/v1/jobs/${waiting}`, { method: 'DELETE' });
    await ask('cancelBatch', '/v1/batches/many', { method: 'DELETE' });
    await ended(running, 'cancelled');
    assert.equal(await ask('deleteJob', `/v1/jobs/${running}`, { method: 'DELETE' }), undefined);
    await ask('deleteJob', `/v1/jobs/${running}`, { method: 'DELETE' }); // 404
  });

  test('of requests that are refused', async () => {
    const refused = async (code, answer) => assert.equal((await answer).code, code);
    await refused('invalid', send('restore', { image: picture, upscale: 9 }));
    await refused('invalid', send('detect', {}));
    await refused('invalid', ask('listJobs', '/v1/jobs?limit=0'));
    await refused('invalid', ask('getFace', '/v1/jobs/0/faces/0?kind=hat'));
    await refused('not-found', ask('getJob', '/v1/jobs/0'));
    valid({ $ref: '#/components/schemas/Problem' }, (await get(server, '/v1/jobs', { method: 'PATCH' })).json, '405');
    await refused('not-acceptable', send('detect', { image: picture }, { headers: { Accept: 'image/png' } }));
    await refused('unsupported-format', send('restore', { image: Buffer.from('no picture at all') }));
    await refused('corrupt', send('restore', { image: picture.subarray(0, 1500) }));
    await refused('too-large', send('estimate', { width: 100000, height: 100000 }));
    await send('restore', { image: picture, async: true }, { headers: { 'Idempotency-Key': 'k' } });
    await refused('unprocessable', send('restore', { image: big, async: true }, { headers: { 'Idempotency-Key': 'k' } }));
    const bytes = await raw(server, `POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n`);
    const [head, body] = bytes.split('\r\n\r\n');
    await refused('body-too-large', answers('restore', new Response(body, { status: Number(head.split(' ')[1]), headers: { 'Content-Type': 'application/problem+json' } })));
  });

  test('of a server that is not ready', async (context) => {
    const bare = await start({ context, models: ['--models', join(root, 'build')], ready: false });
    const ready = await answers('isReady', await fetch(`${bare.url}/readyz`));
    assert.ok(!ready.ready && ready.reasons.length);
    assert.equal((await send('restore', { image: picture }, { to: bare })).status, 503);
    await bare.stop();
  });
});

test('what the schemas of the options allow is taken, and what lies beyond is not', async () => {
  const { schema } = doc.components.requestBodies.Estimate.content['multipart/form-data'];
  const size = { width: 100, height: 100 };
  let count = 0;
  for (const [name, property] of Object.entries(schema.properties)) {
    if (name === 'image') continue;
    const kinds = property.anyOf ?? [property], good = [property.default], bad = [];
    for (const kind of kinds) {
      good.push(...(kind.enum ?? []), kind.minimum);
      if (!/width$|height$|^max_side$/.test(name)) good.push(kind.maximum); // a side may be as long, a picture not as large
      if (kind.type === 'boolean') { good.push(true, false); bad.push('perhaps'); }
      if (kind.maximum !== undefined && name !== 'seed') bad.push(kind.maximum + 1);
      if (kind.minimum) bad.push(kind.minimum - (kind.type === 'integer' ? 1 : 0.5));
      if (kind.enum && kinds.length === 1) bad.push('perhaps');
      if (kind.pattern && name === 'faces') { good.push('0,2'); bad.push('0,'); }
      if (kind.pattern && name === 'suffix') { good.push('a b.c'); bad.push('a/b', 'a\nb'); }
      if (kind.pattern && name === 'seed') { good.push('18446744073709551615'); bad.push('x'); }
    }
    const sent = async (value) => (await post(server, '/v1/estimate', { fields: { ...size, ...(name === 'fit' && { result_width: 9, result_height: 9 }), [name]: value } }));
    for (const value of good) {
      if (value === undefined) continue;
      valid(property, value, name);
      const { status, json } = await sent(value);
      assert.equal(status, 200, `${name}=${value}: ${json.detail}`);
      count++;
    }
    for (const value of bad) {
      if (name === 'bg_tile' && value === 0) continue;
      assert.throws(() => valid(property, value, name), `${name}=${value} is allowed`);
      assert.equal((await sent(value)).status, 400, `${name}=${value}`);
      count++;
    }
  }
  assert.ok(count >= 70, `${count} values`);
});

test('a client that is generated from it restores a photo, at once and later', async () => {
  const folder = join(root, 'build/openapi');
  fs.rmSync(folder, { recursive: true, force: true });
  fs.mkdirSync(folder, { recursive: true });
  fs.symlinkSync(join(root, 'tests/node_modules'), join(folder, 'node_modules'));
  const blob = ts.factory.createTypeReferenceNode('Blob');
  const types = await openapiTS(doc, { transform: (schema, { path }) => (schema.format === 'binary' && path.includes('requestBod') ? blob : undefined) });
  fs.writeFileSync(join(folder, 'openapi.d.ts'), astToString(types));
  fs.writeFileSync(join(folder, 'package.json'), '{"type": "module"}');
  const source = join(folder, 'client.ts');
  fs.copyFileSync(join(root, 'tests/api/openapi_client.ts'), source);
  const program = ts.createProgram([source], {
    strict: true, skipLibCheck: true, types: [], lib: ['lib.es2022.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'],
    target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler,
  });
  const { diagnostics } = program.emit();
  const wrong = [...ts.getPreEmitDiagnostics(program), ...diagnostics].map(({ file, start, messageText }) =>
    `${file?.fileName}:${file && file.getLineAndCharacterOfPosition(start).line + 1}: ${ts.flattenDiagnosticMessageText(messageText, '\n')}`);
  assert.deepEqual(wrong, []);
  const client = await import(pathToFileURL(join(dirname(source), 'client.js')));
  const photo = new Blob([picture]), [width, height] = pngSize(picture);
  const larger = Buffer.from(await (await client.restore(server.url, photo)).arrayBuffer());
  assert.deepEqual(pngSize(larger), [3 * width, 3 * height]);
  const later = await client.restoreLater(server.url, photo);
  assert.equal(later.faces, 2);
  assert.deepEqual(pngSize(Buffer.from(await later.picture.arrayBuffer())), [2 * width, 2 * height]);
});
