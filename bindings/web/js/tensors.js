import { DelegraphError } from './errors.js';

const HasFloat16 = typeof Float16Array !== 'undefined';

/** The arrays that hold the elements of each type in the bytes of a tensor. */
const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  bool: Uint8Array,
  // Real and imaginary parts alternate.
  complex64: Float32Array,
  complex128: Float64Array,
  float8_e4m3fn: Uint8Array,
  float8_e5m2: Uint8Array,
};

/** Bits of an element of the types that are packed in bytes. */
const PACKED = { int4: 4, uint4: 4, int2: 2 };

export function elementCount(shape) {
  return shape.reduce((product, dim) => product * dim, 1);
}

/** Returns the bytes of `value`, a value for the tensor that `spec` describes. */
export function toBytes(spec, value) {
  const { name, type, shape } = spec;
  const count = elementCount(shape) * (type.startsWith('complex') ? 2 : 1);
  const list = typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean' ? [value] : value;
  const isView = ArrayBuffer.isView(list) && !(list instanceof DataView);
  if (!isView && !Array.isArray(list)) throw invalid(`input "${name}" takes ${wanted(type)}, not ${kind(value)}`);
  if (list.length !== count) {
    const elements = count === 1 ? '1 element' : `${count} elements`;
    throw invalid(`input "${name}" of shape [${shape.join(', ')}] takes ${elements}, not ${list.length}`);
  }
  const array = PACKED[type] ? pack(type, list) : converted(type, list, name);
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

function converted(type, list, name) {
  if (type === 'float16' || type === 'bfloat16') return halves(type, list, name);
  const Class = ARRAYS[type];
  if (!Class) throw new DelegraphError('unsupported', `input "${name}" has type ${type}`);
  if (list instanceof Class || (Class === Uint8Array && list instanceof Uint8ClampedArray)) return list;
  if (ArrayBuffer.isView(list)) throw invalid(`input "${name}" takes ${wanted(type)}, not ${kind(list)}`);
  const wide = Class === BigInt64Array || Class === BigUint64Array;
  try {
    return Class.from(list, wide ? BigInt : Number);
  } catch (error) {
    throw invalid(`input "${name}" takes ${wanted(type)}: ${error.message}`);
  }
}

function halves(type, list, name) {
  if (list instanceof Uint16Array) return list;
  if (HasFloat16 && list instanceof Float16Array) {
    if (type === 'float16') return list;
    return Uint16Array.from(list, toBfloat16);
  }
  if (ArrayBuffer.isView(list) && !(list instanceof Float32Array)) {
    throw invalid(`input "${name}" takes ${wanted(type)}, not ${kind(list)}`);
  }
  if (type === 'bfloat16') return Uint16Array.from(list, toBfloat16);
  return HasFloat16 ? Float16Array.from(list) : Uint16Array.from(list, toFloat16);
}

/** Returns a typed array with the elements in `bytes`, which have no other owner. */
export function fromBytes(type, shape, bytes) {
  if (PACKED[type]) return unpack(type, elementCount(shape), bytes);
  const { buffer, byteOffset, byteLength } = bytes;
  if (type === 'float16' || type === 'bfloat16') {
    if (type === 'float16' && HasFloat16) return new Float16Array(buffer, byteOffset, byteLength / 2);
    const bits = new Uint16Array(buffer, byteOffset, byteLength / 2);
    return Float32Array.from(bits, type === 'float16' ? fromFloat16 : fromBfloat16);
  }
  const Class = ARRAYS[type] ?? Uint8Array;
  return new Class(buffer, byteOffset, byteLength / Class.BYTES_PER_ELEMENT);
}

/** Returns the strings of a value for a string tensor. */
export function toStrings({ name, shape }, value) {
  const list = typeof value === 'string' ? [value] : value;
  if (!Array.isArray(list) || !list.every((element) => typeof element === 'string')) {
    throw invalid(`input "${name}" takes strings, not ${kind(value)}`);
  }
  const count = elementCount(shape);
  if (list.length !== count) {
    throw invalid(`input "${name}" of shape [${shape.join(', ')}] takes ${count} strings, not ${list.length}`);
  }
  return list;
}

function pack(type, list) {
  const bits = PACKED[type];
  const perByte = 8 / bits;
  const bytes = new Uint8Array(Math.ceil(list.length / perByte));
  for (let i = 0; i < list.length; i++) {
    const value = Number(list[i]) & ((1 << bits) - 1);
    bytes[Math.floor(i / perByte)] |= value << (bits * (i % perByte));
  }
  return bytes;
}

function unpack(type, count, bytes) {
  const bits = PACKED[type];
  const perByte = 8 / bits;
  const signed = type !== 'uint4';
  const array = signed ? new Int8Array(count) : new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    const value = (bytes[Math.floor(i / perByte)] >> (bits * (i % perByte))) & ((1 << bits) - 1);
    array[i] = signed && value >> (bits - 1) ? value - (1 << bits) : value;
  }
  return array;
}

const word = new DataView(new ArrayBuffer(4));

/** The bits of the closest float16, ties to even. */
export function toFloat16(value) {
  word.setFloat32(0, value);
  const bits = word.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {
    // Subnormal: units of 2^-24. Math.round rounds ties up.
    const units = Math.abs(word.getFloat32(0)) * 2 ** 24;
    const low = Math.floor(units);
    const tie = units - low === 0.5;
    return sign | (tie ? low + (low & 1) : Math.round(units));
  }
  const rounded = magnitude + 0xfff + ((magnitude >>> 13) & 1);
  return sign | ((rounded - 0x38000000) >>> 13);
}

export function fromFloat16(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
}

/** The bits of the closest bfloat16, ties to even. */
export function toBfloat16(value) {
  word.setFloat32(0, value);
  const bits = word.getUint32(0);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

export function fromBfloat16(bits) {
  word.setUint32(0, bits << 16);
  return word.getFloat32(0);
}

function wanted(type) {
  if (type === 'float16') return 'Float16Array, Float32Array, or Uint16Array with their bits';
  if (type === 'bfloat16') return 'Float32Array, or Uint16Array with their bits';
  if (PACKED[type]) return 'an array with one number per element';
  return ARRAYS[type]?.name ?? type;
}

function kind(value) {
  return value === null || value === undefined ? String(value) : (value.constructor?.name ?? typeof value);
}

function invalid(message) {
  return new DelegraphError('invalid-input', message);
}
