// The pictures' way through the server: each is an asynchronous job of one batch, sent with a key of its own so that
// nothing is done twice, and followed by the server's events. A lost connection or a server that starts again is waited for.
import { newId } from './dom.js';
import { t } from './lang.js';
import { fields } from './options.js';
import { fieldsOf } from './own.js';
import { isTemporary } from './refused.js';
import { ask, parts, problemOf, send } from './server.js';
import { changed, isPending, pending, state, tell } from './state.js';
import * as store from './store.js';

const atOnce = 2;      // uploads
const longestWait = 15; // seconds between two tries
const silence = 35e3;   // ms: a server that is there says something every 15 seconds
const place = 'restored-batch'; // in localStorage

const uploads = new Map(); // item -> {request, sent: all of it is, cancelled, job: it asks for one}
const early = new Map();   // events of jobs whose id we do not know yet
let keepsJobs = true;      // the server has a folder for them
let pausedUntil = 0, tries = 0, timer = 0;

let batch = '';
function batchName() {
  if (batch) return batch;
  if (!store.isOpen()) return batch = `page-${newId()}`; // a second tab has a batch of its own
  try {
    batch = localStorage.getItem(place) ?? '';
    if (!/^page-[0-9a-f]{32}$/.test(batch)) localStorage.setItem(place, batch = `page-${newId()}`);
  } catch {
    batch = `page-${newId()}`;
  }
  return batch;
}
export const zip = () => `v1/batches/${batchName()}/results.zip`;

// ---- sending ----

// extra: fields that no control has, such as damaged.
export function submit(items, extra = {}) {
  const common = Object.fromEntries(fields());
  const fresh = items.filter((item) => !isPending(item));
  for (const item of fresh) {
    forget(item);
    delete item.own.repainted;
    Object.assign(item, { state: 'waiting', sent: { ...fieldsOf(item, common), ...extra }, extra, key: newId(), job: null, batch: batchName(), problem: null, report: null, result: null, progress: 0, stage: null, eta: null, began: Date.now() });
  }
  store.put(...fresh);
  proceed();
}

// Goes on with what waits; after a reload, too.
export function proceed() {
  pump();
  listen();
  changed();
}

function pump() {
  clearTimeout(timer);
  const wait = pausedUntil - Date.now();
  if (wait > 0) {
    if (state.items.some((item) => item.state === 'waiting')) timer = setTimeout(pump, wait);
    return;
  }
  for (const item of state.items) {
    if (uploads.size >= atOnce) break;
    if (item.state === 'waiting' && !uploads.has(item)) upload(item);
  }
}

function pause(seconds) {
  pausedUntil = Math.max(pausedUntil, Date.now() + seconds * 1e3);
}

async function upload(item) {
  const own = { request: null, sent: false, cancelled: false, job: keepsJobs };
  uploads.set(item, own);
  await store.written(item); // what is under way goes on after a reload
  if (item.state !== 'waiting') return over(item);
  Object.assign(item, { state: 'uploading', progress: 0, hint: '' });
  const file = await store.original(item);
  if (item.state !== 'uploading') return over(item);
  if (!file) return fail(item, { text: t('This picture is not here any more.'), advice: t('Choose it again.') });
  const body = new FormData();
  for (const [name, value] of Object.entries(own.job ? { ...item.sent, batch: item.batch } : item.sent)) body.append(name, value);
  const mask = item.sent.mask_mode && (item.own.mask ?? item.own.kept?.blob); // it may have been taken back meanwhile
  if (mask) body.append('mask', mask, 'mask.png');
  body.append('image', file, item.name);
  own.request = send('v1/restore', body, {
    upload(part) { item.progress = part; changed(); },
    uploaded() { own.sent = true; item.progress = 1; changed(); },
    answer: (request) => answered(item, own, request),
    broken: () => lostConnection(item),
    aborted: () => over(item),
  }, own.job ? { 'Idempotency-Key': item.key } : { Accept: 'multipart/mixed' });
  changed();
}

function over(item) {
  uploads.delete(item);
  pump();
  changed();
}

// A file that was moved or changed since it was chosen looks like a broken connection, too.
async function lostConnection(item) {
  const readable = await store.original(item).then((file) => file.slice(0, 1).arrayBuffer()).then(() => true, () => false);
  if (!readable && item.state === 'uploading') return fail(item, { text: t('This picture is not here any more.'), advice: t('Choose it again.') });
  if (item.state === 'uploading') item.state = 'waiting';
  away(true);
  pause(Math.min(longestWait, 2 ** tries++));
  over(item);
}

function away(is) {
  if (!is) tries = 0;
  if (state.away === is) return;
  state.away = is;
  changed();
}

