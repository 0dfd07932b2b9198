// The page's own files, so that it opens without the server, too. Nothing else is kept: no picture, no answer below v1/.
// The server is asked first, so that a new version is seen at once.
const store = 'restored-shell';
const shell = ['./', 'style.css', 'icon.svg', 'handle.svg', 'eye.svg', 'presets.jpg', 'manifest.webmanifest'];

addEventListener('install', (e) => {
  e.waitUntil(caches.open(store).then((cache) => cache.addAll(shell)).then(() => skipWaiting()));
});
addEventListener('activate', (e) => e.waitUntil(clients.claim()));

// The address of a file of the page without what follows it; '' for anything else.
function own(address) {
  const here = new URL('./', location).href, [url] = address.split(/[?#]/), path = url.slice(here.length);
  return url.startsWith(here) && (path.startsWith('js/') || shell.includes(path || './')) ? url : '';
}

addEventListener('message', (e) => {
  e.waitUntil(caches.open(store).then((cache) => Promise.all([...new Set(e.data.map(own))].filter(Boolean)
    .map(async (url) => await cache.match(url) ?? cache.add(url)))));
});

addEventListener('fetch', (e) => {
  const url = own(e.request.url);
  if (e.request.method !== 'GET' || !url) return;
  e.respondWith((async () => {
    try {
      const answer = await fetch(e.request), copy = answer.clone();
      if (answer.ok) e.waitUntil(caches.open(store).then((cache) => cache.put(url, copy)));
      return answer;
    } catch (error) {
      const kept = await caches.match(url);
      if (kept) return kept;
      throw error;
    }
  })());
});
