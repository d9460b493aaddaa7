/** Reads and writes files of NumPy. */

const CLASSES = {
  '<f4': Float32Array, '<f8': Float64Array, '<i2': Int16Array, '<i4': Int32Array, '<i8': BigInt64Array,
  '<u2': Uint16Array, '<u4': Uint32Array, '<u8': BigUint64Array, '|i1': Int8Array, '|u1': Uint8Array, '|b1': Uint8Array,
  '<f2': Uint16Array, '<c8': Float32Array, '<c16': Float64Array,
};

/** Returns `{type, shape, data}`; float16 and types that NumPy lacks are returned as their bits. */
export function readNpy(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const wide = bytes[6] > 1;
  const start = wide ? 12 : 10;
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const header = new TextDecoder().decode(bytes.subarray(start, start + length));
  const type = /'descr': *'([^']*)'/.exec(header)[1];
  const shape = /'shape': *\(([^)]*)\)/.exec(header)[1].split(',').filter((s) => s.trim()).map(Number);
  const body = bytes.slice(start + length);
  if (type.startsWith('|S')) return { type, shape, data: texts(body, Number(type.slice(2))) };
  const Class = CLASSES[type] ?? { 1: Uint8Array, 2: Uint16Array }[Number(type.slice(2))];
  if (!Class) throw new Error(`.npy files of type ${type} are not read here`);
  return { type, shape, data: new Class(body.buffer) };
}

/** Strings of `size` bytes each, with zeros at their ends. */
function texts(body, size) {
  const decoder = new TextDecoder();
  const text = (i) => decoder.decode(body.subarray(i * size, (i + 1) * size)).replace(/\0+$/, '');
  return Array.from({ length: size ? body.length / size : 0 }, (_, i) => text(i));
}

export function writeNpy(descr, shape, data) {
  const dims = shape.length === 1 ? `${shape[0]},` : shape.join(', ');
  let header = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${dims}), }`;
  header = header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11) + '\n';
  const bytes = new Uint8Array(10 + header.length + data.byteLength);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8]);
  bytes.set(new TextEncoder().encode(header), 10);
  bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), 10 + header.length);
  return bytes;
}
