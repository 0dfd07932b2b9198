// Masks, made beside the page. {show, width, height, colour}: a mask's white in that colour, the rest transparent, as an
// ImageBitmap. {base, strokes, width, height}: the mask with the strokes, white on black, as a PNG.

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
  context.lineCap = context.lineJoin = 'round';
  for (const { erase, size, points } of strokes) {
    context.strokeStyle = erase ? '#000' : '#fff';
    context.lineWidth = Math.max(1, size);
    context.beginPath();
    points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    if (points.length === 1) context.lineTo(points[0][0] + 0.01, points[0][1]);
    context.stroke();
  }
  return canvas.convertToBlob({ type: 'image/png' });
}

onmessage = async ({ data }) => {
  try {
    postMessage(data.show ? await colour(data) : await draw(data));
  } catch {
    postMessage(null);
  }
};
