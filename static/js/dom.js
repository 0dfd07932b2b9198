// Small tools: elements, and numbers as people read them.

export const $ = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const node = Object.assign(document.createElement(tag), attributes);
  node.append(...children);
  return node;
}

// In steps of 1024, so that a limit of 64 MiB is called 64 MB here and not 67.1.
export function bytes(count) {
  const [name, size] = count < 1024 ? ['B', 1] : count < 1 << 20 ? ['KB', 1024] : ['MB', 1 << 20];
  return `${(count / size).toFixed(size > 1024 && count % size ? 1 : 0)} ${name}`;
}

// A time that was measured: 340 ms, 2.1 s, 3 min 12 s.
export function seconds(ms) {
  if (ms >= 59.5e3) {
    const whole = Math.round(ms / 1e3);
    return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  }
  return ms >= 10e3 ? `${Math.round(ms / 1e3)} s` : ms >= 1e3 ? `${(ms / 1e3).toFixed(1)} s` : `${Math.round(ms)} ms`;
}

// A time that goes by: 0:37, 1:02:03.
export function clock(ms) {
  const whole = Math.floor(ms / 1e3), hours = Math.floor(whole / 3600);
  const two = (n) => String(n).padStart(2, '0');
  return `${hours ? `${hours}:${two(Math.floor(whole / 60) % 60)}` : Math.floor(whole / 60)}:${two(whole % 60)}`;
}

// A time that is expected: "about 40 seconds", "about 2 minutes".
export function roughly(s) {
  const plural = (n, unit) => `about ${n} ${unit}${n === 1 ? '' : 's'}`;
  if (s < 5) return 'a few seconds';
  if (s < 57.5) return plural(Math.round(s / 5) * 5, 'second');
  if (s < 90 * 60) return plural(Math.round(s / 60), 'minute');
  return plural(Math.round(s / 3600), 'hour');
}

export const megapixels = (count) => `${count < 9.95e6 ? (count / 1e6).toFixed(1) : Math.round(count / 1e6)} megapixels`;

// "png", "png or jpg", "png, jpg or webp"
export const list = (words) => (words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`);

// The server's texts begin in lower case; here they are sentences.
export function sentence(text) {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?:]$/.test(first) ? first : `${first}.`;
}
