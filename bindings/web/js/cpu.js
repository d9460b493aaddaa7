import './scope.js';
import * as glue from './wasm/delegraph_cpu.js';
import { modelClass } from './model.js';
import { WasmModule } from './module.js';
import { hasRelaxedSimd } from './relaxed.js';

// Both in the form that bundlers find.
const module = new WasmModule(glue, () =>
  hasRelaxedSimd()
    ? new URL('./wasm/delegraph_cpu_relaxed_bg.wasm', import.meta.url)
    : new URL('./wasm/delegraph_cpu_bg.wasm', import.meta.url),
);

export const Model = modelClass(module);
export { DelegraphError } from './errors.js';

/** Sets the source of the WebAssembly module, before the first model is loaded. */
export function setWasm(source) {
  module.source = source;
}
