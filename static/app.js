// The page: one picture in, one picture out. It shows what the server says of itself (/readyz, /v1/devices, /v1/models,
// /v1/capabilities), sends the picture with the options that differ from their defaults to POST /v1/restore, and shows the
// answer or the server's own words for what went wrong.

const $ = (id) => document.getElementById(id);
const stage = $('stage'), view = $('view'), before = $('before'), after = $('after');

const common = ['upscale', 'version', 'bg_upsampler', 'weight', 'ext'];
const names = { png: 'PNG', jpg: 'JPEG', jpeg: 'JPEG', webp: 'WebP', heic: 'HEIC', avif: 'AVIF' };

// The picture files that people have, by their first bytes.
const kinds = [
  ['jpeg', /^\xff\xd8\xff/], ['png', /^\x89PNG\r\n\x1a\n/], ['webp', /^RIFF[^]{4}WEBP/],
  ['heic', /^[^]{4}ftyp(he|mif1|msf1)/], ['avif', /^[^]{4}ftypavi/],
];
const steps = {
  queue: 'Waiting', decode: 'Decoding', detect: 'Finding faces', align: 'Aligning', restore: 'Restoring faces',
  parse: 'Masking', background: 'Background', paste: 'Pasting', encode: 'Encoding',
};

// What the page says of an option, and of its values; of an option that is not here it says what the server says.
const labels = {
  bg_tile: ['Background tile', 'Edge in pixels of the picture, 32 to 4096. Smaller takes less memory; 0 is no tiles.'],
  only_center_face: ['Only the face in the middle', 'Other faces are enlarged with the background.'],
  aligned: ['The picture is one face', 'For a face that is cut out and upright already. The result is that face alone.'],
  suffix: ['File name suffix', 'Added to the name of the result.'],
  seed: ['Noise seed', 'A number varies fine detail such as hair. Without one, the result is the same every time.'],
  parse: ['Face mask', 'How a restored face is blended into the picture.', { auto: 'Automatic', true: 'Shape of the face', false: 'Square' }],
  faces: ['Which faces', 'all, none, or their numbers, such as 0,2. The first that is found is 0.'],
  detector: ['Face detector', 'The network that finds the faces.'],
  device: ['Device', 'The graphics card or processor that does the work.'],
  precision: ['Precision', '16 bit is faster on most graphics cards; 32 bit is more exact.', { auto: 'Automatic', fp32: '32 bit', fp16: '16 bit' }],
  quality: ['JPEG quality', '1 to 100. Higher looks better and makes a larger file.'],
  png_level: ['PNG compression', '0 to 9. Higher makes a smaller file and takes longer; the picture is the same.'],
  compat: ['Like the reference', 'Repeats the reference implementation, its flaws included, for comparisons.'],
};

// What the models of each kind do, in the words of the page; and what the server calls them in its answer.
const work = { detector: 'finding faces', face: 'faces', parser: 'face masks', upscaler: 'background' };
const roles = { detector: 'Detector', face: 'Face model', parser: 'Mask model', background: 'Background' };

const state = {
  file: null, offered: null, request: null, ready: false, limit: Infinity, formats: ['jpeg', 'png'],
  urls: { before: null, after: null }, timer: 0,
};

// ---- small tools ----

function element(tag, attributes = {}, ...children) {
  const node = Object.assign(document.createElement(tag), attributes);
  node.append(...children);
  return node;
}

function size(bytes) {
  const unit = bytes < 1e3 ? ['B', 1] : bytes < 1e6 ? ['kB', 1e3] : ['MB', 1e6];
  return `${(bytes / unit[1]).toFixed(unit[1] === 1e6 ? 1 : 0)} ${unit[0]}`;
}

function seconds(ms) {
  if (ms >= 60e3) return `${Math.floor(ms / 60e3)} min ${Math.round((ms % 60e3) / 1e3)} s`;
  return ms >= 10e3 ? `${Math.round(ms / 1e3)} s` : ms >= 1e3 ? `${(ms / 1e3).toFixed(1)} s` : `${Math.round(ms)} ms`;
}

// The JSON of an answer, whatever its status; null when there is none.
async function get(path) {
  try {
    const answer = await fetch(path, { headers: { Accept: 'application/json, application/problem+json' } });
    return await answer.json();
  } catch {
    return null;
  }
}

function show(which, blob) {
  if (state.urls[which]) URL.revokeObjectURL(state.urls[which]);
  state.urls[which] = blob && URL.createObjectURL(blob);
  const image = which === 'before' ? before : after;
  if (blob) image.src = state.urls[which];
  else image.removeAttribute('src');
}

