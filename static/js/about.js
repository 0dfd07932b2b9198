// What the server says of itself: whether it is ready, what it works with, and the details of both.
import { $, element, sentence } from './dom.js';
import { mark, t } from './lang.js';
import { get } from './server.js';
import { changed, state, tell } from './state.js';
import { current } from './token.js';

const work = { detector: mark('finding faces'), face: mark('restoring faces'), parser: mark('outlining faces'), upscaler: mark('enlarging the background'),
  damage: mark('finding damage'), filler: mark('filling damage') };

function notice(text, reasons = []) {
  return element('div', { className: 'notice' }, element('p', { textContent: text }), ...(reasons.length
    ? [element('details', {}, element('summary', { textContent: t('Why') }), ...reasons.map((reason) => element('p', { lang: 'en', textContent: sentence(reason) })))] : []));
}

const told = (nodes) => nodes.map((node) => node.textContent).join('\n');

export async function refresh() {
  const [readiness, found] = await Promise.all([get('readyz'), get('v1/devices')]);
  const device = found?.devices?.find((d) => d.id === found.default);
  const notices = [];
  state.ready = readiness?.ready === true;
  if (readiness && !state.known) tell('reached');
  if (!readiness) notices.push(notice(t('The server cannot be reached.')));
  else if (!state.ready) {
    const reasons = readiness.reasons ?? [readiness.detail ?? ''];
    notices.push(reasons.some((reason) => /being loaded/.test(reason)) ? notice(t('The server is starting. This takes a moment.'))
      : notice(t('The server cannot restore pictures at the moment. Whoever runs it can see why below.'), reasons.filter(Boolean)));
  }
  if (device?.type === 'cpu') notices.push(notice(t('No graphics card is in use here, so a large photo can take minutes.')));
  if (device?.type === 'software') notices.push(notice(t('No graphics card is in use here, and the work is slow: even a small photo can take minutes.')));
  if (told(notices) !== told([...$('notices').children])) $('notices').replaceChildren(...notices); // an opened one stays open
  $('device').textContent = device ? `${device.name} (${device.id})` : t(found ? mark('none') : mark('unknown'));
  changed();
  setTimeout(refresh, state.ready && state.known ? 30000 : 3000);
}

// models null: nobody knows which.
export function show(capabilities, models) {
  const used = (models ?? []).filter((m) => m.default);
  const small = used.some((m) => m.starter);
  $('version_of').textContent = capabilities?.version ?? t('unknown');
  $('models').textContent = used.length ? used.map((m) => `${m.name} (${work[m.kind] ? t(work[m.kind]) : m.kind})`).join(', ') : t(models ? mark('none') : mark('unknown'));
  $('starter').textContent = small ? t('This server works with the small models that come with it. Whoever runs it can add larger ones, which restore better.') : '';
  $('starter').hidden = !small;
  $('json').hidden = current() !== ''; // a link sends no token
}
