/**
 * Times the package and LiteRT.js alternately in one Chromium:
 * `node bench.mjs PACKAGE MODELS WORK [--device cpu|webgpu] [--rounds N] [--seconds S] [MODEL...]`. With `--start` it times
 * the start instead: from the import in an open page to a loaded model, in a new browser each time.
 *
 * WORK has the npm packages playwright-core and @litertjs/core; Chromium is $DELEGRAPH_BROWSER. Both run in the page's main
 * thread. A run copies the inputs and reads all outputs. Prints a table in Markdown: medians in ms, loading and first run
 * in brackets, and the ratio of the medians.
 */
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { withPage } from './browser.mjs';
import { models, nameOf } from './native.mjs';
import { serve } from './server.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { device: { type: 'string', default: 'cpu' }, rounds: { type: 'string', default: '5' }, seconds: { type: 'string', default: '0.5' }, start: { type: 'boolean' } },
});
const [packageFolder, modelFolder, work] = positionals.slice(0, 3).map((path) => resolve(path));
const wanted = positionals.slice(3);

/** Runs in the page. Returns medians, loading and first times, or the error, of both. */
async function compareInPage({ url, device, rounds, seconds }) {
  const { Model } = await import(device === 'cpu' ? '/package/cpu.js' : '/package/index.js');
  const litert = await import('@litertjs/core');
  window.litertLoaded ??= litert.loadLiteRt('/modules/@litertjs/core/wasm/', { threads: false, jspi: true });
  await window.litertLoaded;
  const described = await Model.load(url, { device: 'cpu' });
  const inputs = described.inputs.map(({ type, shape }) => {
    const count = shape.reduce((a, b) => a * b, 1);
    const Class = { float32: Float32Array, int8: Int8Array, uint8: Uint8Array, int32: Int32Array }[type];
    return Class.from({ length: count }, (_, i) => (type === 'float32' ? (i % 255) / 255 : i % 100));
  });
  described.dispose();
  const ours = async () => {
    const model = await Model.load(url, { device });
    return async () => Promise.all(Object.values(await model.run(inputs)).map((output) => output.data()));
  };
  const theirs = async () => {
    const model = await litert.loadAndCompile(url, { accelerator: device === 'cpu' ? 'wasm' : 'webgpu' });
    const details = model.getInputDetails();
    return async () => {
      const tensors = inputs.map((data, i) => new litert.Tensor(data, Array.from(details[i].shape)));
      const results = await model.run(tensors);
      const data = [];
      for (const result of Array.isArray(results) ? results : Object.values(results)) {
        const moved = result.accelerator === 'wasm' ? result : await result.moveTo('wasm');
        data.push(moved.toTypedArray().slice());
        moved.delete();
      }
      for (const tensor of tensors) tensor.delete?.();
      return data;
    };
  };
  const prepare = async (load) => {
    try {
      const begin = performance.now();
      const run = await load();
      const loaded = performance.now();
      await run();
      return { run, load: loaded - begin, first: performance.now() - loaded, times: [] };
    } catch (error) {
      return { error: String(error.message ?? error).split('\n')[0].slice(0, 90) };
    }
  };
  const sides = { ours: await prepare(ours), theirs: await prepare(theirs) };
  for (let round = 0; round < rounds; round++) {
    for (const side of Object.values(sides)) {
      if (!side.run) continue;
      const end = performance.now() + 1e3 * seconds;
      do {
        const begin = performance.now();
        await side.run();
        side.times.push(performance.now() - begin);
      } while (performance.now() < end);
    }
  }
  const summary = ({ load, first, times, error }) =>
    error ? { error } : { load, first, median: times.sort((a, b) => a - b)[Math.floor(times.length / 2)] };
  return { ours: summary(sides.ours), theirs: summary(sides.theirs) };
}

/** Runs in the page. Returns the time from the import to a loaded model, or without a URL to a loaded module. */
async function startInPage({ url, side, device }) {
  const begin = performance.now();
  if (side === 'ours') {
    const { Model } = await import(device === 'cpu' ? '/package/cpu.js' : '/package/index.js');
    // Without a model, loading fails as soon as the module is there.
    await (url ? Model.load(url, { device: 'cpu' }) : Model.load(new Uint8Array(0)).catch(() => {}));
    return performance.now() - begin;
  }
  const litert = await import('@litertjs/core');
  await litert.loadLiteRt('/modules/@litertjs/core/wasm/', { threads: false, jspi: true });
  if (url) await litert.loadAndCompile(url, { accelerator: 'wasm' });
  return performance.now() - begin;
}

async function printStart(name) {
  const cases = [undefined, `/models/${name}.tflite`].flatMap((url) => ['ours', 'theirs'].map((side) => ({ url, side, times: [] })));
  for (let round = 0; round < Number(values.rounds); round++) {
    for (const { url, side, times } of cases) {
      await withPage(work, async (page) => {
        await page.goto(`${server.base}/tests/bench.html`);
        // The browser's own start is over.
        await new Promise((resolve) => setTimeout(resolve, 2000));
        times.push(await page.evaluate(startInPage, { url, side, device: values.device }));
      });
    }
  }
  console.log(`From the import, median of ${values.rounds} (range), in ms:`);
  for (const { url, side, times } of cases) {
    const range = `${ms(Math.min(...times))} to ${ms(Math.max(...times))}`;
    console.log(`${side === 'ours' ? 'delegraph' : 'LiteRT.js'}, ${url ? name : 'the module'}: ${ms(medianOf(times))} (${range})`);
  }
}

const server = await serve({
  package: packageFolder,
  models: modelFolder,
  modules: join(work, 'node_modules'),
  tests: dirname(fileURLToPath(import.meta.url)),
});
const medianOf = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
const ms = (value) => (value < 10 ? value.toFixed(2) : value.toFixed(1));
const cell = ({ error, median, load, first }) => (error ? `fails: ${error}` : `${ms(median)} (${ms(load)} + ${ms(first)})`);

async function printRuns() {
  const ratios = { runs: [], 'loading and first runs': [] };
  console.log('| model | delegraph | LiteRT.js | ratio |\n|---|---|---|---|');
  for (const file of models(modelFolder)) {
    if (wanted.length && !wanted.includes(nameOf(file))) continue;
    const options = { url: `/models/${nameOf(file)}.tflite`, device: values.device, rounds: Number(values.rounds), seconds: Number(values.seconds) };
    await withPage(work, async (page) => {
      await page.goto(`${server.base}/tests/bench.html`);
      try {
        const { ours, theirs } = await page.evaluate(compareInPage, options);
        const ratio = ours.median / theirs.median;
        if (ratio) {
          ratios.runs.push(ratio);
          ratios['loading and first runs'].push((ours.load + ours.first) / (theirs.load + theirs.first));
        }
        console.log(`| ${nameOf(file)} | ${cell(ours)} | ${cell(theirs)} | ${ratio ? ratio.toFixed(2) : ''} |`);
      } catch (error) {
        console.log(`| ${nameOf(file)} | ${error.message.split('\n')[0]} | | |`);
      }
    });
  }
  for (const [name, list] of Object.entries(ratios)) {
    const mean = Math.exp(list.reduce((sum, ratio) => sum + Math.log(ratio), 0) / list.length);
    console.log(`Geometric mean of ${list.length} ratios of ${name}: ${mean.toFixed(2)}, ${Math.min(...list).toFixed(2)} to ${Math.max(...list).toFixed(2)}`);
  }
}

await (values.start ? printStart(wanted[0] ?? 'face_detection_short_range') : printRuns());
server.close();
