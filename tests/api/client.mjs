// What the API tests share: a server that is ready, requests to it, and pictures made here.
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import zlib from 'node:zlib';
import { fixtures, root, startServer } from './server.mjs';

export const shared = process.env.RESTORED_SHARED ?? path.join(root, '../shared');
export const hasShared = fs.existsSync(path.join(shared, 'models'));
export const fixture = (name) => fs.readFileSync(path.join(fixtures, name));

// Options of the command line that choose models: small ones of our own, or the shared ones.
export const ownModels = ['--models', fixtures, '--default_version', 'face_64', '--default_detector', 'detector',
  '--default_bg_upsampler', 'upscaler', '--default_parser', 'parser'];
export const sharedModels = ['--models', path.join(shared, 'models'), '--default_version', 'gfpgan_tiny',
  '--default_detector', 'detection_mobilenet0.25_distilled', '--default_bg_upsampler', 'rrdb_x2_tiny',
  '--default_parser', 'parsing_parsenet_tiny'];

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Calls until it gives something true, and gives that.
export async function until(what, probe, ms = 300000) {
  for (const end = Date.now() + ms; ;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited ${ms} ms in vain for: ${what}`);
    await sleep(25);
  }
}

// Waits until the log has the pattern; its match. A line may be written, or come here, after what it tells of.
export const logged = (server, pattern) => until(`${pattern} in the log`, () => pattern.exec(server.log()));

// Starts the server; with ready it is waited for until it says so. stop() fails when it does not end well. context: a test
// at whose end it is stopped in any case.
export async function start({ program, models = ownModels, args = [], ready = true, env, context } = {}) {
  const server = await startServer({ program, args: [...models, ...args], env });
  const stop = server.stop;
  context?.after(() => stop());
  server.port = Number(new URL(server.url).port);
  server.stop = async () => {
    const { code, signal } = await stop();
    if (code !== 0) throw new Error(`the server ended with ${code ?? signal}: ${server.log()}`);
  };
  if (ready) {
    try {
      await until('ready', async () => (await fetch(`${server.url}/readyz`)).status === 200);
    } catch (error) {
      await stop();
      throw error;
    }
  }
  return server;
}

// Sends a form and rejects when signal aborts. Not by fetch: in Node 18 it forgets signals when it collects garbage.
async function untilAborted(url, body, headers, signal) {
  const form = new Response(body);
  const bytes = Buffer.from(await form.arrayBuffer());
  await new Promise((resolve, reject) => {
    const request = http.request(url, { method: 'POST', agent: false, headers: { ...headers, 'content-type': form.headers.get('content-type'), 'content-length': bytes.length } });
    request.on('error', reject).on('response', () => reject(new Error('it was answered before it was aborted')));
    signal.addEventListener('abort', () => request.destroy(new Error('aborted')));
    request.end(bytes);
  });
}

// POST of a form: options as fields, the picture as the file part. body: what is sent instead of a form.
export async function post(server, route, { picture, name = 'picture.png', fields = {}, query = '', headers = {}, body, signal } = {}) {
  if (body === undefined) {
    body = new FormData();
    for (const [key, value] of Object.entries(fields)) body.append(key, value);
    if (picture) body.append('image', new Blob([picture]), name);
  }
  const url = `${server.url}${route}${query}`;
  if (signal) return untilAborted(url, body, headers, signal);
  const response = await fetch(url, { method: 'POST', body, headers });
  const bytes = Buffer.from(await response.arrayBuffer());
  const type = response.headers.get('content-type') ?? '';
  return { status: response.status, headers: response.headers, type, bytes, json: /json/.test(type) ? JSON.parse(bytes) : null };
}

// No network runs: only decoding, resizing, encoding.
export const plain = { version: 'none', bg_upsampler: 'none' };

export async function get(server, route, options) {
  const response = await fetch(server.url + route, options);
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, json: /json/.test(response.headers.get('content-type') ?? '') && text ? JSON.parse(text) : null };
}

// Sends bytes as they are and reads until the server closes, or for that long.
export function raw(server, bytes, ms = 60000) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(server.port, '127.0.0.1');
    let answer = '';
    const timer = setTimeout(() => socket.destroy(), ms);
    socket.on('connect', () => socket.write(bytes));
    socket.on('data', (data) => { answer += data.toString('latin1'); });
    socket.on('error', (error) => { if (error.code !== 'ECONNRESET' && error.code !== 'EPIPE') reject(error); });
    socket.on('close', () => { clearTimeout(timer); resolve(answer); });
  });
}

// All samples of /metrics: 'name{labels}' -> number.
export async function metrics(server) {
  const { text } = await get(server, '/metrics');
  const samples = new Map();
  for (const line of text.split('\n'))
    if (line && !line.startsWith('#')) samples.set(line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1)));
  return samples;
}

// Who receives webhooks: {origin, told, answers}. told: what came; answers: statuses that it gives next, 200 in the end.
export async function startReceiver(context) {
  const told = [], answers = [];
  const server = http.createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    told.push({ path: request.url, json: JSON.parse(body) });
    response.statusCode = answers.shift() ?? 200;
    response.end();
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  context.after(() => server.close());
  return { origin: `http://127.0.0.1:${server.address().port}`, told, answers };
}

// ---- pictures ----

export function chunk(type, data) {
  const out = Buffer.alloc(12 + data.length);
  out.writeUInt32BE(data.length, 0);
  out.write(type, 4, 'latin1');
  data.copy(out, 8);
  out.writeUInt32BE(crc(out.subarray(4, 8 + data.length)), 8 + data.length);
  return out;
}

function crc(bytes) {
  let c = ~0;
  for (const b of bytes) {
    c ^= b;
    for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
  }
  return ~c >>> 0;
}

export function pngHeader(width, height, bits = 8, type = 2) {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header[8] = bits;
  header[9] = type;
  return Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), chunk('IHDR', header)]);
}

