// What a file is, by its first bytes, and what to do about one that the server does not read.
import { list, listAll } from './dom.js';
import { t } from './lang.js';
import { state } from './state.js';

export const names = { png: 'PNG', jpg: 'JPEG', jpeg: 'JPEG', webp: 'WebP', heic: 'HEIC', avif: 'AVIF', tiff: 'TIFF', gif: 'GIF',
  bmp: 'BMP', jxl: 'JPEG XL', jp2: 'JPEG 2000', raw: 'RAW', psd: 'Photoshop', svg: 'SVG', pdf: 'PDF' };

const kinds = [
  ['jpeg', /^\xff\xd8\xff/], ['png', /^\x89PNG\r\n\x1a\n/], ['webp', /^RIFF[^]{4}WEBP/],
  ['avif', /^[^]{4}ftypavi/], ['heic', /^[^]{4}ftyp(he|mif1|msf1)/],
  ['raw', /^(II\x2a\0[^]{4}CR|IIU\0|FUJIFILMCCD-RAW|IIRO|[^]{4}ftypcrx)/], ['tiff', /^(II[\x2a\x2b]\0|MM\0[\x2a\x2b])/],
  ['gif', /^GIF8/], ['bmp', /^BM/], ['jxl', /^(\xff\x0a|\0\0\0\x0cJXL )/], ['jp2', /^(\0\0\0\x0cjP  |\xff\x4f\xff\x51)/],
  ['psd', /^8BPS/], ['pdf', /^%PDF-/],
  ['svg', /^(\xef\xbb\xbf)?\s*<(\?xml|svg)/],
];

const conversions = {
  heic: 'On an iPhone, Settings › Camera › Formats › Most Compatible makes new photos JPEG. For this one, open it on a computer and export it as JPEG.',
  raw: 'Develop it with the camera’s own program, or export it from your photo program as JPEG.',
  pdf: 'Save the page as a picture, or scan it again as JPEG.',
};

// Whether the server reads a kind and cannot write it: the result is a JPEG, or a PNG if parts are transparent.
export const isReadOnly = (kind) => state.formats.includes(kind) && state.written.length > 0 && !state.written.includes(kind);

// 'jpeg', 'heic' …, 'empty', '' for what is no picture that we know; null when the file cannot be read.
export async function kindOf(file) {
  if (file.size === 0) return 'empty';
  try {
    const head = String.fromCharCode(...new Uint8Array(await file.slice(0, 64).arrayBuffer()));
    return kinds.find(([, start]) => start.test(head))?.[0] ?? '';
  } catch {
    return null; // a folder, or a file that is gone
  }
}

// Why a file of that kind is not taken, and what to do: [text, advice]; null when the server reads it.
export function refusal(kind) {
  if (state.formats.includes(kind)) return null;
  const known = state.formats.map((format) => names[format] ?? format.toUpperCase());
  if (kind === null) return [t('This file cannot be read.'), t('It may be gone, or a folder.')];
  if (kind === 'empty') return [t('This file is empty.'), t('Copy it again from where it came from.')];
  if (!kind) return [t('This is not a {0} picture.', list(known)), t('The file may be something else, or badly damaged.')];
  return [t('{0} files cannot be restored yet, only {1} pictures.', names[kind], listAll(known)),
    t(conversions[kind] ?? 'Open it in a photo program, choose “Export” or “Save as”, and save it as JPEG or PNG.')];
}
