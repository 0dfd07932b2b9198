// A picture that the browser cannot show, such as a HEIC or TIFF: the server makes a JPEG of it, once, as large as the picture,
// and it is kept beside the picture. What is restored is the picture itself.
import { ask } from './server.js';
import { on, state, tell } from './state.js';
import * as store from './store.js';

const plain = ['jpeg', 'png']; // every browser shows these: one that it does not read is damaged
const fields = { version: 'none', bg_upsampler: 'none', repair: 'false', upscale: 1, ext: 'jpg', profile: 'srgb', metadata: 'strip' };
const again = 5; // seconds until a busy server is asked once more
const queue = [];

// Whether it will never be seen.
export const isDark = ({ dark, kind }) => dark || plain.includes(kind);

let busy = null; // {item, request}

async function bring() {
  if (busy || !queue.length) return;
  const item = queue.shift();
  busy = { item, request: new AbortController() };
  try {
    const body = new FormData();
    for (const [name, value] of Object.entries(fields)) body.append(name, value);
    const file = await store.original(item);
    if (file) body.append('image', file, item.name);
    const answer = await ask('v1/restore', { method: 'POST', body, signal: busy.request.signal });
    if (answer.ok) {
      const preview = await answer.blob();
      item.seen = true;
      await store.putPreview(item, preview);
      tell('previewed', item);
    } else if ([429, 503].includes(answer.status)) {
      setTimeout(want, 1e3 * (Number(answer.headers.get('Retry-After')) || again), item);
    } else {
      item.dark = true; // the server cannot read it either
      tell('unseen', item);
    }
  } catch {
    setTimeout(want, 1e3 * again, item); // the server is away
  }
  busy = null;
  bring();
}

function want(item) {
  if (!item || item.seen || isDark(item) || !state.items.includes(item) || busy?.item === item || queue.includes(item)) return;
  if (item === state.current) queue.unshift(item);
  else queue.push(item);
  bring();
}

on('unseen', want);
on('removed', (item) => { if (busy?.item === item) busy.request.abort(); });
