import { DelegraphError } from './errors.js';

/**
 * The WebAssembly module: one instance for all models. A panic or an exhausted stack ends an instance. Its models then
 * throw, and the next model that is loaded gets a new instance.
 */
export class WasmModule {
  #glue;
  #source;
  #ready;
  #failure;

  /** Counts instances. */
  generation = 0;

  /** `glue` is the code that wasm-bindgen writes, `source` returns the argument of its initialization. */
  constructor(glue, source) {
    this.#glue = glue;
    this.#source = source;
  }

  /** Sets the source of the module: a URL, a Response, bytes or a WebAssembly.Module. */
  set source(source) {
    if (this.#ready) throw new DelegraphError('state', 'the module is already loaded');
    this.#source = () => source;
  }

  /** Returns the code of a working instance. */
  async load() {
    this.#ready ??= this.#initialize();
    await this.#ready;
    if (this.#failure !== undefined) {
      this.#glue.__wbg_reset_state();
      this.#failure = undefined;
      this.generation++;
    }
    return this.#glue;
  }

  async #initialize() {
    try {
      await this.#glue.default({ module_or_path: await this.#source() });
    } catch (error) {
      this.#ready = undefined;
      throw new DelegraphError('module', `the WebAssembly module cannot be loaded: ${error.message}`, { cause: error });
    }
  }

  /** Returns whether the instance `generation` has not ended. */
  works(generation) {
    return this.#failure === undefined && generation === this.generation;
  }

  /** Calls `f`, whose objects belong to the instance `generation`; converts its exceptions to a DelegraphError. */
  call(generation, f) {
    if (!this.works(generation)) {
      throw new DelegraphError('panic', `the module ended, load the model again: ${this.#failure ?? 'a panic'}`);
    }
    try {
      return f(this.#glue);
    } catch (error) {
      throw this.#convert(error);
    }
  }

  #convert(error) {
    const exhausted = /call stack|recursion/i.test(error?.message ?? '');
    if (error instanceof WebAssembly.RuntimeError || (exhausted && !(error instanceof DelegraphError))) {
      this.#failure = this.#message() || error.message;
      return new DelegraphError('panic', `the module ended: ${this.#failure}`, { cause: error });
    }
    if (error instanceof Error || typeof error?.code !== 'string') return error;
    return new DelegraphError(error.code, error.message);
  }

  #message() {
    try {
      return this.#glue.panicMessage();
    } catch {
      return '';
    }
  }

  /**
   * Polls `step`, which returns undefined until its work is done, and calls its argument when it can continue.
   */
  async poll(generation, step) {
    for (;;) {
      const { promise, resolve } = withResolvers();
      const result = this.call(generation, () => step(resolve));
      if (result !== undefined) return result;
      await promise;
    }
  }
}

function withResolvers() {
  let resolve;
  const promise = new Promise((r) => {
    resolve = r;
  });
  return { promise, resolve };
}
