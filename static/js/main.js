// The page: one picture in, one picture out. What each module is for stands at its head; this one wires them to the page
// and starts.
import * as about from './about.js';
import { $ } from './dom.js';
import * as options from './options.js';
import './plan.js';
import { take, takeSample } from './picture.js';
import { cancel, restore } from './restore.js';
import { get } from './server.js';
import { changed, state } from './state.js';

$('form').addEventListener('submit', (e) => { e.preventDefault(); restore(); });
$('cancel').addEventListener('click', cancel);
$('sample').addEventListener('click', async () => { if (await takeSample()) restore(); });
$('file').addEventListener('change', (e) => { take(e.target.files); e.target.value = ''; });
document.addEventListener('paste', (e) => take(e.clipboardData?.files));

let depth = 0; // dragenter and dragleave come for every element on the way
const dragging = (e, by) => {
  if (!e.dataTransfer?.types.includes('Files')) return;
  e.preventDefault();
  depth = Math.max(0, depth + by);
  document.body.classList.toggle('dragging', depth > 0 && !state.request);
};
addEventListener('dragenter', (e) => dragging(e, 1));
addEventListener('dragleave', (e) => dragging(e, -1));
addEventListener('dragover', (e) => dragging(e, 0));
addEventListener('drop', (e) => { dragging(e, -depth); take(e.dataTransfer?.files); });

async function start() {
  const [capabilities, models, devices] = await Promise.all([get('v1/capabilities'), get('v1/models'), get('v1/devices')]);
  state.formats = capabilities?.formats?.in ?? state.formats;
  state.limits = Object.fromEntries(Object.entries(capabilities?.limits ?? {}).filter(([, most]) => most > 0)); // 0: no limit
  state.options = new Set((capabilities?.options ?? []).map((o) => o.name));
  options.build(capabilities, models?.models ?? [], devices?.devices ?? []);
  about.show(capabilities, models?.models ?? []);
  changed();
}

await Promise.all([start(), about.refresh()]);
$('main').setAttribute('aria-busy', 'false');
