import { Model } from './package/index.js';
import { element, graph, nodeTable, plural, table } from './report.js';

const get = (id) => document.getElementById(id);
let model;

function status(text, isError = false) {
  get('status').textContent = text;
  get('status').classList.toggle('error', isError);
}

const shapeOf = ({ shape, shapeSignature }) =>
  `[${shape.map((dim, i) => (shapeSignature[i] === -1 ? `${dim} (resizable)` : dim)).join(', ')}]`;

function quantizationOf({ quantization }) {
  if (!quantization) return '';
  const { scales, zeroPoints } = quantization;
  return scales.length === 1 ? `scale ${scales[0].toPrecision(6)}, zero point ${zeroPoints[0]}` : `${scales.length} scales`;
}

function tensorTable(caption, tensors) {
  return table(caption, ['Name', 'Type', 'Shape', 'Quantization'], tensors.map((t) => [t.name, t.type, shapeOf(t), quantizationOf(t)]));
}

const share = (part, all) => `${(all ? (100 * part) / all : 0).toFixed(0)} percent`;

function summary(file, report) {
  const sum = (nodes) => nodes.reduce((total, { multiplyAdds }) => total + multiplyAdds, 0);
  const onDevice = report.nodes.filter(({ runner }) => runner === 'delegate');
  const text = report.device === 'webgpu'
    ? `${onDevice.length} of ${report.nodes.length} nodes run on WebGPU (${report.adapter}), in ${plural(report.partitions.length, 'partition')}: ${share(sum(onDevice), sum(report.nodes))} of the multiply-adds.`
    : `All ${report.nodes.length} nodes run on the CPU: ${report.reason}.`;
  const parts = [
    element('h2', {}, file.name),
    element('p', {}, `${(file.size / 2 ** 20).toFixed(2)} MiB. ${text}`),
    tensorTable('Inputs', model.inputs),
    tensorTable('Outputs', model.outputs),
  ];
  if (model.signatures.length) {
    const rows = model.signatures.map(({ key, inputs, outputs }) => [key, inputs.join(', '), outputs.join(', ')]);
    parts.push(table('Signatures', ['Key', 'Inputs', 'Outputs'], rows));
  }
  if (report.advice.length) {
    const rows = report.advice.map((a) => [`${a.op} v${a.version}`, a.reason, a.nodes, a.partitionsNow, a.partitionsWithout ?? '']);
    parts.push(element('h2', {}, 'What keeps nodes off the device'));
    parts.push(table('Largest gain first', ['Op', 'Reason', 'Nodes', 'Partitions now', 'Partitions without it'], rows));
  }
  return parts;
}

async function open(file) {
  status(`Reading ${file.name}…`);
  get('run').disabled = true;
  get('details').hidden = true;
  get('summary').replaceChildren();
  model?.dispose();
  model = undefined;
  try {
    const device = navigator.gpu && (await navigator.gpu.requestAdapter()) ? 'webgpu' : 'auto';
    model = await Model.load(file, { device, profile: true });
    const report = await model.report();
    get('summary').replaceChildren(...summary(file, report));
    get('graph').replaceChildren(graph(report));
    get('report').replaceChildren(nodeTable(report));
    get('details').hidden = false;
    get('run').disabled = false;
    status('Done.');
  } catch (error) {
    status(`${file.name}: ${error.message}`, true);
  }
}

/** Runs the model with zeros twice, and shows the times of the second run. */
async function measure() {
  get('run').disabled = true;
  status('Running…');
  const zero = { int64: 0n, uint64: 0n, string: '' };
  const values = model.inputs.map(({ type, shape }) => {
    const count = shape.reduce((product, dim) => product * dim, 1);
    return Array.from({ length: count }, () => zero[type] ?? 0);
  });
  try {
    const begin = performance.now();
    await model.run(values);
    const first = performance.now();
    await model.run(values);
    const end = performance.now();
    const [report, steps] = [await model.report(), await model.profile()];
    get('report').replaceChildren(nodeTable(report, steps));
    status(`First run ${(first - begin).toFixed(1)} ms, second run ${(end - first).toFixed(1)} ms, with zeros as inputs.`);
  } catch (error) {
    status(error.message, true);
  }
  get('run').disabled = false;
}

get('file').addEventListener('change', ({ target }) => target.files[0] && open(target.files[0]));
get('run').addEventListener('click', measure);
const drop = get('drop');
drop.addEventListener('dragover', (event) => {
  event.preventDefault();
  drop.classList.add('over');
});
drop.addEventListener('dragleave', () => drop.classList.remove('over'));
drop.addEventListener('drop', (event) => {
  event.preventDefault();
  drop.classList.remove('over');
  const [file] = event.dataTransfer.files;
  if (file) open(file);
});
navigator.serviceWorker?.register('offline.js').catch(() => {});
