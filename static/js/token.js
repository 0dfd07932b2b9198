// The token of a server that asks for one: typed in once, kept for this tab alone, sent as a header and never in an
// address.
import { $ } from './dom.js';

const key = 'restored-token';
let asking = null;

export const current = () => sessionStorage.getItem(key) ?? '';
export const header = (token) => (token ? { Authorization: `Bearer ${token}` } : {});

// Resolves when there is another token than the one that was refused. All requests wait for one answer.
export function ask(refused) {
  if (current() !== refused) return Promise.resolve();
  asking ??= new Promise((done) => {
    const dialog = $('token_dialog');
    $('token').value = '';
    $('token_wrong').hidden = !refused;
    dialog.addEventListener('close', function closed() {
      const token = $('token').value.trim();
      if (!/^[\x21-\x7e]+$/.test(token)) { // nothing on this page works without; a header holds nothing else
        dialog.showModal();
        return;
      }
      dialog.removeEventListener('close', closed);
      sessionStorage.setItem(key, token);
      asking = null;
      done();
    });
    dialog.showModal();
  });
  return asking;
}
