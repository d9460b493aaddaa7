/** Tests of the package in Node, which has only the CPU. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { hasRelaxedSimd } from '../js/relaxed.js';
import { check, compare, rejection } from './compare.js';
import { nameOf } from './native.mjs';
import { readNpy } from './npy.js';

export async function nodeTests(test, { Model, files, work }) {
  const instructions = hasRelaxedSimd() ? /^relaxed-/ : /^simd128$/;
  for (const file of files) {
    await test(`${nameOf(file)} in Node`, async () => {
      const model = await Model.load(file);
      const folder = join(work, 'native', nameOf(file));
      const array = (name) => readNpy(new Uint8Array(readFileSync(join(folder, name)))).data;
      const outputs = await model.run(model.inputs.map((_, i) => array(`input_${i}.npy`)));
      let worst = 0;
      for (const [i, { name }] of model.outputs.entries()) {
        const options = { tolerance: 3e-4, steps: 0, name };
        worst = Math.max(worst, compare(await outputs[name].data(), array(`output_${i}.npy`), options));
      }
      const report = await model.report();
      check(report.device === 'cpu' && /alone|WebGPU/.test(report.reason), report.reason);
      check(instructions.test(report.instructionSet), report.instructionSet);
      model.dispose();
      return `largest difference ${worst.toExponential(1)}`;
    });
  }
  await test('pictures in Node', async () => {
    const model = await Model.load(files[0]);
    const error = await rejection(() => model.run({ picture: {} }));
    check(error.code === 'invalid-input', error.message);
  });
}
