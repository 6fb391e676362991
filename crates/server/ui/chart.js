// A line chart of a result, with times or numbers on the x-axis and numbers on the y-axis. SVG, so that it follows the colour
// scheme.

import { kind, short } from './format.js';
import { el, svg, text } from './dom.js';

const PAD = { left: 58, right: 14, top: 12, bottom: 26 };
const HEIGHT = 280;
const SHOWN_MAX = 8;
const LINES_MAX = 24;
const ISO = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d|$)/;
const ZONE = /(Z|[+-]\d\d:?\d\d)$/;

function toTime(v) {
  if (typeof v === 'number') return v > 1e14 ? v / 1000 : v > 1e11 ? v : v * 1000;
  if (typeof v !== 'string') return NaN;
  const t = v.replace(' ', 'T');
  return Date.parse(t.length === 10 || ZONE.test(t) ? t : `${t}Z`);
}
const toNumber = (v) => (v === null || v === undefined || v === '' || typeof v === 'boolean' ? NaN : Number(v));

/**
 * Returns the lines of a result, or null if it cannot be drawn: {time, x, lines: [{name, y}], along}. If the result has one
 * text column and one number column besides the x column, the numbers are split into one line for each text.
 */
export function linesOf(columns, rows) {
  if (columns.length < 2 || rows.length < 2) return null;
  const sample = (c) => rows.find((r) => r[c] !== null)?.[c];
  const kinds = columns.map((c, i) => {
    const k = kind(c.type, sample(i));
    return k === 'other' && ISO.test(sample(i)) ? 'time' : k;
  });
  // `SELECT *` begins with `_row_id`, which is less useful as x-axis than the time in the next column.
  const along = columns[0].name === '_row_id' && kinds[1] === 'time' ? 1 : 0;
  if (kinds[along] === 'other') return null;
  const time = kinds[along] === 'time';
  const read = time ? toTime : toNumber;
  const numbers = columns.map((_, i) => i).filter((i) => i > along && kinds[i] === 'number');
  const names = columns.map((_, i) => i).filter((i) => i > along && kinds[i] === 'other');
  if (!numbers.length) return null;
  const order = rows.map((_, i) => i).filter((i) => Number.isFinite(read(rows[i][along])));
  order.sort((a, b) => read(rows[a][along]) - read(rows[b][along]));
  if (order.length < 2) return null;

  if (names.length === 1 && numbers.length === 1) {
    const x = [...new Set(order.map((i) => read(rows[i][along])))];
    const place = new Map(x.map((v, i) => [v, i]));
    const lines = new Map();
    for (const i of order) {
      const name = String(rows[i][names[0]] ?? 'null');
      if (!lines.has(name)) {
        if (lines.size >= LINES_MAX) continue;
        lines.set(name, { name, y: new Array(x.length).fill(NaN), joined: true });
      }
      lines.get(name).y[place.get(read(rows[i][along]))] = toNumber(rows[i][numbers[0]]);
    }
    return { time, x, lines: [...lines.values()], along };
  }
  return {
    time, along,
    x: order.map((i) => read(rows[i][along])),
    lines: numbers.slice(0, LINES_MAX).map((c) => ({ name: columns[c].name, y: order.map((i) => toNumber(rows[i][c])) })),
  };
}

const UNIT = /(?:^|_)(us|ms|s|seconds|bytes|kb|mb|gb|percent|pct|id|status|code)(?:_|$)/i;
const MAGNITUDES_APART = 2;

const REGULAR_MIN = 10;
const GAP_TIMES = 5;

/**
 * Returns the largest distance in time at which two neighbouring points of a line are joined: a multiple of the usual
 * distance. So a period without measurements, in which the server was down, remains a gap. Infinity if there are too few points.
 */
export function gapOf(x, y) {
  const apart = [];
  let last = NaN;
  for (let i = 0; i < x.length; i++) {
    if (!Number.isFinite(y[i])) continue;
    if (x[i] > last) apart.push(x[i] - last);
    last = x[i];
  }
  if (apart.length < REGULAR_MIN) return Infinity;
  apart.sort((a, b) => a - b);
  return GAP_TIMES * apart[Math.floor(apart.length * 0.9)];
}

