// Damage: what the server would repair, shown over the picture, left out by kind, painted and erased with a brush. The mask that
// comes out of it goes with the picture.
import { addLayer, isBeforeShown, isTyping, reveal, scaleNow } from './compare.js';
import { $, element } from './dom.js';
import { shutsBy } from './escape.js';
import { mark, t } from './lang.js';
import { end, isPart, look, seen } from './look.js';
import { fields } from './options.js';
import { kindsOf, maskOf, own } from './own.js';
import * as panel from './panel.js';
import { ask } from './server.js';
import { changed, isPending, on, onChange, state } from './state.js';
import * as store from './store.js';
import { draw } from './stroke.js';
import { labels } from './words.js';

const canvas = $('mask'), context = canvas.getContext('2d'), bar = $('brush'), button = $('show_damage');
const most = 2e6; // pixels of the canvas: the mask itself is made as large as the picture, by mask_worker.js
const red = '#ff3b20';
// The server's kinds of damage: [name, gray in its masks].
const kinds = { thin: [mark('Lines'), 240], crack: [mark('Cracks'), 224], dust: [mark('Dust'), 208], stain: [mark('Stains'), 192] };
const colours = { 255: red, 240: '#ffd21f', 224: '#ff7ae0', 208: '#35c4ff', 192: '#7be03a' };

let item = null;    // the picture whose mask is worked on; null: none
let base = null;    // what was found, or an earlier mask: {blob, layers: a bitmap for each of its grays}
let off = [], counts = {}; // kinds that are left alone; how many of each were found
let failed = false; // the server did not say what it finds
let finding = null, request = null; // the promise of what is being found; what gives up asking for it
let wanted = '', transparent = null; // what base was asked for; whether one sees through parts of the picture, null: not known
let strokes = [], undone = []; // {erase, size, points: [[x, y]…]} in pixels of the picture; those that were undone, the last first
let stroke = null, erase = false, looking = null, keeping = null;
let coloured = false; // whether anything is

addLayer(canvas);

// Asks a worker; one answer for one question. Of masks to be shown only the last counts; one that is made is never given up.
function work(question) {
  const worker = new Worker('js/mask_worker.js', { type: 'module' });
  if (question.show) {
    looking?.terminate();
    looking = worker;
  }
  return new Promise((done) => {
    const end = (answer) => {
      worker.terminate();
      done(answer);
    };
    worker.onmessage = ({ data }) => end(data);
    worker.onerror = () => end(null);
    worker.postMessage(question);
  });
}

const ratio = () => canvas.width / item.size.width;

function paint(what) {
  context.globalCompositeOperation = what.erase ? 'destination-out' : 'source-over';
  context.strokeStyle = red;
  draw(context, what, ratio());
}

function redraw() {
  end();
  context.globalCompositeOperation = 'source-over';
  context.clearRect(0, 0, canvas.width, canvas.height);
  for (const gray in base?.layers) if (!off.some((kind) => kinds[kind][1] === Number(gray))) context.drawImage(base.layers[gray], 0, 0);
  strokes.forEach(paint);
  coloured = isColoured();
  enable();
  hint();
}

// Looked for in the pixels only if some were erased: that takes time.
function isColoured() {
  const { width, height } = canvas, rows = 64;
  const some = strokes.some((one) => !one.erase) || Object.keys(base?.layers ?? {}).some((gray) => !off.some((kind) => kinds[kind][1] === Number(gray)));
  if (!some || !strokes.some((one) => one.erase)) return some;
  const copy = new OffscreenCanvas(width, rows).getContext('2d', { willReadFrequently: true });
  for (let y = 0; y < height; y += rows) {
    copy.clearRect(0, 0, width, rows);
    copy.drawImage(canvas, 0, -y);
    if (copy.getImageData(0, 0, width, rows).data.some((value, i) => i % 4 === 3 && value > 127)) return true;
  }
  return false;
}

// What has the focus and goes leaves it to its neighbour.
function enable() {
  for (const [node, all] of [[$('brush_undo'), strokes], [$('brush_redo'), undone]]) {
    if (!all.length && document.activeElement === node) $('brush_paint').focus();
    node.disabled = !all.length;
  }
}

function add(one) {
  strokes.push(one);
  undone = [];
}

// The options that decide what is found.
const choice = () => Object.fromEntries(fields().filter(([name]) => ['repair', 'damage_detector'].includes(name)));

