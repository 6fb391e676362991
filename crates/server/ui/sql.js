// The SQL box: runs a query, shows its rows, chart or error, and keeps a history.

import { postSql } from './api.js';
import { Chart, linesOf } from './chart.js';
import { $, copy, flash, local, save, showError, text } from './dom.js';
import { bytes, cellText, count, kind, ms, plural, tableIdentifier } from './format.js';
import { Grid, ROWS_MAX } from './grid.js';

const HISTORY_MAX = 100;
/** File name extensions for the answers of COPY … TO STDOUT, by media type. */
const FILES = { 'text/csv': 'csv', 'application/x-ndjson': 'ndjson', 'application/vnd.apache.parquet': 'parquet' };
const box = $('sql');
const chart = new Chart($('chart'));
const grid = new Grid($('grid'), { label: 'Result', onMove: showCell });
let answer = null;
let ran = '';
let running = null;
let past = local.get('history', []);
let place = past.length;
let draft = '';

const now = () => performance.now();

export function putSql(sql) {
  const before = box.value.trim();
  if (before && before !== sql) remember(before);
  box.value = sql;
  place = past.length;
  nameResult();
}

/** Shows the query of the result if the box contains another query by now. */
function nameResult() {
  const other = ran !== '' && box.value.trim() !== ran;
  $('result-of').hidden = !other;
  if (other) text($('result-of'), `This is the answer to: ${ran.replace(/\s+/g, ' ').slice(0, 200)}`);
}

export async function runSql(sql = box.value) {
  sql = sql.trim();
  if (!sql) { box.focus(); return; }
  running?.abort();
  const abort = running = new AbortController();
  remember(sql);
  $('error').hidden = true;
  $('run').disabled = true;
  $('cancel').disabled = false;
  const begin = now();
  const ticking = setInterval(() => text($('elapsed'), `${((now() - begin) / 1000).toFixed(1)} s`), 100);
  try {
    const got = await postSql(sql, abort.signal);
    if (running !== abort) return;
    ran = sql;
    nameResult();
    if (got.file) showFile(got.file, now() - begin);
    else show(got);
  } catch (error) {
    if (running !== abort) return;
    $('result').hidden = true;
    $('result-empty').hidden = false;
    if (abort.signal.aborted) text($('result-empty'), `Cancelled after ${ms(now() - begin)}.`);
    else {
      text($('result-empty'), 'No result.');
      showError($('error'), error);
    }
  } finally {
    clearInterval(ticking);
    if (running === abort) {
      running = null;
      text($('elapsed'), ms(now() - begin));
      $('run').disabled = false;
      $('cancel').disabled = true;
    }
  }
}

export const cancelSql = () => running?.abort();

/** Fills in the line above the result. `many` is true if a grid with rows follows. */
function summarize(notes, many) {
  $('result').hidden = false;
  $('result-empty').hidden = true;
  text($('summary'), notes);
  for (const id of ['grid', 'cell', 'copy-csv', 'copy-json', 'chart-toggle']) $(id).hidden = !many;
  text($('cell'), '');
}

function showFile(file, took) {
  answer = null;
  showChart();
  const name = `polynya.${Object.entries(FILES).find(([type]) => file.type.startsWith(type))?.[1] ?? 'bin'}`;
  save(file, name);
  summarize(`Saved as ${name}, ${bytes(file.size)} in ${ms(took)}.`, false);
}

function show({ columns = [], rows = [], count: affected, took_ms, truncated }) {
  answer = { columns, rows };
  const many = rows.length || columns.length;
  const notes = [
    many ? plural(rows.length, 'row') : `Done${Number.isFinite(affected) ? `, ${plural(affected, 'row')}` : ''}`,
    ...(took_ms === undefined ? [] : [`in ${ms(took_ms)}`]),
  ].join(' ');
  summarize(notes + (truncated ? '. There are more: the server cut the result here; add a LIMIT or a WHERE.' : '')
    + (rows.length > ROWS_MAX ? ` The first ${count(ROWS_MAX)} are shown.` : ''), many);
  const step = Math.max(1, Math.floor(rows.length / 200));
  grid.show({
    rows: rows.length,
    columns: columns.map((c, i) => {
      let chars = c.name.length + 2;
      for (let r = 0; r < rows.length && chars < 44; r += r < 100 ? 1 : step) chars = Math.max(chars, (cellText(rows[r][i]) ?? 'null').length);
      return { name: c.name, title: `${c.name}: ${c.type}`, end: kind(c.type, rows[0]?.[i]) === 'number', chars: Math.min(44, Math.max(4, chars)) };
    }),
    cell: (row, column) => cellText(answer.rows[row][column]),
  });
  answer.lines = linesOf(columns, rows);
  $('chart-toggle').disabled = !answer.lines;
  $('chart-toggle').title = answer.lines ? '' : 'A chart needs a first column of times or numbers, and numbers beside it.';
  showChart();
}

function showChart() {
  // Until the user chooses, a result with times is drawn as a chart.
  const on = Boolean(answer?.lines) && local.get('chart', answer.lines.time);
  $('chart-toggle').setAttribute('aria-pressed', on);
  $('chart').hidden = !on;
  if (on) chart.show(answer.lines, answer.columns[answer.lines.along].name);
}

function showCell(row, column) {
  const value = answer.rows[row][column];
  const { name, type } = answer.columns[column];
  const shown = value !== null && typeof value === 'object' ? JSON.stringify(value, null, 2) : cellText(value) ?? 'null';
  text($('cell'), `${name} (${type}), row ${count(row + 1)}\n${shown}`);
}

