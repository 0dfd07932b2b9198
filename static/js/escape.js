// Escape closes what is open, the innermost first; each gives the focus back to what opened it.
const shutters = []; // [isOpen, shut], the innermost first

export const shutsBy = (isOpen, shut) => shutters.push([isOpen, shut]);

function fold(details) {
  details.open = false;
  details.querySelector('summary').focus();
}

addEventListener('keydown', (e) => {
  if (e.key !== 'Escape' || e.defaultPrevented || e.isComposing || document.querySelector('dialog[open]')) return;
  const inside = e.target.closest?.('details[open]'), [, shut] = shutters.find(([isOpen]) => isOpen()) ?? [];
  const last = [...document.querySelectorAll('details[open]')].at(-1);
  if (inside) fold(inside);
  else if (shut) shut();
  else if (last) fold(last);
  else return;
  e.preventDefault();
});
