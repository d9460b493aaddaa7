/** Runs in the worker that `worker.js` starts: calls the methods of models that messages name. */
import { Model } from './index.js';

const models = new Map();
const running = new Map();
let nextHandle = 0;

const methods = {
  async load(signal, bytes, options) {
    const model = await Model.load(bytes, { ...options, signal });
    const handle = nextHandle++;
    models.set(handle, model);
    return { handle, description: describe(model) };
  },

  async resize(signal, handle, input, shape, options) {
    const model = models.get(handle);
    await model.resize(input, shape, options);
    return describe(model);
  },

  async run(signal, handle, inputs, options) {
    const model = models.get(handle);
    const outputs = await model.run(inputs, { ...options, signal });
    const results = [];
    for (const { name, type, shape } of model.outputs) {
      const output = outputs[name];
      results.push({ name, type, shape: output.shape ?? shape, data: await output.data() });
    }
    return { results, description: describe(model) };
  },

  report: (signal, handle) => models.get(handle).report(),
  profile: (signal, handle) => models.get(handle).profile(),

  dispose(signal, handle) {
    models.get(handle)?.dispose();
    models.delete(handle);
  },
};

function describe({ inputs, outputs, signatures, description }) {
  return { inputs, outputs, signatures, description };
}

/** The buffers of a result that can be moved to the page. */
function buffers({ results = [] } = {}) {
  return results.map(({ data }) => data?.buffer).filter((buffer) => buffer instanceof ArrayBuffer);
}

self.onmessage = async ({ data: { id, method, args } }) => {
  if (method === 'cancel') {
    running.get(id)?.abort();
    return;
  }
  const controller = new AbortController();
  running.set(id, controller);
  try {
    const result = await methods[method](controller.signal, ...args);
    self.postMessage({ id, result }, buffers(result ?? undefined));
  } catch (error) {
    self.postMessage({ id, error: { code: error.code, message: error.message ?? String(error) } });
  } finally {
    running.delete(id);
  }
};
