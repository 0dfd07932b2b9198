// Before and after: a slider or side by side, both enlarged and moved in step.
// 100 % is one pixel of the picture on one of the screen.
import { $, bytes, megapixels } from './dom.js';
import { lead } from './download.js';
import { isDark } from './previews.js';
import { ask, fileName } from './server.js';
import { t } from './lang.js';
import { changed, isPending, on, onChange, state, tell } from './state.js';
import * as store from './store.js';

const stage = $('stage'), view = $('view'), split = $('split'), handle = $('handle');
const sides = { before: { image: $('before'), pane: $('pane_before'), url: null }, after: { image: $('after'), pane: $('pane_after'), url: null } };
const most = 8, step = 1.25, threshold = 8; // times, times, pixels sideways that make a touch a move of the line
const largest = 48e6, preview = 2048; // pixels of a result that a tab holds; of the longest side of a larger one's preview
const still = matchMedia('(prefers-reduced-motion: reduce)');

let mode = 'slider', position = 50;
let zoom = 0;                  // CSS pixels a pixel of the picture; 0: it fits
const centre = { x: 0.5, y: 0.5 };
let result = null;             // {item, bytes, name}
const unable = new Set(['tiff']); // formats that the browser does not show: of these, too, it gets a preview and pieces
let whole = null;              // the size of a result of which there is a preview and pieces

// ---- where the pictures lie ----

const sizeOf = ({ image }) => ({ width: image.naturalWidth, height: image.naturalHeight });
const hasAfter = () => !sides.after.image.hidden;
const size = () => (hasAfter() ? whole ?? sizeOf(sides.after) : sizeOf(sides.before));
const screen = () => devicePixelRatio || 1;

// The panes, in pixels of the stage.
function panes() {
  const { clientWidth: w, clientHeight: h } = stage;
  if (mode !== 'side' || !hasAfter() || view.classList.contains('differing')) return [{ x: 0, y: 0, w, h }, { x: 0, y: 0, w, h }];
  const { width, height } = size();
  const beside = Math.min(w / 2 / width, h / height) >= Math.min(w / width, h / 2 / height);
  return beside ? [{ x: 0, y: 0, w: w / 2 - 1, h }, { x: w / 2 + 1, y: 0, w: w / 2 - 1, h }]
    : [{ x: 0, y: 0, w, h: h / 2 - 1 }, { x: 0, y: h / 2 + 1, w, h: h / 2 - 1 }];
}

const fit = ({ w, h }) => Math.min(w / size().width, h / size().height);
export const scaleNow = () => zoom || fit(panes()[0]);
export const isZoomed = () => zoom > fit(panes()[0]); // more than fits
const toFit = () => zoomTo(fit(panes()[0]));

// Where the picture lies in a pane.
function frame({ w, h }) {
  const { width, height } = size(), scale = scaleNow();
  const place = (room, length, at) => (length <= room ? (room - length) / 2 : Math.min(0, Math.max(room - length, room / 2 - at * length)));
  return { left: place(w, width * scale, centre.x), top: place(h, height * scale, centre.y), width: width * scale, height: height * scale };
}

function put(node, box) {
  for (const [name, value] of Object.entries(box)) node.style[name] = `${value}px`;
}

const layers = []; // what lies over the picture, such as boxes of faces: [node, draw]
export const addLayer = (node, draw = () => {}, inPane = false) => layers.push([node, draw, inPane]);

