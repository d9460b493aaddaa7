// Runs the tests of a WebAssembly module: `node scripts/run_wasm.mjs MODULE`, the runner of scripts/test_wasm.sh.
//
// Modules for wasm32-unknown-unknown can't print. A test that fails ends the module; the stack names it.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';

// Node 20 has relaxed vector instructions behind this flag, which later versions do not know.
if (process.versions.node.startsWith('20.')) setFlagsFromString('--experimental-wasm-relaxed-simd');
Error.stackTraceLimit = 100;
let [path] = process.argv.slice(2);
// As in the package: see bindings/web/bindgen.
const { DELEGRAPH_BINDGEN: bindgen } = process.env;
if (bindgen) {
  const to = `${path}.run`;
  execFileSync(bindgen, [path, to], { stdio: 'inherit' });
  path = to;
}
const module = new WebAssembly.Module(readFileSync(path));
// Dependencies import functions of a page, which no test calls.
const imports = {};
for (const { module: from, name } of WebAssembly.Module.imports(module)) {
  (imports[from] ??= {})[name] = () => {
    throw new Error(`${name} is not available`);
  };
}
const instance = new WebAssembly.Instance(module, imports);
const started = performance.now();
let status;
try {
  status = instance.exports.main(0, 0);
} catch (error) {
  // The functions of the crate, without those of the standard library and the addresses.
  const frames = String(error.stack).split('\n').filter((line) => /17delegraph_(compute|kernels)/.test(line));
  console.error(`${error.message}\n${(frames.length ? frames : [error.stack]).join('\n').replaceAll(/ \(wasm:.*\)/g, '')}`);
  status = 101;
}
if (status === 0) console.log(`${path}: passed in ${((performance.now() - started) / 1000).toFixed(1)} s`);
process.exit(status);