async function answered(item, own, request) {
  away(false);
  if (request.status === 200) return waitedFor(item, own, request);
  const told = await problemOf(request.response);
  if (request.status === 202) {
    if (own.cancelled) {
      drop(told.id);
      return over(item);
    }
    item.job = told.id;
    apply(item, early.get(told.id) ?? told);
    early.delete(told.id);
    return over(item);
  }
  const wait = Number(request.getResponseHeader('Retry-After')) || 0;
  const problem = { status: request.status, statusText: request.statusText, wait, ...told };
  if (request.status === 503 && own.job && !wait && /state_dir|asynchronous jobs/.test(told.detail)) {
    keepsJobs = false;
    item.state = 'waiting';
    return over(item);
  }
  if (isTemporary(problem) && !own.cancelled) { // it waits for its turn without being told to
    Object.assign(item, { state: 'waiting', hint: problem });
    pause(wait);
    return over(item);
  }
  fail(item, { ...problem, early: own.job }); // of a job, the server has looked at no more than the file's header
}

// A server without a folder for jobs has answered with the report and the picture themselves.
async function waitedFor(item, own, request) {
  const [report, picture] = await parts(request.response, request.getResponseHeader('Content-Type'));
  if (!own.cancelled) {
    const finished = new Date();
    Object.assign(item, { state: 'done', result: picture, report: { ...JSON.parse(await report.text()), created: new Date(item.began), finished } });
    store.put(item);
    tell('ended', item);
  }
  over(item);
}

function fail(item, problem) {
  Object.assign(item, { state: 'failed', problem });
  store.put(item);
  tell('ended', item);
  over(item);
}

// ---- following ----

const ends = ['done', 'failed', 'cancelled'];

// Which tile or face it is at, of how many; null where there is one alone.
function partOf({ stage, tiles_done: tile, tiles_total: tiles, faces_done: face, faces_total: faces }) {
  const [done, all] = stage === 'background' ? [tile, tiles] : ['restore', 'parse'].includes(stage) ? [face, faces] : [];
  return all > 1 ? [Math.min(done + 1, all), all] : null;
}

// A job, or a row of a list of them, which has neither its place nor the time left: those stay as they are.
function apply(item, job) {
  if (!isPending(item)) return;
  const was = item.state, { eta_seconds: seconds } = job;
  Object.assign(item, {
    state: job.state, progress: job.progress ?? item.progress, stage: job.stage, part: partOf(job),
    created: job.created ?? item.created, megapixels: job.megapixels ?? item.megapixels,
  });
  if (job.position !== undefined) Object.assign(item, { position: job.position, lacks: job.waiting_for });
  if (seconds !== undefined) item.eta = seconds === null ? null : Date.now() + seconds * 1e3;
  if (job.state === 'done') item.report = job;
  if (job.state === 'failed') item.problem = { status: 500, ...job.error };
  if (ends.includes(job.state)) tell('ended', item);
  if (item.state !== was) store.put(item);
  changed();
}

function heard(job) {
  const item = state.items.find((one) => one.job === job.id);
  if (job.state !== 'queued') moved = true;
  if (item) {
    if (job.state !== 'done' || job.faces) apply(item, job);
    else fetchJob(item).catch(() => listening?.abort()); // an end without its report: after a failure, all are asked for anew
  } else if (uploads.size) {
    early.set(job.id, job);
    if (early.size > 500) early.delete(early.keys().next().value);
  }
  if (!pending().length) listening?.abort();
}

async function fetchJob(item) {
  const { job } = item;
  if (!job) return; // cancelled, while others were asked for
  const answer = await ask(`v1/jobs/${job}`, { signal: listening?.signal }), told = answer.ok && await answer.json();
  if (item.job !== job || !isPending(item)) return; // cancelled or removed meanwhile: it stays so
  if (answer.ok) return apply(item, told);
  if (![404, 410].includes(answer.status)) throw new Error(answer.status);
  // The server knows nothing of it any more: it is sent once more, with its key.
  Object.assign(item, { state: 'waiting', job: null });
  store.put(item);
  pump();
}

const isQueued = ({ state: its, job }) => its === 'queued' && job;

// Where those that wait in the queue stand: the first and the last are asked for, those between lie between them, by their
// size. To ask for each would be a request for every picture.
async function askQueue() {
  moved = false;
  looked = Date.now();
  const waiting = state.items.filter(isQueued).sort((a, b) => (a.created < b.created ? -1 : 1)), first = waiting[0], last = waiting.at(-1);
  for (const item of new Set(waiting.length ? [last, first] : [])) {
    await fetchJob(item);
    if (listening) hear();
  }
  if (last?.state !== 'queued') return; // events tell of the others
  const { eta, position } = last, start = first.eta ?? Date.now(), front = first.position ?? 0;
  const size = ({ megapixels }) => megapixels || 1, all = waiting.slice(1).reduce((sum, item) => sum + size(item), 0);
  let part = 0;
  waiting.slice(1, -1).forEach((item, i) => {
    part += size(item);
    if (isQueued(item)) Object.assign(item, { eta: eta === null ? null : start + (eta - start) * part / all, position: Math.round(front + (position - front) * (i + 1) / (waiting.length - 1)) });
  });
  changed();
}

