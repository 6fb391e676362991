// A grid that renders only the visible cells, so that any number of rows and columns scrolls smoothly.
// It shows results (with an active cell) and the list of tables (with an active row).

import { el, text } from './dom.js';

const ROW = 28;
const TOP = 30;
// Maximum number of rows, because browsers lose precision in elements that are far taller than this.
export const ROWS_MAX = 500000;
const TEXT_MAX = 300;
let serial = 0;

export class Grid {
  /** `byRow` makes whole rows active. `onMove(row, column)` and `onActivate(row)` report what the user selects. */
  constructor(node, { label, byRow = false, onMove = () => {}, onActivate = () => {} }) {
    Object.assign(this, { node, byRow, onMove, onActivate, id: `g${serial++}`, rows: 0, columns: [], at: [-1, 0], drawn: new Map() });
    this.top = el('div', { class: 'top', role: 'row', 'aria-rowindex': '1' });
    this.body = el('div', { class: 'body', role: 'rowgroup' });
    node.append(this.top, this.body);
    node.tabIndex = 0;
    node.setAttribute('role', 'grid');
    node.setAttribute('aria-label', label);
    node.setAttribute('aria-readonly', 'true');
    node.addEventListener('scroll', () => this.later());
    node.addEventListener('keydown', (event) => this.key(event));
    node.addEventListener('focus', () => { if (this.at[0] < 0 && this.rows) this.move(0, 0); });
    this.body.addEventListener('click', (event) => this.click(event));
    new ResizeObserver(() => this.layout()).observe(node);
  }

  /**
   * `columns`: [{name, end (right-aligned), chars (preferred width), grow}]. `cell(row, column)` returns a text or null.
   */
  show({ columns, rows, cell }) {
    Object.assign(this, { columns, rows: Math.min(rows, ROWS_MAX), cell, at: [-1, 0] });
    this.node.setAttribute('aria-rowcount', rows + 1);
    this.node.setAttribute('aria-colcount', columns.length);
    this.node.removeAttribute('aria-activedescendant');
    this.node.scrollTo(0, 0);
    this.layout();
  }

  /** Redraws the same columns after the data changed: live counts, a new filter. */
  refresh(rows) {
    if (rows !== this.rows) {
      this.rows = Math.min(rows, ROWS_MAX);
      this.node.setAttribute('aria-rowcount', rows + 1);
      this.stretch();
    }
    if (this.at[0] >= this.rows) this.at[0] = this.rows - 1;
    this.draw();
    for (const [row, line] of this.drawn) this.fill(line, row);
  }

  layout() {
    if (!this.cell || !this.node.clientWidth) return;
    const probe = el('span', { class: 'row' }, '0'.repeat(20));
    this.body.append(probe);
    const digit = probe.getBoundingClientRect().width / 20;
    probe.remove();
    const widths = this.columns.map((c) => Math.ceil(c.chars * digit + 18));
    const spare = this.node.clientWidth - widths.reduce((a, b) => a + b, 0);
    const grow = this.columns.findIndex((c) => c.grow);
    if (spare > 0 && grow >= 0) widths[grow] += spare;
    this.left = [0];
    for (const w of widths) this.left.push(this.left.at(-1) + w);
    this.width = Math.max(this.left.at(-1), this.node.clientWidth);
    this.top.style.width = this.body.style.width = `${this.width}px`;
    this.from = -1;
    this.stretch();
    this.draw();
  }

  /** Sets the height to that of the rows, up to the limit of the style sheet, so that no empty frame is shown. */
  stretch() {
    this.body.style.height = `${this.rows * ROW}px`;
    const bar = this.width > this.node.clientWidth ? this.node.offsetHeight - this.node.clientHeight : 2;
    this.node.style.setProperty('--rows', `${TOP + Math.max(1, this.rows) * ROW + Math.max(2, bar)}px`);
  }