// ---- the server's state ----

function notices(texts) {
  $('notices').replaceChildren(...texts.map((text) => element('p', { className: 'notice', textContent: text })));
}

async function refresh() {
  const [readiness, found] = await Promise.all([get('/readyz'), get('/v1/devices')]);
  const list = found?.devices ?? [];
  const device = list.find((d) => d.id === found.default);
  const texts = [];
  state.ready = readiness?.ready === true;
  if (!readiness) texts.push('The server cannot be reached.');
  else if (!state.ready) texts.push(...(readiness.reasons?.length ? readiness.reasons : [readiness.detail ?? 'The server is not ready.']));
  if (device?.type === 'cpu' && list.every((d) => d.type === 'cpu' || d.type === 'software'))
    texts.push('No GPU was found. The server works on the processor: a large photo can take minutes.');
  if (device?.type === 'software')
    texts.push(`${list.every((d) => d.type === 'software') ? 'No GPU was found. ' : ''}The server works on the processor, by software Vulkan (${device.name}), and that is slow: a photo takes minutes instead of seconds.`);
  notices(texts);
  $('device').textContent = device ? `${device.name} (${device.id})` : '';
  update();
  setTimeout(refresh, state.ready ? 30000 : 3000);
}

// ---- the options ----

function choices(select, rows) {
  select.replaceChildren(...rows.map(([value, text]) => element('option', { value, textContent: text })));
}

// Models of a kind; the default comes first and, being the default, is sent as nothing at all.
function models(list, kind, none) {
  const mine = list.filter((m) => m.kind === kind);
  const chosen = mine.find((m) => m.default);
  const label = (m) => (m.scale > 1 ? `${m.name} (${m.scale}×)` : m.name);
  const rows = [['', chosen ? label(chosen) : 'None installed']];
  for (const m of mine) if (m !== chosen) rows.push([m.name, label(m)]);
  if (none && (chosen || mine.length)) rows.push(['none', none]);
  return rows;
}

// "auto, png or jpg" -> the words of an enum
const words = (allowed) => String(allowed).split(/\s*(?:,|\||\bor\b)\s*/).filter(Boolean);

function control(option, devices, list) {
  const { name, type, allowed } = option;
  const initial = String(option.default ?? '');
  if (type === 'boolean') return element('input', { type: 'checkbox', checked: initial === 'true' });
  const select = element('select');
  if (name === 'device') choices(select, [['', 'Automatic'], ...devices.map((d) => [d.id, `${d.id}: ${d.name}`])]);
  else if (name === 'detector') choices(select, models(list, 'detector'));
  else if (type === 'enum') {
    choices(select, words(allowed).map((word) => [word === initial ? '' : word, labels[name]?.[2]?.[word] ?? word]));
    select.value = '';
  } else return element('input', {
    type: 'text', title: allowed, placeholder: initial === 'auto' ? 'automatic' : initial || 'none',
    inputMode: type === 'integer' ? 'numeric' : type === 'number' ? 'decimal' : 'text',
    autocomplete: 'off', spellcheck: false,
  });
  return select;
}

async function options() {
  const [capabilities, found, devices] = await Promise.all([get('/v1/capabilities'), get('/v1/models'), get('/v1/devices')]);
  const list = found?.models ?? [];
  const rows = capabilities?.options ?? [];
  const initial = (name, otherwise) => String(rows.find((o) => o.name === name)?.default ?? otherwise);

  const scale = initial('upscale', '2');
  const scales = ['1', '1.5', '2', '3', '4', '8'];
  $('scale').replaceChildren(...scales.map((value) => element('label', {},
    element('input', { type: 'radio', name: 'upscale', value, checked: Number(value) === Number(scale), defaultChecked: Number(value) === Number(scale) }),
    element('span', { textContent: `${value}×` }))));
  choices($('version'), models(list, 'face', 'Leave faces as they are'));
  choices($('bg_upsampler'), models(list, 'upscaler', 'Plain resize'));
  choices($('ext'), [['', 'Same as the picture'], ...(capabilities?.formats?.out ?? ['png', 'jpg']).map((f) => [f === 'jpeg' ? 'jpg' : f, names[f] ?? f.toUpperCase()])]);
  $('weight').value = initial('weight', '1');
  strength();

  const small = list.filter((m) => m.starter && m.default);
  $('starter').replaceChildren(`Working with the small starter models that come with the program (${small.map((m) => work[m.kind]).join(', ')}). `
    + 'The official ones restore better; where the program was built, this gets them: ', element('code', { textContent: 'make models' }));
  $('starter').hidden = !small.length;

  $('more').replaceChildren(...rows.filter((o) => !common.includes(o.name) && o.name !== 'async').map((option) => {
    const { name } = option;
    const [title, help] = labels[name] ?? [name[0].toUpperCase() + name.slice(1).replaceAll('_', ' '), option.help ?? ''];
    const input = Object.assign(control(option, devices?.devices ?? [], list), { id: `option_${name}`, name });
    input.setAttribute('aria-describedby', `help_${name}`);
    return element('div', { className: 'field' }, element('label', { htmlFor: input.id, textContent: title }), input,
      element('small', { id: `help_${name}`, textContent: help }));
  }));
  state.formats = capabilities?.formats?.in ?? state.formats;
  const limits = capabilities?.limits ?? {};
  state.limit = limits.body_bytes ?? Infinity;
  $('build').textContent = capabilities?.version ? `restored ${capabilities.version}` : '';
}

