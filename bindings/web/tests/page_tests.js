/** Tests that run in a page. Each returns a line for the log, or throws. `config` lists models and cases by their URLs. */
import { DelegraphError, Model } from '/package/index.js';
import { hasRelaxedSimd } from '/source/relaxed.js';
import { Model as CpuModel } from '/package/cpu.js';
import { fromFloat16 } from '/source/tensors.js';
import { Model as WorkerModel } from '/package/worker.js';
import { check, compare, rejection } from './compare.js';
import { readNpy } from './npy.js';

// The tolerance: sums differ between a browser and the native kernels, and devices round differently.
const TOLERANCE = { cpu: 3e-4, webgpu: 1e-3 };

async function array(url) {
  const response = await fetch(url);
  check(response.ok, `${url}: ${response.status}`);
  const file = readNpy(new Uint8Array(await response.arrayBuffer()));
  return { ...file, values: file.type === '<f2' ? Float32Array.from(file.data, fromFloat16) : file.data };
}

function arrays(folder, count) {
  return Promise.all(Array.from({ length: count }, (_, i) => array(`${folder}/input_${i}.npy`)));
}

async function inputsOf(model, folder) {
  const inputs = {};
  for (const [i, { name }] of model.inputs.entries()) inputs[name] = (await array(`${folder}/input_${i}.npy`)).data;
  return inputs;
}

/** Compares outputs with those of `folder`; returns the largest difference. */
async function compareOutputs(model, outputs, folder, options, prefix = 'output') {
  let worst = 0;
  for (const [i, { name }] of model.outputs.entries()) {
    const expected = (await array(`${folder}/${prefix}_${i}.npy`)).values;
    worst = Math.max(worst, compare(await outputs[name].data(), expected, { ...options, name }));
  }
  return worst;
}

/** One real model on one device, twice, against the native command. `entry` is another entry of the package. */
export async function realModel({ url, native, device, entry = '/package/index.js' }) {
  const { Model: Class } = await import(entry);
  const begin = performance.now();
  const model = await Class.load(url, { device });
  const loaded = performance.now();
  const inputs = await inputsOf(model, native);
  const prepared = performance.now();
  let outputs = await model.run(inputs);
  const first = performance.now();
  const options = { tolerance: TOLERANCE[device], steps: device === 'cpu' ? 0 : 1 };
  await compareOutputs(model, outputs, native, options);
  const again = performance.now();
  outputs = await model.run(inputs);
  const second = performance.now();
  const worst = await compareOutputs(model, outputs, native, options);
  const report = await model.report();
  const onDevice = report.nodes.filter(({ runner }) => runner === 'delegate').length;
  if (device === 'webgpu') check(onDevice > 0, `nothing is on the device: ${report.reason}`);
  check(report.failures.length === 0, `failures: ${JSON.stringify(report.failures)}`);
  const expected = entry.endsWith('/cpu.js') && hasRelaxedSimd() ? /^relaxed-/ : /^simd128$/;
  check(expected.test(report.instructionSet), `instructions: ${report.instructionSet}`);
  model.dispose();
  const ms = (time) => time.toFixed(1);
  return `load ${ms(loaded - begin)}, first ${ms(first - prepared)}, second ${ms(second - again)} ms, ${report.instructionSet}, ${onDevice} nodes in ${report.partitions.length} partitions on the device, largest difference ${worst.toExponential(1)}`;
}

/** A model whose every third node is on the CPU: partitions and CPU kernels alternate. */
export async function mixedPartitions({ url, native }) {
  const probe = await Model.load(url, { device: 'cpu' });
  const nodes = (await probe.report()).nodes.length;
  const excludedNodes = Array.from({ length: Math.ceil(nodes / 12) }, (_, i) => 12 * i + 5);
  const model = await Model.load(url, { device: 'webgpu', excludedNodes });
  const report = await model.report();
  check(report.partitions.length > 2, `${report.partitions.length} partitions`);
  const inputs = await inputsOf(model, native);
  for (let i = 0; i < 2; i++) {
    await compareOutputs(model, await model.run(inputs), native, { tolerance: TOLERANCE.webgpu, steps: 1 });
  }
  const excluded = report.nodes[excludedNodes[0]].rejections.map(({ kind }) => kind);
  check(excluded.includes('Excluded'), `a node that was excluded: ${excluded}`);
  return `${report.partitions.length} partitions`;
}

