// What the server's refusals mean to somebody who sits before the page, and what to do about each.
import { element, roughly, sentence } from './dom.js';
import { knows, mark, said, t } from './lang.js';
import { state } from './state.js';
import { labels } from './words.js';

const busy = 'You can try again in a moment.';

// status: [what it means, what to do]; {0} is this page's host
const words = {
  401: ['The server does not know your token.', 'Reload the page to enter another one.'],
  403: ['The server refused this request.', 'It takes pictures only from pages at an address that it knows, and “{0}” may not be one. Whoever runs the server can allow it.'],
  404: ['There is no picture restorer at this address.', 'Reload the page. If that does not help, the server has moved.'],
  413: ['This file is larger than the server takes.', 'Resize it first in a photo program.'],
  421: ['The server does not answer under this address.', 'Whoever runs it can allow the name “{0}”. On the computer itself, localhost works.'],
  429: ['The server is busy: too many pictures are waiting.', busy],
  503: ['The server cannot take the picture right now.', busy],
  504: ['The server gave up: the picture took too long.', 'A smaller scale, or “Only enlarge” for the background, is faster.'],
  507: ['The server has no room left for another picture.', 'Try again later. If it stays like this, tell whoever runs the server.'],
};

// What passes by itself: the picture waits for its next turn.
export const isTemporary = ({ status, wait }) => [429, 503].includes(status) && wait > 0;

// Why a picture waits that was refused for now.
export const waitingFor = ({ status }) => t(words[status][0]);

const button = (text, onclick) => element('button', { type: 'button', className: 'button quiet', textContent: text, onclick });

// Whether the server refuses a mask because there is nothing beside it.
export const isAllPainted = (detail = '') => detail.startsWith('mask: all of it is white');
export const allPainted = mark('All of the picture is painted, so nothing is left to repair it from.');

// What a problem means that its status does not tell: 'quality: …' -> 'Quality: …', as the field is called here.
export function meaning({ code, detail }) {
  if (isAllPainted(detail)) return { text: t(allPainted), advice: '', foreign: false, told: '' };
  const field = labels[/^(\w+): /.exec(detail)?.[1]]?.[0], plain = sentence(field ? detail.replace(/^\w+/, t(field)) : detail);
  const kind = field && code === 'invalid' ? 'option' : code, text = said('problem', kind, plain, [t(field ?? '')]);
  const advice = code === 'too-large' ? t('Make it smaller in a photo program, or choose less enlargement.') : '';
  return { text, advice, foreign: !knows('problem', kind), told: text === plain ? '' : detail };
}

// {text, advice, told, fine, button} for the panel; told: in the server's own words. item.problem: of the server, or
// {text, advice} of our own. again(extra) sends the picture once more, with extra fields.
export function explain({ problem, extra }, again) {
  const { status, detail = problem.title ?? '' } = problem;
  if (problem.text) return { text: problem.text, advice: problem.advice, fine: [] };
  const fine = [problem.request_id && t('Request {0}', problem.request_id)];
  if (problem.code === 'corrupt') {
    const other = t('If there is another copy of it, try that one.');
    if (extra?.damaged) return { text: t('Too little of this file is left to restore anything.'), advice: other, told: detail, fine };
    const accepts = state.options.has('damaged') && !problem.early; // without a header nothing can be read
    return {
      text: t('This file is damaged, or a part of it is missing.'),
      advice: accepts ? `${other} ${t('Otherwise the part that can be read can be restored.')}` : other,
      button: accepts ? button(t('Restore what is there'), () => again({ damaged: 'accept' })) : null,
      told: detail,
      fine,
    };
  }
  const known = words[status];
  if (!known) return { ...(detail ? meaning({ ...problem, detail }) : { text: t('The server answered {0} {1}.', status, problem.statusText ?? '') }), fine };
  const repeats = [429, 503, 507].includes(status);
  const advice = problem.wait >= 60 && repeats ? t('You can try again in {0}.', roughly(problem.wait)) : t(known[1], location.hostname);
  return { text: t(known[0]), advice, button: repeats ? button(t('Try again'), () => again(extra)) : null, told: detail, fine };
}