function strength() {
  $('weight_out').textContent = `${Math.round($('weight').value * 100)} %`;
}

// Fields for the request: what differs from the default.
function fields() {
  const chosen = new Map();
  const scale = document.querySelector('#scale :checked');
  if (scale && !scale.defaultChecked) chosen.set('upscale', scale.value);
  for (const name of ['version', 'bg_upsampler', 'ext']) if ($(name).value) chosen.set(name, $(name).value);
  if (Number($('weight').value) !== 1) chosen.set('weight', $('weight').value);
  for (const input of $('more').querySelectorAll('[name]')) {
    if (input.type === 'checkbox') {
      if (input.checked !== input.defaultChecked) chosen.set(input.name, String(input.checked));
    } else if (input.value.trim()) chosen.set(input.name, input.value.trim());
  }
  return chosen;
}

// ---- the picture ----

// Why a file is not taken, or '' when it looks like a picture that the server reads.
async function refusal(file) {
  let head;
  try {
    head = String.fromCharCode(...new Uint8Array(await file.slice(0, 12).arrayBuffer()));
  } catch {
    return 'This file cannot be read.'; // a folder, or a file that is gone
  }
  const kind = kinds.find(([, start]) => start.test(head))?.[0];
  if (state.formats.includes(kind)) return '';
  const known = state.formats.map((format) => names[format] ?? format.toUpperCase());
  return kind ? `${names[kind]} pictures are not supported yet. Choose a ${known.join(' or ')} picture.` : `This is not a ${known.join(' or ')} picture.`;
}

async function take(files) {
  const file = files?.[0];
  const several = files?.length > 1; // the list does not outlive its event
  if (!file || state.request) return;
  state.offered = file;
  const reason = await refusal(file);
  if (state.request || state.offered !== file) return;
  if (reason) {
    status('');
    update();
    fail(reason, state.file ? `${state.file.name} stays.` : '');
    return;
  }
  state.file = file;
  fail(null);
  show('after', null);
  $('download').hidden = true;
  $('unseen').hidden = true;
  stage.dataset.state = 'chosen';
  for (const part of [view, after, $('split'), $('handle')]) part.hidden = true;
  show('before', file);
  caption(file.name, size(file.size));
  status(several ? 'One picture at a time: the first was taken.' : '');
  update();
}

// An old print that is part of the program, restored at once.
async function sample() {
  let picture;
  try {
    const answer = await fetch('/sample.jpg');
    if (!answer.ok) throw new Error();
    picture = new File([await answer.blob()], 'sample.jpg', { type: 'image/jpeg' });
  } catch {
    fail('The server cannot be reached.');
    return;
  }
  await take([picture]);
  if (state.ready && state.file === picture) restore();
}

function caption(...parts) {
  $('name').textContent = parts.join(' · ');
  $('name').title = parts[0];
}

before.addEventListener('load', () => {
  view.style.setProperty('--ratio', before.naturalWidth / before.naturalHeight);
  view.hidden = false;
  caption(state.file.name, `${before.naturalWidth} × ${before.naturalHeight}`, size(state.file.size));
});
before.addEventListener('error', () => {
  view.hidden = true;
  $('unseen').hidden = !state.file;
});

// ---- one restoration ----

function status(text, spoken = text) {
  $('status').textContent = text;
  if (spoken !== null) $('say').textContent = spoken;
}

