// Checked by tsc, never run: the types of the package as an application uses them.
import { DelegraphError, Model, type Output, type Report } from '../js/index.js';
import { Model as WorkerModel } from '../js/worker.js';

export async function use(bitmap: ImageBitmap, frame: VideoFrame, signal: AbortSignal): Promise<number> {
  const model: Model = await Model.load('model.tflite', {
    device: 'auto',
    signal,
    onProgress: ({ loaded, total }) => console.log(loaded / (total ?? loaded)),
    shapes: { x: [1, 224, 224, 3] },
  });
  await model.resize('x', [1, 224, 224, 3]);
  const outputs: { [name: string]: Output } = await model.run({ x: bitmap }, { signal, signature: 'serving_default' });
  const floats: Float32Array = await outputs.y.data<Float32Array>();
  await model.run({ picture: frame, region: [0, 0, 1, 1], range: [-1, 1] });
  await model.run([new BigInt64Array(1), ['text'], new Uint8Array(4)]);
  const report: Report = await model.report();
  const reasons: string[] = report.nodes.flatMap(({ rejections }) => rejections.map(({ reason }) => reason));
  const worker: WorkerModel = await WorkerModel.load(new Uint8Array());
  worker.dispose();
  // @ts-expect-error A device that does not exist.
  await Model.load('model.tflite', { device: 'gpu' });
  // @ts-expect-error The constructor is private.
  new Model();
  const error = new DelegraphError('invalid-input', 'text');
  // @ts-expect-error A code that does not exist.
  if (error.code === 'other') return 0;
  return floats[0] + reasons.length;
}
