// What was done, in words; figures and names for those who open the details.
import { $, bytes, element, seconds, sentence } from './dom.js';
import { dictionary, texts, timings } from './server.js';
import { roles, stages } from './words.js';

// The page says once, beside the picture, that starter models are at work.
const toldElsewhere = /^small starter models were used/;

function faces(request, sent, notes) {
  const count = Number(request.getResponseHeader('X-Restored-Faces') ?? NaN);
  if (Number.isNaN(count)) return 'Restored';
  if (count) return count === 1 ? '1 face restored' : `${count} faces restored`;
  if (sent.version === 'none' || sent.faces === 'none') return 'Faces were left as they are';
  return notes.some((note) => /^face \d+ was asked for/.test(note)) ? 'No face restored' : 'No face found';
}

// Shows it, and returns its title.
export function show(request, ms, blob, sent) {
  const notes = texts(request.getResponseHeader('X-Restored-Notes'));
  const list = element('dl');
  const row = (term, text) => list.append(element('dt', { textContent: term }), element('dd', { className: 'wide', textContent: text }));
  row('File', bytes(blob.size));
  row('Time', seconds(ms));
  for (const [name, t] of bars(request)) {
    const bar = element('div', { className: 'bar' });
    bar.style.setProperty('--share', `${t.share}%`);
    list.append(element('dt', { textContent: stages[name] ?? name }), bar, element('dd', { textContent: seconds(t.ms) }));
  }
  const device = request.getResponseHeader('X-Restored-Device');
  if (device) row('Device', device);
  for (const [role, name] of dictionary(request.getResponseHeader('X-Restored-Models'))) row(roles[role] ?? role, name);
  const title = faces(request, sent, notes);
  $('report').replaceChildren(element('p', { className: 'title', textContent: title }),
    ...notes.filter((note) => !toldElsewhere.test(note)).map((note) => element('p', { className: 'note', textContent: sentence(note) })),
    element('details', {}, element('summary', { textContent: 'Details' }), list));
  $('report').hidden = false;
  return title;
}

function bars(request) {
  const parts = timings(request.getResponseHeader('Server-Timing'), Object.keys(stages));
  const longest = Math.max(1, ...parts.map(([, ms]) => ms));
  return parts.map(([name, ms]) => [name, { ms, share: (100 * ms) / longest }]);
}