// What went wrong, in place of what was there; null: nothing did. An old report has no place beside either.
function fail(text, note = '') {
  $('report').replaceChildren();
  $('report').hidden = true;
  unblame();
  $('error').replaceChildren(...(text ? [element('p', { textContent: text })] : []), ...(note ? [element('small', { textContent: note })] : []));
  $('error').hidden = !text;
  if (text) $('error').scrollIntoView({ block: 'nearest' });
}

function unblame() {
  const input = document.querySelector('[aria-invalid]');
  input?.removeAttribute('aria-invalid');
  input?.removeAttribute('aria-errormessage');
}

// Leads to the field that a problem's detail begins with, as in "quality: …".
function blame(detail) {
  const found = $('form').elements.namedItem(/^(\w+): /.exec(detail)?.[1] ?? '');
  const input = found instanceof RadioNodeList ? [...found].find((radio) => radio.checked) : found;
  if (!input) return;
  input.setAttribute('aria-invalid', 'true');
  input.setAttribute('aria-errormessage', 'error');
  const folded = input.closest('details');
  if (folded) folded.open = true;
  input.focus({ preventScroll: true });
  input.scrollIntoView({ block: 'center' });
}

function update() {
  const working = state.request !== null;
  $('go').hidden = working;
  $('cancel').hidden = !working;
  $('go').disabled = !state.file || !state.ready;
  $('another').textContent = state.file ? 'Choose another' : 'Choose a picture';
  $('another').classList.toggle('unseen', working); // it keeps its place
  $('progress').hidden = !working;
  document.body.classList.toggle('working', working);
  if (!working && !state.file) $('status').textContent = 'Choose a picture to begin.';
}

function restore() {
  if (!state.file || state.request) return;
  fail(null);
  if (state.file.size > state.limit) {
    fail(`This file has ${size(state.file.size)}; the server takes at most ${size(state.limit)}.`);
    return;
  }
  const body = new FormData();
  for (const [name, value] of fields()) body.append(name, value);
  body.append('image', state.file, state.file.name);

  const request = new XMLHttpRequest();
  const began = performance.now();
  const elapsed = () => performance.now() - began;
  state.request = request;
  request.open('POST', '/v1/restore');
  request.responseType = 'blob';
  request.upload.onprogress = (e) => {
    if (!e.lengthComputable || e.loaded >= e.total) return;
    $('progress').value = e.loaded / e.total;
    status(`Uploading ${Math.floor((100 * e.loaded) / e.total)} %`, null);
  };
  request.upload.onload = () => {
    // The server does not tell how far it is: an honest bar moves, and the time that has passed is known.
    $('progress').removeAttribute('value');
    const tick = () => status(`Restoring, ${Math.floor(elapsed() / 1e3)} s`, null);
    $('say').textContent = 'Restoring';
    tick();
    state.timer = setInterval(tick, 1000);
  };
  request.onload = () => answered(request, elapsed());
  request.onerror = () => finish('', () => fail('The connection to the server broke before it answered. It may be stopped, or the picture too large for it.'));
  request.onabort = () => finish('Cancelled.');
  $('progress').value = 0;
  status('Uploading', 'Uploading');
  update();
  $('cancel').focus();
  request.send(body);
}

function finish(text, then) {
  clearInterval(state.timer);
  state.request = null;
  const focused = document.activeElement === $('cancel');
  status(text);
  update();
  if (focused) $('go').focus();
  then?.();
}

async function answered(request, ms) {
  if (request.status === 200) {
    finish(`Done in ${seconds(ms)}.`, () => succeeded(request, ms));
    return;
  }
  let problem = {};
  try {
    problem = JSON.parse(await request.response.text());
  } catch { /* no problem object: the status line is all there is */ }
  const wait = request.getResponseHeader('Retry-After');
  finish('', () => {
    fail(problem.detail ?? problem.title ?? `The server answered ${request.status} ${request.statusText}.`,
      [wait && `Try again in ${wait} s.`, problem.request_id && `Request ${problem.request_id}`].filter(Boolean).join(' '));
    blame(problem.detail ?? '');
  });
}

// The file name of a Content-Disposition (RFC 6266); filename* wins.
function file_name(header) {
  const extended = /filename\*=UTF-8''([^;]+)/i.exec(header ?? '');
  if (extended) return decodeURIComponent(extended[1]);
  return /filename="([^"]*)"/i.exec(header ?? '')?.[1] ?? /filename=([^;\s]+)/i.exec(header ?? '')?.[1] ?? 'restored';
}

