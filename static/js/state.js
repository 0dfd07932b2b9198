// What the page's parts share. Whoever changes it calls changed(); whoever shows it listens.

export const state = {
  file: null,        // the picture that was taken
  kind: '',          // its format, from its first bytes
  size: null,        // {width, height} as it is shown, null while that is not known
  request: null,     // the restoration under way
  undownloaded: false, // there is a result that nobody has downloaded
  ready: false,      // the server takes pictures
  problem: '',       // why this picture cannot be restored with these options
  formats: ['jpeg', 'png'], // that the server reads
  limits: {},        // of the server, as in /v1/capabilities
  options: new Set(), // the names of the options that it knows
};

const parts = new EventTarget();
export const changed = () => parts.dispatchEvent(new Event('change'));
export const onChange = (listener) => parts.addEventListener('change', listener);

// Where the server is, in the words of somebody who sits before the page.
export const here = /^(localhost|127\..*|\[::1\])$/.test(location.hostname) ? 'this computer' : 'the server';
