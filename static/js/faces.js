// Boxes over the faces of a picture. A click leaves a face as it is or takes it in again; an eye at its corner, or the key O,
// shows it as it was and changes nothing; a card beside them has its strength, too, and three dots at a box's other corner open
// it without a change. The boxes are one stop of the Tab key: arrows go from one to the next, Tab to the card.
import { addLayer, isBeforeShown, layout, reveal } from './compare.js';
import { $, element } from './dom.js';
import { shutsBy } from './escape.js';
import { t } from './lang.js';
import { fields } from './options.js';
import { facesOf, fieldsOf, own } from './own.js';
import * as panel from './panel.js';
import { pageOf } from './previews.js';
import { ask, problemOf } from './server.js';
import { changed, isPending, on, onChange, state } from './state.js';
import * as store from './store.js';

const layer = $('faces'), card = $('face_card'), button = $('show_faces');
const least = 48; // pixels of a box that has buttons at its corners
let open = false, returning = false, chosen = null, drawn = '', finding = null;
let corners = []; // the buttons there: [node, width of the box in parts of the picture, id]
const peeks = new Set(); // faces of the current picture that are shown as they were

const boxOf = (id) => layer.querySelector(`[data-face="${id}"]`);

// Without a scroll: the stage has none, the picture is moved. The card is not opened by it.
function focus(node) {
  returning = true;
  node?.focus({ preventScroll: true });
  returning = false;
}

function goTo(id) {
  focus(boxOf(id));
  if (boxOf(id)) reveal(boxOf(id));
}

// Where boxes are small and many, only the chosen one has them.
addLayer(layer, ({ width }) => {
  for (const [node, part, id] of corners) node.hidden = part * width < least && id !== chosen;
});

// Whether a face is in the result what was chosen since not to be: restored, or left as it is.
function isOther(item, { id, action }) {
  if (item.state !== 'done' || own(item).left.includes(id) !== (action === 'restored')) return false;
  const leaves = ({ faces }) => !!faces && !faces.split(',').includes(String(id));
  return leaves(item.sent) !== leaves(fieldsOf(item, Object.fromEntries(fields())));
}

function words(item, face) {
  const name = t('Face {0}', face.id + 1), left = own(item).left.includes(face.id);
  const was = item.state === 'done' ? face.action : '';
  if (isOther(item, face)) return left ? t('{0}, restored; will be left as it is', name) : t('{0}, not restored; will be restored', name);
  if (left) return t('{0}, left as it is', name);
  return was === 'restored' ? t('{0}, restored', name) : was ? t('{0}, not restored', name) : t('{0}, will be restored', name);
}