/**
 * Returns the names of the lines that are drawn at first: the largest group of lines with the same unit (guessed from their
 * names) and similar magnitude. The other lines would look flat in the same chart, or make these look flat.
 */
export function firstLook(lines) {
  const groups = [];
  for (const line of lines) {
    let high = 0;
    for (const v of line.y) if (Number.isFinite(v)) high = Math.max(high, Math.abs(v));
    const unit = line.joined ? '' : (UNIT.exec(line.name)?.[1] ?? '').toLowerCase();
    const size = high > 0 ? Math.log10(high) : NaN;
    // A line of zeros fits any group of its unit. A line without values does not make a group worth showing.
    const fits = (g) => g.unit === unit && (Number.isNaN(size) || g.sizes.every((s) => Math.abs(s - size) <= MAGNITUDES_APART));
    const group = groups.find(fits) ?? groups[groups.push({ unit, sizes: [], names: [], seen: 0 }) - 1];
    if (!Number.isNaN(size)) group.sizes.push(size);
    group.names.push(line.name);
    // Identifiers and codes are numbers whose height in a chart means nothing.
    group.seen += Number.isNaN(size) ? 0.01 : /^(id|status|code)$/.test(unit) || /^(pid|_row_id)$/.test(line.name) ? 0.1 : 1;
  }
  groups.sort((a, b) => b.seen - a.seen);
  return new Set((groups[0]?.names ?? []).slice(0, SHOWN_MAX));
}

function numberTicks(low, high, wanted) {
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= raw * 0.999) * power;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(Number((i * step).toPrecision(12)));
  return { ticks, step };
}

const [S, M, H, D] = [1000, 60000, 3600000, 86400000];
const TIME_STEPS = [0.001, 0.01, 0.1, 1, 10, 100, S, 2 * S, 5 * S, 10 * S, 15 * S, 30 * S, M, 2 * M, 5 * M, 10 * M, 15 * M, 30 * M, H, 2 * H, 3 * H, 6 * H, 12 * H, D, 2 * D, 7 * D];

function timeTicks(low, high, wanted) {
  const step = TIME_STEPS.find((s) => (high - low) / s <= wanted);
  const ticks = [];
  if (step) {
    for (let t = Math.ceil(low / step) * step; t <= high; t += step) ticks.push(t);
    return { ticks, step };
  }
  // Months and years vary in length, so their ticks are computed from the calendar.
  const months = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200].find((m) => (high - low) / (m * 30 * D) <= wanted) ?? 12000;
  const from = new Date(low);
  for (let m = Math.floor((from.getUTCFullYear() * 12 + from.getUTCMonth()) / months) * months; ; m += months) {
    const t = Date.UTC(Math.floor(m / 12), m % 12);
    if (t > high) break;
    if (t >= low) ticks.push(t);
  }
  return { ticks, step: months * 30 * D };
}

function timeLabel(t, step) {
  const iso = new Date(t).toISOString();
  if (step >= 28 * D) return iso.slice(0, 7);
  if (step >= D || t % D === 0) return iso.slice(5, 10);
  return step >= M ? iso.slice(11, 16) : step >= S ? iso.slice(11, 19) : iso.slice(14, 23);
}

function numberLabel(v, step) {
  if (v === 0) return '0';
  if (Math.abs(v) >= 1e4 || step >= 1000) return short(v).replace(/(\.\d*?)0+(?=\D|$)/, '$1').replace(/\.(?=\D|$)/, '');
  return Math.abs(v) < 1e-4 ? v.toExponential(1) : v.toFixed(Math.min(6, Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (/25/.test(String(step)) ? 1 : 0))));
}

const exact = (v) => (Number.isFinite(v) ? Number(v.toPrecision(7)).toString() : '–');

export class Chart {
  constructor(node) {
    this.node = node;
    new ResizeObserver(() => { if (this.data && node.clientWidth && node.clientWidth !== this.wide) this.draw(); }).observe(node);
  }

