// What is seen of the page from elsewhere: the tab's title, a notification at the end, the question before it is left.
import { $, percent } from './dom.js';
import { many, t } from './lang.js';
import { isPending, isUnsent, on, onChange, pending, state } from './state.js';

const permission = () => (typeof Notification === 'undefined' ? 'denied' : Notification.permission);

function title() {
  const all = pending(), sent = state.items.filter((item) => !isUnsent(item));
  const one = state.current;
  const text = all.length && sent.length > 1 ? t('{0} of {1} done', sent.filter((item) => !isPending(item)).length, sent.length)
    : all.length ? (all[0].state === 'uploading' ? t('Uploading {0}', percent(all[0].progress)) : t('Restoring {0}', percent(all[0].progress ?? 0)))
      : one?.state === 'done' ? t('Done') : one?.state === 'failed' ? t('Failed') : '';
  const whole = text ? `${text} · restored` : 'restored';
  if (document.title !== whole) document.title = whole;
}

// Only if the tab is hidden, and only if it was asked for.
function notify(text, body) {
  if (!document.hidden || permission() !== 'granted') return;
  try {
    const note = new Notification(text, { body, tag: 'restored', icon: 'icon.svg' });
    note.onclick = () => { window.focus(); note.close(); };
  } catch { /* browsers of phones let service workers alone do this */ }
}

let ended = [];
on('ended', (item) => {
  ended.push(item);
  if (pending().length) return;
  const failed = ended.filter((one) => one.state === 'failed').length, done = ended.filter((one) => one.state === 'done').length;
  if (ended.length === 1 && done + failed) notify(done ? t('Your picture is done') : t('Your picture could not be restored'), item.name);
  else if (done + failed) notify(t('Your pictures are done'), failed ? t('{0} failed', failed) : many(done, '{0} picture', '{0} pictures'));
  ended = [];
});

onChange(() => {
  title();
  $('notify').hidden = !pending().length || permission() !== 'default';
});
$('notify').addEventListener('click', async () => {
  const answer = await Notification.requestPermission();
  $('notify').hidden = answer !== 'default';
  if (answer === 'granted') $('say').textContent = t('You will be told when it is done.');
});

// What the server has goes on without the page.
addEventListener('beforeunload', (e) => {
  if (!state.items.some((item) => item.state === 'waiting' || item.state === 'uploading')) return;
  e.preventDefault();
  e.returnValue = ''; // older browsers look at this alone
});
