// The panel's buttons, how it goes in words, and what went wrong.
import { $, element, percent, roughly, seconds } from './dom.js';
import { lead } from './download.js';
import { left, leftOfAll, nextTry, submit, zip } from './jobs.js';
import { language, many, t } from './lang.js';
import { blame, fields, unblame } from './options.js';
import { isOutdated } from './own.js';
import { explain, waitingFor } from './refused.js';
import { obstacle } from './plan.js';
import * as report from './report.js';
import { isPending, isUnsent, onChange, pending, state } from './state.js';
import { stages } from './words.js';

let message = null; // about the page as a whole: it stands before what is wrong with the picture

// What went wrong, what to do (a text or several), the server's own words, what a helper would ask for; null: nothing went wrong. mild: it is no error.
export function fail(text, { advice = '', told = '', fine = '', mild = false } = {}) {
  message = text ? { text, advice, mild, told, fine: [fine] } : null;
  showError();
  if (text) $('error').scrollIntoView({ block: 'nearest' });
}

let told = '';

function showError() {
  const { current } = state;
  const problem = message ?? (current?.state === 'failed' ? explain(current, (extra) => submit([current], extra)) : null);
  const fine = problem?.fine.filter(Boolean).join(' · ') ?? '', server = problem?.told ?? '';
  const key = problem ? `${current?.id} ${problem.text} ${problem.advice} ${server} ${fine}` : '';
  if (key === told) return;
  told = key;
  unblame();
  $('error').replaceChildren(...(problem ? [element('p', { textContent: problem.text, lang: problem.foreign ? 'en' : language })] : []),
    ...[problem?.advice ?? []].flat().filter(Boolean).map((textContent) => element('p', { textContent })), ...(problem?.button ? [problem.button] : []),
    ...(server || fine ? [element('small', {}, element('span', { lang: 'en', textContent: server }), server && fine ? ' · ' : '', fine)] : []));
  $('error').hidden = !problem;
  $('error').classList.toggle('mild', !!problem?.mild);
  if (problem && !message) blame(current.problem.detail ?? '');
}

// How it goes with one picture.
export function words(item) {
  const time = left(item), rest = time === null ? '' : t('{0} left', roughly(time));
  const parts = (...all) => all.filter(Boolean).join('\u00a0· '); // no line begins with a dot
  switch (item.state) {
    case 'waiting': return item.hint ? parts(waitingFor(item.hint), nextTry() ? t('next try in {0} s', nextTry()) : '') : t('Waiting to be sent');
    case 'uploading': return item.progress < 1 ? t('Uploading {0}', percent(item.progress)) : t('Uploaded');
    case 'queued': return item.lacks ? parts(t('Waiting'), item.lacks.models[0] ? t('no server has {0}', item.lacks.models.join(', ')) : t('no server is there that restores')) : parts(item.position ? many(item.position, 'Waiting, {0} picture is ahead', 'Waiting, {0} pictures are ahead') : t('Waiting'), rest);
    case 'running': return parts(t(stages[item.stage] ?? 'Restoring'), item.part ? t('{0} of {1}', ...item.part) : '', percent(item.progress ?? 0), rest);
    case 'done': return t('Done in {0}. {1}.', seconds(report.duration(item)), report.title(item));
    case 'cancelled': return t('Cancelled.');
    case 'failed': return t('Failed');
    default: return '';
  }
}

function showAll() {
  const { items } = state;
  const several = items.length > 1;
  const done = items.filter((item) => item.state === 'done').length, failed = items.filter((item) => item.state === 'failed').length;
  const sent = items.some((item) => !isUnsent(item)), time = leftOfAll();
  $('all').hidden = !several;
  if (!several) return;
  $('all_status').textContent = [
    sent ? t('{0} of {1} done', done, items.length) : many(items.length, '{0} picture', '{0} pictures'),
    failed ? t('{0} failed', failed) : '', pending().length && time !== null ? t('{0} left', roughly(time)) : '',
  ].filter(Boolean).join('\u00a0· ');
  if (done > 1) lead($('download_all'), zip());
  else $('download_all').hidden = true;
}

