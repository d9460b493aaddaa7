import './scope.js';
import * as glue from './wasm/delegraph.js';
import { modelClass } from './model.js';
import { WasmModule } from './module.js';

const module = new WasmModule(glue, () => new URL('./wasm/delegraph_bg.wasm', import.meta.url));

export const Model = modelClass(module);
export { DelegraphError } from './errors.js';

/** Sets the source of the WebAssembly module, before the first model is loaded. */
export function setWasm(source) {
  module.source = source;
}
