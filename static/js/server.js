// Requests to the server. All addresses are relative, so that the page also works behind a proxy under /a/path/.

import * as token from './token.js';

// As fetch, with the token; asks for one where the server does.
export async function ask(path, options = {}) {
  for (;;) {
    const sent = token.current();
    const answer = await fetch(path, { ...options, headers: { ...options.headers, ...token.header(sent) } });
    if (answer.status !== 401) return answer;
    await token.ask(sent);
  }
}

// The JSON of an answer, whatever its status; null when there is none.
export async function get(path) {
  try {
    const answer = await ask(path, { headers: { Accept: 'application/json, application/problem+json' } });
    return await answer.json();
  } catch {
    return null;
  }
}

let estimates = true; // until the server turns out to be an older one

// What a picture of this size would take, or {problem}, what is wrong with the options; null where the server cannot say.
export async function estimate(query, signal) {
  if (!estimates) return null;
  try {
    const answer = await ask(`v1/estimate?${query}`, { method: 'POST', signal });
    estimates = ![404, 405].includes(answer.status);
    if (answer.status === 400) return { problem: await answer.json() };
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

// Sends a form to a route. on: {upload(part), uploaded(), answer(request), broken(), aborted()}. Returns the request.
export function send(path, body, on, headers = {}) {
  const request = new XMLHttpRequest(); // fetch tells nothing of an upload
  let sent;
  const begin = () => {
    sent = token.current();
    request.open('POST', path);
    request.responseType = 'blob';
    for (const [name, value] of Object.entries({ ...headers, ...token.header(sent) })) request.setRequestHeader(name, value);
    request.send(body);
  };
  request.upload.onprogress = (e) => { if (e.lengthComputable && e.loaded < e.total) on.upload(e.loaded / e.total); };
  request.upload.onload = on.uploaded;
  request.onload = () => (request.status === 401 ? token.ask(sent).then(begin) : on.answer(request));
  request.onerror = on.broken;
  request.onabort = on.aborted;
  begin();
  return request;
}

// The JSON of an answer that send() got, a job or a problem (RFC 9457); {} when it has none.
export async function problemOf(blob) {
  try {
    return JSON.parse(await blob.text());
  } catch {
    return {};
  }
}

// The bodies of a multipart answer, as blobs.
export async function parts(blob, type) {
  const boundary = `\r\n--${/boundary="?([^";]+)/.exec(type)[1]}`;
  const text = `\r\n${new TextDecoder('latin1').decode(await blob.arrayBuffer())}`, found = []; // a character a byte
  for (let at = text.indexOf(boundary), next; (next = text.indexOf(boundary, at + 1)) > 0; at = next) {
    const start = text.indexOf('\r\n\r\n', at + 1) + 4; // 'latin1' has the two bytes before, which the blob has not
    found.push(blob.slice(start - 2, next - 2, /content-type: *([^\r]+)/i.exec(text.slice(at, start))?.[1]));
  }
  return found;
}

// The file name of a Content-Disposition (RFC 6266); filename* wins.
export function fileName(header) {
  const extended = /filename\*=UTF-8''([^;]+)/i.exec(header ?? '');
  if (extended) return decodeURIComponent(extended[1]);
  return /filename="([^"]*)"/i.exec(header ?? '')?.[1] ?? /filename=([^;\s]+)/i.exec(header ?? '')?.[1] ?? 'restored';
}
