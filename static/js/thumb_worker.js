// Decodes a picture and answers {size, thumb}; null for what the browser cannot read.
const longest = 192;

onmessage = async ({ data }) => {
  let picture = null;
  try {
    picture = await createImageBitmap(data);
    const { width, height } = picture;
    const scale = Math.min(1, longest / Math.min(width, height), (3 * longest) / Math.max(width, height));
    const canvas = new OffscreenCanvas(Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
    const context = canvas.getContext('2d');
    context.imageSmoothingQuality = 'medium';
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    postMessage({ size: { width, height }, thumb: await canvas.convertToBlob({ type: 'image/webp', quality: 0.8 }) });
  } catch {
    postMessage(null);
  } finally {
    picture?.close();
  }
};