// A soft colourful RGB picture.
export function png(width, height) {
  const rows = Buffer.alloc(height * (1 + width * 3));
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const at = y * (1 + width * 3) + 1 + x * 3;
      rows[at] = 128 + 100 * Math.sin(x / 9 + y / 31);
      rows[at + 1] = (x * 255) / width;
      rows[at + 2] = (y * 255) / height;
    }
  return Buffer.concat([pngHeader(width, height), chunk('IDAT', zlib.deflateSync(rows)), chunk('IEND', Buffer.alloc(0))]);
}

// A PNG of given samples, in order, of 8 or 16 bits.
export function pngOf(width, height, channels, samples) {
  const bytes = samples.BYTES_PER_ELEMENT, stride = width * channels * bytes, rows = Buffer.alloc(height * (1 + stride));
  for (let i = 0; i < samples.length; i++) {
    const at = (1 + Math.floor(i / (width * channels))) + i * bytes;
    if (bytes === 2) rows.writeUInt16BE(samples[i], at);
    else rows[at] = samples[i];
  }
  return Buffer.concat([pngHeader(width, height, 8 * bytes, { 1: 0, 2: 4, 3: 2, 4: 6 }[channels]), chunk('IDAT', zlib.deflateSync(rows)), chunk('IEND', Buffer.alloc(0))]);
}

export const pngSize = (bytes) => [bytes.readUInt32BE(16), bytes.readUInt32BE(20)];

// Decodes what our server writes: 8 or 16 bit, gray, RGB or with alpha, not interlaced.
export function decodePng(bytes) {
  const [width, height] = pngSize(bytes);
  const channels = { 0: 1, 2: 3, 4: 2, 6: 4 }[bytes[25]];
  const bits = bytes[24], step = (channels * bits) / 8;
  if ((bits !== 8 && bits !== 16) || !channels || bytes[28]) throw new Error('not a PNG that this reads');
  const parts = [];
  for (let at = 8; at < bytes.length; at += 12 + bytes.readUInt32BE(at))
    if (bytes.toString('latin1', at + 4, at + 8) === 'IDAT') parts.push(bytes.subarray(at + 8, at + 8 + bytes.readUInt32BE(at)));
  const packed = zlib.inflateSync(Buffer.concat(parts)), stride = width * step, pixels = Buffer.alloc(height * stride);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < stride; x++) {
      const left = x >= step ? pixels[y * stride + x - step] : 0, up = y ? pixels[(y - 1) * stride + x] : 0;
      const corner = y && x >= step ? pixels[(y - 1) * stride + x - step] : 0;
      const p = left + up - corner, dl = Math.abs(p - left), du = Math.abs(p - up), dc = Math.abs(p - corner);
      const guess = [0, left, up, (left + up) >> 1, dl <= du && dl <= dc ? left : du <= dc ? up : corner][packed[y * (stride + 1)]];
      pixels[y * stride + x] = packed[y * (stride + 1) + 1 + x] + guess;
    }
  if (bits === 8) return { width, height, channels, bits, pixels };
  return { width, height, channels, bits, pixels: Uint16Array.from({ length: pixels.length / 2 }, (_, i) => pixels.readUInt16BE(2 * i)) };
}

// The mean difference of two decoded pictures of one size, in grey levels.
export function difference(a, b) {
  if (a.width !== b.width || a.height !== b.height || a.channels !== b.channels) return Infinity;
  let sum = 0;
  for (let i = 0; i < a.pixels.length; i++) sum += Math.abs(a.pixels[i] - b.pixels[i]);
  return sum / a.pixels.length;
}
