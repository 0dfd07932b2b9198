// A picture that the browser cannot show, such as a HEIC, a TIFF or a later page of a file: the server makes a JPEG of it, once,
// as large as the picture, and it is kept beside the picture. What is restored is the picture itself. For the server, each is a
// request like any other: limits hold for it, and one that is refused for now is asked for again.
import { fields } from './options.js';
import { ask } from './server.js';
import { changed, isUnsent, on, onChange, state, tell } from './state.js';
import * as store from './store.js';

const plain = ['jpeg', 'png']; // every browser shows these: one that it does not read is damaged
const only = { version: 'none', bg_upsampler: 'none', repair: 'false', upscale: 1, ext: 'jpg', profile: 'srgb', metadata: 'strip' };
const again = 5; // seconds until a server that is busy or away is asked once more
const queue = [];

// Whether it will never be seen.
export const isDark = ({ dark, kind }) => dark || plain.includes(kind);

// The page of its file that a picture is.
export const pageOf = (item) => (isUnsent(item) ? fields().find(([name]) => name === 'page')?.[1] : item.sent.page) ?? '1';
const pageSeen = ({ asked }) => asked ?? '1';

let busy = null; // {item, request}
let resting = 0; // the timer: one wait for all of them

function rest(item, seconds) {
  if (!state.items.includes(item)) return; // it was removed
  queue.unshift(item);
  resting ||= setTimeout(() => {
    resting = 0;
    bring();
  }, 1e3 * seconds);
}

async function keep(item, page, preview) {
  if (!state.items.includes(item)) return;
  if (page !== pageSeen(item)) { // another picture: what was known of the last one does not hold
    Object.assign(item, { size: null, thumb: null });
    Object.assign(item.own, { faces: null, left: [], weights: {} });
    store.putThumb(item);
  }
  Object.assign(item, { asked: page, seen: true, dark: false });
  store.put(item);
  await store.putPreview(item, preview);
  tell('previewed', item);
}

async function bring() {
  if (busy || resting || !queue.length) return;
  const item = queue.shift(), page = pageOf(item);
  busy = { item, request: new AbortController() };
  try {
    const body = new FormData();
    for (const [name, value] of Object.entries({ ...only, page })) body.append(name, value);
    const file = await store.original(item);
    if (file) body.append('image', file, item.name);
    const answer = await ask('v1/restore', { method: 'POST', body, signal: busy.request.signal });
    if (answer.ok) {
      await keep(item, page, await answer.blob());
    } else if ([429, 503].includes(answer.status)) {
      rest(item, Number(answer.headers.get('Retry-After')) || again);
    } else { // the server cannot read it either; another page stays in sight
      Object.assign(item, { asked: page, dark: !item.seen });
      tell('unseen', item);
    }
  } catch {
    rest(item, again); // the server is away
  }
  busy = null;
  changed();
  bring();
}

function want(item) {
  if (busy?.item === item || queue.includes(item)) return;
  if (item === state.current) queue.unshift(item);
  else queue.push(item);
  bring();
}

on('unseen', (item) => {
  if (!state.items.includes(item)) return;
  item.dark = isDark(item) || !!item.seen; // not even what the server made of it
  if (!item.dark) want(item);
});
onChange(() => {
  const item = state.current;
  if (item && !plain.includes(item.kind) && pageOf(item) !== pageSeen(item)) want(item);
});
on('removed', (item) => {
  if (queue.includes(item)) queue.splice(queue.indexOf(item), 1);
  if (busy?.item === item) busy.request.abort();
});
