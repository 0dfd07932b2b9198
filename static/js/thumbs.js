// Small pictures for the strip, and the size of each picture, made one after another beside the page (thumb_worker.js), so
// that decoding never makes it wait.
import { changed, on, state } from './state.js';
import * as store from './store.js';

let worker = null, busy = null;
const queue = [];

on('added', (item) => {
  queue.push(item);
  next();
});

async function next() {
  if (busy || !queue.length) return;
  const item = busy = queue.shift();
  item.thumb ??= await store.thumb(item);
  const file = item.thumb && item.size ? null : await store.original(item);
  if (!file || !state.items.includes(item)) return ready(item);
  worker ??= Object.assign(new Worker('js/thumb_worker.js', { type: 'module' }), {
    onmessage: ({ data }) => {
      if (data) {
        Object.assign(busy, data); // size, thumb
        if (state.items.includes(busy)) {
          store.put(busy);
          store.putThumb(busy);
        }
      }
      ready(busy);
    },
    onerror: () => ready(busy),
  });
  worker.postMessage(file);
}

function ready(item) {
  item.looked = true; // a picture without a size is one that the browser cannot read
  busy = null;
  changed();
  next();
}
