// What the server's refusals mean to somebody who sits before the page, and what to do about each.
import { element, roughly, sentence } from './dom.js';
import { state } from './state.js';
import { labels } from './words.js';

const busy = 'You can try again in a moment.';

const words = {
  401: ['The server does not know your token.', () => 'Reload the page to enter another one.'],
  403: ['The server refused this request.', () => `It takes pictures only from pages at an address that it knows, and “${location.host}” may not be one. Whoever runs the server can allow it.`],
  404: ['There is no picture restorer at this address.', () => 'Reload the page. If that does not help, the server has moved.'],
  413: ['This file is larger than the server takes.', () => 'Resize it first in a photo program.'],
  421: ['The server does not answer under this address.', () => `Whoever runs it can allow the name “${location.hostname}”. On the computer itself, localhost works.`],
  429: ['The server is busy: too many pictures are waiting.', () => busy],
  503: ['The server cannot take the picture right now.', () => busy],
  504: ['The server gave up: the picture took too long.', () => 'A smaller scale, or “Only enlarge” for the background, is faster.'],
  507: ['The server has no room left for another picture.', () => 'Try again later. If it stays like this, tell whoever runs the server.'],
};

// Counts down to when the server wants to be asked again; each click is one attempt.
function againButton(wait, again) {
  const button = element('button', { type: 'button', className: 'button quiet', disabled: wait > 0 });
  const end = performance.now() + wait * 1e3;
  const tick = () => {
    const left = Math.ceil((end - performance.now()) / 1e3);
    button.disabled = left > 0;
    button.textContent = left > 0 ? `Try again in ${left} s` : 'Try again';
    if (left > 0) setTimeout(tick, 250);
  };
  tick();
  button.addEventListener('click', () => again(), { once: true });
  return button;
}

// 'quality: …' -> 'Quality: …', as the field is called here
const titled = (detail) => detail.replace(/^(\w+): /, (start, name) => (labels[name] ? `${labels[name][0]}: ` : start));

// {text, advice, fine, button} for panel.fail. again(extra) sends the picture once more, with extra fields.
export function explain(request, problem, again, extra) {
  const { status } = request;
  const detail = problem.detail ?? problem.title ?? '';
  const fine = [problem.request_id && `Request ${problem.request_id}`];
  if (problem.code === 'corrupt') {
    if (extra.damaged) return { text: 'Too little of this file is left to restore anything.', advice: 'If there is another copy of it, try that one.', fine: [detail, ...fine] };
    return {
      text: 'This file is damaged, or a part of it is missing.',
      advice: state.options.has('damaged') ? 'If there is another copy of it, try that one. Otherwise the part that can be read can be restored.' : 'If there is another copy of it, try that one.',
      button: state.options.has('damaged') ? element('button', { type: 'button', className: 'button quiet', textContent: 'Restore what is there', onclick: () => again({ damaged: 'accept' }) }) : null,
      fine: [detail, ...fine],
    };
  }
  const known = words[status];
  if (!known) return { text: detail ? sentence(titled(detail)) : `The server answered ${status} ${request.statusText}.`, fine };
  const wait = Number(request.getResponseHeader('Retry-After')) || 0;
  const repeats = [429, 503, 507].includes(status);
  const advice = wait >= 60 && repeats ? `You can try again in ${roughly(wait)}.` : known[1]();
  return { text: known[0], advice, button: repeats ? againButton(wait, () => again(extra)) : null, fine: [detail, ...fine] };
}