/** One of many models, against the native command, which fails for those with `fails`. */
export async function sweep({ url, inputs, count, native, device, fails }) {
  let model;
  try {
    const given = await arrays(inputs, count);
    model = await Model.load(url, { device, shapes: given.map(({ shape }) => shape) });
    const outputs = await model.run(given.map(({ data }) => data));
    if (fails) return { difference: 'the command fails' };
    await compareOutputs(model, outputs, native, { tolerance: TOLERANCE[device], steps: device === 'cpu' ? 0 : 1 });
    const report = await model.report();
    const onDevice = report.nodes.some(({ runner }) => runner === 'delegate');
    return { onDevice, difference: report.failures.length ? JSON.stringify(report.failures) : undefined };
  } catch (error) {
    return fails ? { failed: true } : { difference: error.message };
  } finally {
    model?.dispose();
  }
}

/** The project's cases: every type, strings, control flow. */
export async function cases({ list, device }) {
  for (const { name, folder } of list) {
    const model = await Model.load(`${folder}/model.tflite`, { device });
    const outputs = await model.run(await inputsOf(model, folder));
    try {
      await compareOutputs(model, outputs, folder, { tolerance: device === 'cpu' ? 1e-6 : 1e-4, steps: 0 }, 'expected');
    } catch (error) {
      throw new Error(`${name}: ${error.message}`);
    }
    model.dispose();
  }
  return `${list.length} cases`;
}

/** A device that is lost between two runs, and one that is lost during a run. */
export async function lostDevice({ url, native }) {
  const adapter = await navigator.gpu.requestAdapter();
  for (const during of [false, true]) {
    const gpuDevice = await adapter.requestDevice().catch(async () => (await navigator.gpu.requestAdapter()).requestDevice());
    const model = await Model.load(url, { device: 'webgpu', gpuDevice });
    const inputs = await inputsOf(model, native);
    if (!during) await model.run(inputs);
    const pending = during ? model.run(inputs) : undefined;
    // The run begins in a microtask.
    if (during) await new Promise((resolve) => setTimeout(resolve, 0));
    gpuDevice.destroy();
    if (!during) await gpuDevice.lost;
    const outputs = await (pending ?? model.run(inputs));
    await compareOutputs(model, outputs, native, { tolerance: TOLERANCE.cpu });
    const report = await model.report();
    check(report.device === 'cpu' && report.failures.length === 1, JSON.stringify(report.failures));
    check(/lost|finish|map/i.test(report.reason), `the reason: ${report.reason}`);
    await compareOutputs(model, await model.run(inputs), native, { tolerance: TOLERANCE.cpu });
    model.dispose();
  }
  // Another model gets another device.
  return 'lost before and during a run: the CPU computed the same';
}

/** A model in an AudioWorklet, whose scope has neither fetch nor TextDecoder. */
export async function audioWorklet({ url, native }) {
  const audio = new OfflineAudioContext(1, 44100, 44100);
  await audio.audioWorklet.addModule('/tests/worklet.js');
  const module = await WebAssembly.compileStreaming(fetch('/package/wasm/delegraph_cpu_bg.wasm'));
  const bytes = await (await fetch(url)).arrayBuffer();
  const input = (await array(`${native}/input_0.npy`)).data;
  const node = new AudioWorkletNode(audio, 'runner', { processorOptions: { module, bytes, input } });
  const answer = new Promise((resolve) => {
    node.port.onmessage = ({ data }) => resolve(data);
  });
  node.connect(audio.destination);
  await audio.startRendering();
  const { data, name, error } = await answer;
  check(error === 'invalid-model', error);
  const expected = (await array(`${native}/output_0.npy`)).values;
  return `${name}: largest difference ${compare(data, expected, { tolerance: TOLERANCE.cpu, name })}`;
}