export function layout() {
  const { width } = size();
  if (!width || view.hidden) return;
  const [left, right] = panes(), box = frame(left);
  view.dataset.mode = hasAfter() ? mode : 'one';
  put(sides.before.pane, { left: left.x, top: left.y, width: left.w, height: left.h });
  put(sides.after.pane, { left: right.x, top: right.y, width: right.w, height: right.h });
  for (const { image } of Object.values(sides)) put(image, box);
  const shown = { left: Math.max(0, box.left), right: Math.min(left.w, box.left + box.width) };
  const line = shown.left + ((shown.right - shown.left) * position) / 100;
  view.style.setProperty('--line', `${line}px`);
  view.style.setProperty('--split', `${position}%`);
  put(handle, { left: line, top: Math.max(0, box.top), height: Math.min(left.h, box.top + box.height) - Math.max(0, box.top) });
  const percent = Math.round(100 * scaleNow() * screen());
  $('zoom').textContent = `${percent}\u00a0%`;
  view.classList.toggle('pixels', percent >= 200);
  stage.classList.toggle('zoomed', isZoomed());
  for (const [node, draw, inPane] of layers) {
    const over = inPane ? { x: 0, y: 0 } : mode === 'side' && hasAfter() ? right : left;
    put(node, { left: over.x + box.left, top: over.y + box.top, width: box.width, height: box.height });
    draw(box, left);
  }
}

// ---- zoom ----

// Enlarges so that the point of the stage stays where it is. The least is what fits, or 100 %.
function zoomTo(to, point = null) {
  const pane = panes()[0], old = frame(pane), fitting = fit(pane);
  const at = point ? { x: point.x % (pane.w + 2), y: point.y % (pane.h + 2) } : { x: pane.w / 2, y: pane.h / 2 };
  const on = { x: (at.x - old.left) / old.width, y: (at.y - old.top) / old.height };
  const wanted = Math.min(Math.max(most / screen(), fitting), Math.max(to, Math.min(fitting, 1 / screen())));
  zoom = Math.abs(wanted - fitting) < 0.001 * fitting ? 0 : wanted;
  if (zoom) {
    const now = frame(pane);
    centre.x = on.x + (pane.w / 2 - at.x) / now.width;
    centre.y = on.y + (pane.h / 2 - at.y) / now.height;
    settle(pane);
  } else centre.x = centre.y = 0.5;
  layout();
  tell('zoomed');
}

// The centre is one that can be shown.
function settle(pane) {
  const box = frame(pane);
  for (const [axis, room, start, length] of [['x', pane.w, box.left, box.width], ['y', pane.h, box.top, box.height]])
    centre[axis] = length <= room ? 0.5 : (room / 2 - start) / length;
}

function pan(dx, dy) {
  const pane = panes()[0], box = frame(pane);
  centre.x -= dx / box.width;
  centre.y -= dy / box.height;
  settle(pane);
  layout();
  tell('zoomed');
}

// Moves the picture so that what lies over it, such as the box of a face, is seen.
export function reveal(node) {
  const box = node.getBoundingClientRect(), room = sides.after.pane.getBoundingClientRect(); // layers lie over this one
  const by = (start, end) => (box[start] >= room[start] && box[end] <= room[end] ? 0 : (room[start] + room[end] - box[start] - box[end]) / 2);
  const x = by('left', 'right'), y = by('top', 'bottom');
  if (isZoomed() && (x || y)) pan(x, y);
}

const isShown = () => !view.hidden;
export const isBeforeShown = () => isShown() && sizeOf(sides.before).width > 0;
const everyPixel = () => zoomTo(1 / screen());

$('zoom_in').addEventListener('click', () => zoomTo(scaleNow() * 1.5));
$('zoom_out').addEventListener('click', () => zoomTo(scaleNow() / 1.5));
$('zoom').addEventListener('click', () => (zoom ? toFit() : everyPixel()));

stage.addEventListener('wheel', (e) => {
  if (!isShown() || (e.deltaY > 0 && !isZoomed() && !e.ctrlKey)) return; // what fits is left to the page
  e.preventDefault();
  const box = stage.getBoundingClientRect();
  zoomTo(scaleNow() * step ** (-Math.sign(e.deltaY) * Math.min(2, Math.abs(e.deltaY) / 100)), { x: e.clientX - box.left, y: e.clientY - box.top });
}, { passive: false });
stage.addEventListener('dblclick', (e) => {
  if (!isShown() || e.target.closest('button')) return;
  const box = stage.getBoundingClientRect();
  zoomTo(zoom ? fit(panes()[0]) : 1 / screen(), { x: e.clientX - box.left, y: e.clientY - box.top });
});

