// What is known before a picture is sent: how large the result will be, whether the server makes that, how long it takes.
import { $, bytes, megapixels, roughly, sentence, times } from './dom.js';
import { isReadOnly, names } from './kinds.js';
import { fields, isSized, scale, warn } from './options.js';
import { language, said, t } from './lang.js';
import { meaning } from './refused.js';
import { estimate } from './server.js';
import { labels } from './words.js';
import { changed, isHere, isPending, on, onChange, state } from './state.js';

const longestJpeg = 65535, long = 300; // seconds
let asked = '', running = null, timer = 0, expected = null, stale = false;
let refused = null; // {fields, text, detail, lang}: what the server does not take

const option = (name) => fields().find(([key]) => key === name)?.[1];
const aligned = () => option('aligned') === 'true';

// How large the result becomes, or would with a scale: [width, height, pixels before it is cut].
function result({ width, height }, by) {
  if (by || !isSized()) {
    const size = [width, height].map((side) => Math.floor(side * (by ?? scale())));
    return [...size, size[0] * size[1]];
  }
  const [w, h, most] = ['width', 'height', 'max_side'].map((name) => Number(option(name)) || 0), fit = option('fit');
  let x = w / width, y = h / height;
  if (most) x = y = most / Math.max(width, height);
  else if (!w || !h) x = y = x || y;
  else if (fit !== 'fill') x = y = fit === 'cover' ? Math.max(x, y) : Math.min(x, y);
  const whole = [width * x, height * y].map((side) => Math.max(1, Math.round(side)));
  return [...(w && h && fit === 'cover' ? [w, h] : whole), whole[0] * whole[1]];
}

// The limit that a result would break, in words; '' if it breaks none.
function excess(item, by) {
  const [w, h, pixels] = result(item.size, by), most = state.limits.result_pixels;
  if (pixels > most) return t('The result would have {0}; the server makes at most {1}.', megapixels(pixels), megapixels(most));
  const format = option('ext') ?? item.kind;
  return /^jpe?g$/.test(format) && Math.max(w, h) > longestJpeg ? t('A JPEG is at most {0} pixels wide and high.', longestJpeg) : '';
}

const isTooLarge = (item, by) => !!excess(item, by);

// The field with the size in pixels that counts: the longer side wins, then the larger of the two.
const sizeField = () => (option('max_side') ? 'max_side' : Number(option('height') ?? 0) > Number(option('width') ?? 0) ? 'height' : 'width');

const fitting = (item) => radios().map((radio) => Number(radio.value)).filter((by) => !isTooLarge(item, by));

// Why a picture cannot be restored like this; '' when it can, or when its size is not known yet.
export function obstacle(item) {
  const { limits } = state, size = item?.size;
  if (item && refused?.fields === String(fields())) return refused.text;
  if (item?.bytes > limits.body_bytes) return t('This file is {0}; the server accepts at most {1}.', bytes(item.bytes), bytes(limits.body_bytes));
  if (!size) return '';
  if (size.width * size.height > limits.input_pixels)
    return t('This picture has {0}; the server accepts at most {1}. Resize it first in a photo program.', megapixels(size.width * size.height), megapixels(limits.input_pixels));
  if (aligned() || !isTooLarge(item)) return '';
  if (isSized()) return `${excess(item)} ${t('Choose a smaller number for “{0}” under “More options”.', t(labels[sizeField()][0]))}`;
  const some = fitting(item);
  return some.length ? t('The result would be larger than the server makes. Choose {0}× or less.', times(Math.max(...some))) : `${excess(item)} ${t('Resize it first in a photo program.')}`;
}

const radios = () => [...$('scale').querySelectorAll('input')];

function showScales() {
  for (const radio of radios()) radio.disabled = !!state.current?.size && !aligned() && isTooLarge(state.current, Number(radio.value));
  const some = radios().some((radio) => radio.disabled);
  $('help_upscale').textContent = t('How many times wider and taller the result is.')
    + (some ? ` ${t('Results of more than {0} are not made.', megapixels(state.limits.result_pixels ?? longestJpeg ** 2))}` : '');
}

// How large the result will be, and how large it can be printed at 300 dots an inch.
function outcome() {
  const { width, height } = state.current.size;
  if (aligned()) return width === height ? t('The result is the face alone.') : t('The result is the face alone. This picture is not square, so it will be squeezed: cut it to a square first.');
  if (isSized() && !['width', 'height', 'max_side'].some((name) => Number(option(name)) > 0)) return ''; // no number yet
  const [w, h] = result({ width, height });
  const cm = (pixels) => Math.max(1, Math.round((pixels / 300) * 2.54));
  const size = (...parts) => parts.join('\u00a0'); // on one line
  const text = t('Result: {0}, a print of {1}', size(w, '×', h, 'px'), size(cm(w), '×', cm(h), 'cm'));
  const { kind } = state.current;
  return option('ext') || !isReadOnly(kind) ? text : `${text}\u00a0· ${t('as JPEG or PNG, because {0} cannot be written', names[kind])}`;
}

function duration() {
  const { seconds, queue_seconds: queue = 0, measured, fits, reason, code } = expected;
  if (fits === false) return { warn: true, text: said('problem', code, sentence(reason)) };
  if (!(seconds >= 0)) return null;
  const guess = measured === false ? t('perhaps {0}', roughly(seconds)) : roughly(seconds);
  const place = isHere ? t('{0} on this computer', guess) : t('{0} on the server', guess);
  const text = queue >= 5 ? t('{0}, after {1} of waiting', place, roughly(queue)) : place;
  return seconds + queue >= long ? { warn: true, text: t('This will take long: {0}.', text) } : { warn: false, text };
}

function show() {
  const plan = $('plan'), time = expected && duration();
  const problem = state.problem || (time?.warn ? time.text : '');
  const parts = [state.current?.size && !state.problem && outcome(), time && !time.warn && !state.problem && time.text].filter(Boolean);
  plan.textContent = parts.join('\u00a0· ');
  $('plan_problem').textContent = problem;
  $('plan_problem').hidden = !problem;
}

// Asks once the user has stopped to change things.
function ask() {
  const { current, ready, problem } = state;
  const size = current?.size;
  if (current && isPending(current)) {
    asked = ''; // the server learns from what it does: ask again afterwards
    return;
  }
  const wanted = size && ready && !problem ? String(new URLSearchParams([['width', size.width], ['height', size.height], ...fields().map(([name, text]) => [/^(width|height)$/.test(name) ? `result_${name}` : name, text])])) : '';
  if (wanted === asked && !stale) return;
  if (wanted !== asked) expected = null;
  asked = wanted;
  stale = false;
  running?.abort();
  clearTimeout(timer);
  if (!wanted) return;
  timer = setTimeout(async () => {
    running = new AbortController();
    const answer = await estimate(wanted, running.signal);
    if (asked !== wanted) return;
    if (answer?.problem) return refuse(answer.problem);
    expected = answer;
    show();
  }, 250);
}

function refuse({ code, detail }) {
  const name = (detail ?? '').replace(/^result_/, ''); // as it is called there
  const { text, foreign } = meaning({ code, detail: name });
  refused = { fields: String(fields()), detail: name, text, lang: foreign ? 'en' : language };
  changed();
}

on('ended', () => { stale = true; }); // others wait less now
onChange(() => {
  showScales();
  const problem = obstacle(state.current);
  warn(problem && problem === refused?.text ? refused : null);
  if (problem !== state.problem) {
    state.problem = problem;
    changed(); // the buttons follow
    return;
  }
  ask();
  show();
});
