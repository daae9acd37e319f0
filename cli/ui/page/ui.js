'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const token = new URLSearchParams(location.search).get('token') || '';
const at = id => document.getElementById(id);
const make = (tag, text, name) => {
  const one = document.createElement(tag);
  if (text !== undefined) one.textContent = text;
  if (name) one.className = name;
  return one;
};
const powers = (low, high) => Array.from({length: Math.log2(high / low) + 1}, (_, k) => low * 2 ** k);
const degrees = [1, 2, 3, 4, 6, 7, 8, 9, 12, 14, 16, 18, 21, 24, 32, 42, 63, 64, 126];
const some = [1, 2, 3, 4, 5, 6, 8], decades = (low, high) => {
  const found = [];
  for (let ten = low; ten < high; ten *= 10) for (const one of some) found.push(Number((one * ten).toPrecision(3)));
  return found;
};
const plan = [
  ['gpus', 'GPUs', [...powers(1, 1024), 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 65536, 131072]],
  ['tp', 'TP', powers(1, 64)], ['pp', 'PP', degrees], ['cp', 'CP', powers(1, 32)], ['ep', 'EP', powers(1, 256)],
  ['mbs', 'Micro-batch', powers(1, 64)], ['gbs', 'Batch', powers(1, 16384)], ['seq', 'Sequence', powers(512, 1048576)]
];
const requests = [
  ['isl', 'Input', powers(64, 131072)], ['osl', 'Output', powers(1, 16384)],
  ['rate', 'Requests/s', decades(0.1, 10000)], ['clients', 'Concurrency', [...powers(1, 32), ...decades(10, 10000).filter(n => n > 32)]]
];
const limits = [['ttft_ms', 'TTFT', [0, ...decades(10, 100000)]], ['tpot_ms', 'TPOT', [0, ...decades(1, 1000)]]];
const factors = [0.25, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4];
const moved = [['hbm', 'HBM speed'], ['capacity', 'HBM size'], ['inner', 'Link inside'], ['outer', 'Link outside'],
  ['clock', 'Clock'], ['price', 'Price']];
const states = {train: data.start.train, serve: data.start.serve}, steps = {}, selects = {};
let state = states[data.start.phase];
for (const one of Object.values(states)) for (const [name] of moved) one[name] = 1;

const scaled = (value, unit) => {
  const cut = number => Number(number.toPrecision(3)).toLocaleString('en');
  if (unit === 'USD') return '$' + cut(value);
  const [at, sign] = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1, '']].find(one => value >= one[0]) || [1, ''];
  return cut(value / at) + ' ' + sign + unit;
};
const shown = name => {
  if (name.endsWith('_ms')) return state[name] ? state[name].toLocaleString('en') + ' ms' : 'no limit';
  if (name in steps && !moved.some(one => one[0] === name)) return state[name].toLocaleString('en');
  const number = data.choices.systems[state.system].numbers[name];
  return number ? scaled(number.value * state[name], number.unit) : 'none';
};
function slider(name, label, values, box) {
  const row = make('label', label), input = make('input'), said = make('output');
  input.type = 'range';
  input.id = name;
  input.min = 0;
  input.max = values.length - 1;
  row.append(input, said);
  box.append(row);
  steps[name] = {input, said, row, values};
  input.addEventListener('input', () => { state[name] = values[Number(input.value)]; told(name); ask(); });
}
function told(name) {
  const {input, said, row, values} = steps[name];
  row.hidden = !(name in state) || name === {'request rate': 'clients', concurrency: 'rate'}[state.load];
  if (row.hidden) return;
  const away = one => one === state[name] ? 0 : Math.abs(Math.log(one / state[name]));
  const nearest = values.reduce((best, one, k) => away(one) < away(values[best]) ? k : best, 0);
  input.value = nearest;
  said.textContent = shown(name);
  input.setAttribute('aria-valuetext', said.textContent);
  const factor = moved.some(one => one[0] === name);
  row.classList.toggle('moved', factor && state[name] !== 1);
  if (factor) input.disabled = !data.choices.systems[state.system].numbers[name];
}
function choose(id, names, text) {
  for (const name of names) {
    const one = make('option', text ? text(name) : name);
    one.value = name;
    at(id).append(one);
  }
  selects[id] = at(id).closest('label');
  at(id).addEventListener('change', () => {
    state[id] = at(id).value;
    if (id === 'system') for (const [name] of moved) state[name] = 1;
    refresh();
    ask();
  });
}
function refresh() {
  for (const [id, row] of Object.entries(selects)) {
    row.hidden = !(id in state);
    if (!row.hidden) at(id).value = state[id];
  }
  Object.keys(steps).forEach(told);
  for (const box of document.querySelectorAll('fieldset')) box.hidden = !box.querySelector('label:not([hidden])');
  const serves = state.phase === 'serve';
  at('breakdown-title').textContent = 'Where the time of a ' + (serves ? 'request' : 'step') + ' goes';
  at('bounds-title').textContent = serves ? 'What bounds a decode step' : 'What bounds it';
}
// Model, machine and its numbers stay where one goes from training to serving.
at('phase').addEventListener('change', () => {
  const kept = ['model', 'system', ...moved.map(one => one[0])].map(name => [name, state[name]]);
  state = Object.assign(states[at('phase').value], Object.fromEntries(kept));
  refresh();
  ask();
});

