// The panel's buttons, its state in words, and what went wrong.
import { $, element } from './dom.js';
import { unblame } from './options.js';
import { onChange, state } from './state.js';

export function status(text, spoken = text) {
  $('status').textContent = text;
  if (spoken !== null) $('say').textContent = spoken;
}

// What went wrong, what to do, what a helper would ask for, and a button; null: nothing went wrong. An old report has no
// place beside either.
export function fail(text, { advice = '', fine = '', button = null } = {}) {
  $('report').replaceChildren();
  $('report').hidden = true;
  unblame();
  $('error').replaceChildren(...(text ? [element('p', { textContent: text })] : []), ...(advice ? [element('p', { textContent: advice })] : []),
    ...(button ? [button] : []), ...(fine ? [element('small', { textContent: fine })] : []));
  $('error').hidden = !text;
  if (text) $('error').scrollIntoView({ block: 'nearest' });
}

onChange(() => {
  const working = state.request !== null;
  $('go').hidden = working;
  $('cancel').hidden = !working;
  $('go').disabled = !state.file || !state.ready || !!state.problem;
  $('another').textContent = state.file ? 'Choose another' : 'Choose a picture';
  $('another').classList.toggle('unseen', working); // it keeps its place
  $('progress').hidden = !working;
  document.body.classList.toggle('working', working);
  if (!working && !state.file) $('status').textContent = 'Choose a picture to begin.';
});
