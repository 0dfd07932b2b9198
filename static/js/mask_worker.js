// Masks, made beside the page. {show, width, height, colours}: a mask in layers, an ImageBitmap for each gray that has a colour, by
// gray; other light grays are as white. {base, strokes, width, height, region}: the mask with the strokes, white on black, or its
// region [x, y, width, height], as {blob, empty}: a PNG, and whether nothing in it is white. {transparent}: whether parts of that
// picture are transparent.
import { draw as drawStroke } from './stroke.js';

const rows = 64; // that are looked at at a time: all pixels of a large mask would be too many

// Pixel by pixel, so that thin lines stay seen in a reduced mask.
async function colour({ show, width, height, colours }) {
  const mask = await createImageBitmap(show), context = new OffscreenCanvas(mask.width, rows).getContext('2d', { willReadFrequently: true });
  const layers = {}, paints = {};
  for (const [gray, tint] of Object.entries(colours)) paints[gray] = [1, 3, 5].reduce((sum, at, i) => sum + parseInt(tint.slice(at, at + 2), 16) * 256 ** i, 255 * 256 ** 3);
  for (let top = 0; top < mask.height; top += rows) {
    const count = Math.min(rows, mask.height - top);
    context.drawImage(mask, 0, -top);
    const { data } = context.getImageData(0, 0, mask.width, count);
    for (let y = 0, i = 0; y < count; y++)
      for (let x = 0; x < mask.width; x++, i += 4) {
        if (data[i] < 128) continue;
        const gray = paints[data[i]] ? data[i] : 255, layer = layers[gray] ??= new Uint32Array(width * height);
        layer[Math.floor(((top + y) * height) / mask.height) * width + Math.floor((x * width) / mask.width)] = paints[gray];
      }
  }
  for (const [gray, layer] of Object.entries(layers)) layers[gray] = await createImageBitmap(new ImageData(new Uint8ClampedArray(layer.buffer), width, height));
  return layers;
}

async function draw({ base, strokes, width, height, region = [0, 0, width, height] }) {
  const [x, y, w, h] = region, canvas = new OffscreenCanvas(w, h), context = canvas.getContext('2d');
  context.fillRect(0, 0, w, h);
  context.translate(-x, -y);
  if (base) {
    const mask = await createImageBitmap(base);
    context.drawImage(mask, 0, 0, width, height);
    mask.close();
  }
  for (const stroke of strokes) {
    context.strokeStyle = stroke.erase ? '#000' : '#fff';
    drawStroke(context, stroke);
  }
  return { empty: isBlack(context, w, h), blob: await canvas.convertToBlob({ type: 'image/png' }) };
}

async function isTransparent({ transparent }) {
  const picture = await createImageBitmap(transparent), context = new OffscreenCanvas(picture.width, rows).getContext('2d', { willReadFrequently: true });
  let found = false;
  for (let top = 0; top < picture.height && !found; top += rows) {
    const count = Math.min(rows, picture.height - top);
    context.clearRect(0, 0, picture.width, rows);
    context.drawImage(picture, 0, -top);
    found = context.getImageData(0, 0, picture.width, count).data.some((value, i) => value < 255 && i % 4 === 3);
  }
  picture.close();
  return found;
}

function isBlack(context, width, height) {
  for (let y = 0; y < height; y += rows)
    if (context.getImageData(0, y, width, Math.min(rows, height - y)).data.some((value, i) => value && i % 4 === 0)) return false;
  return true;
}

onmessage = async ({ data }) => {
  try {
    postMessage(data.show ? await colour(data) : data.transparent ? await isTransparent(data) : await draw(data));
  } catch {
    postMessage(null);
  }
};
