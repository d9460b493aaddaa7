import { DelegraphError } from './errors.js';
import { fromBytes } from './tensors.js';

/** An output of one run. */
export class Output {
  #data;
  #read;

  /** `data` are the elements in memory; otherwise `read` returns the bytes of `gpuBuffer`. */
  constructor({ name, type, shape }, data, gpuBuffer, read) {
    this.name = name;
    this.type = type;
    this.shape = shape;
    this.gpuBuffer = gpuBuffer;
    this.#data = data;
    this.#read = read;
  }

  /** Returns the elements: a typed array, or the strings of a string tensor. */
  async data() {
    if (this.#data === undefined) {
      if (!this.gpuBuffer) throw new DelegraphError('state', `output "${this.name}" was disposed`);
      this.#data = fromBytes(this.type, this.shape, await this.#read(this.gpuBuffer));
    }
    return this.#data;
  }

  /** Releases the buffer on the device. Data that were read stay valid. */
  dispose() {
    this.gpuBuffer?.destroy();
    this.gpuBuffer = undefined;
  }
}

export const disposeSymbol = Symbol.dispose ?? Symbol.for('Symbol.dispose');
Output.prototype[disposeSymbol] = Output.prototype.dispose;
