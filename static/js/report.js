// What was done, in words; figures and names for those who open the details.
import { $, bytes, commas, element, seconds, sentence } from './dom.js';
import { isReadOnly, names } from './kinds.js';
import { knows, language, many, mark, said, t } from './lang.js';
import { roles, stages } from './words.js';

// The page says once, beside the picture, that starter models are at work.
const toldElsewhere = 'starter-models';

function faces(report, sent) {
  const count = (action) => report.faces.filter((face) => face.action === action).length;
  const restored = count('restored'), kept = count('kept');
  if (kept) return t('{0} of {1} faces restored, {2} kept', restored, report.faces.length, kept);
  if (restored) return many(restored, '{0} face restored', '{0} faces restored');
  if (sent.version === 'none' || sent.faces === 'none') return t('Faces were left as they are');
  return report.faces.length ? t('No face restored') : t('No face found');
}

// What was filled: of a mask's areas, painted or kept, the server tells no kinds.
function damage({ damage: found }) {
  const count = Object.values(found?.kinds ?? {}).reduce((sum, kind) => sum + kind.count, 0);
  if (count) return many(count, '{0} piece of damage repaired', '{0} pieces of damage repaired');
  return found?.share ? t('marked damage repaired') : '';
}

export const title = (item) => commas([faces(item.report, item.sent), damage(item.report)].filter(Boolean));
// ms; what it has waited for, such as the others of its batch, is no part of it.
export const duration = ({ report: { timings_ms: timings, created, finished } }) => timings?.total ?? Date.parse(finished) - Date.parse(created);

function bars(list, timings) {
  const parts = Object.keys(stages).filter((name) => timings[name] >= 0.05).map((name) => [name, timings[name]]);
  const longest = Math.max(1, ...parts.map(([, ms]) => ms));
  for (const [name, ms] of parts) {
    const bar = element('div', { className: 'bar' });
    bar.style.setProperty('--share', `${(100 * ms) / longest}%`);
    list.append(element('dt', { textContent: t(stages[name]) }), bar, element('dd', { textContent: seconds(ms) }));
  }
}

let shown = null;

// The report of a picture that is done; of others, none.
export function show(item) {
  const report = item?.state === 'done' ? item.report : null;
  if (shown === report) return;
  shown = report;
  $('report').hidden = !report;
  $('report').replaceChildren();
  if (!report) return;
  const list = element('dl');
  const row = (term, text) => list.append(element('dt', { textContent: t(term) }), element('dd', { className: 'wide', textContent: text }));
  if (report.output) row(mark('File'), bytes(report.output.bytes));
  row(mark('Time'), seconds(duration(item)));
  bars(list, report.timings_ms ?? {});
  if (report.device) row(mark('Device'), report.device);
  for (const [role, name] of Object.entries(report.models ?? {})) if (name) row(roles[role] ?? role, name);
  const notes = (report.notes ?? []).map((note, i) => ({ note, ...report.note_codes?.[i] })).filter(({ code }) => code !== toldElsewhere)
    .map(({ note, code, values }) => ({ textContent: said('note', code, sentence(note), values), lang: knows('note', code) ? language : 'en' }));
  const { input, output } = report, own = (textContent) => notes.push({ textContent, lang: language });
  if (item.sent.aligned === 'true' && output?.width === output?.height && input && input.width !== input.height)
    own(t('The picture is not square, so it was squeezed into one. Cut the face out as a square to keep its shape.'));
  if (output && !item.sent.ext && isReadOnly(item.kind)) own(t('{0} cannot be written, so the result is in {1}.', names[item.kind], names[output.format]));
  $('report').append(element('p', { className: 'title', textContent: title(item) }),
    ...notes.map((note) => element('p', { className: 'note', ...note })),
    element('details', {}, element('summary', { textContent: t('Details') }), list));
}
