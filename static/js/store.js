// What outlives a reload: the pictures, where each of them stands, and their small pictures, in the browser's database.
// Where that is not to be had the page works on without it.

const parts = ['items', 'files', 'thumbs'];
const kept = ['id', 'name', 'bytes', 'stamp', 'kind', 'size', 'state', 'key', 'job', 'batch', 'sent', 'own', 'extra', 'problem', 'report', 'result', 'began', 'added', 'asked'];
const longest = 24 * 3600e3; // ms; what is older is forgotten
let database = null;

const ended = (request) => new Promise((done, failed) => {
  request.onsuccess = () => done(request.result);
  request.onerror = () => failed(request.error);
});

// A second tab keeps nothing, or both would send the same pictures. Locks are only for pages of HTTPS and localhost. A tab that
// is loaded again waits longer: on a busy machine its page of before may still have the lock.
const place = 'restored-alone'; // in sessionStorage
const alone = () => (navigator.locks ? new Promise((done) => {
  navigator.locks.request('restored', { signal: AbortSignal.timeout(sessionStorage.getItem(place) ? 10e3 : 700) }, () => {
    done(true);
    return new Promise(() => {}); // as long as the page lives
  }).catch(() => done(false));
}) : Promise.resolve(true));

export async function open() {
  try {
    const first = await alone();
    sessionStorage.setItem(place, first ? 'yes' : '');
    if (!first) return [];
    const request = indexedDB.open('restored', 1);
    request.onupgradeneeded = () => parts.forEach((name) => request.result.createObjectStore(name));
    database = await ended(request);
    const rows = await ended(part('items').getAll());
    remove(rows.filter((row) => Date.now() - row.added > longest));
    return rows.filter((row) => Date.now() - row.added <= longest).sort((a, b) => a.added - b.added);
  } catch {
    database = null; // refused, or damaged
    return [];
  }
}

export const isOpen = () => database !== null;
const part = (name, mode = 'readonly') => database.transaction(name, mode).objectStore(name);

const writing = new Map(); // id -> a promise: what was written of this picture last is on the disk, or cannot be

// All of it is there after a reload, or nothing.
function write(name, items, value) {
  if (!database) return;
  try {
    const all = database.transaction(name, 'readwrite'), over = new Promise((done) => { all.oncomplete = all.onabort = done; });
    for (const item of items) {
      all.objectStore(name).put(value(item), item.id);
      const last = Promise.all([writing.get(item.id), over]).then(() => { if (writing.get(item.id) === last) writing.delete(item.id); });
      writing.set(item.id, last);
    }
    all.commit?.();
  } catch { /* no room: it is kept in memory alone */ }
}

// Waits until a page that is closed now would forget neither this picture nor where it stands; not for ever.
export const written = ({ id }) => Promise.race([writing.get(id), new Promise((done) => setTimeout(done, 10e3))]);

export const put = (...items) => write('items', items, (item) => Object.fromEntries(kept.map((name) => [name, item[name] ?? null])));
export const putFile = (item) => write('files', [item], ({ file }) => file);
export const putThumb = (item) => write('thumbs', [item], ({ thumb: small }) => small);

// What the server has made of a picture that the browser cannot show; in memory only where it cannot be kept.
const seen = ({ id }) => `${id} seen`;
export async function putPreview(item, blob) {
  item.preview = blob;
  try {
    await ended(part('files', 'readwrite').put(blob, seen(item)));
    item.preview = null;
  } catch { /* no room, or no database */ }
}

export function remove(items) {
  if (!database) return;
  const all = database.transaction(parts, 'readwrite');
  for (const name of parts) for (const item of items) for (const key of [item.id, seen(item)]) all.objectStore(name).delete(key);
  all.commit?.(); // at once: the tab may be closed next
}

const get = async (name, id) => (database ? ended(part(name).get(id)).catch(() => null) : null);
export const thumb = (item) => get('thumbs', item.id);

// The picture as it was chosen; null when it is gone.
export const original = async (item) => item.file ?? (await get('files', item.id)) ?? null;
// The picture as it can be shown.
export const shown = async (item) => item.preview ?? (await get('files', seen(item))) ?? original(item);
