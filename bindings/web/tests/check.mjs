/**
 * Tests the package in Node and in Chromium: `node check.mjs PACKAGE COMMAND MODELS WORK [FILTER]`.
 *
 * PACKAGE is the built package, COMMAND the native command, MODELS the folder of real models, WORK a folder for native
 * results and screenshots. FILTER selects tests by a part of their names. Needs the npm packages playwright-core and
 * typescript above WORK, and Chromium at $DELEGRAPH_BROWSER.
 */
import { execFileSync } from 'node:child_process';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { withPage } from './browser.mjs';
import { models, nameOf, runNative, writeCase } from './native.mjs';
import { nodeTests } from './node_tests.mjs';
import { serve } from './server.mjs';
import { siteTests } from './site_tests.mjs';

const [packageFolder, command, modelFolder, work, filter = ''] = process.argv.slice(2).map((path, i) => (i < 4 ? resolve(path) : path));
const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../../..');
const { Model } = await import(pathToFileURL(join(packageFolder, 'node.js')));

/** Cases of the conformance suite with every type in inputs and outputs, and with control flow. */
const TYPES = ['float32', 'float64', 'float16', 'bfloat16', 'int64', 'int32', 'int16', 'int8', 'uint32', 'uint16', 'uint8', 'bool', 'complex64'];
const CASES = [
  ...TYPES.flatMap((type) => [`cast/cast_${type}_to_float32`, `cast/cast_float32_to_${type}`, `cast/cast_${type}_to_int64`]),
  'gather/gather_string', 'comparison/equal_string', 'fill/fill_string',
  'control_flow/while_float32', 'control_flow/if_float32_true', 'control_flow/if_float32_false',
  'control_flow/stablehlo_case_int32_1', 'control_flow/stablehlo_composite_float32', 'control_flow/call_once_float32',
  'graphs/if_float32_branches_random_0', 'graphs/if_float32_branches_random_1',
];

let failures = 0;

async function test(name, f) {
  if (!name.includes(filter)) return;
  const begin = performance.now();
  const end = (text) => console.log(`${name}: ${text} (${((performance.now() - begin) / 1e3).toFixed(1)} s)`);
  try {
    end(`ok: ${(await f()) ?? ''}`);
  } catch (error) {
    failures++;
    end(`FAILED: ${error.message}`);
  }
}

/** A page of a new browser. Console messages of level error, and uncaught errors, are failures. */
async function withTestPage(base, options, f) {
  const errors = [];
  await withPage(
    work,
    async (page, context) => {
      page.on('console', (message) => {
        const expected = message.text().includes('404') && message.location().url.endsWith('/nothing.tflite');
        if (message.type() === 'error' && !expected) errors.push(message.text());
      });
      page.on('pageerror', (error) => errors.push(error.message));
      await page.goto(`${base}/tests/page.html`);
      const call = (name, argument) =>
        page.evaluate(async ([name, argument]) => (await import('/tests/page_tests.js'))[name](argument), [name, argument]);
      await f(call, page, context);
    },
    options,
  );
  await test('no console errors', () => {
    if (errors.length) throw new Error(errors.join('; '));
  });
}

async function main() {
  const digits = join(root, 'assets/digits/digits_float32.tflite');
  const files = [digits, ...models(modelFolder)];
  const site = join(dirname(packageFolder), 'site');
  const server = await serve({ site, package: packageFolder, source: join(here, '../js'), tests: here, work, assets: join(root, 'assets'), models: modelFolder, corpus: join(root, 'fuzz/corpus') });
  for (const file of files) await runNative(command, Model, file, join(work, 'native', nameOf(file)));
  const list = CASES.map((name) => {
    writeCase(command, name, join(work, 'cases'));
    return { name, folder: `/work/cases/${name.replaceAll('/', '-')}` };
  });
  const at = (file) => ({
    url: file.startsWith(root) ? `/assets/digits/${nameOf(file)}.tflite` : `/models/${nameOf(file)}.tflite`,
    native: `/work/native/${nameOf(file)}`,
  });
  const named = (name) => at(files.find((file) => nameOf(file) === name) ?? digits);
  const small = named('face_detection_short_range');
  const selfie = named('selfie_segmentation');
  const damaged = models(join(root, 'fuzz/corpus/model')).slice(0, 40).map((file) => `/corpus/model/${nameOf(file)}.tflite`);

  await nodeTests(test, { Model, files, work });
  await test('types', () => {
    execFileSync(join(work, 'node_modules/.bin/tsc'), ['--project', join(here, 'tsconfig.json')], { stdio: 'inherit' });
  });
  await withTestPage(server.base, {}, async (call, page) => {
    for (const file of files) {
      const entry = '/package/cpu.js';
      await test(`${nameOf(file)} on the package without WebGPU`, () => call('realModel', { ...at(file), device: 'cpu', entry }));
    }
    for (const device of ['cpu', 'webgpu']) {
      for (const file of files) {
        await test(`${nameOf(file)} on ${device}`, () => call('realModel', { ...at(file), device }));
      }
      await test(`cases on ${device}`, () => call('cases', { list, device }));
    }
    await test('mixed partitions', () => call('mixedPartitions', small));
    await test('mixed partitions, int8', () => call('mixedPartitions', named('efficientnet_lite0_int8')));
    await test('lost device', () => call('lostDevice', at(digits)));
    await test('lost device, real model', () => call('lostDevice', small));
    await test('worker on cpu', () => call('worker', { ...small, device: 'cpu' }));
    await test('worker on webgpu', () => call('worker', { ...small, device: 'webgpu' }));
    await test('audio worklet', () => call('audioWorklet', at(digits)));
    await test('pictures', () => call('pictures', small));
    await test('buffers', () => call('buffers', small));
    await test('wrong calls', () => call('wrongCalls', at(digits)));
    await test('resize', () => call('resize', at(digits)));
    await test('forgotten models', () => call('forgottenModels', at(digits)));
    await test('hostile models', () => call('hostileModels', { ...at(digits), files: damaged }));
    await test('panic', () => call('panic', at(digits)));
  });
  if (models(join(site, 'models')).length === 2) {
    const model = files.find((file) => nameOf(file) === 'okay_nabu') ?? digits;
    await withTestPage(server.base, {}, (_, page, context) => siteTests(test, { page, context, base: server.base, work, model }));
  } else {
    console.log('the pages of examples/web: left out: their models are not in the cache');
  }
  const without = "Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined });";
  await withTestPage(server.base, { init: without }, async (call) => {
    await test('without WebGPU', () => call('withoutWebGpu', small));
    await test('worker without a page with WebGPU', () => call('worker', { ...at(digits), device: 'cpu' }));
  });
  server.close();
}

await main();
if (failures) {
  console.log(`${failures} tests failed`);
  process.exit(1);
}
