// Runs the tests of a WebAssembly module: `node scripts/run_wasm.mjs MODULE`, the runner of scripts/test_wasm.sh.
//
// Modules for wasm32-unknown-unknown can't print. A test that fails ends the module; the stack names it.
import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';

// Node 20 has relaxed vector instructions behind this flag.
setFlagsFromString('--experimental-wasm-relaxed-simd');
Error.stackTraceLimit = 100;
const [path] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(readFileSync(path), {});
const started = performance.now();
let status;
try {
  status = instance.exports.main(0, 0);
} catch (error) {
  // The functions of the crate, without those of the standard library and the addresses.
  const frames = String(error.stack).split('\n').filter((line) => line.includes('17delegraph_kernels'));
  console.error(`${error.message}\n${(frames.length ? frames : [error.stack]).join('\n').replaceAll(/ \(wasm:.*\)/g, '')}`);
  status = 101;
}
if (status === 0) console.log(`${path}: passed in ${((performance.now() - started) / 1000).toFixed(1)} s`);
process.exit(status);