// ---- the line ----

export function move(percent) {
  position = Math.min(100, Math.max(0, percent));
  split.value = position;
  split.setAttribute('aria-valuetext', t('{0} % original', Math.round(position)));
  layout();
}

function follow(e) {
  const [pane] = panes(), box = frame(pane);
  const left = Math.max(0, box.left), right = Math.min(pane.w, box.left + box.width);
  move((100 * (e.clientX - stage.getBoundingClientRect().left - left)) / (right - left));
}

// ---- mouse and fingers ----

const fingers = new Map(); // pointer -> {x, y}
let drag = null;           // {x, y, moving, what: 'line' or 'pan'}
let pinch = null;          // {distance, x, y, scale}

const apart = () => {
  const [a, b] = [...fingers.values()];
  return { distance: Math.hypot(a.x - b.x, a.y - b.y), x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
};
const hasLine = () => !split.hidden && mode === 'slider';
const isNearLine = (e) => Math.abs(e.clientX - stage.getBoundingClientRect().left - parseFloat(view.style.getPropertyValue('--line'))) < 24;

stage.addEventListener('pointerdown', (e) => {
  if (!isShown() || e.button !== 0 || e.target.closest('button, .tools, .card')) return;
  fingers.set(e.pointerId, { x: e.clientX, y: e.clientY });
  if (fingers.size === 2) {
    pinch = { ...apart(), scale: scaleNow() };
    drag = null;
    tell('pinched', state.current);
    return;
  }
  if (e.defaultPrevented) return; // it paints
  const what = hasLine() && (!isZoomed() || isNearLine(e)) ? 'line' : isZoomed() ? 'pan' : null;
  if (!what) return;
  drag = { x: e.clientX, y: e.clientY, what, moving: e.pointerType === 'mouse' || what === 'pan' };
  if (!drag.moving) return; // a finger may be about to scroll
  stage.setPointerCapture(e.pointerId);
  if (what === 'line') {
    follow(e);
    split.focus({ preventScroll: true });
  }
  e.preventDefault();
});
stage.addEventListener('pointermove', (e) => {
  if (fingers.has(e.pointerId)) fingers.set(e.pointerId, { x: e.clientX, y: e.clientY });
  if (pinch && fingers.size === 2) {
    const now = apart(), box = stage.getBoundingClientRect();
    pan(now.x - pinch.x, now.y - pinch.y);
    Object.assign(pinch, { x: now.x, y: now.y });
    zoomTo((pinch.scale * now.distance) / pinch.distance, { x: now.x - box.left, y: now.y - box.top });
    return;
  }
  if (!drag || !fingers.has(e.pointerId)) return;
  if (drag.what === 'pan') {
    pan(e.clientX - drag.x, e.clientY - drag.y);
    Object.assign(drag, { x: e.clientX, y: e.clientY });
    return;
  }
  const aside = Math.abs(e.clientX - drag.x);
  if (!drag.moving && (aside < threshold || aside < Math.abs(e.clientY - drag.y))) return;
  if (!drag.moving) stage.setPointerCapture(e.pointerId);
  drag.moving = true;
  follow(e);
});
const released = (e) => {
  if (!fingers.has(e.pointerId)) return;
  if (e.type === 'pointerup' && drag?.what === 'line' && !drag.moving && Math.hypot(e.clientX - drag.x, e.clientY - drag.y) < threshold) follow(e); // a tap
  fingers.delete(e.pointerId);
  drag = pinch = null;
};
addEventListener('pointerup', released); // wherever: what it came down on may be gone
addEventListener('pointercancel', released); // the browser scrolls

// ---- keys ----

const steps = { ArrowLeft: -2, ArrowDown: -2, ArrowRight: 2, ArrowUp: 2, PageDown: -10, PageUp: 10 };
split.addEventListener('keydown', (e) => {
  if (!steps[e.key] || e.altKey || e.ctrlKey || e.metaKey) return;
  e.preventDefault();
  move(position + steps[e.key] * (e.shiftKey && Math.abs(steps[e.key]) < 10 ? 5 : 1));
});
split.addEventListener('input', () => move(Number(split.value)));

const pans = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
stage.addEventListener('keydown', (e) => {
  if (e.target !== stage || !pans[e.key] || !isZoomed()) return;
  e.preventDefault();
  const [x, y] = pans[e.key], far = e.shiftKey ? 0.5 : 0.1;
  pan(x * far * stage.clientWidth, y * far * stage.clientHeight);
});

export const isTyping = (node) => node?.closest?.('input:not([type="range"], [type="radio"], [type="checkbox"]), select, textarea, dialog');
const keys = {
  '+': () => zoomTo(scaleNow() * 1.5), '=': () => zoomTo(scaleNow() * 1.5), '-': () => zoomTo(scaleNow() / 1.5),
  0: toFit, 1: everyPixel, s: () => setMode(mode === 'side' ? 'slider' : 'side'),
};
export const onKey = (key, act) => { keys[key] = act; };
addEventListener('keydown', (e) => {
  if (!isShown() || e.altKey || e.ctrlKey || e.metaKey || e.repeat || isTyping(e.target) || !keys[e.key]) return;
  keys[e.key]();
});

// ---- side by side, and one over the other ----

function setMode(to) {
  if (!hasAfter()) return;
  mode = to;
  split.hidden = handle.hidden = mode === 'side';
  $('side').setAttribute('aria-pressed', String(mode === 'side'));
  if (zoom) zoomTo(zoom); // what is looked at stays, in panes of another size
  else layout();
}

$('side').addEventListener('click', () => setMode(mode === 'side' ? 'slider' : 'side'));

// Lays the restored picture over the original as their difference, that many times as bright; 0: no more.
export function overlay(times) {
  view.classList.toggle('differing', times > 0);
  view.style.setProperty('--times', times);
  layout();
}
export const shownFiles = () => (hasAfter() && sides.before.blob ? [sides.before.blob, sides.after.blob] : null);

new ResizeObserver(layout).observe(stage);

// ---- what is shown ----

function load(side, blob) {
  if (side.url) URL.revokeObjectURL(side.url);
  side.url = blob ? URL.createObjectURL(blob) : null;
  side.blob = blob;
  if (blob) side.image.src = side.url;
  else side.image.removeAttribute('src');
}

let asked = null; // the picture that is being brought

async function showBefore(item) {
  asked = item;
  result = null;
  showPieces(null);
  load(sides.after, null);
  load(sides.before, null);
  view.hidden = sides.after.image.hidden = split.hidden = handle.hidden = true;
  unseen();
  note();
  $('download').hidden = true;
  stage.dataset.state = item ? 'chosen' : 'empty';
  zoom = 0;
  if (!item) return;
  const file = await store.shown(item);
  if (asked !== item) return;
  if (file) load(sides.before, file);
  else unseen(t('No preview: the browser cannot show this file.'));
  if (item.state === 'done') showAfter(item);
}

function unseen(text = '') {
  $('unseen').textContent = text;
  $('unseen').hidden = !text;
}

on('unseen', (item) => {
  if (item === state.current && !isShown()) unseen(isDark(item) ? t('No preview: the browser cannot show this file.') : t('The server is making a preview.'));
});
on('previewed', async (item) => {
  const file = await store.shown(item);
  if (asked === item) load(sides.before, file);
});

sides.before.image.addEventListener('load', () => {
  const item = state.current;
  view.hidden = false;
  unseen();
  if (item && !item.size) {
    const { width, height } = sizeOf(sides.before);
    item.size = { width, height };
    changed();
  }
  layout();
  tell('seen', item);
});
sides.before.image.addEventListener('error', () => {
  if (!sides.before.image.getAttribute('src')) return;
  tell('unseen', state.current);
});

// A name of its own beside the input, where the server's is the input's, maybe of another format; file systems may not tell A from a.
const stem = (name) => name.replace(/\.[^.]*$/, '').toLowerCase();
const beside = (input, name) => (stem(name) === stem(input) ? name.replace(/(\.[^.]*)?$/, '_restored$1') : name);

const named = (item) => item.name.replace(/(\.[^.]*)?$/, `.${item.report.output.format.replace('jpeg', 'jpg')}`);

function note(text = '') {
  $('too_large').textContent = text;
  $('too_large').hidden = !text;
}

let pieces = null; // the module, once it is needed

async function showPieces(job, of = null) {
  whole = of;
  if (job) pieces ??= await import('./pieces.js');
  if (whole === of) pieces?.show(job, of, preview);
  if (job) layout();
}

async function showAfter(item) {
  const { job } = item, { width = 0, height = 0, format } = item.report?.output ?? {};
  const large = job && (width * height > largest || unable.has(format));
  if (large) {
    result = { item, bytes: item.report.output.bytes, name: beside(item.name, named(item)) };
    lead($('download'), `v1/jobs/${job}/result`);
    note(t('The result has {0}. A preview of it is being made.', megapixels(width * height)));
  }
  try {
    const answer = item.result ? new Response(item.result) : await ask(`v1/jobs/${job}/result${large ? `?preview=${preview}` : ''}`);
    if ([404, 410].includes(answer.status)) {
      Object.assign(item, { state: 'failed', problem: { text: t('The server has kept the result for its time, and has it no more.'), advice: t('Restore the picture again.') } });
      store.put(item);
      return changed();
    }
    if (large && [415, 422, 507].includes(answer.status)) return note(t('The result has {0}: too many to be shown here. It can be downloaded.', megapixels(width * height)));
    if (!answer.ok) throw new Error(answer.status);
    const blob = await answer.blob();
    if (asked !== item || item.job !== job) return;
    load(sides.after, blob);
    if (large) {
      note();
      await showPieces(job, { width, height });
      return caption();
    }
    result = { item, bytes: blob.size, name: beside(item.name, item.result ? named(item) : fileName(answer.headers.get('Content-Disposition'))) };
    Object.assign($('download'), { href: sides.after.url, download: result.name, hidden: false, onclick: null });
    caption();
  } catch {
    if (asked === item && item.job === job) setTimeout(() => { if (asked === item && item.job === job) showAfter(item); }, 3000);
  }
}

sides.after.image.addEventListener('load', () => {
  view.hidden = false;
  sides.after.image.hidden = false;
  unseen();
  stage.dataset.state = 'done';
  split.hidden = handle.hidden = mode === 'side';
  move(50);
  caption();
  stage.scrollIntoView({ block: 'nearest', behavior: still.matches ? 'auto' : 'smooth' });
  tell('seen', state.current);
});
sides.after.image.addEventListener('error', () => {
  if (!sides.after.image.getAttribute('src')) return;
  const item = state.current, format = item?.report?.output?.format;
  if (item?.job && format && !unable.has(format)) {
    unable.add(format);
    showAfter(item);
  } else unseen(t('The browser cannot show this picture; it can be downloaded.'));
});

function caption() {
  const item = state.current, shown = result?.item === item && hasAfter() ? result : null;
  const { width, height } = shown ? size() : item?.size ?? {};
  const name = shown?.name ?? item?.name;
  $('name').textContent = item ? [name, width && `${width} × ${height}`, bytes(shown ? shown.bytes : item.bytes)].filter(Boolean).join(' · ') : t('No picture yet');
  $('name').title = name ?? '';
  $('remove').hidden = !item;
  $('remove').textContent = item && isPending(item) && state.items.length > 1 ? t('Cancel this one') : t('Remove');
}

let had = '';
on('shown', showBefore);
onChange(() => {
  const item = state.current, now = item ? `${item.id} ${item.state} ${item.job}` : '';
  caption();
  stage.classList.toggle('busy', !!item && isPending(item));
  if (now === had) return;
  const same = had.startsWith(item?.id ?? '-');
  had = now;
  if (same && item.state === 'done' && result?.item !== item) showAfter(item);
  else if (same && isPending(item) && result) showBefore(item); // it is done once more
});
