// The pictures: taken from files, folders, a drop or the clipboard; shown one at a time; removed.
import { newId } from './dom.js';
import { kindOf, refusal } from './kinds.js';
import { many, t } from './lang.js';
import * as panel from './panel.js';
import { changed, state, tell } from './state.js';
import * as store from './store.js';

const together = 16; // files that are looked at at once

function add(file, kind) {
  const item = {
    id: newId(), name: file.name, bytes: file.size, stamp: file.lastModified, kind, size: null, file, thumb: null, state: 'new',
    key: '', job: null, batch: '', sent: {}, own: {}, extra: {}, problem: null, report: null, progress: 0, added: Date.now() + state.items.length / 1e3,
  };
  state.items.push(item);
  store.put(item);
  store.putFile(item);
  tell('added', item);
  return item;
}

const same = (file) => state.items.find((item) => item.name === file.name && item.bytes === file.size && item.stamp === file.lastModified);

let taking = 0;

// Files that are no pictures are left out, and told. Resolves to the first that was taken, null if none was.
export async function take(files, { quiet = false } = {}) {
  const all = [...files ?? []], mine = ++taking;
  if (!all.length) return null;
  let first = null;
  const refused = [];
  for (let i = 0; i < all.length; i += together) {
    const some = all.slice(i, i + together);
    const kinds = await Promise.all(some.map(kindOf));
    some.forEach((file, k) => {
      const why = refusal(kinds[k]);
      if (why) refused.push([file.name, ...why]);
      else {
        const item = same(file) ?? add(file, kinds[k]);
        if (!first && mine === taking) show(first = item);
      }
    });
    changed();
  }
  if (refused.length === 1 && all.length === 1)
    panel.fail(refused[0][1], { advice: refused[0][2], fine: state.current ? t('{0} stays.', state.current.name) : '' });
  else if (refused.length && !(quiet && first))
    panel.fail(many(refused.length, 'One file is no picture that can be restored, and was left out.', '{0} files are no pictures that can be restored, and were left out.'),
      { advice: refused[0][2], fine: refused.slice(0, 8).map(([name]) => name).join(', ') + (refused.length > 8 ? ' …' : '') });
  return first;
}

// An old print that is part of the program.
export async function takeSample() {
  try {
    const answer = await fetch('sample.jpg');
    if (!answer.ok) throw new Error();
    return await take([new File([await answer.blob()], 'sample.jpg', { type: 'image/jpeg', lastModified: 1 })]);
  } catch {
    panel.fail(t('The server cannot be reached.'));
    return null;
  }
}

export function show(item) {
  if (state.current === item) return;
  state.current = item;
  panel.fail(null);
  tell('shown', item);
  changed();
}

export function remove(items) {
  const gone = new Set(items);
  const at = state.items.indexOf(state.current);
  state.items = state.items.filter((item) => !gone.has(item));
  store.remove(items);
  for (const item of gone) tell('removed', item);
  if (gone.has(state.current)) show(state.items[Math.min(at, state.items.length - 1)] ?? null);
  changed();
}

// What an earlier page has kept.
export async function recall() {
  const rows = await store.open();
  for (const row of rows) {
    const item = { file: null, thumb: null, progress: 0, ...row };
    if (item.state === 'uploading') item.state = 'waiting';
    state.items.push(item);
    tell('added', item);
  }
  if (rows.length) show(state.items.at(-1));
}
