// Hostile bodies on the routes of other programs' clients: refused in their form, and the server's memory stays what it was.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { get, ownModels, pngHeader, post, start } from './client.mjs';

let server;
before(async () => { server = await start({ models: ownModels }); });
after(() => server?.stop());

const most = () => Number(/VmHWM:\s+(\d+)/.exec(fs.readFileSync(`/proc/${server.process.pid}/status`, 'latin1'))[1]) / 1024; // MiB, ever
const json = (path, body) => post(server, path, { body, headers: { 'Content-Type': 'application/json' } });
const form = (body) => post(server, '/v1/images/edits', { body: Buffer.from(body, 'latin1'), headers: { 'Content-Type': 'multipart/form-data; boundary=x' } });
const part = (name, value, file = '') => `--x\r\nContent-Disposition: form-data; name="${name}"${file}\r\n\r\n${value}\r\n`;

test('a million of anything, base64 and pictures that would be large: refused, and little memory is taken', async () => {
  const bomb = pngHeader(30000, 30000).toString('base64'), long = 'A'.repeat(600);
  const before = most();
  for (const [what, status, says, send] of [
    ['10^6 pictures', 413, /64 KiB/, () => json('/sdapi/v1/extra-batch-images', `{"imageList": [${'{"data":"AAAA","name":"x"},'.repeat(1e6)}{}]}`)],
    ['pictures of many characters', 413, /more than 64 pictures/, () => json('/sdapi/v1/extra-batch-images', `{"imageList": [${`{"data":"${long}"},`.repeat(5000)}{}]}`)],
    ['10^6 deep', 422, /16 deep/, () => json('/sdapi/v1/extra-single-image', '['.repeat(1e6))],
    ['10^6 numbers', 413, /64 KiB/, () => json('/predictions', `{"input": {"img": [${'1,'.repeat(1e6)}1]}}`)],
    ['10^6 keys', 413, /64 KiB/, () => json('/predictions', `{${Array.from({ length: 1e6 }, (_, i) => `"k${i}":1`)}}`)],
    ['20 MB of base64', 415, /not a picture/, () => json('/sdapi/v1/extra-single-image', `{"image": "${'A'.repeat(2e7)}"}`)],
    ['900 megapixels', 422, /900\.0 megapixels/, () => json('/sdapi/v1/extra-single-image', `{"image": "${bomb}"}`)],
    ['900 megapixels, cog', 200, /900\.0 megapixels/, () => json('/predictions', `{"input": {"img": "${bomb}"}}`)],
    ['900 megapixels, OpenAI', 422, /900\.0 megapixels/, () => form(`${part('image', '', '; filename="a"').slice(0, -2)}${pngHeader(30000, 30000).toString('latin1')}\r\n--x--\r\n`)],
    ['300000 parts', 400, /image: there are more than 16/, () => form(`${part('image[]', 'A', '; filename="a"').repeat(3e5)}--x--\r\n`)],
    ['a prompt of 10 MB', 400, /prompt: it is longer/, () => form(`${part('prompt', 'a=1 '.repeat(2.5e6))}--x--\r\n`)],
    ['a mask of 10 MB', 413, /mask: it is over the limit/, () => form(`${part('mask', 'a'.repeat(1e7), '; filename="m"')}--x--\r\n`)],
  ]) {
    const { status: got, bytes } = await send(), text = bytes.toString();
    assert.deepEqual([what, got], [what, status], text.slice(0, 300));
    assert.match(text, says, what);
  }
  const taken = most() - before;
  assert.ok(taken < 64, `${taken} MiB more than before`);
  assert.equal((await get(server, '/health-check')).json.status, 'READY');
});

test('values of wrong kinds in every field: an answer in the form of its client, never a failure of the server', async () => {
  const none = Buffer.from('no picture').toString('base64');
  const odd = [null, true, -1, 1e300, 0.5, '', 'x'.repeat(400), '../../etc/passwd', 'http://127.0.0.1:1/', `https://h/${'a'.repeat(3900)}`, '\u0001\u0002', [], [[0]], [0], { a: { b: 1 } }, `data:,`, 'data:image/png;base64,===='];
  const a1111 = ['image', 'resize_mode', 'upscaling_resize', 'upscaling_resize_w', 'upscaling_resize_h', 'upscaling_crop', 'upscaler_1', 'upscaler_2', 'extras_upscaler_2_visibility', 'gfpgan_visibility', 'codeformer_visibility', 'codeformer_weight', 'upscale_first', 'show_extras_results', 'unknown'];
  const cog = ['img', 'image', 'scale', 'version', 'model', 'face_enhance', 'tile', 'unknown'];
  const cases = [];
  for (const value of odd) {
    for (const name of a1111) cases.push(['/sdapi/v1/extra-single-image', { image: none, upscaler_1: 'Lanczos', [name]: value }]);
    for (const list of [value, [value], [{ data: value }], [{ data: none, name: value }]]) cases.push(['/sdapi/v1/extra-batch-images', { imageList: list }]);
    for (const name of cog) cases.push(['/predictions', { input: { img: none, [name]: value } }]);
    for (const name of ['input', 'id', 'webhook', 'webhook_events_filter']) cases.push(['/predictions', { input: { img: none }, [name]: value }]);
    cases.push(['/sdapi/v1/options', { sd_model_checkpoint: value }], ['/sdapi/v1/options', value], ['/predictions', value]);
  }
  const wrong = [];
  await Promise.all(Array.from({ length: 8 }, async () => {
    for (let one; (one = cases.pop());) {
      const { status, bytes } = await json(one[0], JSON.stringify(one[1]));
      let answer = null;
      try { answer = JSON.parse(bytes.toString()); } catch { /* wrong */ }
      if (status >= 500 || !answer || (status >= 400 && !('detail' in answer))) wrong.push([status, bytes.toString().slice(0, 200), JSON.stringify(one).slice(0, 200)]);
    }
  }));
  for (const name of ['size', 'n', 'output_format', 'output_compression', 'response_format', 'quality', 'stream', 'model', 'prompt'])
    for (const value of ['', '-1', '1e9', '0x0', 'null', '[]', '%n%s', 'a'.repeat(3000), 'upscale=nan', 'width=-1 height=99999999999', '\xff\xfe']) {
      const { status, bytes } = await form(`${part(name, value)}${part('image', 'no picture', '; filename="a"')}--x--\r\n`);
      const answer = JSON.parse(bytes.toString());
      if (status >= 500 || typeof answer.error?.message !== 'string') wrong.push([status, bytes.toString().slice(0, 200), name, value.slice(0, 40)]);
    }
  assert.deepEqual(wrong, []);
  assert.equal((await get(server, '/health-check')).json.status, 'READY');
});