/** Models that a page gives up without `dispose`: three times the memory that a module can have. */
export async function forgottenModels({ url }) {
  const bytes = await (await fetch(url)).arrayBuffer();
  let total = 0;
  for (let i = 0; i < 30; i++) {
    const model = await Model.load(bytes, { device: 'cpu', shapes: [[2 ** 15, 8, 8, 1]] });
    total += (await model.report()).memoryBytes;
  }
  check(total > 2 * 2 ** 32, `${total} bytes`);
  return `${(total / 2 ** 30).toFixed(1)} GiB`;
}

/** A page without WebGPU. */
export async function withoutWebGpu({ url, native }) {
  check(navigator.gpu === undefined, 'this page has WebGPU');
  const model = await Model.load(url);
  await compareOutputs(model, await model.run(await inputsOf(model, native)), native, { tolerance: TOLERANCE.cpu });
  const report = await model.report();
  check(report.device === 'cpu' && /WebGPU/.test(report.reason), `the reason: ${report.reason}`);
  const error = await rejection(() => Model.load(url, { device: 'webgpu' }));
  check(error instanceof DelegraphError && error.code === 'webgpu-unavailable', `${error.code}: ${error.message}`);
  const cpu = await CpuModel.load(url);
  await compareOutputs(cpu, await cpu.run(await inputsOf(cpu, native)), native, { tolerance: TOLERANCE.cpu });
  return report.reason;
}

/** The API of a worker. */
export async function worker({ url, native, device }) {
  const progress = [];
  const model = await WorkerModel.load(url, { device, profile: true, onProgress: (p) => progress.push(p) });
  check(progress.length > 0 && progress.at(-1).loaded === progress.at(-1).total, 'progress');
  const inputs = await inputsOf(model, native);
  const options = { tolerance: TOLERANCE[device], steps: 1 };
  // Runs that are not awaited in between are queued.
  const both = await Promise.all([model.run(inputs), model.run(inputs)]);
  for (const outputs of both) await compareOutputs(model, outputs, native, options);
  const report = await model.report();
  check(report.device === device, `${report.device}: ${report.reason}`);
  check((await model.profile()).length > 0, 'a profile');
  const error = await rejection(() => model.run({ ...inputs, other: 1 }));
  check(error.code === 'invalid-input' && /no input "other"/.test(error.message), `${error.code}: ${error.message}`);
  const controller = new AbortController();
  controller.abort(new Error('stop'));
  const aborted = await rejection(() => model.run(inputs, { signal: controller.signal }));
  check(aborted.message === 'stop', aborted.message);
  model.dispose();
  check((await rejection(() => model.run(inputs))).code === 'state', 'a disposed model');
  return `${report.nodes.length} nodes in a worker`;
}

/** A picture of colours that vary over its width and height. */
function drawn(width, height) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext('2d');
  for (let y = 0; y < height; y += 4) {
    for (let x = 0; x < width; x += 4) {
      context.fillStyle = `rgb(${(255 * x) / width}, ${(255 * y) / height}, ${(x * y) % 256})`;
      context.fillRect(x, y, 4, 4);
    }
  }
  return canvas;
}

