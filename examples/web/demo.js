import { Model } from './package/index.js';
import { Model as WorkerModel } from './package/worker.js';
import { element, graph, nodeTable } from './report.js';
import { faces, segment, square } from './tasks.js';

const tasks = { segment, faces };
const get = (id) => document.getElementById(id);
const status = (text) => (get('status').textContent = text);

/** The longest side of a picture that is drawn. */
const LONGEST = 960;

/** Models by task and device: promises. */
const models = new Map();
let picture;
let stream;
let running = Promise.resolve();

function load(task, device) {
  const key = `${task} ${device}`;
  if (!models.has(key)) {
    const begin = performance.now();
    // The CPU works in a worker, so that the page stays responsive.
    const Class = device === 'cpu' ? WorkerModel : Model;
    const model = Class.load(tasks[task].model, { device, profile: true });
    models.set(key, model.then((model) => ({ model, loadTime: performance.now() - begin })));
  }
  return models.get(key);
}

function showTimes(card, times) {
  const entries = Object.entries(times).flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]);
  card.querySelector('dl').replaceChildren(...entries);
}

async function runOn(device) {
  const card = get(device);
  const task = get('task').value;
  const canvas = card.querySelector('canvas');
  try {
    const entry = await load(task, device);
    const source = picture;
    const begin = performance.now();
    const outputs = await entry.model.run({ picture: source, region: square(source), range: tasks[task].range });
    const data = await Promise.all(Object.values(outputs).map((output) => output.data()));
    const time = performance.now() - begin;
    entry.first ??= time;
    [canvas.width, canvas.height] = [source.width, source.height];
    const text = tasks[task].draw(canvas.getContext('2d'), source, data);
    canvas.setAttribute('aria-label', text);
    const report = await entry.model.report();
    const ms = (value) => `${value.toFixed(1)} ms`;
    showTimes(card, {
      Result: text,
      'This run': ms(time),
      'First run': ms(entry.first),
      Loading: ms(entry.loadTime),
      'Runs on': report.device === 'webgpu' ? `WebGPU: ${report.adapter}` : 'CPU, one thread',
      ...(report.reason && device !== 'cpu' ? { 'Why not WebGPU': report.reason } : {}),
    });
    return { report, steps: await entry.model.profile() };
  } catch (error) {
    // A browser without a device will not get one.
    if (error.code !== 'webgpu-unavailable') models.delete(`${task} ${device}`);
    canvas.setAttribute('aria-label', 'No result');
    showTimes(card, { 'No result': error.message });
    return undefined;
  }
}

async function runBoth(ofCamera) {
  if (!picture) return;
  // A screen reader would read out each picture of the camera; the last one may end after the camera is off.
  const runStatus = (text) => ofCamera || stream || status(text);
  runStatus('Running…');
  // One after the other: the times do not disturb each other.
  const onDevice = await runOn('webgpu');
  const onCpu = await runOn('cpu');
  const shown = onDevice ?? onCpu;
  if (shown) {
    get('graph').replaceChildren(graph(shown.report));
    get('report').replaceChildren(nodeTable(shown.report, shown.steps));
  }
  runStatus(shown ? 'Done.' : 'No device computed a result.');
}

/** Runs do not overlap. */
function run(ofCamera = false) {
  running = running.then(() => runBoth(ofCamera));
  return running;
}

async function show(source, ofCamera) {
  const bitmap = await createImageBitmap(source);
  const scale = Math.min(1, LONGEST / Math.max(bitmap.width, bitmap.height));
  picture?.close();
  picture = await createImageBitmap(bitmap, {
    resizeWidth: Math.round(bitmap.width * scale),
    resizeHeight: Math.round(bitmap.height * scale),
    resizeQuality: 'high',
  });
  await run(ofCamera);
}

async function showFile(file) {
  try {
    await show(file);
  } catch {
    status(`${file.name} is not a picture that this browser reads.`);
  }
}

async function toggleCamera() {
  const button = get('camera');
  if (stream) {
    stream.getTracks().forEach((track) => track.stop());
    stream = undefined;
  } else {
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { width: 640, height: 480 } });
    } catch (error) {
      status(`The camera cannot be opened: ${error.message}`);
      return;
    }
  }
  button.setAttribute('aria-pressed', String(Boolean(stream)));
  button.textContent = stream ? 'Stop camera' : 'Start camera';
  status(stream ? 'The camera is on.' : 'The camera is off.');
  if (!stream) return;
  const video = document.createElement('video');
  video.muted = true;
  video.srcObject = stream;
  // Another start has its own loop.
  const ours = stream;
  await video.play();
  while (stream === ours) {
    await show(video, true);
    await new Promise(requestAnimationFrame);
  }
}

get('file').addEventListener('change', ({ target }) => target.files[0] && showFile(target.files[0]));
get('camera').addEventListener('click', toggleCamera);
get('task').addEventListener('change', () => run());
get('again').addEventListener('click', () => run());
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
  if (file) showFile(file);
});

navigator.serviceWorker?.register('offline.js').catch(() => {});
const first = await fetch('models/astronaut.png').catch(() => undefined);
if (first?.ok) await show(await first.blob());
else status('Choose a picture, drop one here, or start the camera.');
