// What is seen of the page from elsewhere: the tab's title, a notification at the end, the question before it is left.
import { $ } from './dom.js';
import { onChange, state } from './state.js';

export function title(text) {
  document.title = text ? `${text} · restored` : 'restored';
}

const permission = () => (typeof Notification === 'undefined' ? 'denied' : Notification.permission);

// Only if the tab is hidden, and only if it was asked for.
export function notify(text, body) {
  if (!document.hidden || permission() !== 'granted') return;
  try {
    const note = new Notification(text, { body, tag: 'restored', icon: 'icon.svg' });
    note.onclick = () => { window.focus(); note.close(); };
  } catch { /* browsers of phones let service workers alone do this */ }
}

onChange(() => { $('notify').hidden = state.request === null || permission() !== 'default'; });
$('notify').addEventListener('click', async () => {
  const answer = await Notification.requestPermission();
  $('notify').hidden = answer !== 'default';
  if (answer === 'granted') $('say').textContent = 'You will be told when it is done.';
});

addEventListener('beforeunload', (e) => {
  if (!state.request && !state.undownloaded) return;
  e.preventDefault();
  e.returnValue = ''; // older browsers look at this alone
});
