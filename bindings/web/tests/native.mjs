/** Results of the native command, for comparison with the package's results. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { writeNpy } from './npy.js';

/** Descriptions of .npy files and arrays, by types of tensors. */
const TYPES = {
  float32: ['<f4', Float32Array], int8: ['|i1', Int8Array], uint8: ['|u1', Uint8Array], int32: ['<i4', Int32Array],
  int16: ['<i2', Int16Array], int64: ['<i8', BigInt64Array], bool: ['|b1', Uint8Array],
};

/** Reproducible numbers in [0, 1). */
function* random(seed) {
  let state = seed >>> 0;
  for (;;) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    yield state / 2 ** 32;
  }
}

function values(type, count, seed) {
  if (!TYPES[type]) throw new Error(`there are no random inputs of type ${type}`);
  const [, Class] = TYPES[type];
  const numbers = random(seed);
  const next = () => numbers.next().value;
  if (type === 'float32') return Class.from({ length: count }, next);
  if (type === 'uint8') return Class.from({ length: count }, () => Math.floor(next() * 256));
  if (type === 'int8') return Class.from({ length: count }, () => Math.floor(next() * 256) - 128);
  if (type === 'bool') return Class.from({ length: count }, () => Math.floor(next() * 2));
  return Class.from({ length: count }, () => (type === 'int64' ? BigInt(Math.floor(next() * 8)) : Math.floor(next() * 8)));
}

/** Writes inputs for `file` to `folder`, and the outputs that `command` computes from them. */
export function runNative(command, Model, file, folder, errors = 'inherit') {
  return (async () => {
    if (existsSync(join(folder, 'output_0.npy'))) return;
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    const model = await Model.load(file);
    const arguments_ = [];
    model.inputs.forEach(({ type, shape, name }, i) => {
      const data = values(type, shape.reduce((a, b) => a * b, 1), i + 1);
      const input = join(folder, `input_${i}.npy`);
      writeFileSync(input, writeNpy(TYPES[type][0], shape, data));
      arguments_.push('--input', `${name}=${input}`);
    });
    model.dispose();
    execFileSync(command, ['run', file, ...arguments_, '--output-dir', folder], { stdio: ['ignore', 'ignore', errors] });
  })();
}

/** Writes the project's case `name` below `folder`. */
export function writeCase(command, name, folder) {
  const place = join(folder, name.replaceAll('/', '-'));
  if (!existsSync(join(place, 'model.tflite')) && !existsSync(place)) {
    mkdirSync(folder, { recursive: true });
    execFileSync(command, ['conformance', '--write-case', name, place], { stdio: ['ignore', 'ignore', 'inherit'] });
  }
  return place;
}

/** Lists the .tflite files of a folder. */
export function models(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder).filter((name) => name.endsWith('.tflite')).sort().map((name) => join(folder, name));
}

export function nameOf(file) {
  return basename(file, '.tflite');
}

export function read(file) {
  return new Uint8Array(readFileSync(file));
}
