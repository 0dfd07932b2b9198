// The page's language: English is in the code, each other one in a file of its own, by the English text. The reader's browser
// says which one is wanted (its list is what it sends as Accept-Language); a choice on the page wins and is kept.

export const languages = { en: 'English', de: 'Deutsch', es: 'Español', fr: 'Français', zh: '中文' };

const place = 'restored-language'; // in localStorage

function chosen() {
  let kept = null;
  try {
    kept = localStorage.getItem(place);
  } catch { /* the browser keeps nothing */ }
  const known = (tag) => Object.keys(languages).find((name) => tag?.toLowerCase().split('-')[0] === name);
  return known(kept) ?? (navigator.languages ?? [navigator.language]).map(known).find(Boolean) ?? 'en';
}

export const language = chosen();
const table = language === 'en' ? {} : (await import(`./strings_${language}.js`).catch(() => ({ default: {} }))).default;

const fill = (text, values) => text.replace(/\{(\d)\}/g, (_, i) => values[i]);

// The text in the page's language, {0}, {1} … filled in.
export const t = (text, ...values) => fill(table[text] ?? text, values);

// A sentence of the server's, by its code: what the page's language has for it, else the sentence itself, in English. kind:
// 'note' or 'problem'.
export function said(kind, code, sentence, values = []) {
  const text = table[`${kind} ${code}`];
  return text ? fill(text, values) : sentence;
}

// Whether said() has words of the page's language for it.
export const knows = (kind, code) => language === 'en' || !!table[`${kind} ${code}`];

// A text that t() gets later, from a table.
export const mark = (text) => text;

// One or many: count is {0} of both.
export const many = (count, one, more, ...values) => t(count === 1 ? one : more, count, ...values);

// Switches to a language: what is under way outlives a reload.
export function speak(name) {
  try {
    localStorage.setItem(place, name);
  } catch { /* then it is this language again */ }
  location.reload();
}

const attributes = ['aria-label', 'title', 'alt', 'placeholder', 'content'];

// The texts that stand in the page itself. Parts of a sentence around an element are texts of their own.
export function translate(root = document) {
  root.documentElement.lang = language;
  const walker = root.createTreeWalker(root.documentElement, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.data.trim().replace(/\s+/g, ' ');
    if (table[text]) node.data = node.data.replace(node.data.trim(), t(text));
  }
  for (const name of attributes)
    for (const node of root.querySelectorAll(`[${name}]`)) node.setAttribute(name, t(node.getAttribute(name).replace(/\s+/g, ' ')));
}