/** Every kind of picture results in the same outputs as its pixels in an array. */
export async function pictures({ url }) {
  const canvas = drawn(320, 240);
  const image = canvas.getContext('2d').getImageData(0, 0, 320, 240);
  const bitmap = await createImageBitmap(canvas);
  const frame = new VideoFrame(canvas, { timestamp: 0 });
  const adapter = await navigator.gpu.requestAdapter();
  const gpuDevice = await adapter.requestDevice();
  const texture = gpuDevice.createTexture({
    size: [320, 240],
    format: 'rgba8unorm',
    usage: GPUTextureUsage.TEXTURE_BINDING | GPUTextureUsage.COPY_DST | GPUTextureUsage.RENDER_ATTACHMENT,
  });
  gpuDevice.queue.copyExternalImageToTexture({ source: bitmap }, { texture }, [320, 240]);
  const cpu = await Model.load(url, { device: 'cpu' });
  const gpu = await Model.load(url, { device: 'webgpu', gpuDevice });
  const [{ name }] = cpu.outputs;
  for (const region of [undefined, [0.25, -0.25, 0.5, 1.5]]) {
    const value = (picture) => ({ picture, region, range: [-1, 1] });
    const expected = await (await cpu.run(value(image)))[name].data();
    for (const picture of [bitmap, frame, canvas, image]) {
      const tolerance = picture === frame ? 0.05 : 1e-5;
      compare(await (await cpu.run(value(picture)))[name].data(), expected, { tolerance, name: `${picture.constructor.name} on the CPU` });
    }
    for (const picture of [bitmap, frame, canvas, texture]) {
      const tolerance = picture === frame ? 0.05 : 2e-3;
      compare(await (await gpu.run(value(picture)))[name].data(), expected, { tolerance, name: `${picture.constructor.name} on the device` });
    }
  }
  const error = await rejection(() => cpu.run(texture));
  check(error.code === 'unsupported', `a texture on the CPU: ${error.message}`);
  frame.close();
  return 'ImageData, ImageBitmap, VideoFrame, OffscreenCanvas, GPUTexture, with and without a region';
}

/** Buffers of the page's device as input and output. */
export async function buffers({ url, native }) {
  const adapter = await navigator.gpu.requestAdapter();
  const gpuDevice = await adapter.requestDevice();
  const model = await Model.load(url, { device: 'webgpu', gpuDevice, outputs: 'gpu' });
  const [input] = model.inputs;
  const { data } = await array(`${native}/input_0.npy`);
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const buffer = gpuDevice.createBuffer({ size: data.byteLength, usage });
  gpuDevice.queue.writeBuffer(buffer, 0, data);
  const first = await model.run({ [input.name]: buffer });
  // The outputs of a run do not change when the model runs again.
  await model.run({ [input.name]: new Float32Array(data.length) });
  await compareOutputs(model, first, native, { tolerance: TOLERANCE.webgpu });
  const kept = Object.values(first).filter(({ gpuBuffer }) => gpuBuffer instanceof GPUBuffer);
  check(kept.length > 0, 'an output on the device');
  const cpu = await Model.load(url, { device: 'cpu' });
  check((await rejection(() => cpu.run(buffer))).code === 'unsupported', 'a buffer on the CPU');
  const small = gpuDevice.createBuffer({ size: 16, usage });
  check((await rejection(() => model.run(small))).code === 'invalid-input', 'a small buffer');
  kept.forEach((output) => output.dispose());
  return `${kept.length} outputs on the device`;
}

/** Damaged models are errors, and the module works afterwards. */
export async function hostileModels({ url, files }) {
  const bytes = new Uint8Array(await (await fetch(url)).arrayBuffer());
  const codes = new Map();
  const count = (code) => codes.set(code, (codes.get(code) ?? 0) + 1);
  const attempt = async (damaged) => {
    try {
      const model = await Model.load(damaged, { device: 'cpu' });
      await model.run(model.inputs.map(({ shape }) => new Float32Array(shape.reduce((a, b) => a * b, 1))));
      model.dispose();
      count('valid');
    } catch (error) {
      check(error instanceof DelegraphError, `not a typed error: ${error.stack}`);
      check(error.code !== 'panic', `a panic: ${error.message}`);
      count(error.code);
    }
  };
  for (let length = 0; length < bytes.length; length += Math.ceil(bytes.length / 60)) await attempt(bytes.slice(0, length));
  let state = 7;
  for (let i = 0; i < 150; i++) {
    const damaged = bytes.slice();
    for (let change = 0; change < 4; change++) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      damaged[state % Math.min(bytes.length, 4096)] = state >>> 24;
    }
    await attempt(damaged);
  }
  for (const file of files) await attempt(new Uint8Array(await (await fetch(file)).arrayBuffer()));
  check(codes.get('invalid-model') > 20, `codes: ${JSON.stringify([...codes])}`);
  return JSON.stringify(Object.fromEntries(codes));
}