// A name of its own beside the input, where the server's is the input's; file systems may not tell A from a.
function beside(input, name) {
  return name.toLowerCase() === input.toLowerCase() ? name.replace(/(\.[^.]*)?$/, '_restored$1') : name;
}

// 'face="a", background="b"' -> [['face', 'a'], ['background', 'b']]
const dictionary = (header) => [...(header ?? '').matchAll(/(\w+)="([^"]*)"/g)].map(([, key, value]) => [key, value]);

// "detect;dur=30, decode;dur=1.2" -> [['decode', 1.2], ['detect', 30]]: in the order of the work
function timings(header) {
  return (header ?? '').split(',').map((part) => [part.trim().split(';')[0], Number(/dur=([\d.]+)/.exec(part)?.[1])])
    .filter(([name, ms]) => name && ms >= 0 && name !== 'total')
    .sort(([a], [b]) => Object.keys(steps).indexOf(a) - Object.keys(steps).indexOf(b));
}

function succeeded(request, ms) {
  const blob = request.response;
  show('after', blob);
  const link = $('download');
  link.href = state.urls.after;
  link.download = beside(state.file.name, file_name(request.getResponseHeader('Content-Disposition')));
  link.hidden = false;
  report(request, ms, blob);
  stage.dataset.state = 'done';
  stage.scrollIntoView({ block: 'nearest', behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth' });
  after.onload = () => {
    for (const part of [view, after, $('split'), $('handle')]) part.hidden = false;
    $('unseen').hidden = true;
    if (!before.naturalWidth) view.style.setProperty('--ratio', after.naturalWidth / after.naturalHeight);
    split(50);
    caption(link.download, `${after.naturalWidth} × ${after.naturalHeight}`, size(blob.size));
  };
  after.onerror = () => {
    after.hidden = $('split').hidden = $('handle').hidden = true;
    status('Done. The browser cannot show this picture; it can be downloaded.');
  };
}

function report(request, ms, blob) {
  const faces = Number(request.getResponseHeader('X-Restored-Faces') ?? NaN);
  const device = request.getResponseHeader('X-Restored-Device');
  const parts = timings(request.getResponseHeader('Server-Timing'));
  const longest = Math.max(1, ...parts.map(([, t]) => t));
  const list = element('dl');
  const row = (term, text) => list.append(element('dt', { textContent: term }), element('dd', { className: 'wide', textContent: text }));
  row('File', size(blob.size));
  if (device) row('Device', device);
  for (const [role, name] of dictionary(request.getResponseHeader('X-Restored-Models'))) row(roles[role] ?? role, name);
  row('Time', seconds(ms));
  for (const [name, t] of parts) {
    const bar = element('div', { className: 'bar' });
    bar.style.setProperty('--share', `${(100 * t) / longest}%`);
    list.append(element('dt', { textContent: steps[name] ?? name }), bar, element('dd', { textContent: seconds(t) }));
  }
  const title = Number.isNaN(faces) ? 'Restored' : faces === 0 ? 'No face restored' : faces === 1 ? '1 face restored' : `${faces} faces restored`;
  $('report').replaceChildren(element('p', { textContent: title }), list);
  $('report').hidden = false;
}

function split(percent) {
  $('split').value = percent;
  view.style.setProperty('--split', `${percent}%`);
  $('split').setAttribute('aria-valuetext', `${Math.round(percent)} % original`);
}

// ---- wiring ----

$('form').addEventListener('submit', (e) => { e.preventDefault(); restore(); });
$('cancel').addEventListener('click', () => state.request?.abort());
$('sample').addEventListener('click', sample);
$('file').addEventListener('change', (e) => { take(e.target.files); e.target.value = ''; });
$('form').addEventListener('input', unblame);
$('weight').addEventListener('input', strength);
$('split').addEventListener('input', (e) => split(Number(e.target.value)));
document.addEventListener('paste', (e) => take(e.clipboardData?.files));

let depth = 0; // dragenter and dragleave come for every element on the way
const dragging = (e, by) => {
  if (!e.dataTransfer?.types.includes('Files')) return;
  e.preventDefault();
  depth = Math.max(0, depth + by);
  document.body.classList.toggle('dragging', depth > 0 && !state.request);
};
addEventListener('dragenter', (e) => dragging(e, 1));
addEventListener('dragleave', (e) => dragging(e, -1));
addEventListener('dragover', (e) => dragging(e, 0));
addEventListener('drop', (e) => { dragging(e, -depth); take(e.dataTransfer?.files); });

await Promise.all([options(), refresh()]);
$('main').setAttribute('aria-busy', 'false');