// A server that made a preview of a picture has made it a JPEG.
const isTransparent = async (of) => (of.kind === 'jpeg' ? false : of.seen ? null : work({ transparent: await store.original(of) }));

// The mask that would go with a picture.
const maskNow = (of) => maskOf(of, Object.fromEntries(fields()));

// What is to be shown with the options as they are. Also where nothing would be repaired, all that is found: whoever looks
// wants to see.
function wants(of) {
  const { repair, damage_detector: detector } = choice();
  return maskNow(of) ? 'mask' : `${!!repair} ${detector}`;
}

// Whether the server repairs what is shown without being sent it: repair=auto leaves pictures with transparency alone.
function isSure(unless = transparent) {
  const { repair } = choice();
  return !!maskNow(item) || (wants(item) === wanted && repair !== 'false' && (repair === 'true' || !unless));
}

async function found(of, signal) {
  const body = new FormData(), now = choice(), clear = await isTransparent(of);
  body.append('image', await store.original(of), of.name);
  if (now.repair || clear) body.append('repair', 'true');
  body.append('mask_kinds', 'true');
  if (now.damage_detector) body.append('damage_detector', now.damage_detector);
  const answer = await ask('v1/damage', { method: 'POST', body, signal });
  if (answer.status >= 500 || answer.status === 429) throw new Error(`status ${answer.status}`);
  if (!answer.ok) return null; // a server without a detector: the brush alone
  const counted = [...(answer.headers.get('X-Restored-Damage') ?? '').matchAll(/(\w+)=(\d+)/g)].map(([, kind, count]) => [kind, Number(count)]);
  return { blob: await answer.blob(), counts: Object.fromEntries(counted), transparent: clear };
}

// {base, counts, failed, transparent} of a picture: its own mask, or what the server finds.
async function search(of, signal) {
  const mask = maskNow(of), { blob, lost, ...told } = mask ? { blob: mask, counts: of.own.counts ?? {} } : await found(of, signal).catch(() => ({ lost: true })) ?? {};
  const layers = !signal.aborted && blob && await work({ show: blob, width: canvas.width, height: canvas.height, colours });
  return { counts: {}, transparent: null, ...told, base: blob && layers ? { blob, layers } : null, failed: !!lost };
}

// A switch for each kind of which there is something.
function listKinds() {
  const present = Object.keys(kinds).filter((kind) => counts[kind]);
  $('brush_kinds').replaceChildren(...present.map((kind) => {
    const [name, gray] = kinds[kind], node = element('input', { type: 'checkbox', checked: !off.includes(kind) });
    node.addEventListener('change', () => {
      off = present.filter((one) => (one === kind ? !node.checked : off.includes(one)));
      redraw();
    });
    node.style.accentColor = colours[gray];
    return element('label', {}, node, `${t(name)} ${counts[kind]}`);
  }));
}

async function open(of) {
  await keeping; // the mask that is shown
  if (of !== state.current) return;
  item = of;
  strokes = [];
  undone = [];
  off = of.own.off ?? [];
  counts = of.own.counts ?? {};
  const { width, height } = of.size, scale = Math.min(1, Math.sqrt(most / (width * height)));
  Object.assign(canvas, { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) });
  find(of);
}

// Shows what a picture's mask is with the options as they are. What was painted stays.
async function find(of) {
  request?.abort();
  request = new AbortController();
  wanted = wants(of);
  base = null;
  failed = false;
  button.classList.add('busy');
  const own = finding = search(of, request.signal);
  show();
  listKinds(); // those of the picture before would be switched for this one
  redraw();
  const told = await own;
  if (finding !== own) return; // something else is looked for
  finding = null;
  button.classList.remove('busy');
  if (!item) return;
  ({ base, counts, failed, transparent } = told); // only now: another picture may have been looked at meanwhile
  listKinds();
  redraw();
}

// Whether nothing at all is repaired, and no mask is taken.
const isOff = () => fields().some(([name, value]) => name === 'compat' && value === 'true');
const isChanged = () => strokes.length > 0 || off.join() !== (item.own.off ?? []).join();

