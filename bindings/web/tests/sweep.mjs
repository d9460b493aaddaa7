/**
 * Compares the package in Chromium with the native command on every model below a folder:
 * `node sweep.mjs PACKAGE COMMAND FOLDER WORK [--device cpu|webgpu] [--every N] [--filter TEXT]`.
 *
 * A folder with `model.tflite` is a case, whose inputs are its `input_0.npy`, …; other models get random inputs. A model that
 * the command cannot run must fail in the page, too. Prints each difference, and a count. WORK keeps the native results, and
 * has the npm package playwright-core; Chromium is $DELEGRAPH_BROWSER.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { withPage } from './browser.mjs';
import { runNative } from './native.mjs';
import { serve } from './server.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { device: { type: 'string', default: 'cpu' }, every: { type: 'string', default: '1' }, filter: { type: 'string', default: '' } },
});
const [packageFolder, command, folder, work] = positionals.map((path) => resolve(path));
const { Model } = await import(pathToFileURL(join(packageFolder, 'node.js')));
const here = dirname(fileURLToPath(import.meta.url));
const PER_PAGE = 50;
/** Native results, kept for the next run. */
const kept = join(work, 'sweep', folder.replaceAll('/', '_'));

/** Computes the native results of a case, and returns its description for the page. */
async function prepare(file) {
  const place = dirname(file);
  const isCase = basename(file) === 'model.tflite';
  const name = relative(folder, isCase ? place : file);
  const native = join(kept, name);
  const countIn = (path) => readdirSync(path).filter((entry) => /^input_\d+\.npy$/.test(entry)).length;
  if (!existsSync(join(native, 'failure')) && !existsSync(join(native, 'output_0.npy'))) {
    try {
      if (isCase) {
        mkdirSync(native, { recursive: true });
        const given = Array.from({ length: countIn(place) }, (_, i) => ['--input', join(place, `input_${i}.npy`)]).flat();
        execFileSync(command, ['run', file, ...given, '--output-dir', native], { stdio: ['ignore', 'ignore', 'pipe'] });
      } else {
        await runNative(command, Model, file, native, 'pipe');
      }
    } catch (error) {
      mkdirSync(native, { recursive: true });
      writeFileSync(join(native, 'failure'), String(error.stderr ?? error.message));
    }
  }
  const at = (path) => (path.startsWith(native) ? `/native/${name}` : `/models/${relative(folder, path)}`);
  const inputs = isCase ? place : native;
  return { name, url: at(file), inputs: at(inputs), count: countIn(inputs), native: at(native), fails: existsSync(join(native, 'failure')) };
}

/** Runs `list` in a new browser; returns a result for each case. A page that ends gives errors for its remaining cases. */
function runInBrowser(base, list, device) {
  return withPage(work, async (page) => {
    await page.goto(`${base}/tests/page.html`);
    const results = [];
    for (const item of list) {
      const run = page.evaluate(async (item) => (await import('/tests/page_tests.js')).sweep(item), { ...item, device });
      results.push(await run.catch((error) => ({ difference: `the page ended: ${error.message.split('\n')[0]}` })));
    }
    return results;
  });
}

const files = readdirSync(folder, { recursive: true })
  .filter((path) => path.endsWith('.tflite') && path.includes(values.filter))
  .sort()
  .filter((_, i) => i % Number(values.every) === 0)
  .map((path) => join(folder, path));
const server = await serve({ package: packageFolder, source: join(here, '../js'), tests: here, models: folder, native: kept });
const counts = { equal: 0, 'fail in both': 0, differ: 0, 'with nodes on the device': 0 };
for (let at = 0; at < files.length; at += PER_PAGE) {
  const list = [];
  for (const file of files.slice(at, at + PER_PAGE)) list.push(await prepare(file));
  const results = await runInBrowser(server.base, list, values.device);
  for (const [i, { difference, failed, onDevice }] of results.entries()) {
    counts[difference ? 'differ' : failed ? 'fail in both' : 'equal']++;
    if (onDevice) counts['with nodes on the device']++;
    if (difference) console.log(`${list[i].name}: ${difference}`);
  }
}
console.log(`${files.length} models on ${values.device}: ${Object.entries(counts).map(([name, count]) => `${count} ${name}`).join(', ')}`);
server.close();
process.exit(counts.differ ? 1 : 0);
