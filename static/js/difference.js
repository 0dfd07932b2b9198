// What was changed, while a key or a button is held: the difference of both pictures, so many times as bright that small ones are
// seen. How many times is told, and how large the difference is on average.
import { onKey, overlay, shownFiles } from './compare.js';
import { $ } from './dom.js';
import { language, t } from './lang.js';
import { on } from './state.js';

// The longest side that is measured, in pixels; how many times at most, and until it is measured; the part that stays below white.
const side = 512, most = 32, first = 8, seen = 0.99;
let measured = {}; // {files, times, mean}
let held = false;

async function pixels(file, size) {
  const picture = await createImageBitmap(file, { resizeWidth: size[0], resizeHeight: size[1], resizeQuality: 'medium' });
  const context = new OffscreenCanvas(...size).getContext('2d', { willReadFrequently: true });
  context.drawImage(picture, 0, 0);
  picture.close();
  return context.getImageData(0, 0, ...size).data;
}

// How large the difference is on average, of 255, and how many times as bright it is shown: 1, 2, 4 … 32.
async function measure(files) {
  const { naturalWidth: w, naturalHeight: h } = $('after'), scale = Math.min(1, side / Math.max(w, h));
  const size = [w, h].map((length) => Math.max(1, Math.round(length * scale)));
  const before = await pixels(files[0], size), after = await pixels(files[1], size), counts = new Uint32Array(256);
  let sum = 0;
  for (let i = 0; i < before.length; i++) {
    if (i % 4 === 3) continue;
    const by = Math.abs(before[i] - after[i]);
    counts[by]++;
    sum += by;
  }
  const all = before.length * 0.75;
  let level = 0;
  for (let below = counts[0]; below < seen * all;) below += counts[++level];
  let times = most;
  while (times > 1 && times * level > 255) times /= 2;
  return { files, times, mean: sum / all };
}

function show(times, text = '') {
  overlay(times);
  $('say').textContent = $('differing').textContent = text;
  $('differing').hidden = !text;
}

async function differ(is) {
  const files = is ? shownFiles() : null, known = files?.every((file, i) => file === measured.files?.[i]);
  held = !!files;
  $('difference').setAttribute('aria-pressed', String(held));
  show(held ? (known ? measured.times : first) : 0);
  if (!held) return;
  if (!known) measured = await measure(files).catch(() => ({ times: first })); // too large for the tab: it is shown all the same
  if (held && files[1] === shownFiles()?.[1]) show(measured.times, measured.files ? t('Difference, {0} times as bright. On average: {1} of 255.', measured.times, measured.mean.toLocaleString(language, { maximumFractionDigits: 1 })) : '');
}

onKey('d', () => differ(true));
addEventListener('keyup', (e) => { if (held && e.key.toLowerCase() === 'd') differ(false); });
addEventListener('blur', () => { if (held) differ(false); });
on('shown', () => {
  measured = {}; // it holds files
  if (held) differ(false);
});

const button = $('difference'), keys = [' ', 'Enter'];
button.addEventListener('pointerdown', () => differ(true));
for (const end of ['pointerup', 'pointerleave', 'pointercancel', 'blur']) button.addEventListener(end, () => { if (held) differ(false); });
button.addEventListener('keydown', (e) => {
  if (!keys.includes(e.key)) return;
  e.preventDefault();
  if (!e.repeat) differ(true);
});
button.addEventListener('keyup', (e) => {
  if (!keys.includes(e.key)) return;
  e.preventDefault(); // no click
  differ(false);
});
// Assistive technology clicks without mouse or key, and cannot hold: once on, once off.
button.addEventListener('click', (e) => { if (!e.detail) differ(!held); });