const csvField = (v) => (v === null ? '' : v === '' || /[",\r\n]/.test(v) ? `"${v.replaceAll('"', '""')}"` : v);

async function copyAs(button, made) {
  await copy(made());
  flash(button, 'Copied');
}

function remember(sql) {
  if (past.at(-1) !== sql) past = [...past.filter((p) => p !== sql), sql].slice(-HISTORY_MAX);
  place = past.length;
  local.set('history', past);
  fill($('past'), 'Earlier', past.slice(-30).reverse());
}

function recall(step) {
  if (place === past.length) draft = box.value;
  place = Math.max(0, Math.min(past.length, place + step));
  box.value = place === past.length ? draft : past[place];
  nameResult();
}

function fill(select, title, queries) {
  select.replaceChildren(new Option(title, ''), ...queries.map((q, i) => new Option((q.name ?? q).replace(/\s+/g, ' ').slice(0, 80), i)));
  select.disabled = !queries.length;
  select.onchange = () => {
    const q = queries[select.value];
    select.value = '';
    if (q) { putSql(q.sql ?? q); box.focus(); }
  };
}

/** Makes example queries that fit the existing tables. `tables` is the list from `GET /v1/tables`. */
export function makeExamples(tables) {
  const find = (name) => tables.find((t) => t.name === name);
  const column = (table, ...names) => names.find((n) => table?.columns.some((c) => c.name === n));
  const examples = [];
  if (find('polynya.metrics')) {
    examples.push(
      { name: 'CPU of this machine', sql: "SELECT time, name, value\nFROM polynya.metrics\nWHERE name IN ('cpu_user', 'cpu_system', 'cpu_iowait')\n  AND _time > now() - INTERVAL '10 minutes'\nORDER BY time" },
      { name: 'What it measures', sql: 'SELECT name, unit, count(*) AS readings, min(value), avg(value), max(value)\nFROM polynya.metrics\nGROUP BY name, unit\nORDER BY name' },
    );
  }
  if (find('polynya.processes')) {
    examples.push({ name: 'Busiest processes', sql: 'SELECT name, avg(cpu_percent) AS cpu_percent, max(rss_bytes) / 1000000 AS memory_mb\nFROM polynya.processes\nGROUP BY name\nORDER BY cpu_percent DESC\nLIMIT 20' });
  }
  const requests = find('polynya.requests');
  if (requests) {
    const path = column(requests, 'route', 'path', 'url');
    const took = requests.columns.map((c) => c.name).find((n) => /took|duration|latency|_ms$|_us$/.test(n));
    if (path) {
      examples.push({ name: 'What was asked of this server', sql: `SELECT ${path}, count(*) AS requests${took ? `,\n  approx_percentile_cont(${took}, 0.99) AS p99, max(${took}) AS longest` : ''}\nFROM polynya.requests\nGROUP BY ${path}\nORDER BY requests DESC` });
    }
    examples.push({ name: 'Requests by second', sql: "SELECT date_trunc('second', _time) AS second, count(*) AS requests\nFROM polynya.requests\nWHERE _time > now() - INTERVAL '10 minutes'\nGROUP BY second\nORDER BY second" });
    examples.push({ name: 'The latest requests', sql: 'SELECT *\nFROM polynya.requests\nORDER BY _time DESC\nLIMIT 100' });
  }
  for (const t of tables.filter((t) => !t.name.startsWith('polynya.')).slice(0, 6)) {
    const name = tableIdentifier(t.name);
    examples.push({ name: `Rows by minute in ${t.name}`, sql: `SELECT date_trunc('minute', _time) AS minute, count(*) AS rows\nFROM ${name}\nGROUP BY minute\nORDER BY minute` });
  }
  if (!examples.length) examples.push({ name: 'The time of the server', sql: 'SELECT now() AS time' });
  fill($('examples'), 'Examples', examples);
  if (!box.value) {
    box.value = examples[0].sql;
    // The example is selected, so that a user who starts typing replaces it.
    if (document.activeElement === box) box.select();
  }
  text($('hint-ask'), examples[0].sql);
}

$('run').addEventListener('click', () => runSql());
$('cancel').addEventListener('click', cancelSql);
$('copy-csv').addEventListener('click', (e) => copyAs(e.target, () => [answer.columns.map((c) => csvField(c.name)),
  ...answer.rows.map((r) => r.map((v) => csvField(cellText(v))))].map((r) => `${r.join(',')}\r\n`).join('')));
$('copy-json').addEventListener('click', (e) => copyAs(e.target, () => JSON.stringify(
  answer.rows.map((r) => Object.fromEntries(r.map((v, i) => [answer.columns[i].name, v]))), null, 1)));
$('chart-toggle').addEventListener('click', () => { local.set('chart', $('chart').hidden); showChart(); });
$('grid').addEventListener('keydown', (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === 'c' && grid.at[0] >= 0 && !String(getSelection())) {
    copy(cellText(answer.rows[grid.at[0]][grid.at[1]]) ?? '');
    event.preventDefault();
  }
});
box.addEventListener('input', nameResult);
box.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) runSql();
  else if (event.altKey && event.key === 'ArrowUp') recall(-1);
  else if (event.altKey && event.key === 'ArrowDown') recall(1);
  else return;
  event.preventDefault();
});
fill($('past'), 'Earlier', past.slice(-30).reverse());
