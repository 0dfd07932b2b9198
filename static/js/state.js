// What the page's parts share. Whoever changes it calls changed(); whoever shows it listens.

export const state = {
  items: [],         // the pictures, as list.js makes them
  current: null,     // the one that is shown
  known: false,      // the server has told what it can do
  ready: false,      // the server takes pictures
  taking: false,     // pictures are being taken in
  away: false,       // the connection is lost; the page tries again by itself
  problem: '',       // why the current picture cannot be restored with these options
  formats: ['jpeg', 'png'], // that the server reads
  written: [],       // formats that it writes; none: not known
  limits: {},        // of the server, as in /v1/capabilities
  options: new Set(), // the names of the options that it knows
};

// new: chosen; waiting: to be sent; uploading; the rest are the server's.
const underWay = ['waiting', 'uploading', 'queued', 'running'];
export const isPending = (item) => underWay.includes(item.state);
export const isUnsent = (item) => item.state === 'new' || item.state === 'cancelled';
export const pending = () => state.items.filter(isPending);

const parts = new EventTarget();
let due = false;

// The listeners are called once for all changes of a moment.
export function changed() {
  if (due) return;
  due = true;
  queueMicrotask(() => {
    due = false;
    parts.dispatchEvent(new Event('change'));
  });
}
export const onChange = (listener) => parts.addEventListener('change', listener);

// Something happened to a picture: name is 'shown', 'seen', 'unseen' (the browser cannot show it), 'previewed' (it can now),
// 'zoomed', 'pinched' (two fingers are on it), 'ended', 'added' or 'removed'; or 'reached': the server is there again.
export const tell = (name, item) => parts.dispatchEvent(new CustomEvent(name, { detail: item }));
export const on = (name, listener) => parts.addEventListener(name, (e) => listener(e.detail));

export const isHere = /^(localhost|127\..*|\[::1\])$/.test(location.hostname);
