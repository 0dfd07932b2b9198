// The pictures: taken from files, folders, a drop or the clipboard; shown one at a time; removed.
import { commas, newId } from './dom.js';
import { kindOf, refusal } from './kinds.js';
import { many, t } from './lang.js';
import * as panel from './panel.js';
import { changed, state, tell } from './state.js';
import * as store from './store.js';

const together = 16; // files that are looked at at once
const piece = 1 << 20; // bytes that are compared at once
const place = 'restored-shown'; // in localStorage: which picture

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

async function equal(one, other) {
  for (let at = 0; at < one.size; at += piece) {
    const [a, b] = (await Promise.all([one, other].map((file) => file.slice(at, at + piece).arrayBuffer()))).map((part) => new Uint8Array(part));
    if (a.some((byte, i) => byte !== b[i])) return false;
  }
  return true;
}

// The picture that this file is already. What is pasted has no time of its own, so the bytes are compared.
async function same(file) {
  for (const item of state.items.filter(({ name, bytes }) => name === file.name && bytes === file.size)) {
    if (item.stamp === file.lastModified) return item;
    const kept = await store.original(item);
    if (kept && await equal(file, kept).catch(() => false)) return item;
  }
  return null;
}

let taking = 0, before = Promise.resolve();

// Why files are not taken, and what to do: once for those of a kind.
function reasons(refused) {
  const kinds = [...new Set(refused.map(({ text }) => text))];
  return kinds.map((kind) => `${some(refused.filter(({ text }) => text === kind).map(({ name }) => name))} · ${kind}`);
}

const some = (names) => commas(names.slice(0, 8)) + (names.length > 8 ? ' …' : '');

// Files that are no pictures, and those that are here already, are left out, and told. Resolves to the first that was taken
// or is here, null if there is none. What comes while others are looked at waits for its turn.
export function take(files, options = {}) {
  const all = [...files ?? []], mine = ++taking;
  return all.length ? before = before.catch(() => {}).then(() => takeNow(all, mine, options)) : null;
}

async function takeNow(all, mine, { quiet = false }) {
  let first = null;
  state.taking = true;
  const refused = [], known = [];
  for (let i = 0; i < all.length; i += together) {
    const next = all.slice(i, i + together);
    const kinds = await Promise.all(next.map(kindOf));
    for (const [k, file] of next.entries()) {
      const why = refusal(kinds[k]);
      if (why) {
        refused.push({ name: file.name, why: why[0], advice: why[1], text: why.join(' ') });
        continue;
      }
      const here = await same(file), item = here ?? add(file, kinds[k]);
      if (here) known.push(file.name);
      if (!first && mine === taking) show(first = item);
    }
    changed();
  }
  state.taking = false;
  changed();
  if (refused.length === 1 && all.length === 1)
    panel.fail(refused[0].why, { advice: refused[0].advice, fine: state.current ? t('{0} stays.', state.current.name) : '' });
  else if (refused.length && !(quiet && first))
    panel.fail(many(refused.length, 'One file is no picture that can be restored, and was left out.', '{0} files are no pictures that can be restored, and were left out.'),
      { advice: reasons(refused) });
  else if (known.length)
    panel.fail(known.length > 1 ? t('{0} of these pictures are already in the list.', known.length) : t('{0} is already in the list.', known[0]),
      { mild: true, fine: known.length > 1 ? some(known) : '' });
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
  if (store.isOpen()) {
    try {
      localStorage.setItem(place, item?.id ?? '');
    } catch { /* then it is the last one after a reload */ }
  }
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
  let last = '';
  try {
    last = localStorage.getItem(place);
  } catch { /* the browser keeps nothing */ }
  if (rows.length) show(state.items.find(({ id }) => id === last) ?? state.items.at(-1));
}
