// The options: made from what the server says of itself, kept over a reload, and sent where they differ from the defaults.
import { $, element, times } from './dom.js';
import { mark, t } from './lang.js';
import { names } from './kinds.js';
import { common, groups, labels, unlisted } from './words.js';
import { changed, state } from './state.js';

const place = 'restored'; // in localStorage
const ofOnePicture = ['faces', 'aligned', 'page']; // not kept: the next picture is another

function choices(select, rows) {
  select.replaceChildren(...rows.map(([value, text]) => element('option', { value, textContent: text })));
}

const licence = (m) => (m.non_commercial ? ` · ${m.licence}, ${t('not for commercial use')}` : m.licence ? ` · ${m.licence}` : '');

const label = (m) => t('With {0}', `${m.name}${m.scale > 1 ? ` (${m.scale}×)` : ''}`) + licence(m);

// Models of a kind, with their licences; the default comes first and, being the default, is sent as nothing at all.
// list null: nobody knows which.
function models(list, kind, standard, none) {
  if (!list) return [['', t('The server cannot be reached.')]];
  const mine = list.filter((m) => m.kind === kind);
  const chosen = mine.find((m) => m.default);
  const rows = [['', chosen ? t(standard) + (chosen.non_commercial ? licence(chosen) : '') : t('Not available on this server')]];
  for (const m of mine) if (m !== chosen) rows.push([m.name, label(m)]);
  if (none && mine.length) rows.push(['none', t(none)]);
  return rows;
}

// Networks for damage: there is no default, the server takes the best.
function networks(list, kind, none) {
  const mine = (list ?? []).filter((m) => m.kind === kind);
  return mine.length ? [['', t('Automatic')], ...mine.map((m) => [m.name, label(m)]), ['none', t(none)]] : [['', t(none)]];
}

// "auto, png or jpg" -> the words of an enum
const words = (allowed) => String(allowed).split(/\s*(?:,|\||\bor\b)\s*/).filter(Boolean);

function control({ name, type, allowed, default: standard }, devices, list) {
  const initial = String(standard ?? '');
  if (type === 'boolean') return element('input', { type: 'checkbox', defaultChecked: initial === 'true' });
  const select = element('select');
  if (name === 'device') choices(select, [['', t('Automatic')], ...devices.map((d) => [d.id, `${d.name} (${d.id})`])]);
  else if (name === 'detector') choices(select, models(list, 'detector', 'Automatic'));
  else if (name === 'damage_detector') choices(select, networks(list, 'damage', mark('Only what you paint')));
  else if (name === 'fill') choices(select, networks(list, 'filler', mark('Smoothly, from the surroundings')));
  else if (type === 'enum') {
    const rows = words(allowed).map((word) => [word === initial ? '' : word, labels[name]?.[2]?.[word] ? t(labels[name][2][word]) : word]);
    choices(select, rows.sort(([a], [b]) => !!a - !!b)); // the default comes first
  } else return element('input', {
    type: 'text', title: labels[name] ? '' : allowed, placeholder: initial === 'auto' ? t('automatic') : initial || t('none'),
    inputMode: type === 'integer' ? 'numeric' : type === 'number' ? 'decimal' : 'text',
    autocomplete: 'off', spellcheck: false,
  });
  return select;
}

function field(option, devices, list) {
  const { name, help } = option;
  const [title, text] = labels[name] ?? [name[0].toUpperCase() + name.slice(1).replaceAll('_', ' '), help ?? ''];
  const input = Object.assign(control(option, devices, list), { id: `option_${name}`, name });
  input.setAttribute('aria-describedby', `help_${name}`);
  if (input.type === 'text') input.dataset.standard = option.default ?? '';
  return element('div', { className: 'field' }, element('label', { htmlFor: input.id, textContent: t(title) }), input,
    element('small', { id: `help_${name}`, textContent: t(text) }));
}

export function build(capabilities, list, devices) {
  const rows = (capabilities?.options ?? []).filter((o) => !unlisted.includes(o.name));
  const initial = (name, otherwise) => String(rows.find((o) => o.name === name)?.default ?? otherwise);
  const scale = Number(initial('upscale', '2'));
  $('scale').replaceChildren(...['1', '1.5', '2', '3', '4', '8'].map((value) => element('label', {},
    element('input', { type: 'radio', name: 'upscale', value, defaultChecked: Number(value) === scale }),
    element('span', { textContent: `${times(Number(value))}×` }))));
  choices($('version'), models(list, 'face', mark('Restore (recommended)'), mark('Leave as they are')));
  choices($('bg_upsampler'), models(list, 'upscaler', mark('Sharpen (recommended)'), mark('Only enlarge')));
  choices($('ext'), [['', t('Same as the picture')], ...(capabilities?.formats?.out ?? ['jpeg', 'png']).map((f) => [f === 'jpeg' ? 'jpg' : f, names[f] ?? f.toUpperCase()])]);
  const strengths = [1, 0.75, 0.5, 0.25].map((w) => [String(w), `${100 * w}\u00a0%`]);
  choices($('weight'), [['', t('Automatic (recommended)')], ...strengths]);
  choices($('face_weight'), [['', t('As the others')], ...strengths]);

  const grouped = new Set(groups.flatMap(([, members]) => members));
  $('more').replaceChildren(...groups.map(([title, members]) => {
    const mine = rows.filter((o) => members.includes(o.name) || (title === 'Other' && !grouped.has(o.name) && !common.includes(o.name)));
    mine.sort((a, b) => members.indexOf(a.name) - members.indexOf(b.name));
    return mine.length ? element('fieldset', {}, element('legend', { textContent: t(title) }), ...mine.map((o) => field(o, devices, list))) : '';
  }));
  recall();
  show();
}

