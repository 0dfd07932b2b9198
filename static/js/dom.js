// Small tools: elements, and numbers as people read them.

import { language, many, t } from './lang.js';

export const $ = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const node = Object.assign(document.createElement(tag), attributes);
  node.append(...children);
  return node;
}

// 128 random bits; crypto.randomUUID is for HTTPS and localhost alone.
export const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

// Lays an element over a part of the picture, both in its pixels.
export function lay(node, [x, y, width, height], size) {
  for (const [name, value] of Object.entries({ left: x / size.width, top: y / size.height, width: width / size.width, height: height / size.height })) node.style[name] = `${100 * value}%`;
}

export const times = (scale) => scale.toLocaleString(language); // 1.5, or 1,5

const number = (value, digits) => value.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits, useGrouping: false });
export const percent = (part) => `${Math.floor(100 * part + 1e-6)}\u00a0%`;

// In steps of 1024, so that a limit of 64 MiB is called 64 MB here and not 67.1.
export function bytes(count) {
  const [name, size] = count < 1024 ? ['B', 1] : count < 1 << 20 ? [t('KB'), 1024] : [t('MB'), 1 << 20];
  return `${number(count / size, size > 1024 && count % size ? 1 : 0)} ${name}`;
}

// A time that was measured: 340 ms, 2.1 s, 3 min 12 s.
export function seconds(ms) {
  if (ms >= 59.5e3) {
    const whole = Math.round(ms / 1e3);
    return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  }
  return ms >= 10e3 ? `${Math.round(ms / 1e3)} s` : ms >= 1e3 ? `${number(ms / 1e3, 1)} s` : `${Math.round(ms)} ms`;
}

// A time that goes by: 0:37, 1:02:03.
export function clock(ms) {
  const whole = Math.floor(ms / 1e3), hours = Math.floor(whole / 3600);
  const two = (n) => String(n).padStart(2, '0');
  return `${hours ? `${hours}:${two(Math.floor(whole / 60) % 60)}` : Math.floor(whole / 60)}:${two(whole % 60)}`;
}

// A time that is expected: "about 40 seconds", "about 2 minutes".
export function roughly(s) {
  if (s < 5) return t('a few seconds');
  if (s < 57.5) return t('about {0} seconds', Math.round(s / 5) * 5);
  if (s < 90 * 60) return many(Math.round(s / 60), 'about {0} minute', 'about {0} minutes');
  return many(Math.round(s / 3600), 'about {0} hour', 'about {0} hours');
}

export const megapixels = (count) => t('{0} megapixels', count < 9.95e6 ? number(count / 1e6, 1) : Math.round(count / 1e6));

// "png", "png or jpg", "png, jpg or webp"; and so with "and". The English without a comma before the last is that of Britain.
const joined = (type) => (words) => new Intl.ListFormat(language === 'en' ? 'en-GB' : language, { type }).format(words);
export const list = joined('disjunction'), listAll = joined('conjunction');
// Words in a row, without "and".
export const commas = (words) => words.join(language === 'zh' ? '，' : ', ');

// The server's texts begin in lower case; here they are sentences.
export function sentence(text) {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?:]$/.test(first) ? first : `${first}.`;
}
