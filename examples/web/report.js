/** Draws a report: the table of nodes and the graph. */

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** Returns a table inside a scrollable region. */
export function table(caption, columns, rows) {
  const head = element('tr', {}, ...columns.map((column) => element('th', { scope: 'col' }, column)));
  const cell = (value) => (value instanceof Node ? element('td', {}, value) : element('td', numeric(value), String(value ?? '')));
  const body = rows.map((row) => element('tr', {}, ...row.map(cell)));
  return element(
    'div',
    { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': caption },
    element('table', {}, element('caption', {}, caption), element('thead', {}, head), element('tbody', {}, ...body)),
  );
}

function numeric(value) {
  return typeof value === 'number' ? { class: 'number' } : {};
}

const NAMES = { cpu: 'CPU', folded: 'computed while loading' };

/** Returns the name of a node's runner. */
export function runnerOf({ runner, partition }) {
  return NAMES[runner] ?? `WebGPU, partition ${partition}`;
}

/** Returns the table of a report's nodes, with the times of `steps` where they are measured. */
export function nodeTable(report, steps = []) {
  const times = new Map(steps.filter(({ nodes }) => nodes.length === 1).map((s) => [s.nodes[0], s.milliseconds]));
  const rows = report.nodes.map((node) => {
    const runner = element('span', { class: `runner ${node.runner}` }, runnerOf(node));
    const reasons = node.runner !== 'cpu' ? '' : node.rejections.map(({ reason }) => reason).join('; ');
    const [output] = node.outputs;
    const shape = output ? `${output.type} [${output.shape.join(', ')}]` : '';
    const time = times.get(node.index);
    return [node.index, `${node.op} v${node.version}`, runner, shape, time === undefined ? '' : Number(time.toFixed(3)), reasons];
  });
  const count = report.nodes.filter(({ runner }) => runner === 'delegate').length;
  const caption = `${count} of ${report.nodes.length} nodes on WebGPU, in ${plural(report.partitions.length, 'partition')}`;
  return table(caption, ['Node', 'Op', 'Runs on', 'Output', 'ms', 'Why not WebGPU'], rows);
}

export function plural(count, name) {
  return `${count} ${name}${count === 1 ? '' : 's'}`;
}

const PARTITIONS = ['#1b7f4d', '#1f5fbf', '#7a3fb5', '#0e7c86', '#a3316f', '#5b6b12'];

function colour({ runner, partition }) {
  if (runner === 'delegate') return PARTITIONS[partition % PARTITIONS.length];
  return runner === 'folded' ? '#6b7280' : '#b4540a';
}

/** Returns the graph of a report as a picture with a legend. Rows are steps from inputs to outputs. */
export function graph(report) {
  const [width, height, gap] = [150, 24, 14];
  const producer = new Map();
  const nodes = report.nodes.filter(({ runner }) => runner !== 'folded');
  for (const node of nodes) for (const output of node.outputs) producer.set(output.index, node);
  const { place, rows } = arrange(nodes, producer);
  const columns = Math.max(1, ...rows);
  const at = ({ row, column }) => {
    const left = ((columns - rows[row]) * (width + gap)) / 2;
    return [gap + left + column * (width + gap), gap + row * (height + gap)];
  };
  const svg = (name, attributes, ...children) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const [w, h] = [columns * (width + gap) + gap, rows.length * (height + gap) + gap];
  const label = `${nodes.length} nodes in ${rows.length} rows; the table below has the same as text`;
  const picture = svg('svg', { width: w, height: h, viewBox: `0 0 ${w} ${h}`, role: 'img', 'aria-label': label });
  for (const node of nodes) {
    const [x, y] = at(place.get(node.index));
    for (const id of node.inputs) {
      const from = place.get(producer.get(id)?.index);
      if (!from) continue;
      const [px, py] = at(from);
      const [x1, y1, x2, y2] = [px + width / 2, py + height, x + width / 2, y];
      picture.append(svg('path', { d: `M${x1} ${y1}C${x1} ${y1 + gap} ${x2} ${y2 - gap} ${x2} ${y2}` }));
    }
  }
  for (const node of nodes) {
    const [x, y] = at(place.get(node.index));
    const reasons = node.runner === 'cpu' ? node.rejections.map(({ reason }) => `\n${reason}`).join('') : '';
    const title = svg('title', {}, `${node.index} ${node.op} v${node.version}: ${runnerOf(node)}${reasons}`);
    picture.append(
      svg('g', {}, title, svg('rect', { x, y, width, height, rx: 5, fill: colour(node) }),
        svg('text', { x: x + 8, y: y + 16 }, `${node.index} ${node.op}`.slice(0, 24))),
    );
  }
  return element('div', {}, legend(report), element('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Graph' }, picture));
}

/** Returns the row and column of each node, and the number of columns of each row. */
function arrange(nodes, producer) {
  const rowOf = new Map();
  const consumers = new Map();
  for (const node of nodes) {
    const before = node.inputs.map((id) => producer.get(id)).filter(Boolean);
    rowOf.set(node.index, Math.max(-1, ...before.map(({ index }) => rowOf.get(index) ?? -1)) + 1);
    for (const { index } of before) consumers.set(index, Math.min(consumers.get(index) ?? Infinity, rowOf.get(node.index)));
  }
  const place = new Map();
  const rows = [];
  for (const node of nodes) {
    // A node that only reads constants is drawn above its consumer.
    const first = rowOf.get(node.index) === 0;
    const row = first ? Math.max(0, (consumers.get(node.index) ?? 1) - 1) : rowOf.get(node.index);
    rows[row] ??= 0;
    place.set(node.index, { row, column: rows[row]++ });
  }
  return { place, rows };
}

function legend({ nodes, partitions }) {
  const entries = partitions.slice(0, PARTITIONS.length).map((partition, i) => [
    PARTITIONS[i],
    `partition ${i}: ${plural(partition.nodes.length, 'node')} on WebGPU${time(partition)}`,
  ]);
  if (partitions.length > PARTITIONS.length) entries.push(['transparent', `and ${partitions.length - PARTITIONS.length} more partitions`]);
  const onCpu = nodes.filter(({ runner }) => runner === 'cpu').length;
  if (onCpu) entries.push(['#b4540a', `${plural(onCpu, 'node')} on the CPU`]);
  const item = ([colour, text]) => element('li', {}, element('span', { style: `background: ${colour}` }), text);
  return element('ul', { class: 'legend' }, ...entries.map(item));
}

function time({ deviceMilliseconds }) {
  return deviceMilliseconds === null ? '' : `, ${deviceMilliseconds.toFixed(1)} ms`;
}