  show(data, name) {
    this.data = data;
    this.index = -1;
    const first = firstLook(data.lines);
    this.hidden = new Set(data.lines.map((l) => l.name).filter((name) => !first.has(name)));
    this.picture = svg('svg', { role: 'slider', tabindex: '0', 'aria-label': 'Chart; arrow keys read its values' });
    this.at = el('p', { class: 'at quiet' });
    this.name = name;
    this.values = data.lines.map(() => el('b'));
    const legend = el('div', { class: 'legend', role: 'group', 'aria-label': 'Lines' }, ...data.lines.map((line, i) => {
      const button = el('button', { type: 'button', class: `c${i % SHOWN_MAX}`, 'aria-pressed': !this.hidden.has(line.name) }, line.name, ' ', this.values[i]);
      button.addEventListener('click', () => {
        if (!this.hidden.delete(line.name)) this.hidden.add(line.name);
        button.setAttribute('aria-pressed', !this.hidden.has(line.name));
        this.draw();
      });
      return button;
    }));
    if (this.hidden.size) legend.append(el('p', { class: 'quiet' }, 'Lines of another size or unit wait here: press one to draw it.'));
    this.picture.addEventListener('pointermove', (e) => this.point(this.nearest(e.clientX - this.picture.getBoundingClientRect().left)));
    this.picture.addEventListener('pointerleave', () => { if (document.activeElement !== this.picture) this.point(-1); });
    this.picture.addEventListener('focus', () => { if (this.index < 0) this.point(this.data.x.length - 1); });
    this.picture.addEventListener('blur', () => this.point(-1));
    this.picture.addEventListener('keydown', (e) => {
      const last = this.data.x.length - 1;
      const leap = Math.max(1, Math.round(last / 20));
      const to = { ArrowLeft: this.index - 1, ArrowRight: this.index + 1, ArrowDown: this.index - 1, ArrowUp: this.index + 1,
        PageDown: this.index - leap, PageUp: this.index + leap, Home: 0, End: last }[e.key];
      if (to === undefined || e.altKey || e.ctrlKey) return;
      e.preventDefault();
      this.point(Math.max(0, Math.min(last, to)));
    });
    this.node.replaceChildren(this.picture, this.at, legend);
    this.draw();
    this.point(-1);
  }

  draw() {
    const { x, lines, time } = this.data;
    const wide = this.wide = Math.max(240, this.node.clientWidth || 600);
    const seen = lines.map((line, i) => ({ ...line, i })).filter((l) => !this.hidden.has(l.name));
    let [low, high] = [Infinity, -Infinity];
    for (const l of seen) for (const v of l.y) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
    if (low > high) [low, high] = [0, 1];
    if (low >= 0 && low < high * 0.6) low = 0;
    if (high <= 0 && high > low * 0.6) high = 0;
    if (low === high) { const room = Math.abs(low) * 0.1 || 1; low -= room; high += room; }
    const up = numberTicks(low, high, 5);
    low = Math.min(low, Math.floor(low / up.step + 1e-9) * up.step);
    high = Math.max(high, Math.ceil(high / up.step - 1e-9) * up.step);
    up.ticks = numberTicks(low, high, Math.round((high - low) / up.step)).ticks;
    const [x0, x1] = [x[0], x.at(-1) > x[0] ? x.at(-1) : x[0] + 1];
    const px = this.px = (v) => PAD.left + ((v - x0) / (x1 - x0)) * (wide - PAD.left - PAD.right);
    const py = this.py = (v) => HEIGHT - PAD.bottom - ((v - low) / (high - low)) * (HEIGHT - PAD.top - PAD.bottom);

    const parts = [];
    for (const t of up.ticks) {
      parts.push(svg('line', { class: 'rule', x1: PAD.left, x2: wide - PAD.right, y1: py(t), y2: py(t) }));
      const label = svg('text', { x: PAD.left - 8, y: py(t) + 4, 'text-anchor': 'end' });
      label.textContent = numberLabel(t, up.step);
      parts.push(label);
    }
    const wanted = Math.max(2, Math.floor((wide - PAD.left) / 90));
    const across = time ? timeTicks(x0, x1, wanted) : numberTicks(x0, x1, wanted);
    for (const t of across.ticks) {
      parts.push(svg('line', { class: 'rule', x1: px(t), x2: px(t), y1: HEIGHT - PAD.bottom, y2: HEIGHT - PAD.bottom + 4 }));
      const label = svg('text', { x: Math.min(px(t), wide - 24), y: HEIGHT - 8, 'text-anchor': 'middle' });
      label.textContent = time ? timeLabel(t, across.step) : numberLabel(t, across.step);
      parts.push(label);
    }
    for (const l of seen) parts.push(svg('path', { class: `curve c${l.i % SHOWN_MAX}`, d: this.path(l) }));
    this.cross = svg('line', { class: 'cross', y1: PAD.top, y2: HEIGHT - PAD.bottom, visibility: 'hidden' });
    this.dots = seen.map((l) => ({ y: l.y, node: svg('circle', { class: `dot c${l.i % SHOWN_MAX}`, r: 3.5, visibility: 'hidden' }) }));
    this.picture.setAttribute('viewBox', `0 0 ${wide} ${HEIGHT}`);
    this.picture.setAttribute('aria-valuemin', 0);
    this.picture.setAttribute('aria-valuemax', x.length - 1);
    this.picture.replaceChildren(...parts, this.cross, ...this.dots.map((d) => d.node));
    this.point(this.index);
  }

