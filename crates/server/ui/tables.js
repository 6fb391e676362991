// The list of tables, updated by the live feed, and the columns of the chosen table.

import { json, tablePath } from './api.js';
import { $, el, showError, text } from './dom.js';
import { bytes, count, plural, short, tableIdentifier } from './format.js';
import { Grid } from './grid.js';
import { followIndexes, showIndexes } from './indexes.js';
import { makeExamples, putSql, runSql } from './sql.js';

// Maximum number of tables whose definitions are fetched in one answer. With more tables only the chosen one's is fetched.
const DEFINED_MAX = 2000;
// `wide` columns are shown only if there is room for them.
const COLUMNS = [
  { name: 'name', chars: 14.5, grow: true, of: (t) => t.name },
  { name: 'rows', chars: 7.2, end: true, of: (t) => rowCount(t.rows) },
  { name: 'size', chars: 7, end: true, of: (t) => bytes(t.bytes) },
  { name: 'rows/s', chars: 6, end: true, wide: true, of: (t) => (t.rows_per_s ? short(t.rows_per_s) : '0') },
  { name: 'cols', title: 'columns', chars: 3.5, end: true, wide: true, of: (t) => String(t.columns) },
  { name: 'key', chars: 5, wide: true, of: (t) => keys.get(t.name)?.join(', ') || (t.keyed ? 'yes' : '') },
];
const narrow = matchMedia('(max-width: 640px)');

let tables = [];
let seen = [];
let keys = new Map();
let vaults = null;
let signature = '';
let chosen = '';
let started = false;

const grid = new Grid($('tables'), { label: 'Tables', byRow: true, onMove: (row) => { chosen = seen[row].name; }, onActivate: (row) => choose(seen[row].name) });
const own = (name) => (name.startsWith('polynya.') ? 1 : 0);
const rowCount = (n) => (n < 1e6 ? count(n) : short(n));
function showColumns() {
  const columns = COLUMNS.filter((c) => !(c.wide && narrow.matches));
  grid.show({ columns, rows: seen.length, cell: (row, column) => columns[column].of(seen[row]) });
}
showColumns();
narrow.addEventListener('change', () => { showColumns(); drawTables(); });

/** Takes the tables of a sample. Draws them unless the page is hidden. */
export function setTables(list) {
  tables = list;
  const names = list.map((t) => `${t.name} ${t.columns}`).join('\n');
  if (names !== signature) {
    signature = names;
    define();
  }
  if (!document.hidden) {
    drawTables();
    if (chosen) followIndexes(list.find((t) => t.name === chosen));
  }
}

/** Returns true if the rows of a table are notes of the site. Only admins see a vault in the list, but all principals find notes
    in it. */
export const isVault = (name) => vaults?.has(name) || (vaults !== null && name === 'vault' && !keys.has(name));

export function drawTables() {
  const wanted = $('filter').value.trim().toLowerCase();
  seen = (wanted ? tables.filter((t) => t.name.toLowerCase().includes(wanted)) : tables.slice())
    .sort((a, b) => own(a.name) - own(b.name) || (a.name < b.name ? -1 : 1));
  grid.at[0] = chosen ? seen.findIndex((t) => t.name === chosen) : -1;
  grid.refresh(seen.length);
  text($('tables-count'), wanted ? `${count(seen.length)} of ${count(tables.length)}` : started ? count(tables.length) : '');
  $('tables-empty').hidden = seen.length > 0 || !started;
  text($('tables-empty'), tables.length ? 'No table has that in its name.' : 'No tables yet. Post an event or drop a file here, and there will be one.');
}

/** Fetches the definitions of all tables, for the key columns and for the example queries. */
async function define() {
  started = true;
  if (tables.length > DEFINED_MAX) { makeExamples([]); return; }
  try {
    const all = (await json('/v1/tables')).tables;
    keys = new Map(all.map((t) => [t.name, t.primary_key]));
    vaults = new Set(all.filter((t) => t.derived?.some((d) => d.name === 'site')).map((t) => t.name));
    makeExamples(all);
    if (!document.hidden) drawTables();
  } catch { signature = ''; /* The live feed reports the failure, and its next sample retries. */ }
}

async function choose(name) {
  chosen = name;
  putSql(`SELECT *\nFROM ${tableIdentifier(name)}\nLIMIT 100`);
  $('columns').hidden = false;
  text($('columns-title'), name);
  try {
    const t = await json(tablePath(name));
    if (chosen !== name) return;
    text($('columns-key'), `${plural(t.columns.length, 'column')}${t.primary_key?.length ? `, key ${t.primary_key.join(', ')}` : ', no key'}. The query is in the SQL box.`);
    showIndexes(name, t.columns.map((c) => c.name));
    $('columns-list').replaceChildren(...t.columns.map((c) => el('li', {}, el('span', { class: 'mono' }, c.name), el('span', {}, c.type + (c.nullable === false ? ', not null' : '')))));
  } catch (error) {
    showError($('columns-key'), error);
    $('columns-list').replaceChildren();
  }
}

$('filter').addEventListener('input', () => { $('tables').scrollTop = 0; drawTables(); });
$('filter').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && seen.length === 1) choose(seen[0].name);
  else if (event.key === 'ArrowDown') $('tables').focus();
  else return;
  event.preventDefault();
});
$('columns-run').addEventListener('click', () => { putSql(`SELECT *\nFROM ${tableIdentifier(chosen)}\nLIMIT 100`); runSql(); });
