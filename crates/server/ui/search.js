// The search box: searches all tables with a text index while the user types.

import { json } from './api.js';
import { $, el, showError, text } from './dom.js';
import { plural, tableIdentifier } from './format.js';
import { putSql, runSql } from './sql.js';
import { isVault } from './tables.js';

const TYPING_MS = 150;
const LIMIT = 20;
const ENTITIES = { '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'", '&amp;': '&' };

let timer;
let running;
let shown = '';

const plain = (escaped) => escaped.replace(/&(?:lt|gt|quot|#39|amp);/g, (entity) => ENTITIES[entity]);

/** Converts a snippet to nodes. The server sends escaped text with `<mark>` around words; nothing is parsed as markup here. */
function marked(html) {
  return html.split('<mark>').flatMap((part, i) => {
    const end = i === 0 ? -1 : part.indexOf('</mark>');
    if (end < 0) return [plain(part)];
    return [el('mark', {}, plain(part.slice(0, end))), plain(part.slice(end + '</mark>'.length))];
  });
}

function look(hit) {
  putSql(`SELECT *\nFROM ${tableIdentifier(hit.table)}\nWHERE _row_id = ${hit.row_id}`);
  runSql();
  $('sql').scrollIntoView({ block: 'center' });
}

/** Returns the path of a published note's page, which the server also finds by the file name. */
const pageOf = (path) => `/${path.split('/').map(encodeURIComponent).join('/')}`;

/** Returns the list item of a note: its title with a link to its page. A private note has no page, so its row is shown. */
function note(hit) {
  const title = el('span', { class: 'where' }, el('b', {}, hit.row.title || hit.key), ' ', el('span', { class: 'quiet' }, hit.key));
  const text = hit.snippets.text ? [el('span', { class: 'snippet' }, ...marked(hit.snippets.text))] : [];
  if (hit.row.published === false) {
    title.append(el('span', { class: 'quiet' }, ' · private'));
    const button = el('button', { type: 'button' }, title, ...text);
    button.addEventListener('click', () => look(hit));
    return el('li', {}, button);
  }
  return el('li', {}, el('a', { href: pageOf(String(hit.key)) }, title, ...text));
}

function item(hit) {
  if (isVault(hit.table) && typeof hit.key === 'string') return note(hit);
  const key = hit.key === null ? `row ${hit.row_id}` : Array.isArray(hit.key) ? hit.key.join(', ') : String(hit.key);
  const lines = Object.entries(hit.snippets).map(([column, html]) => el('span', { class: 'snippet' }, el('span', { class: 'quiet' }, `${column} `), ...marked(html)));
  const button = el('button', { type: 'button' }, el('span', { class: 'where' }, el('b', {}, hit.table), ` ${key}`), ...lines);
  button.addEventListener('click', () => look(hit));
  return el('li', {}, button);
}

function clear() {
  clearTimeout(timer);
  running?.abort();
  shown = '';
  $('search-hits').replaceChildren();
  text($('search-total'), '');
  $('search-error').hidden = true;
}

async function find(words) {
  running?.abort();
  const abort = new AbortController();
  running = abort;
  try {
    const query = new URLSearchParams({ q: words, limit: LIMIT, fields: 'title,published' });
    const found = await json(`/v1/search?${query}`, { signal: abort.signal });
    if (abort.signal.aborted) return;
    shown = words;
    $('search-error').hidden = true;
    $('search-hits').replaceChildren(...found.hits.map(item));
    const count = plural(found.total, 'row');
    text($('search-total'), found.total ? `${found.exact ? '' : 'more than '}${count} in ${found.took_ms.toFixed(1)} ms` : 'Nothing was found.');
  } catch (error) {
    if (abort.signal.aborted) return;
    $('search-hits').replaceChildren();
    text($('search-total'), '');
    showError($('search-error'), error);
  }
}

function typed(now) {
  clearTimeout(timer);
  const words = $('search').value.trim();
  if (!words) { clear(); return; }
  if (words === shown && !now) return;
  timer = setTimeout(() => find(words), now ? 0 : TYPING_MS);
}

const buttons = () => [...$('search-hits').querySelectorAll('button, a')];

$('search').addEventListener('input', () => typed(false));
$('search-form').addEventListener('submit', (event) => { event.preventDefault(); typed(true); });
$('search').addEventListener('keydown', (event) => {
  if (event.key === 'ArrowDown') buttons()[0]?.focus();
  else if (event.key === 'Escape') { $('search').value = ''; clear(); }
  else return;
  event.preventDefault();
});
$('search-hits').addEventListener('keydown', (event) => {
  const all = buttons();
  const at = all.indexOf(document.activeElement);
  if (event.key === 'ArrowDown') all[Math.min(at + 1, all.length - 1)]?.focus();
  else if (event.key === 'ArrowUp') (at > 0 ? all[at - 1] : $('search')).focus();
  else if (event.key === 'Escape') $('search').focus();
  else return;
  event.preventDefault();
  event.stopPropagation();
});
