// One restoration: the picture and its options to the server, the answer or what went wrong back.
import { $, clock, seconds } from './dom.js';
import { blame, fields } from './options.js';
import { fail, status } from './panel.js';
import * as picture from './picture.js';
import { explain } from './refused.js';
import * as report from './report.js';
import { fileName, problem, send } from './server.js';
import { changed, state } from './state.js';
import * as tab from './tab.js';

let timer = 0;

// extra: fields that no control has, such as damaged.
export function restore(extra = {}) {
  if (!state.file || !state.ready || state.problem || state.request) return;
  fail(null);
  const sent = { ...Object.fromEntries(fields()), ...extra };
  const body = new FormData();
  for (const [name, value] of Object.entries(sent)) body.append(name, value);
  body.append('image', state.file, state.file.name);

  const began = performance.now();
  const elapsed = () => performance.now() - began;
  $('progress').value = 0;
  state.request = send('v1/restore', body, {
    upload(part) {
      $('progress').value = part;
      status(`Uploading ${Math.floor(100 * part)} %`, null);
      tab.title(`Uploading ${Math.floor(100 * part)} %`);
    },
    uploaded() {
      // The server does not tell how far it is: an honest bar moves, and the time that has passed is known.
      $('progress').removeAttribute('value');
      $('say').textContent = 'Restoring';
      const tick = () => {
        status(`Restoring… ${clock(elapsed())}`, null);
        tab.title(`Restoring… ${clock(elapsed())}`);
      };
      tick();
      timer = setInterval(tick, 1000);
    },
    answer: (request) => answered(request, elapsed(), sent, extra),
    broken() {
      finish('', 'Failed');
      fail('The connection to the server broke before it answered.', { advice: 'It may have been stopped. Check that it runs, then try again.' });
    },
    aborted: () => finish('Cancelled.', ''),
  });
  status('Uploading');
  tab.title('Uploading…');
  changed();
  $('cancel').focus();
}

export const cancel = () => state.request?.abort();

function finish(text, title) {
  clearInterval(timer);
  state.request = null;
  const focused = document.activeElement === $('cancel');
  status(text);
  tab.title(title);
  changed();
  if (focused) $('go').focus();
  if (title) tab.notify(title === 'Done' ? 'Your picture is done' : 'Your picture could not be restored', state.file.name);
}

async function answered(request, ms, sent, extra) {
  if (request.status === 200) {
    finish('', 'Done');
    status(`Done in ${seconds(ms)}. ${report.show(request, ms, request.response, sent)}.`);
    picture.result(request.response, fileName(request.getResponseHeader('Content-Disposition')));
    return;
  }
  const told = await problem(request);
  const { text, advice, fine, button } = explain(request, told, restore, extra);
  finish('', 'Failed');
  fail(text, { advice, fine: fine.filter(Boolean).join(' · '), button });
  blame(told.detail ?? '');
}
