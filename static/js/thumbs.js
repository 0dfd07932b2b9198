// Small pictures for the strip, and the size of each picture, made one after another beside the page (thumb_worker.js), so
// that decoding never makes it wait.
import { changed, on, state, tell } from './state.js';
import * as store from './store.js';

let worker = null, busy = null;
const queue = [];

const add = (item) => {
  queue.push(item);
  next();
};
on('added', add);
on('previewed', add);

async function next() {
  if (busy || !queue.length) return;
  const item = busy = queue.shift();
  item.thumb ??= await store.thumb(item);
  const file = item.thumb && item.size ? null : await store.shown(item);
  if (!file || !state.items.includes(item)) return ready();
  worker ??= Object.assign(new Worker('js/thumb_worker.js', { type: 'module' }), {
    onmessage: ({ data }) => {
      if (data) {
        Object.assign(busy, data); // size, thumb
        if (state.items.includes(busy)) {
          store.put(busy);
          store.putThumb(busy);
        }
      } else tell('unseen', busy);
      ready();
    },
    onerror: () => ready(),
  });
  worker.postMessage(file);
}

function ready() {
  busy = null;
  changed();
  next();
}