// The events of all jobs do not tell how the queue moves: it is looked at again soon after something has moved, else now and
// then, for others that may be ahead.
const soon = 3e3, seldom = 15e3; // ms
let moved = false, looked = 0;
setInterval(() => {
  if (listening && !state.away && state.items.some(isQueued) && Date.now() - looked > (moved ? soon : seldom)) askQueue().catch(() => {});
}, 1000);

// Where the jobs stand, after we have not listened for a while.
async function catchUp() {
  const mine = new Map(pending().filter((item) => item.job).map((item) => [item.job, item]));
  for (const name of new Set([...mine.values()].map((item) => item.batch))) {
    for (let path = `v1/jobs?batch=${name}&limit=1000`; path && mine.size;) {
      const answer = await ask(path, { signal: listening.signal });
      hear();
      if (!answer.ok) throw new Error(answer.status);
      const { jobs, next } = await answer.json();
      for (const job of jobs) {
        const item = mine.get(job.id);
        if (job.state !== 'queued' || item?.state !== 'queued') continue;
        apply(item, job);
        mine.delete(job.id);
      }
      path = next?.slice(1); // relative, as all addresses here
    }
  }
  for (const item of mine.values()) {
    await fetchJob(item);
    hear();
  }
  await askQueue();
}

let listening = null, lastId = '', watch = 0;

// The server was heard. One that stands still, or a network that is gone, ends no connection: only the silence tells.
function hear() {
  clearTimeout(watch);
  watch = setTimeout(() => {
    away(true);
    listening?.abort();
  }, silence);
}

async function listen() {
  if (listening) return;
  for (let wait = 1; pending().length;) {
    listening = new AbortController();
    hear();
    try {
      const answer = await ask('v1/events', { signal: listening.signal, headers: lastId ? { 'Last-Event-ID': lastId } : {} });
      if (answer.ok || answer.status === 503) await catchUp(); // 503: too many listeners, then asking now and then does
      if (!answer.ok) throw new Error(answer.status);
      away(false);
      wait = 1;
      if (pending().length) await read(answer.body);
    } catch (error) {
      if (error.name === 'TypeError') away(true);
    }
    listening.abort();
    clearTimeout(watch);
    if (!pending().length) break;
    await new Promise((done) => setTimeout(done, wait * 1e3));
    wait = Math.min(longestWait, 2 * wait);
  }
  listening = null;
  clearTimeout(watch);
  if (pending().length) listen();
}

// Server-Sent Events, by hand: EventSource sends no token.
async function read(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    hear();
    const events = (text + value).split('\n\n');
    text = events.pop();
    for (const event of events) {
      const line = (name) => new RegExp(`^${name}: (.*)$`, 'm').exec(event)?.[1];
      lastId = line('id') ?? lastId;
      const data = line('data');
      if (data) heard(JSON.parse(data));
    }
  }
}

// ---- cancelling and forgetting ----

const drop = (job) => ask(`v1/jobs/${job}`, { method: 'DELETE' }).catch(() => {});

export function cancel(items) {
  for (const item of items.filter(isPending)) {
    const own = uploads.get(item);
    if (own?.sent && own.job) own.cancelled = true; // the server has it: the answer names the job
    else own?.request?.abort();
    if (item.job) drop(item.job);
    Object.assign(item, { state: 'cancelled', job: null, hint: '' });
    store.put(item);
    tell('ended', item);
  }
  if (!pending().length) listening?.abort();
  changed();
}

// The server need not keep it longer.
export function forget(item) {
  cancel([item]);
  if (item.job) drop(item.job);
  item.job = null;
}

// ---- in words ----

// Nothing is known of a server that is away.
export const left = (item) => (state.away || item.eta === null || item.eta === undefined ? null : Math.max(0, (item.eta - Date.now()) / 1e3));

// Until all are done, in seconds; null while that is not known.
export function leftOfAll() {
  const all = pending(), sent = all.filter(({ state: its }) => its === 'queued' || its === 'running');
  if (sent.some(({ eta }) => eta === undefined)) return null; // of an earlier page, and not asked for yet
  const known = all.map(left).filter((s) => s !== null);
  if (!known.length) return null;
  const unsent = all.length - known.length; // they take about as long as those that are known
  return Math.max(...known) * (1 + unsent / Math.max(1, known.length));
}

export const nextTry = () => Math.max(0, Math.ceil((pausedUntil - Date.now()) / 1e3));
