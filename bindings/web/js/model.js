import { DeviceIo } from './device_io.js';
import { Devices } from './devices.js';
import { DelegraphError, throwIfAborted } from './errors.js';
import { readModel } from './fetch.js';
import { collectGarbage } from './garbage.js';
import { Output, disposeSymbol } from './output.js';
import { asPicture, isTexture, toArray } from './pictures.js';
import { fromBytes, toBytes, toStrings } from './tensors.js';

const decoder = new TextDecoder();

/** Returns the class `Model` on top of `module`, a WasmModule. */
export function modelClass(module) {
  const devices = new Devices(module);

  return class Model {
    #native;
    #generation;
    /** The open device and the copies to and from it; undefined on the CPU. */
    #gpu;
    #io;
    #reason;
    #description;
    #signature;
    /** The end of the last run: runs do not overlap. */
    #queue = Promise.resolve();
    #disposed = false;
    /** Inputs that are bound to buffers of the device. */
    #bound = new Set();

    static async load(source, options = {}) {
      const { device = 'auto', gpuDevice, signal, excludedNodes = [], profile = false, outputs = 'cpu', shapes = {} } = options;
      if (!['auto', 'webgpu', 'cpu'].includes(device)) {
        throw new DelegraphError('invalid-input', `device is 'auto', 'webgpu' or 'cpu', not ${JSON.stringify(device)}`);
      }
      const loading = module.load();
      // The model is awaited first; an error of the module is reported then.
      loading.catch(() => {});
      const bytes = await readModel(source, options);
      await loading;
      throwIfAborted(signal);
      const { gpu, reason } = await chooseDevice(devices, device, gpuDevice, options);
      throwIfAborted(signal);
      const create = () => {
        const model = new Model();
        model.#generation = module.generation;
        model.#native = module.call(module.generation, ({ NativeModel }) =>
          gpu
            ? gpu.native.load(bytes, profile, outputs === 'gpu', Uint32Array.from(excludedNodes))
            : new NativeModel(bytes, profile),
        );
        model.#gpu = gpu;
        model.#io = gpu && new DeviceIo(gpu.device);
        model.#reason = reason;
        try {
          model.#prepare(shapes);
        } catch (error) {
          model.dispose();
          throw error;
        }
        return model;
      };
      try {
        return create();
      } catch (error) {
        if (error.code !== 'out-of-memory') throw error;
        // The memory may belong to models that the page no longer has.
        await collectGarbage();
        throwIfAborted(signal);
        return create();
      }
    }

    /** Prepares the model that was loaded, for other shapes than in the file where `shapes` has them. */
    #prepare(shapes) {
      const given = [...(Array.isArray(shapes) ? shapes.entries() : Object.entries(shapes))];
      if (given.length > 0) this.#describe();
      for (const [input, shape] of given) {
        const index = this.#indexOf(input);
        if (shape) this.#call((native) => native.resize(index, Uint32Array.from(shape)));
      }
      this.#call((native) => native.prepare());
      this.#describe();
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

    /** Prepares for another shape of an input, given by its name or index. */
    async resize(input, shape, { signature } = {}) {
      return this.#enqueue(() => {
        this.#select(signature);
        const index = this.#indexOf(input);
        this.#call((native) => {
          native.clearBuffer?.(index);
          native.resize(index, Uint32Array.from(shape));
          native.prepare();
        });
        this.#bound.delete(index);
        this.#describe();
      });
    }

    /** Computes the outputs from the inputs: an object by names, an array, or the value of the only input. */
    async run(inputs, { signal, signature } = {}) {
      return this.#enqueue(async () => {
        throwIfAborted(signal);
        this.#select(signature);
        const values = this.#values(inputs);
        try {
          await this.#runWith(values, signal);
        } catch (error) {
          if (error.code === 'cancelled' && signal?.aborted) throw signal.reason;
          if (error.code !== 'device' || this.#bound.size === 0) throw error;
          // The device failed, and its data are lost. Pictures are read again.
          this.#leaveDevice(error.message);
          await this.#runWith(values, signal);
        }
        return this.#results();
      });
    }

    /** Returns the runner of each node, or the reason of the device. */
    async report() {
      return this.#enqueue(() => {
        const report = JSON.parse(this.#call((native) => native.report()));
        const onDevice = report.partitions.length > 0;
        const failure = report.failures[0]?.message;
        return {
          device: onDevice ? 'webgpu' : 'cpu',
          adapter: onDevice ? this.#gpu?.adapter : undefined,
          reason: onDevice ? undefined : (failure ?? this.#reason ?? whyNot(this.#gpu, report)),
          ...report,
        };
      });
    }

    /** Returns the steps of the last run with their times. The model is loaded with `{profile: true}`. */
    async profile() {
      return this.#enqueue(() => JSON.parse(this.#call((native) => native.profile())));
    }

    /** Frees the model, after the end of a current run. */
    dispose() {
      if (this.#disposed) return;
      this.#disposed = true;
      const free = () => {
        this.#io?.dispose();
        if (module.works(this.#generation)) this.#native.free();
      };
      this.#queue = this.#queue.then(free, free);
    }

    #enqueue(f) {
      if (this.#disposed) return Promise.reject(new DelegraphError('state', 'the model was disposed'));
      const result = this.#queue.then(f);
      this.#queue = result.catch(() => {});
      return result;
    }

    #call(f) {
      return module.call(this.#generation, () => f(this.#native));
    }

    #describe() {
      this.#description = JSON.parse(this.#call((native) => native.describe()));
    }

    #select(signature) {
      if (signature === this.#signature) return;
      this.#call((native) => native.select(signature));
      this.#signature = signature;
      this.#bound.clear();
      this.#describe();
    }

    #indexOf(input) {
      const index = typeof input === 'number' ? input : this.inputs.findIndex(({ name }) => name === input);
      if (!this.inputs[index]) {
        const names = this.inputs.map(({ name }) => name).join(', ');
        throw new DelegraphError('invalid-input', `there is no input ${JSON.stringify(input)}; the model has: ${names}`);
      }
      return index;
    }

    /** Returns the values of all inputs in their order. */
    #values(given) {
      const { inputs } = this;
      if (Array.isArray(given) && (inputs.length !== 1 || typeof given[0] === 'object')) {
        if (given.length === inputs.length) return given;
        const count = inputs.length === 1 ? '1 input' : `${inputs.length} inputs`;
        throw new DelegraphError('invalid-input', `the model has ${count}, not ${given.length}`);
      }
      const byName = given !== null && typeof given === 'object' && Object.getPrototypeOf(given) === Object.prototype;
      if (inputs.length === 1 && (!byName || asPicture(given))) return [given];
      if (given === undefined && inputs.length === 0) return [];
      if (given === null || typeof given !== 'object') {
        throw new DelegraphError('invalid-input', 'the inputs are an object with a value for each name');
      }
      for (const name of Object.keys(given)) this.#indexOf(name);
      return inputs.map(({ name }) => {
        if (Object.hasOwn(given, name)) return given[name];
        throw new DelegraphError('invalid-input', `input "${name}" is missing`);
      });
    }

    async #runWith(values, signal) {
      for (const [i, value] of values.entries()) await this.#setInput(i, value);
      if (this.#call((native) => native.runNow())) return;
      const cancel = () => this.#call((native) => native.cancel());
      this.#call((native) => native.start());
      signal?.addEventListener('abort', cancel);
      try {
        await module.poll(this.#generation, (wake) => this.#native.poll(wake));
      } finally {
        signal?.removeEventListener('abort', cancel);
      }
    }

    async #setInput(i, value) {
      const spec = this.inputs[i];
      const picture = asPicture(value);
      if (picture) return this.#setPicture(i, spec, picture);
      if (typeof GPUBuffer !== 'undefined' && value instanceof GPUBuffer) return this.#setBuffer(i, spec, value);
      this.#unbind(i);
      if (spec.type === 'string') {
        const strings = toStrings(spec, value);
        this.#call((native) => native.setStrings(i, strings));
      } else {
        this.#setBytes(i, toBytes(spec, value));
      }
    }

    #setBytes(i, bytes) {
      this.#call((native) => native.setInput(i, bytes));
    }

    #setPicture(i, spec, picture) {
      const texture = isTexture(picture.picture);
      const onDevice = spec.type === 'float32' && this.#onDevice(i);
      if (!onDevice) {
        if (texture) throw notOnDevice(spec, 'a GPUTexture');
        this.#unbind(i);
        const array = toArray(spec, picture);
        return this.#setBytes(i, new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
      }
      const source = this.#io.texture(picture.picture);
      const [black, white] = picture.range;
      const range = Float32Array.from([...Array(4).fill(white - black), ...Array(4).fill(black)]);
      const size = Uint32Array.from([source.width, source.height]);
      const region = Float32Array.from(picture.region);
      this.#call((native) => native.setTexture(i, source, source.format, size, region, range));
      this.#bound.add(i);
    }

    async #setBuffer(i, spec, buffer) {
      if (this.#onDevice(i)) {
        const target = this.#call((native) => native.inputBuffer(i));
        this.#io.copy(buffer, target, spec.name);
        this.#bound.add(i);
      } else if (this.#io) {
        this.#unbind(i);
        this.#setBytes(i, await this.#io.read(buffer, buffer.size));
      } else {
        throw notOnDevice(spec, 'a GPUBuffer');
      }
    }

    #onDevice(i) {
      return this.#gpu !== undefined && this.#call((native) => native.inputOnDevice(i));
    }

    #unbind(i) {
      if (this.#bound.delete(i)) this.#call((native) => native.clearBuffer(i));
    }

    #leaveDevice(reason) {
      for (const i of [...this.#bound]) this.#unbind(i);
      this.#reason = reason;
      this.#gpu = undefined;
      this.#call((native) => native.leaveDevice());
    }

    #results() {
      const results = Object.create(null);
      for (const [i, spec] of this.outputs.entries()) results[spec.name] = this.#result(i, spec);
      return results;
    }

    #result(i, spec) {
      const shape = Array.from(this.#call((native) => native.outputShape(i)));
      const described = { ...spec, shape };
      const kept = this.#io && this.#call((native) => native.outputBuffer(i));
      if (kept) {
        const [buffer, offset, size] = kept;
        return new Output(described, undefined, this.#io.duplicate(buffer, offset, size), (copy) =>
          this.#io.read(copy, size),
        );
      }
      if (spec.type === 'string') {
        const strings = this.#call((native) => native.outputStrings(i));
        return new Output(described, Array.from(strings, (bytes) => decoder.decode(bytes)));
      }
      const bytes = this.#call((native) => native.output(i));
      return new Output(described, fromBytes(spec.type, shape, bytes));
    }

    static {
      this.prototype[disposeSymbol] = this.prototype.dispose;
    }
  };
}

/** Returns the open device for a model, or the reason why the model is loaded for the CPU. */
async function chooseDevice(devices, device, gpuDevice, options) {
  if (device === 'cpu') return { reason: "the option `device` is 'cpu'" };
  try {
    const gpu = await devices.open(gpuDevice, options);
    const software = gpu.device.adapterInfo?.isFallbackAdapter ?? false;
    if (device === 'auto' && software && !gpuDevice) {
      return { reason: `the adapter (${gpu.adapter}) is a software renderer, and the CPU's kernels are faster` };
    }
    return { gpu };
  } catch (error) {
    if (device === 'webgpu' || error.code !== 'webgpu-unavailable') throw error;
    return { reason: error.message };
  }
}

function whyNot(gpu, { nodes }) {
  if (!gpu) return undefined;
  const rejected = nodes.find(({ rejections }) => rejections.length > 0);
  return rejected ? `the device runs none of the nodes: ${rejected.rejections[0].reason}` : undefined;
}

function notOnDevice({ name }, what) {
  return new DelegraphError('unsupported', `input "${name}" is read by the CPU, which cannot read ${what}`);
}
