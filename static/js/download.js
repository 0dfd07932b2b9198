// Links to what the server has: followed as they are, or, where it asks for a token, brought with one.
import { ask, fileName } from './server.js';
import { current as token } from './token.js';

// Makes a link one to this path.
export function lead(link, path) {
  Object.assign(link, { href: path, download: '', hidden: false, onclick: null });
  if (token()) link.onclick = bring;
}

async function bring(e) {
  e.preventDefault();
  const answer = await ask(e.currentTarget.getAttribute('href'));
  if (!answer.ok) return;
  const link = document.createElement('a');
  link.href = URL.createObjectURL(await answer.blob());
  link.download = fileName(answer.headers.get('Content-Disposition'));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60e3);
}
