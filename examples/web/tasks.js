/** Draws the results of the models on a picture. */

/** A square around a picture of this size, in fractions of it, so that the model's input keeps the proportions. */
export function square({ width, height }) {
  const side = Math.max(width, height);
  const [w, h] = [side / width, side / height];
  return [(1 - w) / 2, (1 - h) / 2, w, h];
}

export const segment = {
  model: 'models/selfie_segmentation.tflite',
  range: [0, 1],
  /** Draws the person in front of another background. */
  draw(context, picture, [mask]) {
    const { width, height } = context.canvas;
    const side = Math.round(Math.sqrt(mask.length));
    const pixels = new ImageData(side, side);
    for (let i = 0; i < mask.length; i++) {
      const t = Math.min(1, Math.max(0, (mask[i] - 0.4) / 0.5));
      pixels.data[4 * i + 3] = 255 * t * t * (3 - 2 * t);
    }
    const cut = new OffscreenCanvas(side, side);
    cut.getContext('2d').putImageData(pixels, 0, 0);
    const front = new OffscreenCanvas(width, height);
    const on = front.getContext('2d');
    const [left, top, across, down] = square({ width, height });
    on.imageSmoothingQuality = 'high';
    on.drawImage(cut, left * width, top * height, across * width, down * height);
    on.globalCompositeOperation = 'source-in';
    on.drawImage(picture, 0, 0, width, height);
    const sky = context.createLinearGradient(0, 0, 0, height);
    sky.addColorStop(0, 'rgb(24, 32, 92)');
    sky.addColorStop(1, 'rgb(250, 150, 110)');
    context.fillStyle = sky;
    context.fillRect(0, 0, width, height);
    context.drawImage(front, 0, 0);
    const share = mask.reduce((sum, value) => sum + (value > 0.5), 0) / mask.length;
    return `A person on ${(100 * share).toFixed(0)} percent of the square picture, before an evening sky`;
  },
};

/** Grids of anchors: cells per side, and anchors per cell. */
const GRIDS = [[16, 2], [8, 6]];

function anchors() {
  const centre = (cell, cells) => (cell + 0.5) / cells;
  return GRIDS.flatMap(([cells, each]) =>
    Array.from({ length: cells * cells * each }, (_, i) => {
      const cell = Math.floor(i / each);
      return [centre(cell % cells, cells), centre(Math.floor(cell / cells), cells)];
    }),
  );
}

function overlap(a, b) {
  const area = (x0, y0, x1, y1) => Math.max(0, x1 - x0) * Math.max(0, y1 - y0);
  const both = area(Math.max(a[0], b[0]), Math.max(a[1], b[1]), Math.min(a[2], b[2]), Math.min(a[3], b[3]));
  return both / (area(...a) + area(...b) - both || 1);
}

/** Returns faces, best first: `box` and `points` in fractions of the square picture. */
export function findFaces(regressors, scores) {
  const faces = [];
  anchors().forEach(([x, y], i) => {
    const score = 1 / (1 + Math.exp(-scores[i]));
    if (score < 0.5) return;
    const row = regressors.subarray(16 * i, 16 * (i + 1)).map((value) => value / 128);
    const [cx, cy, w, h] = [x + row[0], y + row[1], row[2], row[3]];
    const points = Array.from({ length: 6 }, (_, k) => [x + row[4 + 2 * k], y + row[5 + 2 * k]]);
    faces.push({ score, box: [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], points });
  });
  faces.sort((a, b) => b.score - a.score);
  return faces.filter(({ box }, i) => faces.slice(0, i).every((better) => overlap(better.box, box) <= 0.3));
}

export const faces = {
  model: 'models/face_detection_short_range.tflite',
  range: [-1, 1],
  draw(context, picture, outputs) {
    const { width, height } = context.canvas;
    context.drawImage(picture, 0, 0, width, height);
    const [scores, regressors] = [...outputs].sort((a, b) => a.length - b.length);
    const [left, top, across, down] = square({ width, height });
    const at = ([x, y]) => [(left + x * across) * width, (top + y * down) * height];
    const found = findFaces(regressors, scores);
    context.lineWidth = Math.max(2, Math.max(width, height) / 160);
    for (const { box, points } of found) {
      const [[x0, y0], [x1, y1]] = [at(box.slice(0, 2)), at(box.slice(2))];
      context.strokeStyle = 'rgb(40, 220, 120)';
      context.strokeRect(x0, y0, x1 - x0, y1 - y0);
      context.fillStyle = 'rgb(230, 40, 90)';
      for (const point of points) {
        context.beginPath();
        context.arc(...at(point), context.lineWidth * 1.5, 0, 7);
        context.fill();
      }
    }
    const percent = found.map(({ score }) => `${(100 * score).toFixed(0)} percent`).join(', ');
    return found.length ? `${found.length} face${found.length > 1 ? 's' : ''}: ${percent}` : 'No face';
  },
};
