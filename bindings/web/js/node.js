import { readFile } from 'node:fs/promises';
import * as glue from './wasm/delegraph_cpu.js';
import { modelClass } from './model.js';
import { WasmModule } from './module.js';
import { hasRelaxedSimd } from './relaxed.js';

const file = () => (hasRelaxedSimd() ? './wasm/delegraph_cpu_relaxed_bg.wasm' : './wasm/delegraph_cpu_bg.wasm');
const module = new WasmModule(glue, () => readFile(new URL(file(), import.meta.url)));
const WebModel = modelClass(module);

/** As in a page; `load` also reads files: paths and `file:` URLs. */
export class Model extends WebModel {
  static async load(source, options) {
    const url = typeof source === 'string' && /^(https?|data|blob):/.test(source);
    const isFile = source instanceof URL ? source.protocol === 'file:' : typeof source === 'string' && !url;
    return super.load(isFile ? await readFile(source.toString().startsWith('file:') ? new URL(source) : source) : source, options);
  }
}

export { DelegraphError } from './errors.js';

/** Sets the source of the WebAssembly module, before the first model is loaded. */
export function setWasm(source) {
  module.source = source;
}
