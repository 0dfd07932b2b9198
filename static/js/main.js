// The page: pictures in, restored pictures out. What each module is for stands at its head; this one wires them to the page
// and starts.
import * as about from './about.js';
import './compare.js';
import './difference.js';
import { $ } from './dom.js';
import './faces.js';
import { dropped } from './folders.js';
import * as jobs from './jobs.js';
import { language, languages, speak, t, translate } from './lang.js';
import * as list from './list.js';
import { keep as keepMask } from './mask.js';
import * as options from './options.js';
import { fail, wanted } from './panel.js';
import './plan.js';
import './previews.js';
import './presets.js';
import { get } from './server.js';
import { changed, isPending, on, pending, state } from './state.js';
import * as strip from './strip.js';
import './tab.js';
import './thumbs.js';

translate();

// The first paint waits for no file: the sheet is one for printing until it is there. One that cannot be had is not waited for.
const dressed = new Promise((done) => {
  if ($('sheet').sheet || document.readyState === 'complete') done();
  for (const [node, name] of [[$('sheet'), 'load'], [$('sheet'), 'error'], [window, 'load']]) node.addEventListener(name, done);
});
$('sheet').media = 'all';

$('form').addEventListener('submit', async (e) => {
  e.preventDefault();
  if (!state.ready || $('go').disabled || !await keepMask(true)) return;
  fail(null); // what was told before is over
  jobs.submit(wanted());
});
$('cancel').addEventListener('click', () => jobs.cancel(pending()));
$('sample').addEventListener('click', async () => {
  const item = await list.takeSample();
  if (item && state.ready) jobs.submit([item]);
});
$('remove').addEventListener('click', () => {
  if (isPending(state.current) && state.items.length > 1) jobs.cancel([state.current]);
  else strip.remove([state.current]);
});
$('remove_all').addEventListener('click', () => {
  const lost = state.items.some((item) => isPending(item) || item.state === 'done');
  if (!lost || confirm(t('Remove all pictures and their results?'))) strip.remove(state.items);
});
document.addEventListener('paste', (e) => list.take(e.clipboardData?.files));

let depth = 0; // dragenter and dragleave come for every element on the way
const dragging = (e, by) => {
  if (!e.dataTransfer?.types.includes('Files')) return;
  e.preventDefault();
  depth = Math.max(0, depth + by);
  document.body.classList.toggle('dragging', depth > 0);
};
addEventListener('dragenter', (e) => dragging(e, 1));
addEventListener('dragleave', (e) => dragging(e, -1));
addEventListener('dragover', (e) => dragging(e, 0));
addEventListener('drop', async (e) => {
  dragging(e, -depth);
  const { files, folder } = await dropped(e.dataTransfer);
  list.take(files, { quiet: folder });
});

$('language').replaceChildren(...Object.entries(languages).map(([value, name]) => Object.assign(document.createElement('option'), { value, textContent: name, lang: value })));
$('language').value = language;
$('language').addEventListener('change', () => speak($('language').value));

async function start() {
  const [capabilities, models, devices] = await Promise.all([get('v1/capabilities'), get('v1/models'), get('v1/devices')]);
  state.formats = capabilities?.formats?.in ?? state.formats;
  state.written = capabilities?.formats?.out ?? [];
  state.limits = Object.fromEntries(Object.entries(capabilities?.limits ?? {}).filter(([, most]) => most > 0)); // 0: no limit
  state.options = new Set((capabilities?.options ?? []).map((o) => o.name));
  state.known = !!capabilities?.options && !!models?.models; // and no refusal
  options.build(capabilities, models?.models, devices?.devices ?? []);
  about.show(capabilities, models?.models);
  changed();
}

await Promise.all([start(), about.refresh(), list.recall(), dressed]);
// What was chosen before, while the scripts came, is taken, too; only now it is known what the server reads and what is here already.
const take = () => { list.take($('file').files); $('file').value = ''; };
$('file').addEventListener('change', take);
take();
on('reached', start); // a page that was opened without the server learns the rest when it is there
jobs.proceed();
$('main').setAttribute('aria-busy', 'false');
strip.reveal(); // what is hidden cannot be scrolled

// Browsers install pages of HTTPS and of this computer alone.
// What this page has loaded came before the worker was there: it is told, so that one visit is enough.
navigator.serviceWorker?.register('worker.js').then(() => navigator.serviceWorker.ready)
  .then(({ active }) => active.postMessage(performance.getEntriesByType('resource').map(({ name }) => name))).catch(() => {});