// What becomes of what is seen.
function meaning() {
  if (button.classList.contains('busy')) return t('Finding damage');
  if (isOff()) return t('With “{0}”, nothing is repaired.', t(labels.compat[0]));
  if (isPart()) return t('Only what lies within the frame is previewed.');
  if (coloured) return isChanged() || isSure() ? t('What is coloured will be repaired.') : t('What is coloured will be repaired if you keep it.');
  const none = failed ? t('The server did not say what is damaged. Open this again to ask it once more.') : !base ? '' : maskNow(item) || Object.keys(base.layers).length ? t('Nothing will be repaired.') : t('No damage was found.');
  return [none, t('Paint over what is to be repaired.')].filter(Boolean).join(' ');
}

function hint() {
  const text = item ? meaning() : $('brush_hint').textContent;
  if ($('brush_hint').textContent !== text) $('say').textContent = $('brush_hint').textContent = text;
}

// Keeps the mask with the picture, if it was changed; if it is to be sent, also one that was only found and that the server would
// not repair by itself; always: even if it would, for other settings. Whether that went well.
export function keep(sending, always) {
  if (item) keeping = keepNow(item, sending, always).finally(() => { keeping = null; });
  return keeping ?? true;
}

async function keepNow(of, sending, always) {
  lifted();
  end();
  const changes = strokes, left = off, same = !isChanged(), focused = bar.contains(document.activeElement) || document.activeElement === canvas;
  const some = Object.keys(base?.layers ?? {}).length > 0 && !isOff(), sends = some && !isSure(transparent ?? true);
  const keeps = always && some && !sends && !changes.length && !maskNow(of);
  item = null;
  show();
  if (focused) button.focus();
  if (same && !(sending && sends) && !keeps) return true;
  const late = changes.some((one) => one.erase) && finding; // of what is still looked for, some may have been erased
  const { base: had, counts: counted } = late ? await late : { base, counts };
  const found = { off: left, counts: counted }, made = changes.length ? await work({ base: had?.blob, strokes: changes, ...of.size }) : sends ? { blob: had.blob } : {};
  if (!made) {
    panel.fail(t('The mask could not be made.'));
    return false;
  }
  if (made.empty && !had) return true; // nothing was painted; with a base, what was found is not to be repaired
  // What was found is not known yet, or never: it is repaired beside what was painted.
  Object.assign(own(of), found, made.blob && { mask: made.blob, repainted: true, adds: had ? of.own.adds : true }, keeps && { kept: { blob: had.blob, ...choice() } });
  store.put(of);
  $('say').textContent = t('The mask is kept: restore the picture to use it.');
  changed();
  return true;
}

function show() {
  hint();
  const able = state.options.has('mask_mode') && state.current?.size && isBeforeShown() && !isPending(state.current);
  button.hidden = !able;
  button.setAttribute('aria-pressed', String(!!item));
  canvas.hidden = bar.hidden = !item;
  placeSpot();
  $('stage').classList.toggle('painting', !!item);
  $('brush_erase').setAttribute('aria-pressed', String(erase));
  $('brush_paint').setAttribute('aria-pressed', String(!erase));
  $('brush_clear').hidden = !state.current || (!maskNow(state.current) && !state.current.own.off?.length);
}

function use(erases) {
  erase = erases;
  show();
}

// ---- the brush ----

// On the screen, so that it fits what is looked at.
const size = () => Number($('brush_size').value) / scaleNow();
const point = (e) => {
  const box = canvas.getBoundingClientRect();
  return [((e.clientX - box.left) / box.width) * item.size.width, ((e.clientY - box.top) / box.height) * item.size.height];
};

canvas.addEventListener('pointerdown', (e) => {
  if (!item || !e.isPrimary || e.button !== 0) return;
  spot.hidden = true;
  end();
  e.preventDefault();
  canvas.setPointerCapture(e.pointerId);
  stroke = { erase, size: size(), points: [point(e)] };
  paint(stroke);
  coloured ||= !erase;
  hint();
});
canvas.addEventListener('pointermove', (e) => {
  if (!stroke || !e.isPrimary) return;
  stroke.points.push(point(e));
  paint({ ...stroke, points: stroke.points.slice(-2) });
});
const lifted = () => {
  if (!stroke) return;
  add(stroke);
  stroke = null;
  coloured = isColoured();
  enable();
  hint();
};
on('pinched', () => { // two fingers do not paint: what the first one has begun was no stroke
  if (!stroke) return;
  stroke = null;
  redraw();
});
canvas.addEventListener('pointerup', lifted);
canvas.addEventListener('pointercancel', lifted);
canvas.addEventListener('dblclick', (e) => e.stopPropagation()); // two dabs, which zoom nothing