let running = false, waiting = false, serial = 0, text = 'command', answer = {};
async function post(path, body) {
  const sent = await fetch(path, {method: 'POST', body: JSON.stringify(body),
    headers: {'Content-Type': 'application/json', 'X-Slipstick-Token': token}});
  if (!sent.ok) throw new Error(await sent.text());
  return sent.json();
}
// One question at a time, and always the newest: a drag never queues up.
async function ask() {
  waiting = true;
  if (running) return;
  running = true;
  while (waiting) {
    waiting = false;
    const began = performance.now();
    try {
      answer = await post('/answer', state);
      draw(answer);
      const took = performance.now() - began;
      document.documentElement.dataset.ms = took.toFixed(1);
      at('told').textContent = 'answered in ' + took.toFixed(0) + ' ms';
    } catch (error) {
      at('told').textContent = 'no answer: ' + error.message.trim() + ' - is slipstick ui still running?';
    }
    document.documentElement.dataset.serial = ++serial;
  }
  running = false;
  warm();
}
// What the best plan is chosen from is made ready while nothing is dragged.
async function warm() {
  try {
    while (!running && answer.warming) {
      const found = await post('/warm', state);
      if (found.error || running) return;
      answer.warming = found.warming;
      if (!found.warming) ask();
    }
  } catch (error) { return; }
}
function bars(id, rows) {
  const most = Math.max(...rows.map(one => one.seconds), 0);
  at(id).replaceChildren(...rows.map(one => {
    const row = make('li'), bar = make('b', '', (one.class || 'compute').split(' ')[0]);
    bar.style.width = (100 * one.seconds / most) + '%';
    const box = make('span');
    box.append(bar);
    row.append(make('span', one.name), box, make('em', one.told + (one.class ? ', ' + (100 * one.share).toFixed(1) + '%' : '')));
    return row;
  }));
}
function memory(found) {
  const held = found.memory.reduce((sum, one) => sum + one.bytes, 0), whole = Math.max(held, found.capacity.bytes);
  const parts = found.memory.map((one, k) => {
    const bar = make('span', '', 'c' + k % 7);
    bar.style.width = (100 * one.bytes / whole) + '%';
    bar.title = one.name + ' ' + one.told;
    return bar;
  });
  const end = make('i');
  end.style.left = 'calc(' + (100 * found.capacity.bytes / whole) + '% - 2px)';
  at('memory').replaceChildren(...parts, end);
  at('memory').setAttribute('aria-label', found.memory.map(one => one.name + ' ' + one.told).join(', ') + ', of ' + found.capacity.told);
  at('memory-key').replaceChildren(...found.memory.map((one, k) => {
    const row = make('li');
    row.append(make('b', '', 'c' + k % 7), one.name + ' ' + one.told);
    return row;
  }), make('li', 'of ' + found.capacity.told));
}
function curve(one) {
  const W = 270, H = 150, L = 58, R = 12, T = 12, B = 22, box = make('figure');
  const node = (tag, values, words) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(values)) made.setAttribute(name, value);
    if (words !== undefined) made.textContent = words;
    return made;
  };
  const scale = one.linear ? v => v : Math.log, xs = one.x.map(scale), first = one.lines[0], last = xs.length - 1;
  const all = one.lines.flatMap(line => line.y.map((y, k) => ({at: Math.log(y), told: line.told[k]})));
  const [low, top] = all.reduce(([a, b], y) => [y.at < a.at ? y : a, y.at > b.at ? y : b], [all[0], all[0]]);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)], wide = Math.max(x1 - x0, 1e-9), high = Math.max(top.at - low.at, 0.05);
  const px = x => L + (x - x0) / wide * (W - L - R), py = y => H - B - (y - low.at) / high * (H - T - B);
  const said = line => (line.name ? line.name + ' ' : '') + one.names.map((name, k) => name + ': ' + line.told[k]).join(', ');
  const svg = node('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': one.label + ': ' + one.lines.map(said).join('; ')});
  svg.append(node('line', {x1: L, x2: W - R, y1: H - B, y2: H - B, class: 'axis'}), node('line', {x1: L, x2: L, y1: T, y2: H - B, class: 'axis'}));
  const here = scale(one.here), at = Math.log(one.limit || 0);
  if (at > low.at && at < top.at) svg.append(node('line', {x1: L, x2: W - R, y1: py(at), y2: py(at), class: 'limit'}));
  if (one.linear && here >= x0 && here <= x1) svg.append(node('line', {x1: px(here), x2: px(here), y1: T, y2: H - B, class: 'now'}));
  one.lines.forEach((line, j) => svg.append(node('polyline', {class: 'line l' + j, points: xs.map((x, k) => px(x).toFixed(1) + ',' + py(Math.log(line.y[k])).toFixed(1)).join(' ')})));
  let near = 0;
  xs.forEach((x, k) => { if (Math.abs(x - here) < Math.abs(xs[near] - here)) near = k; });
  one.lines.forEach((line, j) => xs.forEach((x, k) => {
    const marked = !one.linear && k === near;
    const dot = node('circle', {cx: px(x), cy: py(Math.log(line.y[k])), r: marked ? 5 : 2.5, class: marked ? 'here' : 'dot l' + j});
    dot.append(node('title', {}, (line.name ? line.name + ' at ' : '') + one.names[k] + ': ' + line.told[k]));
    svg.append(dot);
  }));
  svg.append(node('text', {x: L - 5, y: py(top.at) + 4, 'text-anchor': 'end'}, top.told));
  if (py(low.at) - py(top.at) > 14) svg.append(node('text', {x: L - 5, y: py(low.at) + 4, 'text-anchor': 'end'}, low.told));
  svg.append(node('text', {x: L, y: H - 6}, one.names[0]), node('text', {x: W - R, y: H - 6, 'text-anchor': 'end'}, one.names[last]));
  if (near > 1 && near < last - 1) svg.append(node('text', {x: px(xs[near]), y: H - 6, 'text-anchor': 'middle'}, one.names[near]));
  box.append(make('figcaption', one.label), svg);
  if (first.name) {
    const key = make('ul', undefined, 'key');
    one.lines.forEach((line, j) => {
      const row = make('li');
      row.append(make('b', '', 'k' + j), line.name);
      key.append(row);
    });
    box.append(key);
  }
  return box;
}
function draw(found) {
  const bad = found.error !== undefined;
  at('error').hidden = !bad;
  at('error').textContent = bad ? found.error : '';
  document.querySelector('main').classList.toggle('stale', bad);
  if (!bad) {
    at('tiles').replaceChildren(...found.tiles.map(one => {
      const box = make('div', undefined, one.bad ? 'bad' : '');
      box.append(make('dt', one.name), make('dd', one.value));
      return box;
    }));
    memory(found);
    bars('breakdown', found.breakdown);
    bars('bounds', found.bounds);
    at('curves').replaceChildren(...found.curves.filter(one => one.x.length > 1).map(curve));
    const notes = [...(found.fits ? [] : ['This plan does not fit the memory of a GPU.']), ...found.warnings];
    at('notes').hidden = !notes.length;
    at('warnings').replaceChildren(...notes.map(one => make('li', one)));
  }
  const best = found.best, same = best && Object.entries(best.take).every(([name, value]) => value === state[name]);
  at('best').textContent = !best ? (found.warming ? 'looking at plans ...' : 'no plan of these degrees fits')
    : same ? 'This one: ' + best.told
    : best.told + (bad || !found.fits || !best.step_time_s ? '' :
      ', ' + (100 * (1 - best.step_time_s / found.metrics.step_time_s)).toFixed(1) + '% shorter');
  at('take').hidden = !best || same;
  if (text === 'plan') copied();
  else at('copied').textContent = found[text];
}
// A plan file is written when it is looked at: it costs as much as an answer.
async function copied() {
  if (text === 'plan') answer.plan = (await post('/plan', state).catch(() => ({}))).plan;
  at('copied').textContent = answer[text] || '';
}
at('take').addEventListener('click', () => { Object.assign(state, answer.best.take); refresh(); ask(); });
at('reset').addEventListener('click', () => { for (const [name] of moved) state[name] = 1; refresh(); ask(); });
for (const button of document.querySelectorAll('[data-copy]')) button.addEventListener('click', async () => {
  text = button.dataset.copy;
  await copied();
  if (navigator.clipboard) navigator.clipboard.writeText(answer[text] || '').then(() => { at('told').textContent = 'copied'; }, () => {});
});
at('controls').addEventListener('submit', event => event.preventDefault());
for (const [id, names] of Object.entries(data.choices)) if (Array.isArray(names)) choose(id, names);
choose('system', Object.keys(data.choices.systems), name => name + ' (' + data.choices.systems[name].chip + ')');
for (const [name, label, values] of plan) slider(name, label, values, at('plan'));
for (const [name, label, values] of requests) slider(name, label, values, at('requests'));
for (const [name, label, values] of limits) slider(name, label, values, at('targets'));
for (const [name, label] of moved) slider(name, label, factors, at('machine'));
at('phase').value = state.phase;
refresh();
ask();