function showProgress() {
  const all = pending();
  $('progress').hidden = !all.length;
  if (!all.length) return;
  const own = state.current && isPending(state.current) ? state.current : null;
  const sent = state.items.filter((item) => !isUnsent(item));
  const part = (item) => (item.state === 'running' ? item.progress ?? 0 : isPending(item) ? 0 : 1);
  const value = sent.length > 1 ? sent.reduce((sum, item) => sum + part(item), 0) / sent.length : own?.state === 'uploading' ? own.progress : part(own ?? all[0]);
  if (value > 0 && (own?.state !== 'queued' || sent.length > 1)) $('progress').value = value;
  else $('progress').removeAttribute('value');
}

// The pictures that the main button sends: all that were not sent and can be, else the one that is shown, once more.
export function wanted() {
  const fits = (item) => !obstacle(item), unsent = state.items.filter(isUnsent);
  if (unsent.length) return unsent.filter(fits);
  return state.current && !isPending(state.current) ? [state.current].filter(fits) : [];
}

let spoken = '';
function say(text) {
  if (text !== spoken) $('say').textContent = spoken = text;
}

// What a screen reader is told, each thing once: what was chosen, that it has begun, half of it, the end. What failed alone
// is told by the alert.
function aloud(status) {
  const { current, items } = state, all = pending(), one = items.length === 1;
  if (state.away && all.length) return status;
  if (all.length) {
    if (!all.some(({ state: its }) => its === 'running' || its === 'queued')) return t('Uploading');
    return one && current.progress >= 0.5 ? t('Restoring {0}', percent(0.5)) : t('Restoring');
  }
  if (!one) return items.some(({ state: its }) => its === 'new') ? many(items.length, '{0} picture', '{0} pictures') : $('all_status').textContent;
  if (current.state === 'new') return current.size || current.dark ? $('name').textContent : '';
  return current.state === 'failed' ? '' : status;
}

function show() {
  const { current, items } = state;
  const all = pending(), next = wanted(), again = next.length === 1 && !isUnsent(next[0]), { activeElement } = document;
  document.body.classList.toggle('working', all.length > 0);
  $('go').hidden = all.length > 0 && (!next.length || again);
  $('go').disabled = !next.length || !state.ready;
  $('go').textContent = again ? t('Restore again') : next.length > 1 ? many(next.length, 'Restore {0} picture', 'Restore {0} pictures') : t('Restore');
  const outdated = again && state.known && isOutdated(current, Object.fromEntries(fields()));
  $('go').classList.toggle('quiet', again && !outdated); // the result is what counts then
  $('cancel').hidden = !all.length;
  $('cancel').textContent = all.length > 1 ? t('Cancel all') : t('Cancel');
  $('another').textContent = items.length ? t('Add pictures') : t('Choose pictures');
  for (const [one, other] of [[$('go'), $('cancel')], [$('cancel'), $('go')]]) // whoever had the focus finds it on what is there now
    if (activeElement === one && one.hidden && !other.hidden) other.focus({ preventScroll: true });
  const lost = state.away && all.length > 0;
  const text = !current ? t('Choose a picture to begin.') : lost ? t('The connection is lost. The page goes on by itself when the server is back.') : outdated ? t('You changed the settings: Restore again to see them.') : words(current);
  $('status').classList.toggle('notice', lost);
  if ($('status').textContent !== text) $('status').textContent = text;
  showAll();
  // Whoever changes a face hears of the face; the button is described by the line.
  if (current && !state.taking) say(aloud(outdated ? words(current) : text));
  showProgress();
  showError();
  report.show(current);
}

onChange(show);
setInterval(() => { if (pending().length) show(); }, 1000); // the time left goes by
