// The indexes of the chosen table: their live progress, and forms to make and drop them.

import { post } from './api.js';
import { $, el, showError, text } from './dom.js';
import { bytes, count, plural, short, tableIdentifier } from './format.js';

const ANSWER_MS_MAX = 10_000;
const HELD = 'Rows in its files. Those deleted since are among them until a merge leaves them out.';
// Time for which the button asks for confirmation before an index is dropped.
const SURE_MS = 4_000;

let table = '';
let seen = '';
let asking = false;
let moving = false;
const lines = new Map();

const ask = (sql, params = []) => post('/v1/sql', { sql, params }, AbortSignal.timeout(ANSWER_MS_MAX));
const quoted = (name) => `"${name.replaceAll('"', '""')}"`;

/** Shows the indexes of a table. `columns` are the names of its columns. */
export function showIndexes(name, columns) {
  if (name !== table) {
    table = name;
    lines.clear();
    $('indexes-list').replaceChildren();
    $('indexes-error').hidden = true;
    $('index-columns').value = '';
    $('index-unique').checked = false;
  }
  $('index-names').replaceChildren(...columns.map((c) => el('option', { value: c })));
  seen = '';
  look();
}

/** Called for each sample of the live feed. Refreshes if the table's rows changed, or while an index is being built. */
export function followIndexes(sample) {
  if (!table || $('columns').hidden) return;
  const now = sample && `${sample.rows} ${sample.bytes} ${sample.columns}`;
  if (now === seen && !moving) return;
  seen = now;
  look();
}

async function look() {
  if (asking || !table) return;
  asking = true;
  const of = table;
  try {
    const [namespace, name] = of.includes('.') ? [of.slice(0, of.indexOf('.')), of.slice(of.indexOf('.') + 1)] : ['main', of];
    const { rows } = await ask('SELECT index_name, kind, columns, state, missing_rows, bytes, rows, is_unique, error FROM polynya.indexes WHERE table_schema = $1 AND table_name = $2', [namespace, name]);
    if (of === table) draw(rows);
  } catch { /* The live feed reports the failure, and its next sample retries. */ } finally { asking = false; }
  if (of !== table) look();
}

function draw(rows) {
  moving = rows.some((row) => row[3] === 'building' || row[3] === 'checking' || Number(row[4]) > 0);
  text($('indexes-count'), rows.length ? count(rows.length) : '');
  $('indexes-none').hidden = rows.length > 0;
  const names = new Set(rows.map((row) => row[0]));
  for (const [name, line] of lines) if (!names.has(name)) { line.node.remove(); lines.delete(name); }
  for (const [name, kind, columns, state, missing, size, held, unique, error] of rows) {
    const line = lines.get(name) ?? make(name);
    const has = Number(held ?? 0);
    const lacks = Number(missing ?? 0);
    text(line.kind, [unique ? 'unique' : '', kind === 'column' ? '' : kind].filter(Boolean).join(', '));
    text(line.of, columns);
    text(line.state, state === 'building' && has + lacks > 0 ? `building, ${Math.floor((100 * has) / (has + lacks))} %` : state ?? '');
    line.node.dataset.state = state ?? '';
    line.bar.hidden = state !== 'building';
    line.bar.value = has + lacks > 0 ? has / (has + lacks) : 0;
    text(line.size, `${has < 1e6 ? plural(has, 'row') : `${short(has)} rows`}, ${bytes(Number(size ?? 0))}`);
    text(line.error, error ?? '');
    line.error.hidden = !error;
  }
}

function make(name) {
  const part = (tag, attributes) => el(tag, attributes);
  const line = {
    kind: part('span', { class: 'tag' }), of: part('span', { class: 'of' }), state: part('span', { class: 'stage' }),
    bar: part('progress', { max: '1', 'aria-label': `How far ${name} is built` }), size: part('span', { title: HELD }), error: part('p', { class: 'why' }),
  };
  const drop = el('button', { type: 'button', 'aria-label': `Drop index ${name}` }, 'Drop');
  let sure;
  drop.addEventListener('click', () => {
    if (!sure) {
      text(drop, 'Drop it?');
      sure = setTimeout(() => { sure = undefined; text(drop, 'Drop'); }, SURE_MS);
      return;
    }
    clearTimeout(sure);
    sure = undefined;
    text(drop, 'Drop');
    change(`DROP INDEX ${quoted(name)} ON ${tableIdentifier(table)}`);
  });
  line.node = el('li', {},
    el('div', {}, el('span', { class: 'mono' }, name), line.kind, line.state),
    el('div', {}, line.of, line.size, drop), line.bar, line.error);
  lines.set(name, line);
  $('indexes-list').append(line.node);
  return line;
}

async function change(sql) {
  $('indexes-error').hidden = true;
  $('index-make').disabled = true;
  try {
    await ask(sql);
    return true;
  } catch (error) {
    showError($('indexes-error'), error);
    return false;
  } finally {
    $('index-make').disabled = false;
    look();
  }
}

$('index-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const columns = $('index-columns').value.split(',').map((c) => c.trim()).filter(Boolean);
  if (!columns.length) return;
  const unique = $('index-unique').checked ? 'UNIQUE ' : '';
  if (await change(`CREATE ${unique}INDEX ON ${tableIdentifier(table)} (${columns.map(quoted).join(', ')})`)) {
    $('index-columns').value = '';
    $('index-unique').checked = false;
  }
});