// Every control of an option; the buttons have no name, and presets set others.
const controls = () => [...$('form').elements].filter((input) => input.name && input.name !== 'preset');

function value(input) {
  if (input.type === 'radio') return input.checked && !input.defaultChecked ? input.value : '';
  if (input.type === 'checkbox') return input.checked !== input.defaultChecked ? String(input.checked) : '';
  const typed = input.value.trim(), text = input.inputMode === 'decimal' ? typed.replace(',', '.') : typed; // 0,9 in most languages
  return text === input.dataset.standard ? '' : text;
}

const changes = () => controls().map((input) => [input.name, value(input)]).filter(([, text]) => text);
// Whether the result's size is given in pixels.
export const isSized = () => changes().some(([name]) => ['width', 'height', 'max_side'].includes(name));
// What differs from the defaults: [[name, value]…]. The server takes a size in pixels or a scale, not both.
export const fields = () => changes().filter(([name]) => name !== 'upscale' || !isSized());

export const scale = () => Number(document.querySelector('#scale :checked')?.value ?? 2);

// How many of the folded options were changed.
function show() {
  const count = [...$('more').querySelectorAll('[name]')].filter(value).length;
  $('more_count').textContent = count ? t('({0} changed)', count) : '';
}

// ---- kept over a reload ----

function keep() {
  if (!state.known) return; // not all of them are there
  try {
    localStorage.setItem(place, JSON.stringify(Object.fromEntries(fields().filter(([name]) => !ofOnePicture.includes(name)))));
  } catch { /* the browser keeps nothing: then they are the defaults next time */ }
}

function recall() {
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem(place)) ?? {};
  } catch { /* nothing, or nothing of ours */ }
  for (const input of controls()) {
    const text = Object.hasOwn(kept, input.name) ? String(kept[input.name]) : '';
    if (!text) continue;
    if (input.type === 'radio') input.checked = input.value === text;
    else if (input.type === 'checkbox') input.checked = text === 'true';
    else if (input.tagName !== 'SELECT' || [...input.options].some((o) => o.value === text)) input.value = text;
  }
  if (!document.querySelector('#scale :checked')) $('scale').querySelectorAll('input').forEach((input) => { input.checked = input.defaultChecked; });
}

// ---- a value that the server refuses ----

// Marks the field that a problem's detail begins with, as in "quality: …", and gives it. by: the id of what tells the problem.
function accuse(detail, by) {
  const found = $('form').elements.namedItem(/^(\w+): /.exec(detail)?.[1] ?? '');
  const input = found instanceof RadioNodeList ? [...found].find((radio) => radio.checked) : found;
  if (!input) return null;
  input.setAttribute('aria-invalid', 'true');
  input.setAttribute('aria-errormessage', by);
  const folded = input.closest('details');
  if (folded) folded.open = true;
  return input;
}

// Leads to that field.
export function blame(detail) {
  const input = accuse(detail, 'error');
  input?.focus({ preventScroll: true });
  input?.scrollIntoView({ block: 'center' });
}

export function unblame(by = 'error') {
  const input = document.querySelector(`[aria-errormessage="${by}"]`);
  input?.removeAttribute('aria-invalid');
  input?.removeAttribute('aria-errormessage');
}

const remark = element('small', { id: 'remark', className: 'wrong' });
// Tells at its field what is wrong with a value that was not sent yet: {detail, text, lang}; null: nothing is.
export function warn(problem) {
  if (remark.textContent === (problem?.text ?? '')) return;
  unblame('remark');
  remark.remove();
  Object.assign(remark, { textContent: problem?.text ?? '', lang: problem?.lang ?? '' });
  if (!problem) return;
  const input = accuse(problem.detail, 'remark');
  input?.closest('.field, fieldset').append(remark);
  if (input && input === document.activeElement) remark.scrollIntoView({ block: 'nearest' }); // out from behind the buttons
  $('say').textContent = problem.text;
}

$('form').addEventListener('input', () => {
  unblame();
  show();
  keep();
  changed();
});
$('form').addEventListener('reset', () => setTimeout(() => { // the values change after the event
  unblame();
  show();
  keep();
  changed();
}));
