import { DelegraphError } from './errors.js';

/** The devices that models run on. A device is opened once; models on it share its compiled shaders. */
export class Devices {
  #module;
  /** Promises of the package's own devices, by their options. */
  #own = new Map();
  /** Promises of devices of the page. */
  #given = new WeakMap();

  constructor(module) {
    this.#module = module;
  }

  /** Returns `{native, generation}` for a device of the page, or for a new one. */
  async open(given, { powerPreference = '', forceFallbackAdapter = false }) {
    const { generation } = this.#module;
    const map = given ? this.#given : this.#own;
    const key = given ?? `${powerPreference} ${forceFallbackAdapter}`;
    let promise = map.get(key);
    const known = await promise?.catch(() => undefined);
    const usable =
      known && known.generation === generation && this.#module.call(generation, () => known.native.lost()) === undefined;
    if (usable) return known;
    if (map.get(key) === promise) {
      promise = this.#open(given, generation, powerPreference, forceFallbackAdapter);
      map.set(key, promise);
      // A later model retries.
      promise.catch(() => map.get(key) === promise && map.delete(key));
    }
    return map.get(key);
  }

  async #open(given, generation, power, fallback) {
    const gpu = given ? asGpu(given) : globalThis.navigator?.gpu;
    if (!gpu) throw unavailable('the browser has no WebGPU (navigator.gpu)');
    const { GpuOpening } = this.#module.call(generation, (glue) => glue);
    if (!GpuOpening) throw unavailable('this build of the package is for the CPU alone');
    const opening = withGpu(given && gpu, () =>
      this.#module.call(generation, () => new GpuOpening(power, fallback)),
    );
    const native = await this.#module.poll(generation, (wake) => opening.poll(wake));
    opening.free();
    const device = native.device();
    return { native, device, generation, adapter: nameOf(device.adapterInfo) || native.adapter() };
  }
}

/** Returns the name of an adapter, from the browser's information. */
function nameOf({ description, vendor, architecture, device } = {}) {
  return description || [vendor, architecture, device].filter(Boolean).join(' ');
}

function unavailable(message) {
  return new DelegraphError('webgpu-unavailable', message);
}

/** Returns an object like `navigator.gpu` whose only adapter opens `device`. */
function asGpu(device) {
  const adapter = {
    features: device.features,
    limits: device.limits,
    info: device.adapterInfo ?? {
      vendor: '',
      architecture: '',
      device: '',
      description: '',
      subgroupMinSize: 4,
      subgroupMaxSize: 128,
      isFallbackAdapter: false,
    },
    requestDevice: async () => device,
  };
  return {
    requestAdapter: async () => adapter,
    getPreferredCanvasFormat: () => 'bgra8unorm',
    wgslLanguageFeatures: new Set(),
  };
}

/** Calls `f` while `navigator.gpu` is `gpu`, if that is given. `f` is synchronous, so no other code is affected. */
function withGpu(gpu, f) {
  if (!gpu) return f();
  Object.defineProperty(navigator, 'gpu', { value: gpu, configurable: true });
  try {
    return f();
  } finally {
    delete navigator.gpu;
  }
}