  /** Returns the path of a line. Missing values and gaps in time interrupt it, unless its rows come from a split column. If there
      are more points than pixels, each pixel gets its lowest and highest point. */
  path({ y, joined }) {
    const { x, time } = this.data;
    const gap = time ? gapOf(x, y) : Infinity;
    const out = [];
    let pen = 'M';
    let last = NaN;
    const put = (i) => { out.push(`${pen}${this.px(x[i]).toFixed(1)} ${this.py(y[i]).toFixed(1)}`); pen = 'L'; };
    const thin = x.length > 3 * this.wide;
    let [bin, low, high] = [NaN, -1, -1];
    const flush = () => {
      if (low < 0) return;
      for (const i of low === high ? [low] : [Math.min(low, high), Math.max(low, high)]) put(i);
      low = high = -1;
    };
    for (let i = 0; i < x.length; i++) {
      if (!Number.isFinite(y[i])) {
        if (!joined) { flush(); pen = 'M'; }
        continue;
      }
      if (x[i] - last > gap) { flush(); pen = 'M'; }
      last = x[i];
      if (!thin) {
        const alone = pen === 'M' && ((!joined && !Number.isFinite(y[i + 1])) || x[i + 1] - x[i] > gap);
        put(i);
        if (alone) out.push('h.01');
        continue;
      }
      const here = Math.floor(this.px(x[i]));
      if (here !== bin) { flush(); bin = here; }
      if (low < 0 || y[i] < y[low]) low = i;
      if (high < 0 || y[i] > y[high]) high = i;
    }
    flush();
    return out.join('') || 'M0 0';
  }

  nearest(pixel) {
    const { x } = this.data;
    const ratio = this.wide / (this.picture.clientWidth || this.wide);
    let [a, b] = [0, x.length - 1];
    while (b - a > 1) {
      const m = (a + b) >> 1;
      if (this.px(x[m]) < pixel * ratio) a = m; else b = m;
    }
    return Math.abs(this.px(x[a]) - pixel * ratio) < Math.abs(this.px(x[b]) - pixel * ratio) ? a : b;
  }

  point(index) {
    const { x, lines, time } = this.data;
    this.index = index;
    const on = index >= 0;
    this.cross.setAttribute('visibility', on ? 'visible' : 'hidden');
    if (on) for (const end of ['x1', 'x2']) this.cross.setAttribute(end, this.px(x[index]));
    for (const { y, node } of this.dots) {
      const there = on && Number.isFinite(y[index]);
      node.setAttribute('visibility', there ? 'visible' : 'hidden');
      if (there) { node.setAttribute('cx', this.px(x[index])); node.setAttribute('cy', this.py(y[index])); }
    }
    lines.forEach((l, i) => text(this.values[i], on ? exact(l.y[index]) : ''));
    const here = on ? (time ? new Date(x[index]).toISOString().replace('T', ' ').replace('Z', ' UTC') : exact(x[index])) : '';
    text(this.at, on ? `${this.name}: ${here}` : `${this.name} along${time ? ', in UTC' : ''}. Point at the chart or use the arrow keys to read it.`);
    this.picture.setAttribute('aria-valuenow', Math.max(0, index));
    this.picture.setAttribute('aria-valuetext', on ? `${here}: ${lines.filter((l) => !this.hidden.has(l.name)).map((l) => `${l.name} ${exact(l.y[index])}`).join(', ')}` : 'no point chosen');
  }
}
