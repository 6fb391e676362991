// The live tiles: each has one number, a minute of history, and details below.

import { bytes, msParts, short } from './format.js';
import { $, el, svg, text } from './dom.js';

const SECONDS = 60;
const [WIDTH, HEIGHT] = [120, 34];
const rate = (unit) => (n) => [short(n), unit];

const TILES = [
  { name: 'Ingest', value: (s) => s.ingest?.rows_per_s, show: rate('rows/s'),
    details: { data: (s) => `${bytes(s.ingest?.bytes_per_s)}/s`, requests: (s) => `${short(s.ingest?.requests_per_s)}/s` } },
  { name: 'Ingest latency', value: (s) => s.ingest?.p99_ms, show: msParts, note: 'p99',
    details: { p50: (s) => s.ingest?.p50_ms, longest: (s) => s.ingest?.max_ms } },
  { name: 'Reads', value: (s) => s.reads?.per_s, show: rate('per s'),
    details: { p50: (s) => s.reads?.p50_ms, p99: (s) => s.reads?.p99_ms, longest: (s) => s.reads?.max_ms } },
  { name: 'Fsync', value: (s) => s.log?.fsync_p99_ms, show: msParts, note: 'p99', details: { p50: (s) => s.log?.fsync_p50_ms } },
  { name: 'Errors', value: (s) => s.errors_per_s, show: rate('per s'), kind: 'errors',
    details: { 'last minute': (s, history) => short(Math.round(history.reduce((a, b) => a + b, 0))) } },
];

const tiles = TILES.map((tile) => {
  const number = el('p', { class: 'value' }, '–');
  const unit = el('span', {}, tile.note ?? '');
  const line = svg('path');
  const area = svg('path', { class: 'area' });
  const details = Object.entries(tile.details).map(([name, value]) => ({ name, value, node: el('dd', {}, '–') }));
  const node = el('article', { class: `tile ${tile.kind ?? ''}`, 'aria-label': tile.name },
    el('h2', {}, tile.name, ' ', unit),
    number,
    svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, area, line),
    el('dl', {}, ...details.map((d) => el('div', {}, el('dt', {}, d.name), d.node))));
  $('tiles').append(node);
  return { ...tile, node, number, unit, line, area, details, history: [] };
});

/** Stores a sample of the live feed. `drawTiles` draws it, and is not called while the page is hidden. */
export function addSample(sample) {
  for (const tile of tiles) {
    tile.history.push(Number(tile.value(sample)) || 0);
    if (tile.history.length > SECONDS) tile.history.shift();
  }
}

export function drawTiles(sample) {
  for (const tile of tiles) {
    const [value, unit] = tile.show(tile.value(sample));
    text(tile.number, value);
    text(tile.unit, tile.note ? `${tile.note}, ${unit}` : unit);
    for (const d of tile.details) {
      const shown = d.value(sample, tile.history);
      text(d.node, typeof shown === 'string' ? shown : msParts(shown).join(' '));
    }
    if (tile.kind) tile.node.classList.toggle('some', tile.value(sample) > 0);
    const top = Math.max(...tile.history) || 1;
    const x = (i) => (WIDTH * (SECONDS - tile.history.length + i)) / (SECONDS - 1);
    const points = tile.history.map((v, i) => `${x(i).toFixed(1)} ${(HEIGHT - 1.5 - (v / top) * (HEIGHT - 4)).toFixed(1)}`);
    tile.line.setAttribute('d', `M${points.join('L')}`);
    tile.area.setAttribute('d', `M${x(0)} ${HEIGHT}L${points.join('L')}L${x(tile.history.length - 1)} ${HEIGHT}Z`);
  }
}