  later() {
    this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.draw(); });
  }

  draw() {
    if (!this.left) return;
    const { scrollTop, scrollLeft, clientHeight, clientWidth } = this.node;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - 8);
    const last = Math.min(this.rows, Math.ceil((scrollTop + clientHeight) / ROW) + 8);
    let from = this.left.findIndex((x) => x > scrollLeft - 200) - 1;
    let to = this.left.findIndex((x) => x > scrollLeft + clientWidth + 200);
    from = Math.max(0, from);
    if (to < 0) to = this.columns.length;
    if (from !== this.from || to !== this.to) {
      Object.assign(this, { from, to });
      for (const line of this.drawn.values()) line.remove();
      this.drawn.clear();
      this.top.replaceChildren(...this.columns.slice(from, to).map((c, i) => this.place(
        el('div', { role: 'columnheader', class: c.end ? 'end' : '', 'aria-colindex': from + i + 1, title: c.title ?? c.name }, c.name), from + i)));
    }
    for (const [row, line] of this.drawn) if (row < first || row >= last) { line.remove(); this.drawn.delete(row); }
    const fresh = document.createDocumentFragment();
    for (let row = first; row < last; row++) {
      if (this.drawn.has(row)) continue;
      const line = el('div', { class: 'row', role: 'row', 'aria-rowindex': row + 2 });
      line.style.transform = `translateY(${row * ROW}px)`;
      line.style.width = `${this.width}px`;
      for (let c = from; c < to; c++) {
        line.append(this.place(el('div', { role: 'gridcell', id: `${this.id}-${row}-${c}`, 'aria-colindex': c + 1 }), c));
      }
      this.fill(line, row);
      this.drawn.set(row, line);
      fresh.append(line);
    }
    this.body.append(fresh);
  }

  place(node, column) {
    node.style.left = `${this.left[column]}px`;
    node.style.width = `${this.left[column + 1] - this.left[column]}px`;
    return node;
  }

  fill(line, row) {
    line.classList.toggle('on', row === this.at[0]);
    if (this.byRow) line.setAttribute('aria-selected', row === this.at[0]);
    for (let c = this.from; c < this.to; c++) {
      const node = line.children[c - this.from];
      const value = this.cell(row, c);
      text(node, value === null ? 'null' : value.length > TEXT_MAX ? `${value.slice(0, TEXT_MAX)}…` : value);
      const state = `${this.columns[c].end ? 'end' : ''}${value === null ? ' none' : ''}${!this.byRow && row === this.at[0] && c === this.at[1] ? ' at' : ''}`;
      if (node.className !== state) node.className = state;
    }
  }

  move(row, column) {
    if (!this.rows) return;
    row = Math.max(0, Math.min(this.rows - 1, row));
    column = Math.max(0, Math.min(this.columns.length - 1, column));
    const before = this.at[0];
    this.at = [row, column];
    const n = this.node;
    if (row * ROW < n.scrollTop) n.scrollTop = row * ROW;
    else if ((row + 1) * ROW + TOP > n.scrollTop + n.clientHeight) n.scrollTop = (row + 1) * ROW + TOP - n.clientHeight;
    if (!this.byRow) {
      if (this.left[column] < n.scrollLeft) n.scrollLeft = this.left[column];
      else if (this.left[column + 1] > n.scrollLeft + n.clientWidth) {
        n.scrollLeft = Math.min(this.left[column], this.left[column + 1] - n.clientWidth);
      }
    }
    this.draw();
    for (const r of [before, row]) if (this.drawn.has(r)) this.fill(this.drawn.get(r), r);
    n.setAttribute('aria-activedescendant', `${this.id}-${row}-${column}`);
    this.onMove(row, column);
  }

  click(event) {
    const cell = event.target.closest('[role=gridcell]');
    if (!cell) return;
    const [, row, column] = cell.id.split('-').map(Number);
    this.move(row, column);
    this.onActivate(row);
  }

  key(event) {
    const [row, column] = this.at;
    const page = Math.max(1, Math.floor((this.node.clientHeight - TOP) / ROW) - 1);
    const ctrl = event.ctrlKey || event.metaKey;
    if (event.altKey) return;
    const to = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      PageUp: [row - page, column], PageDown: [row + page, column],
      Home: ctrl ? [0, column] : this.byRow ? [0, 0] : [row, 0],
      End: ctrl ? [this.rows, column] : this.byRow ? [this.rows, 0] : [row, this.columns.length],
    }[event.key];
    if (to) this.move(...to);
    else if (event.key === 'Enter' && row >= 0) this.onActivate(row);
    else return;
    event.preventDefault();
  }
}