// A box of a face, in parts of the picture; a little larger than the detector's.
function place(node, { box: [x0, y0, x1, y1] }, { width, height }) {
  const more = 0.1 * Math.max(x1 - x0, y1 - y0);
  const left = Math.max(0, x0 - more) / width, top = Math.max(0, y0 - more) / height;
  const right = Math.min(width, x1 + more) / width, bottom = Math.min(height, y1 + more) / height;
  Object.assign(node.style, { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * (right - left)}%`, height: `${100 * (bottom - top)}%` });
  return { left, top, right, bottom };
}

// The original over a face of the result.
function peek(face, size) {
  const node = element('div', { className: 'peek' });
  const { left, top, right, bottom } = place(node, face, size);
  const image = element('img', { src: $('before').src, alt: '', draggable: false });
  Object.assign(image.style, { width: `${100 / (right - left)}%`, height: `${100 / (bottom - top)}%`, left: `${(-100 * left) / (right - left)}%`, top: `${(-100 * top) / (bottom - top)}%` });
  node.append(image);
  return node;
}

// Shows a face as it was, or as it has become.
function toggle(id) {
  if (!peeks.delete(id)) peeks.add(id);
  draw();
}

function eye(face, size) {
  const node = element('button', { type: 'button', className: 'eye', tabIndex: -1, title: t('Show the original here'), ariaLabel: `${t('Face {0}', face.id + 1)}: ${t('Show the original here')}`, ariaPressed: String(peeks.has(face.id)) });
  node.dataset.eye = face.id;
  node.addEventListener('click', () => toggle(face.id));
  const { left, right, bottom } = place(node, face, size);
  Object.assign(node.style, { left: `min(${100 * right}%, 100% - 2.5rem)`, top: `min(${100 * bottom}%, 100% - 2.5rem)`, width: '', height: '' });
  return [node, right - left, face.id];
}

// Opens the card of a face, and changes nothing.
function dots(face, size) {
  const node = element('button', { type: 'button', className: 'eye dots', tabIndex: -1, title: t('Strength'), ariaLabel: `${t('Face {0}', face.id + 1)}: ${t('Strength')}` });
  node.addEventListener('click', () => {
    choose(face.id);
    $('face_weight').focus();
  });
  const { left, right, top } = place(node, face, size);
  Object.assign(node.style, { left: `min(${100 * right}%, 100% - 2.5rem)`, top: `max(${100 * top}%, 2rem)`, width: '', height: '' });
  return [node, right - left, face.id];
}

function draw() {
  const item = state.current, found = item && facesOf(item);
  const shown = open && found && isBeforeShown();
  button.setAttribute('aria-pressed', String(open));
  layer.hidden = !found || !isBeforeShown() || (!open && !peeks.size);
  const key = JSON.stringify([item?.id, item?.state, item?.job, shown, chosen, item?.own.left, item?.own.weights, shown && found.list.map((face) => words(item, face)), [...peeks], found?.list.length, $('before').src]);
  if (key === drawn) return;
  drawn = key;
  const list = found?.list ?? [], { face: focused, eye: looked } = document.activeElement?.dataset ?? {};
  corners = shown ? list.flatMap((face) => [dots(face, found), ...(item.state === 'done' ? [eye(face, found)] : [])]) : [];
  layer.replaceChildren(...list.filter(({ id }) => peeks.has(id)).map((face) => peek(face, found)),
    ...(shown ? list.map((face) => {
      const node = element('button', { type: 'button', className: 'face', ariaLabel: words(item, face), title: t('A click leaves this face as it is, or takes it in.') });
      node.dataset.face = face.id;
      node.classList.toggle('left', own(item).left.includes(face.id));
      node.classList.toggle('chosen', chosen === face.id);
      node.classList.toggle('other', isOther(item, face));
      node.tabIndex = face.id === (chosen ?? list[0].id) ? 0 : -1;
      node.append(element('span', { textContent: face.id + 1, ariaHidden: 'true' }));
      node.addEventListener('click', () => {
        chosen = face.id;
        take(own(item).left.includes(face.id));
      });
      node.addEventListener('focus', () => {
        if (returning || !node.matches(':focus-visible')) return;
        if (chosen !== face.id) choose(face.id);
        reveal(boxOf(face.id));
      });
      node.addEventListener('keydown', (e) => {
        if (e.key === 'Tab' && !e.shiftKey && chosen === face.id) { // the card is the next stop, though the view's tools stand between
          e.preventDefault();
          $('face_take').focus();
          return;
        }
        if (e.key === 'o' && item.state === 'done') toggle(face.id);
        const next = list[list.indexOf(face) + ({ ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[e.key] ?? NaN)];
        if (!next) return;
        e.preventDefault();
        choose(next.id);
        goTo(next.id);
      });
      place(node, face, found);
      return node;
    }) : []), ...corners.map(([node]) => node));
  if (focused) focus(boxOf(focused));
  if (looked) focus(layer.querySelector(`[data-eye="${looked}"]`));
  showCard(shown ? list.find(({ id }) => id === chosen) : null);
  layout();
}

function choose(id) {
  chosen = id;
  draw();
}

function showCard(face) {
  card.hidden = !face;
  if (!face) return;
  const item = state.current, { left, weights } = own(item);
  $('face_title').textContent = words(item, face);
  $('face_take').checked = !left.includes(face.id);
  $('face_weight').value = weights[face.id] ?? '';
  $('face_peek').checked = peeks.has(face.id);
  $('face_peek_row').hidden = item.state !== 'done';
}

function change(what) {
  const item = state.current;
  what(own(item));
  store.put(item);
  $('say').textContent = words(item, facesOf(item).list.find(({ id }) => id === chosen));
  changed();
}

const take = (is) => change((its) => {
  its.left = its.left.filter((id) => id !== chosen);
  if (!is) its.left.push(chosen);
});
$('face_take').addEventListener('change', () => take($('face_take').checked));
$('face_weight').addEventListener('change', () => change((its) => {
  its.left = its.left.filter((id) => id !== chosen); // who chooses a strength wants it restored
  delete its.weights[chosen];
  if ($('face_weight').value) its.weights[chosen] = $('face_weight').value;
}));
$('face_peek').addEventListener('change', () => toggle(chosen));
const shut = () => {
  const id = chosen;
  choose(null);
  goTo(id);
};
$('face_close').addEventListener('click', shut);
shutsBy(() => !card.hidden, shut);
shutsBy(() => open, () => {
  button.click();
  button.focus();
});

// The faces of a picture that has not been restored: the server looks for them, once.
async function find(item) {
  if (finding === item || facesOf(item)) return;
  finding = item;
  $('say').textContent = t('Finding faces');
  button.classList.add('busy');
  try {
    const body = new FormData();
    body.append('page', pageOf(item));
    body.append('image', await store.original(item), item.name);
    const answer = await ask('v1/detect', { method: 'POST', body });
    const told = await problemOf(await answer.blob());
    if (!answer.ok) throw new Error(told.detail ?? String(answer.status));
    own(item).faces = { list: told.faces, width: told.width, height: told.height };
    store.put(item);
    if (!told.faces.length && item === state.current) panel.fail(t('No face was found in this picture.'));
    else $('say').textContent = told.faces.map((face) => words(item, face)).join(', ');
  } catch (error) {
    if (item === state.current) {
      open = false;
      panel.fail(t('The faces could not be found.'), { told: error.message });
    }
  }
  finding = null;
  button.classList.remove('busy');
  changed();
}

button.addEventListener('click', () => {
  open = !open;
  chosen = null;
  if (open && state.current) find(state.current);
  draw();
});
on('shown', (item) => {
  chosen = null;
  peeks.clear();
  if (open && item && !isPending(item)) find(item);
});
on('seen', draw);
onChange(draw);
