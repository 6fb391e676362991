// This machine, live: small charts of `polynya.metrics` and the busiest processes, if a server records them.
// The statements read `polynya.` tables, so the server does not record them in `polynya.requests`.

import { nextKey, pause, post } from './api.js';
import { $, el, svg, text } from './dom.js';
import { bytes, cellText } from './format.js';
import { putSql, runSql } from './sql.js';

const EVERY_MS = 2000;
const FAILED_MS_MAX = 30000;
const ANSWER_MS_MAX = 10000;
const SHOWN_MS = 120000;
/** Readings arrive every second. A longer pause than this is drawn as a gap. */
const GAP_MS = 5000;
const [WIDTH, HEIGHT] = [120, 34];
const PROCESSES_SHOWN = 5;

const percent = (v) => (Number.isFinite(v) ? `${v.toFixed(v < 9.95 ? 1 : 0)} %` : '–');
const perSecond = (v) => (Number.isFinite(v) ? `${bytes(v)}/s` : '–');

// `lines`: label and key of each line. A key is the name of a metric, with a device if only that one counts. The first line is
// the large number. `top`: the value at the upper edge, if it is not the largest value seen.
const CHARTS = [
  { name: 'CPU', lines: [['busy', 'cpu_busy']], show: percent, top: () => 100 },
  { name: 'Memory', lines: [['used', 'memory_used']], show: (v) => bytes(v), top: (last) => last.memory_total, note: (last) => `of ${bytes(last.memory_total)}` },
  { name: 'Disk', lines: [['write', 'disk_write'], ['read', 'disk_read']], show: perSecond },
  { name: 'Network', lines: [['in', 'net_received'], ['out', 'net_sent']], show: perSecond },
  { name: 'Pressure', lines: [['CPU', 'pressure_some cpu'], ['memory', 'pressure_some memory'], ['disk', 'pressure_some io']], show: percent, least: 10,
    title: 'How much of the time at least one task waited for it' },
];
const METRICS = [...new Set(CHARTS.flatMap((c) => c.lines.map(([, key]) => key.split(' ')[0]))), 'memory_total'];
const quoted = (names) => names.map((n) => `'${n}'`).join(', ');

/** Readings by their time in ms, oldest first: {key: value}. The values of a metric's devices are added up. */
const readings = new Map();
let newest = '';
let there = { metrics: false, processes: false };
let waiting = () => {};
let running = false;
let wait = EVERY_MS;
let rest = new AbortController();
let looked = 0;

const charts = CHARTS.map((chart) => {
  const paths = chart.lines.map((_, i) => svg('path', { class: `c${i}` }));
  const values = chart.lines.map(() => el('span', {}, '–'));
  const note = el('span');
  const button = el('button', { type: 'button', title: `Ask for it in SQL${chart.title ? `. ${chart.title}` : ''}` }, chart.name);
  button.addEventListener('click', () => {
    const names = [...new Set(chart.lines.map(([, key]) => key.split(' ')[0]))];
    const split = chart.lines.length > 1 || names.length > 1;
    const what = names.length > 1 ? ', name' : split ? ', device' : '';
    putSql(`SELECT time${what}, sum(value) AS value\nFROM polynya.metrics\nWHERE name IN (${quoted(names)})\n  AND _time > now() - INTERVAL '10 minutes'\nGROUP BY time${what}\nORDER BY time`);
    runSql();
    $('sql').focus();
  });
  $('machine-charts').append(el('article', { class: 'meter', 'aria-label': `${chart.name} of this machine` },
    el('h3', {}, button, ' ', note),
    svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, ...paths),
    el('dl', {}, ...chart.lines.map(([name], i) => el('div', { class: `c${i}` }, el('dt', {}, name), el('dd', {}, values[i]))))));
  return { ...chart, paths, values, noteNode: note };
});

function take(rows) {
  for (const [time, name, device, value] of rows) {
    const at = Date.parse(time);
    if (!Number.isFinite(at) || typeof value !== 'number') continue;
    if (!readings.has(at)) readings.set(at, {});
    const reading = readings.get(at);
    const key = name === 'pressure_some' || device === 'lo' ? `${name} ${device}` : name;
    reading[key] = (reading[key] ?? 0) + value;
    if (time > newest) newest = time;
  }
  const last = Date.parse(newest);
  for (const at of readings.keys()) if (at < last - SHOWN_MS) readings.delete(at);
}

/** Returns the value of a reading. Loopback traffic counts as network only if there is no other. */
const valueOf = (reading, key) => reading[key] ?? reading[`${key} lo`];