/** A panic ends the module's instance: its models throw, and a new model gets a new instance. */
export async function panic({ url, native }) {
  const model = await Model.load(url, { device: 'cpu' });
  const inputs = await inputsOf(model, native);
  await model.run(inputs);
  const load = await rejection(() => Model.load(new TextEncoder().encode('panic'), { device: 'cpu' }));
  check(load instanceof DelegraphError && load.code === 'panic', `${load.code}: ${load.message}`);
  check(/a panic that a test asked for/.test(load.message), load.message);
  const run = await rejection(() => model.run(inputs));
  check(run.code === 'panic' && /load the model again/.test(run.message), `${run.code}: ${run.message}`);
  const again = await Model.load(url, { device: navigator.gpu ? 'webgpu' : 'cpu' });
  await compareOutputs(again, await again.run(inputs), native, { tolerance: TOLERANCE.webgpu });
  model.dispose();
  return load.message;
}

/** Wrong calls are typed errors that state the correct use. */
export async function wrongCalls({ url }) {
  const model = await Model.load(url, { device: 'cpu' });
  const [{ name, shape }] = model.inputs;
  const count = shape.reduce((a, b) => a * b, 1);
  const expectError = async (code, text, f) => {
    const error = await rejection(f);
    check(error instanceof DelegraphError, `${error}`);
    check(error.code === code && text.test(error.message), `${error.code}: ${error.message}`);
  };
  await expectError('invalid-input', /takes Float32Array, not Int8Array/, () => model.run(new Int8Array(count)));
  await expectError('invalid-input', /elements, not 3/, () => model.run(new Float32Array(3)));
  await expectError('invalid-input', /there is no input "y"/, () => model.run({ y: new Float32Array(count) }));
  await expectError('invalid-input', /is missing/, () => model.run({}));
  await expectError('invalid-input', /takes .* not \[/, () => model.resize(name, [1, 2, 3, 4, 5]));
  await expectError('state', /option `profile`/, () => model.profile());
  await expectError('network', /404/, () => Model.load('/nothing.tflite'));
  await expectError('invalid-input', /'auto'/, () => Model.load(url, { device: 'gpu' }));
  const controller = new AbortController();
  controller.abort();
  check((await rejection(() => Model.load(url, { signal: controller.signal }))).name === 'AbortError', 'AbortError');
  const progress = [];
  const response = await fetch(url);
  (await Model.load(response, { device: 'cpu', onProgress: (p) => progress.push(p) })).dispose();
  check(progress.length > 0, 'progress of a Response');
  model[Symbol.dispose ?? Symbol.for('Symbol.dispose')]();
  await expectError('state', /disposed/, () => model.run(new Float32Array(count)));
  return 'each names what is right';
}

/** The model runs with another shape of an input. */
export async function resize({ url }) {
  const model = await Model.load(url, { device: 'cpu', profile: true });
  const [{ name, shape }] = model.inputs;
  const output = model.outputs[0].name;
  const one = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => (i % 17) / 17);
  const expected = await (await model.run(one))[output].data();
  await model.resize(name, [2, ...shape.slice(1)]);
  check(model.inputs[0].shape[0] === 2 && model.outputs[0].shape[0] === 2, JSON.stringify(model.outputs));
  const two = new Float32Array(2 * one.length);
  two.set(one, one.length);
  const got = await (await model.run({ [name]: two }))[output].data();
  compare(got.subarray(expected.length), expected, { tolerance: 1e-6 });
  check((await model.profile()).every(({ milliseconds }) => milliseconds >= 0), 'times');
  for (const shapes of [{ [name]: [2, ...shape.slice(1)] }, [[2, ...shape.slice(1)]]]) {
    const loaded = await Model.load(url, { device: 'cpu', shapes });
    check(loaded.outputs[0].shape[0] === 2, JSON.stringify(loaded.outputs));
    compare(await (await loaded.run(two))[output].data(), got);
  }
  const error = await rejection(() => Model.load(url, { shapes: { nothing: [1] } }));
  check(error.code === 'invalid-input' && error.message.includes('"nothing"'), error.message);
  return `[${model.inputs[0].shape}]`;
}
