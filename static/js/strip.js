// The strip of small pictures: each with its state; arrow keys go from one to the next, Delete removes.
import { $, clock, element } from './dom.js';
import { isPending, on, onChange, pending, state } from './state.js';
import * as list from './list.js';
import { forget, left } from './jobs.js';
import { words } from './panel.js';

const strip = $('strip');
const nodes = new Map(); // item -> its button

function add(item) {
  const button = element('button', { type: 'button', className: 'thumb', tabIndex: -1 });
  button.append(element('span', { className: 'thumb_state', ariaHidden: 'true' }), element('progress', { max: 1, hidden: true, ariaHidden: 'true' }));
  button.addEventListener('click', () => list.show(item));
  nodes.set(item, button);
  strip.append(element('li', {}, button));
}

function paint(item, button) {
  if (item.thumb && !button.querySelector('img')) {
    const image = element('img', { src: URL.createObjectURL(item.thumb), alt: '', draggable: false, decoding: 'async' });
    button.prepend(image);
  }
  const current = item === state.current;
  const label = [item.name, words(item)].filter(Boolean).join(', ');
  if (button.getAttribute('aria-label') !== label) button.setAttribute('aria-label', button.title = label);
  if (current) button.setAttribute('aria-current', 'true');
  else button.removeAttribute('aria-current');
  button.tabIndex = current ? 0 : -1;
  button.dataset.state = item.state;
  const bar = button.querySelector('progress'), moving = item.state === 'running' || item.state === 'uploading';
  bar.hidden = !moving;
  if (moving) bar.value = item.progress ?? 0;
  const time = isPending(item) ? left(item) : null, badge = button.querySelector('.thumb_state');
  const text = time === null ? '' : clock(1e3 * time);
  if (badge.textContent !== text) badge.textContent = text;
}

on('added', add);
function unpaint(item) {
  const image = nodes.get(item).querySelector('img');
  if (image) URL.revokeObjectURL(image.src);
  image?.remove();
}
on('previewed', unpaint); // it may be another page
on('removed', (item) => {
  unpaint(item);
  nodes.get(item).parentElement.remove();
  nodes.delete(item);
});
export const reveal = () => nodes.get(state.current)?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
on('shown', reveal);
const show = () => {
  strip.hidden = state.items.length < 2;
  for (const [item, button] of nodes) paint(item, button);
};
onChange(show);
setInterval(() => { if (pending().length && !strip.hidden) show(); }, 1000); // the time left goes by

export function remove(items) {
  items.forEach(forget);
  list.remove(items);
}

const steps = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };
strip.addEventListener('keydown', (e) => {
  const at = state.items.indexOf(state.current);
  if (e.key in steps) {
    const step = steps[e.key] * (getComputedStyle(strip).direction === 'rtl' && e.key.startsWith('Arrow') && /Left|Right/.test(e.key) ? -1 : 1);
    list.show(state.items[Math.min(state.items.length - 1, Math.max(0, at + step))]);
  } else if (e.key === 'Delete' || e.key === 'Backspace') remove([state.current]);
  else return;
  e.preventDefault();
  setTimeout(() => nodes.get(state.current)?.focus());
});
