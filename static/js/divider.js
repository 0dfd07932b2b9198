// The line between before and after. A hidden slider takes keys and assistive technology; mouse and fingers are followed
// here, since a slider would jump to the finger at the start of a vertical scroll.
import { $ } from './dom.js';

const view = $('view'), split = $('split'), stage = $('stage');
const threshold = 8; // pixels sideways that make a touch a move of the line
let position = 50, touch = null;

export function move(percent) {
  position = Math.min(100, Math.max(0, percent));
  split.value = position;
  view.style.setProperty('--split', `${position}%`);
  split.setAttribute('aria-valuetext', `${Math.round(position)} % original`);
}

function follow(e) {
  const box = view.getBoundingClientRect();
  move((100 * (e.clientX - box.left)) / box.width);
}

stage.addEventListener('pointerdown', (e) => {
  if (split.hidden || !e.isPrimary || e.button !== 0) return;
  touch = { x: e.clientX, y: e.clientY, moving: e.pointerType === 'mouse' };
  if (!touch.moving) return; // a finger may be about to scroll
  stage.setPointerCapture(e.pointerId);
  follow(e);
  e.preventDefault();
  split.focus({ preventScroll: true });
});
stage.addEventListener('pointermove', (e) => {
  if (!touch || !e.isPrimary) return;
  const aside = Math.abs(e.clientX - touch.x);
  if (!touch.moving && (aside < threshold || aside < Math.abs(e.clientY - touch.y))) return;
  if (!touch.moving) stage.setPointerCapture(e.pointerId);
  touch.moving = true;
  follow(e);
});
stage.addEventListener('pointerup', (e) => {
  if (touch && !touch.moving && Math.hypot(e.clientX - touch.x, e.clientY - touch.y) < threshold) follow(e); // a tap
  touch = null;
});
stage.addEventListener('pointercancel', () => { touch = null; }); // the browser scrolls

const steps = { ArrowLeft: -2, ArrowDown: -2, ArrowRight: 2, ArrowUp: 2, PageDown: -10, PageUp: 10 };
split.addEventListener('keydown', (e) => {
  if (!steps[e.key] || e.altKey || e.ctrlKey || e.metaKey) return;
  e.preventDefault();
  move(position + steps[e.key] * (e.shiftKey && Math.abs(steps[e.key]) < 10 ? 5 : 1));
});
split.addEventListener('input', () => move(Number(split.value)));