// By keys: the brush stands in the middle of what is seen, arrows move it, the space bar paints. A ring shows where it is.
let cursor = null;
const ring = element('div', { className: 'layer' }), spot = element('i', { className: 'spot', hidden: true });
ring.append(spot);
canvas.after(ring);
addLayer(ring, placeSpot);

function placeSpot() {
  ring.hidden = !item || !cursor;
  if (ring.hidden) return;
  const wide = `${$('brush_size').value}px`;
  Object.assign(spot.style, { left: `${(100 * cursor[0]) / item.size.width}%`, top: `${(100 * cursor[1]) / item.size.height}%`, width: wide, height: wide });
}

function showSpot() {
  const box = canvas.getBoundingClientRect(), view = $('stage').getBoundingClientRect();
  cursor ??= point({ clientX: Math.max(box.left, view.left) / 2 + Math.min(box.right, view.right) / 2, clientY: Math.max(box.top, view.top) / 2 + Math.min(box.bottom, view.bottom) / 2 });
  spot.hidden = false;
  placeSpot();
}

canvas.addEventListener('focus', () => { if (item && canvas.matches(':focus-visible')) showSpot(); });
canvas.addEventListener('blur', () => { spot.hidden = true; });
$('brush_size').addEventListener('input', placeSpot);
canvas.addEventListener('keydown', (e) => {
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  if (!item || !(e.key in steps || e.key === ' ')) return;
  e.preventDefault();
  e.stopPropagation();
  showSpot();
  const [dx, dy] = steps[e.key] ?? [0, 0], from = [...cursor];
  cursor = [Math.min(item.size.width, Math.max(0, cursor[0] + dx * size() / 2)), Math.min(item.size.height, Math.max(0, cursor[1] + dy * size() / 2))];
  if (e.key === ' ' || e.shiftKey) {
    add({ erase, size: size(), points: [from, cursor] });
    redraw();
  }
  placeSpot();
  reveal(spot);
  $('say').textContent = t('{0} % from the left, {1} % from the top', ...[cursor[0] / item.size.width, cursor[1] / item.size.height].map((part) => Math.round(100 * part)));
});

// Undone, or done again: the last stroke of one list goes to the other.
function move(from, to) {
  if (from.length) to.push(from.pop());
  redraw();
}
const undo = () => move(strokes, undone), redo = () => move(undone, strokes);

button.addEventListener('click', () => (item ? keep() : open(state.current)));
$('brush_paint').addEventListener('click', () => use(false));
$('brush_erase').addEventListener('click', () => use(true));
$('brush_undo').addEventListener('click', undo);
$('brush_redo').addEventListener('click', redo);
$('brush_done').addEventListener('click', () => keep(true, true));
$('brush_look').addEventListener('click', () => {
  const region = seen(item.size);
  look(item.size, region, work({ base: base?.blob, strokes, region, ...item.size }), kindsOf(off)).then(hint);
});
$('brush_clear').addEventListener('click', () => {
  const of = item;
  for (const name of ['mask', 'kept', 'adds', 'repainted', 'off', 'counts']) delete of.own[name];
  store.put(of);
  open(of);
  changed();
  $('brush_paint').focus();
});
addEventListener('keydown', (e) => {
  if (!item || isTyping(e.target)) return;
  const key = e.key.toLowerCase();
  if ((e.ctrlKey || e.metaKey) && !e.altKey) { // both: AltGr, by which some keyboards have the brackets
    if (key === 'y' || (key === 'z' && e.shiftKey)) redo();
    else if (key === 'z') undo();
    else return;
  } else if (e.key === 'b' || e.key === 'e') use(e.key === 'e');
  else if (e.key === '[' || e.key === ']') {
    $('brush_size').value = Number($('brush_size').value) + (e.key === ']' ? 4 : -4);
    placeSpot();
  } else return;
  e.preventDefault();
});

shutsBy(() => item, () => { // nothing that was painted is lost: Undo and "Start again" are for that
  keep();
  button.focus();
});
on('shown', () => { cursor = null; keep(); });
on('seen', show);
onChange(() => {
  if (item && wants(item) !== wanted) find(item); // the options have changed
  else show();
});
