import { DelegraphError } from './errors.js';

const CLASSES = [
  'ImageBitmap',
  'VideoFrame',
  'OffscreenCanvas',
  'HTMLCanvasElement',
  'HTMLImageElement',
  'HTMLVideoElement',
  'ImageData',
];

function isInstance(value, name) {
  const Class = globalThis[name];
  return typeof Class === 'function' && value instanceof Class;
}

export function isTexture(value) {
  return isInstance(value, 'GPUTexture');
}

/** Whether `value` is a picture that a page can draw. */
export function isPicture(value) {
  return CLASSES.some((name) => isInstance(value, name));
}

/**
 * Returns a value for an input as `{picture, region, scale, offset}`, if it is a picture of a page or a texture,
 * directly or as the property `picture` of an object with `region` and `range`.
 */
export function asPicture(value) {
  if (isPicture(value) || isTexture(value)) return { picture: value, region: [0, 0, 1, 1], range: [0, 1] };
  const picture = value?.picture;
  if (!isPicture(picture) && !isTexture(picture)) return undefined;
  const { region = [0, 0, 1, 1], range = [0, 1] } = value;
  const numbers = (list, count) => Array.isArray(list) && list.length === count && list.every(Number.isFinite);
  if (!numbers(region, 4)) throw invalid('the region of a picture is [left, top, width, height], in fractions of its size');
  if (!numbers(range, 2)) throw invalid('the range of a picture is [black, white]');
  return { picture, region, range, ranged: value.range !== undefined };
}

/** Returns width and height of a picture, in pixels. */
export function sizeOf(picture) {
  const size = isInstance(picture, 'VideoFrame')
    ? [picture.displayWidth, picture.displayHeight]
    : isInstance(picture, 'HTMLVideoElement')
      ? [picture.videoWidth, picture.videoHeight]
      : isInstance(picture, 'HTMLImageElement')
        ? [picture.naturalWidth, picture.naturalHeight]
        : [picture.width, picture.height];
  if (!(size[0] > 0 && size[1] > 0)) throw invalid('a picture without pixels');
  return size;
}

/** Returns the pixels of a picture as an ImageData. */
function pixels(picture) {
  if (isInstance(picture, 'ImageData')) return picture;
  const [width, height] = sizeOf(picture);
  if (typeof OffscreenCanvas === 'undefined') {
    throw new DelegraphError('unsupported', 'pictures need OffscreenCanvas, which is missing here');
  }
  const context = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
  context.drawImage(picture, 0, 0, width, height);
  return context.getImageData(0, 0, width, height);
}

/** Returns a picture as the array of the input `spec`, computed like on the device: interpolated, black outside. */
export function toArray(spec, { picture, region, range, ranged }) {
  const [batch, height, width, channels] = spec.shape;
  if (spec.shape.length !== 4 || batch !== 1 || ![1, 3, 4].includes(channels)) {
    throw invalid(`input "${spec.name}" has shape [${spec.shape.join(', ')}]; a picture is [1, height, width, 1, 3 or 4]`);
  }
  const colours = resample(pixels(picture), width, height, channels, region);
  const [black, white] = range;
  if (spec.type === 'float32') return colours.map((c) => c * (white - black) + black);
  const quantum = spec.quantization;
  const limits = { uint8: [0, 255, Uint8Array], int8: [-128, 127, Int8Array] }[spec.type];
  if (!limits) throw new DelegraphError('unsupported', `a picture for input "${spec.name}" of type ${spec.type}`);
  const [low, high, Class] = limits;
  // Without a range, the darkest and the brightest value of the type are black and white.
  const value = (c) =>
    ranged && quantum
      ? (c * (white - black) + black) / quantum.scales[0] + quantum.zeroPoints[0]
      : c * 255 + low;
  return Class.from(colours, (c) => Math.max(low, Math.min(high, Math.round(value(c)))));
}

function resample({ data, width, height }, outWidth, outHeight, channels, [left, top, across, down]) {
  const out = new Float32Array(outWidth * outHeight * channels);
  const clamp = (x, last) => Math.max(0, Math.min(last, x));
  const colour = [0, 0, 0, 0];
  for (let y = 0, i = 0; y < outHeight; y++) {
    const v = top + ((y + 0.5) / outHeight) * down;
    const row = clamp(v, 1) * height - 0.5;
    const rows = [clamp(Math.floor(row), height - 1), clamp(Math.floor(row) + 1, height - 1)];
    const dy = row - Math.floor(row);
    for (let x = 0; x < outWidth; x++, i += channels) {
      const u = left + ((x + 0.5) / outWidth) * across;
      if (u < 0 || u > 1 || v < 0 || v > 1) continue;
      const column = clamp(u, 1) * width - 0.5;
      const columns = [clamp(Math.floor(column), width - 1), clamp(Math.floor(column) + 1, width - 1)];
      const dx = column - Math.floor(column);
      const [a, b] = columns.map((c) => 4 * (rows[0] * width + c));
      const [e, f] = columns.map((c) => 4 * (rows[1] * width + c));
      for (let c = 0; c < 4; c++) {
        const above = data[a + c] * (1 - dx) + data[b + c] * dx;
        const below = data[e + c] * (1 - dx) + data[f + c] * dx;
        colour[c] = (above * (1 - dy) + below * dy) / 255;
      }
      if (channels === 1) out[i] = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2];
      else for (let c = 0; c < channels; c++) out[i + c] = colour[c];
    }
  }
  return out;
}

function invalid(message) {
  return new DelegraphError('invalid-input', message);
}
