// What is known before a picture is sent: how large the result will be, whether the server makes that, how long it takes.
import { $, bytes, megapixels, roughly, sentence } from './dom.js';
import { fields, scale } from './options.js';
import { estimate } from './server.js';
import { changed, here, onChange, state } from './state.js';

const longestJpeg = 65535, long = 300; // seconds
let asked = '', running = null, timer = 0, expected = null;

const option = (name) => fields().find(([key]) => key === name)?.[1];
const aligned = () => option('aligned') === 'true';

function isTooLarge(by) {
  const { width, height } = state.size;
  const w = Math.floor(width * by), h = Math.floor(height * by);
  if (w * h > (state.limits.result_pixels ?? Infinity)) return true;
  const format = option('ext') ?? state.kind;
  return /^jpe?g$/.test(format) && Math.max(w, h) > longestJpeg;
}

// Why this picture cannot be restored like this; '' when it can.
function obstacle() {
  const { file, size, limits } = state;
  if (file?.size > limits.body_bytes) return `This file is ${bytes(file.size)}; the server accepts at most ${bytes(limits.body_bytes)}.`;
  if (!size) return '';
  if (size.width * size.height > limits.input_pixels)
    return `This picture has ${megapixels(size.width * size.height)}; the server accepts at most ${megapixels(limits.input_pixels)}. Resize it first in a photo program.`;
  if (aligned() || !isTooLarge(scale())) return '';
  const fitting = radios().filter((radio) => !radio.disabled).map((radio) => Number(radio.value));
  return fitting.length ? `The result would be larger than the server makes. Choose ${Math.max(...fitting)}× or less.` : 'The result would be larger than the server makes.';
}

const radios = () => [...$('scale').querySelectorAll('input')];

function showScales() {
  for (const radio of radios()) radio.disabled = !!state.size && !aligned() && isTooLarge(Number(radio.value));
  const some = radios().some((radio) => radio.disabled);
  $('help_upscale').textContent = 'How many times wider and taller the result is.'
    + (some ? ` Results of more than ${megapixels(state.limits.result_pixels ?? longestJpeg ** 2)} are not made.` : '');
}

// How large the result will be, and how large it can be printed at 300 dots an inch.
function outcome() {
  const { width, height } = state.size;
  if (aligned()) return width === height ? 'The result is the face alone.' : 'The result is the face alone. This picture is not square, so it will be squeezed: cut it to a square first.';
  const w = Math.floor(width * scale()), h = Math.floor(height * scale());
  const cm = (pixels) => Math.max(1, Math.round((pixels / 300) * 2.54));
  const size = (...parts) => parts.join('\u00a0'); // on one line
  return `Result: ${size(w, '×', h, 'px')}, a print of ${size(cm(w), '×', cm(h), 'cm')}`;
}

function duration() {
  const { seconds, queue_seconds: queue = 0, measured, fits, reason } = expected;
  if (fits === false) return { warn: true, text: sentence(reason || 'this picture needs more memory than there is') };
  if (!(seconds >= 0)) return null;
  const text = `${measured === false ? 'perhaps ' : ''}${roughly(seconds)} on ${here}${queue >= 5 ? `, after ${roughly(queue)} of waiting` : ''}`;
  return seconds + queue >= long ? { warn: true, text: `This will take long: ${text}.` } : { warn: false, text };
}

function show() {
  const plan = $('plan'), time = expected && duration();
  const problem = state.problem || (time?.warn ? time.text : '');
  const parts = [state.size && !state.problem && outcome(), time && !time.warn && !state.problem && time.text].filter(Boolean);
  plan.textContent = parts.join('\u00a0· ');
  $('plan_problem').textContent = problem;
  $('plan_problem').hidden = !problem;
}

// Asks once the user has stopped to change things.
function ask() {
  const { size, ready, problem, request } = state;
  if (request) {
    asked = ''; // the server learns from what it does: ask again afterwards
    return;
  }
  const wanted = size && ready && !problem ? String(new URLSearchParams([['width', size.width], ['height', size.height], ...fields()])) : '';
  if (wanted === asked) return;
  asked = wanted;
  expected = null;
  running?.abort();
  clearTimeout(timer);
  if (!wanted) return;
  timer = setTimeout(async () => {
    running = new AbortController();
    const answer = await estimate(wanted, running.signal);
    if (asked !== wanted) return;
    expected = answer;
    show();
  }, 250);
}

onChange(() => {
  showScales();
  const problem = obstacle();
  if (problem !== state.problem) {
    state.problem = problem;
    changed(); // the buttons follow
    return;
  }
  ask();
  show();
});
