// A result of hundreds of megapixels: the page has a preview of it, and over that the pieces at full size that are looked at.
import { addLayer, layout } from './compare.js';
import { $, element, lay } from './dom.js';
import { ask } from './server.js';

const side = 512, most = 64, atOnce = 4; // pixels; pieces that are looked at; requests
const node = $('pieces');
const pieces = new Map(); // "x,y,width,height" -> {image, request}; the last are those that were wanted last
let path = '', size = null, coarse = 1; // coarse: how much smaller the preview is

// From now on pieces of this result lie over its preview; without one, none.
export function show(job, of, longest) {
  for (const key of [...pieces.keys()]) drop(key);
  path = `v1/jobs/${job}/result`;
  size = job ? of : null;
  coarse = job ? longest / Math.max(of.width, of.height) : 1;
  node.hidden = !job;
  if (job) ask(`${path}?region=0,0,1,1`).catch(() => {}); // the server makes ready to cut pieces
}

function drop(key) {
  const { image, request } = pieces.get(key);
  request?.abort();
  image.remove();
  URL.revokeObjectURL(image.src);
  pieces.delete(key);
}

// The pieces that can be seen, the nearest to the middle first; none where the preview is as good, or they are too many.
function seen({ left, top, width }, { w, h }) {
  const scale = width / size.width, found = [];
  if (scale * devicePixelRatio <= coarse) return found;
  const range = (start, room, length) => [Math.max(0, Math.floor(-start / scale / side)), Math.min(Math.ceil(length / side), Math.ceil((room - start) / scale / side))];
  const [x0, x1] = range(left, w, size.width), [y0, y1] = range(top, h, size.height);
  if ((x1 - x0) * (y1 - y0) > most) return found;
  for (let y = y0; y < y1; y++) for (let x = x0; x < x1; x++) found.push([x, y]);
  const far = ([x, y]) => Math.hypot(x + 0.5 - (w / 2 - left) / scale / side, y + 0.5 - (h / 2 - top) / scale / side);
  return found.sort((a, b) => far(a) - far(b))
    .map(([x, y]) => [x * side, y * side, Math.min(side, size.width - x * side), Math.min(side, size.height - y * side)].join());
}

let wanted = [];
addLayer(node, (box, pane) => {
  if (!size) return;
  wanted = seen(box, pane);
  const now = new Set(wanted);
  for (const [key, { request }] of pieces) if (request && !now.has(key)) drop(key); // nobody looks at it any more
  for (const key of wanted) {
    const piece = pieces.get(key);
    if (piece && pieces.delete(key)) pieces.set(key, piece);
  }
  for (const key of pieces.keys()) if (pieces.size > 2 * most) drop(key);
  pump();
}, true);

function pump() {
  let busy = [...pieces.values()].filter(({ request }) => request).length;
  for (const key of wanted) {
    if (busy >= atOnce) return;
    if (pieces.has(key)) continue;
    bring(key);
    busy++;
  }
}

async function bring(key) {
  const [x, y, width, height] = key.split(',').map(Number);
  const image = element('img', { alt: '', draggable: false }), piece = { image, request: new AbortController() };
  pieces.set(key, piece);
  const over = () => {
    piece.request = null;
    pump();
  };
  let again = false;
  try {
    const answer = await ask(`${path}?region=${key}`, { signal: piece.request.signal });
    if ([415, 422, 507].includes(answer.status)) return over(); // the preview is all there is
    if (!answer.ok) throw new Error(answer.status);
    image.src = URL.createObjectURL(await answer.blob());
    await image.decode();
    if (pieces.get(key) !== piece) return URL.revokeObjectURL(image.src);
    lay(image, [x, y, width, height], size);
    node.append(image);
  } catch {
    again = !piece.request.signal.aborted;
  }
  if (pieces.get(key) !== piece) return;
  over();
  if (again) setTimeout(() => { // the server is busy or away: the preview stays until then
    if (pieces.get(key) !== piece) return;
    drop(key);
    layout();
  }, 2000);
}
