// The page's own files, so that it opens without the server, too. Nothing else is kept: no picture, no answer below v1/.
// The server is asked first, so that a new version is seen at once.
const store = 'restored-shell';
const shell = ['./', 'style.css', 'icon.svg', 'handle.svg', 'eye.svg', 'presets.jpg', 'manifest.webmanifest'];

addEventListener('install', (e) => {
  e.waitUntil(caches.open(store).then((cache) => cache.addAll(shell)).then(() => skipWaiting()));
});
addEventListener('activate', (e) => e.waitUntil(clients.claim()));

const isShell = (path) => path.startsWith('js/') || shell.includes(path || './');

addEventListener('fetch', (e) => {
  const { method, url } = e.request, here = new URL('./', location).href;
  if (method !== 'GET' || !url.startsWith(here) || !isShell(url.slice(here.length).split(/[?#]/)[0])) return;
  e.respondWith((async () => {
    try {
      const answer = await fetch(e.request), copy = answer.clone();
      if (answer.ok) e.waitUntil(caches.open(store).then((cache) => cache.put(e.request, copy)));
      return answer;
    } catch (error) {
      const kept = await caches.match(e.request);
      if (kept) return kept;
      throw error;
    }
  })());
});
