// The picture: taken from a file, a drop or the clipboard, shown before and after.
import { $, bytes, element } from './dom.js';
import * as divider from './divider.js';
import { kindOf, refusal } from './kinds.js';
import { fail, status } from './panel.js';
import { changed, state } from './state.js';
import * as tab from './tab.js';

const stage = $('stage'), view = $('view'), before = $('before'), after = $('after');
const urls = { before: null, after: null };
let offered = null;

function show(which, blob) {
  if (urls[which]) URL.revokeObjectURL(urls[which]);
  urls[which] = blob && URL.createObjectURL(blob);
  const image = which === 'before' ? before : after;
  if (blob) image.src = urls[which];
  else image.removeAttribute('src');
}

function caption(...parts) {
  $('name').textContent = parts.join(' · ');
  $('name').title = parts[0];
}

const shape = (image) => view.style.setProperty('--ratio', image.naturalWidth / image.naturalHeight);
const dimensions = (image) => `${image.naturalWidth} × ${image.naturalHeight}`;

export async function take(files) {
  const file = files?.[0];
  const several = files?.length > 1; // the list does not outlive its event
  if (!file) return;
  if (state.request) {
    status('One picture at a time: cancel this one, or wait until it is done.');
    return;
  }
  offered = file;
  const kind = await kindOf(file);
  const refused = refusal(kind);
  if (state.request || offered !== file) return;
  if (refused) {
    status('');
    changed();
    fail(refused[0], { advice: refused[1], fine: state.file ? `${state.file.name} stays.` : '' });
    return;
  }
  Object.assign(state, { file, kind, size: null, undownloaded: false });
  tab.title('');
  fail(null);
  show('after', null);
  $('download').hidden = true;
  $('unseen').hidden = true;
  stage.dataset.state = 'chosen';
  for (const part of [view, after, $('split'), $('handle')]) part.hidden = true;
  show('before', file);
  caption(file.name, bytes(file.size));
  status(several ? 'One picture at a time: the first was taken.' : '');
  changed();
}

// An old print that is part of the program.
export async function takeSample() {
  let picture;
  try {
    const answer = await fetch('sample.jpg');
    if (!answer.ok) throw new Error();
    picture = new File([await answer.blob()], 'sample.jpg', { type: 'image/jpeg' });
  } catch {
    fail('The server cannot be reached.');
    return false;
  }
  await take([picture]);
  return state.file === picture;
}

before.addEventListener('load', () => {
  shape(before);
  view.hidden = false;
  state.size = { width: before.naturalWidth, height: before.naturalHeight };
  caption(state.file.name, dimensions(before), bytes(state.file.size));
  changed();
});
before.addEventListener('error', () => {
  view.hidden = true;
  $('unseen').hidden = !state.file;
});

// A name of its own beside the input, where the server's is the input's; file systems may not tell A from a.
const beside = (input, name) => (name.toLowerCase() === input.toLowerCase() ? name.replace(/(\.[^.]*)?$/, '_restored$1') : name);

export function result(blob, name) {
  show('after', blob);
  const link = $('download');
  link.href = urls.after;
  link.download = beside(state.file.name, name);
  link.hidden = false;
  state.undownloaded = true;
  stage.dataset.state = 'done';
  stage.scrollIntoView({ block: 'nearest', behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth' });
  after.onload = () => {
    for (const part of [view, after, $('split'), $('handle')]) part.hidden = false;
    $('unseen').hidden = true;
    shape(after); // a result of another shape was made of a squeezed input, and so it is shown
    divider.move(50);
    caption(link.download, dimensions(after), bytes(blob.size));
    const square = (image) => image.naturalWidth === image.naturalHeight;
    if (square(after) && !square(before))
      $('report').append(element('p', { className: 'note', textContent: 'The picture is not square, so it was squeezed into one. Cut the face out as a square to keep its shape.' }));
  };
  after.onerror = () => {
    after.hidden = $('split').hidden = $('handle').hidden = true;
    status('Done. The browser cannot show this picture; it can be downloaded.');
  };
}

$('download').addEventListener('click', () => { state.undownloaded = false; });
