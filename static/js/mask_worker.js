// Masks, made beside the page. {show, width, height, colour}: a mask's white in that colour, the rest transparent, as an
// ImageBitmap. {base, strokes, width, height}: the mask with the strokes, white on black, as {blob, empty}: a PNG, and whether
// nothing in it is white.
import { draw as drawStroke } from './stroke.js';

async function colour({ show, width, height, colour: tint }) {
  const mask = await createImageBitmap(show);
  const canvas = new OffscreenCanvas(width, height), context = canvas.getContext('2d', { willReadFrequently: true });
  context.drawImage(mask, 0, 0, width, height);
  mask.close();
  const pixels = context.getImageData(0, 0, width, height), { data } = pixels;
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(tint.slice(at, at + 2), 16));
  for (let i = 0; i < data.length; i += 4) {
    const alpha = Math.min(255, 3 * data[i]); // thin lines stay seen in a reduced mask
    data[i] = r; data[i + 1] = g; data[i + 2] = b; data[i + 3] = alpha;
  }
  context.putImageData(pixels, 0, 0);
  return canvas.transferToImageBitmap();
}

async function draw({ base, strokes, width, height }) {
  const canvas = new OffscreenCanvas(width, height), context = canvas.getContext('2d');
  context.fillRect(0, 0, width, height);
  if (base) {
    const mask = await createImageBitmap(base);
    context.drawImage(mask, 0, 0, width, height);
    mask.close();
  }
  for (const stroke of strokes) {
    context.strokeStyle = stroke.erase ? '#000' : '#fff';
    drawStroke(context, stroke);
  }
  return { empty: isBlack(context, width, height), blob: await canvas.convertToBlob({ type: 'image/png' }) };
}

// Looks at some rows at a time: all pixels of a large mask once more would be too many.
function isBlack(context, width, height) {
  const rows = 64;
  for (let y = 0; y < height; y += rows)
    if (context.getImageData(0, y, width, Math.min(rows, height - y)).data.some((value, i) => value && i % 4 === 0)) return false;
  return true;
}

onmessage = async ({ data }) => {
  try {
    postMessage(data.show ? await colour(data) : await draw(data));
  } catch {
    postMessage(null);
  }
};
