// The repair of what is looked at, over the picture, before a mask is kept.
import { addLayer } from './compare.js';
import { $, element, lay } from './dom.js';
import { t } from './lang.js';
import { fields } from './options.js';
import * as panel from './panel.js';
import { allPainted, isAllPainted } from './refused.js';
import { ask } from './server.js';

const most = 1024; // pixels of a side
const layer = element('div', { className: 'layer look', hidden: true }), image = element('img', { alt: '', draggable: false });
let request = null;

layer.append(image);
$('mask').after(layer);
addLayer(layer);

// What can be seen of a picture of that size: [x, y, width, height].
export function seen({ width, height }) {
  const box = $('mask').getBoundingClientRect(), view = $('stage').getBoundingClientRect(), scale = width / box.width;
  const part = (from, to, length) => {
    const first = Math.max(0, from * scale), last = Math.min(length, to * scale), wide = Math.min(most, Math.ceil(last - first));
    return [Math.max(0, Math.min(length - wide, Math.round((first + last - wide) / 2))), wide];
  };
  const [x, w] = part(view.left - box.left, view.right - box.left, width), [y, h] = part(view.top - box.top, view.bottom - box.top, height);
  return [x, y, w, h];
}

function show(seen) {
  layer.hidden = !seen;
  $('stage').classList.toggle('looking', seen);
  $('brush_look').ariaPressed = !!request;
}

// Whether a part of the picture is shown, with a frame: around it, all is as it was.
export const isPart = () => !layer.hidden && layer.classList.contains('part');

export function end() {
  request?.abort();
  request = null;
  show(false);
}

// Shows it, or ends that, or says why not. mask: a promise of the mask of the place, {blob}.
export async function look(size, [x, y, width, height], mask, kinds) {
  if (request) return end();
  const own = request = new AbortController(), isSome = width < size.width || height < size.height;
  panel.fail(null); // what was told before is over
  show(false);
  try {
    const before = $('before'), scale = before.naturalWidth / size.width, canvas = new OffscreenCanvas(width, height), body = new FormData();
    canvas.getContext('2d').drawImage(before, x * scale, y * scale, width * scale, height * scale, 0, 0, width, height);
    const only = fields().filter(([name]) => ['repair_strength', 'fill', 'device', 'precision'].includes(name));
    for (const [name, value] of [...only, ...Object.entries({ version: 'none', bg_upsampler: 'none', upscale: 1, ext: 'png', ...kinds })]) body.append(name, value);
    body.append('mask', (await mask).blob);
    body.append('image', await canvas.convertToBlob(), 'part.png');
    const answer = await ask('v1/restore', { method: 'POST', body, signal: own.signal });
    if (!answer.ok) throw new Error((await answer.json()).detail ?? '');
    URL.revokeObjectURL(image.src);
    image.src = URL.createObjectURL(await answer.blob());
    await image.decode();
    if (request !== own) return;
    lay(image, [x, y, width, height], size);
    layer.classList.toggle('part', isSome);
    show(true);
  } catch (error) {
    if (request !== own) return;
    end();
    const painted = isSome ? t('All that is previewed is painted: a repair needs some of the picture around it.') : t(allPainted);
    panel.fail(t('The preview could not be made.'), isAllPainted(error.message) ? { advice: painted } : { told: error.message });
  }
}