function draw() {
  const times = [...readings.keys()].sort((a, b) => a - b);
  if (!times.length) return;
  const end = times.at(-1);
  const last = readings.get(end);
  for (const chart of charts) {
    let top = chart.top?.(last) ?? chart.least ?? 1;
    if (!chart.top) for (const r of readings.values()) for (const [, key] of chart.lines) top = Math.max(top, valueOf(r, key) ?? 0);
    chart.lines.forEach(([, key], i) => {
      let [d, before] = ['', -Infinity];
      for (const at of times) {
        const v = valueOf(readings.get(at), key);
        if (v === undefined) continue;
        const x = WIDTH * (1 - (end - at) / SHOWN_MS);
        const y = HEIGHT - 1.5 - (Math.min(v, top) / (top || 1)) * (HEIGHT - 4);
        d += `${at - before > GAP_MS ? 'M' : 'L'}${x.toFixed(1)} ${y.toFixed(1)}`;
        before = at;
      }
      chart.paths[i].setAttribute('d', d || 'M0 0');
      text(chart.values[i], chart.show(valueOf(last, key)));
    });
    text(chart.noteNode, chart.note?.(last) ?? '');
  }
}

function drawProcesses(rows) {
  const first = rows[0]?.[0];
  const lines = rows.filter((r) => r[0] === first).slice(0, PROCESSES_SHOWN);
  const body = $('processes').tBodies[0];
  while (body.rows.length < PROCESSES_SHOWN) body.append(el('tr', {}, el('td'), el('td'), el('td')));
  for (let i = 0; i < PROCESSES_SHOWN; i++) {
    const [, name, pid, cpu, memory] = lines[i] ?? [];
    const cells = body.rows[i].cells;
    text(cells[0], cellText(name) ?? '');
    cells[0].title = pid === undefined ? '' : `${name}, pid ${pid}`;
    text(cells[1], cpu === undefined ? '' : percent(cpu));
    text(cells[2], memory === undefined ? '' : bytes(memory));
  }
}

const ask = async (sql) => (await post('/v1/sql', { sql, params: [] }, AbortSignal.timeout(ANSWER_MS_MAX))).rows;

async function look() {
  // `_time` lets the server skip older segments. All rows of one reading have the same `time`.
  const behind = newest ? Math.min(SHOWN_MS / 1000, Math.ceil((Date.now() - looked) / 1000) + 10) : SHOWN_MS / 1000;
  const since = newest ? ` AND time > TIMESTAMP '${newest}'` : '';
  const began = Date.now();
  take(await ask(`SELECT time, name, device, value FROM polynya.metrics WHERE _time > now() - INTERVAL '${behind} seconds' AND name IN (${quoted(METRICS)})${since}`));
  looked = began;
  draw();
  if (there.processes) {
    drawProcesses(await ask(`SELECT time, name, pid, cpu_percent, rss_bytes FROM polynya.processes WHERE _time > now() - INTERVAL '10 seconds' ORDER BY time DESC, cpu_percent DESC LIMIT ${PROCESSES_SHOWN}`));
  }
}

const halted = () => document.hidden || !there.metrics || $('machine-pause').getAttribute('aria-pressed') === 'true';

/** Refreshes every two seconds for the lifetime of the page, while it is visible. */
async function follow() {
  for (;;) {
    while (halted()) await new Promise((resolve) => { waiting = resolve; });
    try {
      await look();
      wait = EVERY_MS;
    } catch (error) {
      if (error.status === 401) await nextKey();
      wait = Math.min(wait * 2, FAILED_MS_MAX);
    }
    rest = new AbortController();
    await pause(wait, rest.signal).catch(() => {});
  }
}

/** `tables` is the list of tables from the live feed. Without readings the section stays hidden. */
export function setMachine(tables) {
  const has = (name) => tables.some((t) => t.name === name && t.rows > 0);
  there = { metrics: has('polynya.metrics'), processes: has('polynya.processes') };
  $('machine').hidden = !there.metrics;
  $('processes').hidden = !there.processes;
  if (there.metrics && !running) {
    running = true;
    follow();
  }
  wake();
}

/** Refreshes at once when the server is reachable again, without the pause after failures. */
export function lookAgain() {
  wait = EVERY_MS;
  rest.abort();
}

const wake = () => { if (!halted()) waiting(); };
document.addEventListener('visibilitychange', wake);
$('machine-pause').addEventListener('click', (event) => {
  const on = event.target.getAttribute('aria-pressed') !== 'true';
  event.target.setAttribute('aria-pressed', on);
  wake();
});
