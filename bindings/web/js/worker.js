import { DelegraphError, throwIfAborted } from './errors.js';
import { readModel } from './fetch.js';
import { disposeSymbol } from './output.js';

/** The worker that runs all models of this page. */
let worker;
let nextCall = 0;
/** `{resolve, reject}` of pending calls of the worker. */
const calls = new Map();

function start() {
  worker = new Worker(new URL('./worker_host.js', import.meta.url), { type: 'module' });
  worker.onmessage = ({ data: { id, result, error } }) => {
    const call = calls.get(id);
    calls.delete(id);
    if (error) call?.reject(revive(error));
    else call?.resolve(result);
  };
  worker.onerror = (event) => {
    event.preventDefault?.();
    const error = new DelegraphError('worker', `the worker failed: ${event.message ?? 'it cannot be loaded'}`);
    for (const { reject } of calls.values()) reject(error);
    calls.clear();
    worker.terminate();
    worker = undefined;
  };
}

function revive({ code, message }) {
  return code ? new DelegraphError(code, message) : new Error(message);
}

/** Calls a method in the worker. Aborting `signal` cancels the call there. */
function call(method, args, { transfer = [], signal } = {}) {
  throwIfAborted(signal);
  if (!worker) start();
  const id = nextCall++;
  const cancel = () => worker?.postMessage({ id, method: 'cancel', args: [] });
  signal?.addEventListener('abort', cancel);
  const answer = new Promise((resolve, reject) => {
    calls.set(id, { resolve, reject });
    try {
      worker.postMessage({ id, method, args }, transfer);
    } catch (error) {
      calls.delete(id);
      reject(new DelegraphError('invalid-input', `not for a worker: ${error.message}`, { cause: error }));
    }
  });
  return answer
    .catch((error) => {
      throw signal?.aborted ? signal.reason : error;
    })
    .finally(() => signal?.removeEventListener('abort', cancel));
}

/** An output of one run in the worker. */
class Output {
  #data;

  constructor({ name, type, shape, data }) {
    this.name = name;
    this.type = type;
    this.shape = shape;
    this.gpuBuffer = undefined;
    this.#data = data;
  }

  async data() {
    return this.#data;
  }

  dispose() {}
}

Output.prototype[disposeSymbol] = Output.prototype.dispose;

/** The class `Model`, with models that run in a worker. */
export class Model {
  #handle;
  #description;
  #disposed = false;

  static async load(source, options = {}) {
    const { signal, onProgress, gpuDevice, outputs, ...rest } = options;
    if (gpuDevice || outputs === 'gpu') {
      throw new DelegraphError('unsupported', 'a worker has a device of its own: the options `gpuDevice` and `outputs` are for models of the page');
    }
    const bytes = await readModel(source, { signal, onProgress });
    // The caller keeps its own bytes.
    const given = source instanceof ArrayBuffer || ArrayBuffer.isView(source);
    const transfer = given ? [] : [bytes.buffer];
    const { handle, description } = await call('load', [bytes, rest], { transfer, signal });
    const model = new Model();
    model.#handle = handle;
    model.#description = description;
    return model;
  }

  get inputs() {
    return this.#description.inputs;
  }

  get outputs() {
    return this.#description.outputs;
  }

  get signatures() {
    return this.#description.signatures;
  }

  get description() {
    return this.#description.description;
  }

  async resize(input, shape, options) {
    this.#description = await this.#call('resize', [input, Array.from(shape), options]);
  }

  async run(inputs, { signal, ...options } = {}) {
    const { results, description } = await this.#call('run', [await portable(inputs), options], signal);
    this.#description = description;
    const outputs = Object.create(null);
    for (const result of results) outputs[result.name] = new Output(result);
    return outputs;
  }

  report() {
    return this.#call('report', []);
  }

  profile() {
    return this.#call('profile', []);
  }

  dispose() {
    if (this.#disposed) return;
    const end = this.#call('dispose', []);
    this.#disposed = true;
    end.catch(() => {});
  }

  async #call(method, args, signal) {
    if (this.#disposed) throw new DelegraphError('state', 'the model was disposed');
    return call(method, [this.#handle, ...args], { signal });
  }

  static {
    this.prototype[disposeSymbol] = this.prototype.dispose;
  }
}

/** Returns inputs in a form that can be sent: elements and canvases of the page as bitmaps. */
async function portable(inputs) {
  if (inputs === null || typeof inputs !== 'object' || ArrayBuffer.isView(inputs)) return inputs;
  if (isDrawn(inputs)) return createImageBitmap(inputs);
  if (Array.isArray(inputs)) {
    return typeof inputs[0] === 'object' ? Promise.all(inputs.map(portable)) : inputs;
  }
  if (Object.getPrototypeOf(inputs) !== Object.prototype) return inputs;
  const entries = Object.entries(inputs).map(async ([name, value]) => [name, await portable(value)]);
  return Object.fromEntries(await Promise.all(entries));
}

function isDrawn(value) {
  const names = ['HTMLCanvasElement', 'HTMLImageElement', 'HTMLVideoElement', 'OffscreenCanvas'];
  return names.some((name) => typeof globalThis[name] === 'function' && value instanceof globalThis[name]);
}

export { DelegraphError };
