// Draws a stroke of the brush, {size, points: [[x, y]…]} in pixels of the picture, on a canvas of ratio times its size.
export function draw(context, { size, points }, ratio = 1) {
  context.lineWidth = Math.max(1, size * ratio);
  context.lineCap = context.lineJoin = 'round';
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x * ratio, y * ratio);
  const [x, y] = points.at(-1);
  context.lineTo(x * ratio + 0.01, y * ratio); // of a line without length, nothing is drawn
  context.stroke();
}
