// Five cards, one for each interface: a command to copy, its current answer, and one link. A card sends the same request as its
// command. The cards refresh one at a time and rarely, so that they put no load on a busy machine.

import { hasKey, json, nextKey, pause, post, request, tablePath } from './api.js';
import { $, copy, el, flash, local, text } from './dom.js';
import { bytes, cellText, count, ms, plural } from './format.js';
import { putSql, runSql } from './sql.js';

/** Pause between two cards in the first round, in which the reader waits for all of them. */
const FIRST_MS = 50;
const BETWEEN_MS = 1000;
const ROUND_MS = 10_000;
/** Pause after an answer, as a multiple of the time that it took: slow answers make the cards refresh less often. */
const SHARE = 20;
const ANSWER_MS_MAX = 10_000;
const QUESTION = 'is the disk nearly full?';
const WORD = 'snapshot';

const HELLO = { who: 'me', said: 'hello' };
const HELLO_SQL = 'SELECT * FROM hello ORDER BY _time DESC LIMIT 10';
const PROCESSES_SQL = "SELECT name, round(max(cpu_percent)) AS cpu FROM polynya.processes WHERE _time > now() - INTERVAL '5 seconds' GROUP BY name ORDER BY cpu DESC LIMIT 3";
const REQUESTS_SQL = 'SELECT route, count(*) AS requests FROM polynya.requests GROUP BY route ORDER BY requests DESC LIMIT 3';

let tables = new Map();
let question = QUESTION;
let word = WORD;
/** True if the server has a site; `null` while that is unknown. */
let hasSite = null;

const quoted = (words) => `'${words.replaceAll("'", "'\\''")}'`;
/** Returns a port that this server does not listen on. */
const otherPort = () => { const own = Number(location.port); return own >= 1024 && own < 65535 ? own + 1 : 8485; };
const keyHeader = () => (hasKey() ? ' -H "authorization: Bearer $POLYNYA_KEY"' : '');
const within = () => AbortSignal.timeout(ANSWER_MS_MAX);
const statement = () => (tables.get('polynya.processes')?.rows ? PROCESSES_SQL : tables.get('polynya.requests')?.rows ? REQUESTS_SQL : 'SELECT now() AS time');
const line = (...parts) => el('p', {}, ...parts);
const quiet = (words) => el('p', { class: 'quiet' }, words);

function toSql(sql) {
  putSql(sql);
  runSql();
  $('sql').scrollIntoView({ block: 'center' });
  $('sql').focus({ preventScroll: true });
}

async function lookAtRows() {
  const known = tables.get('hello');
  if (!known) return [line('No row yet.'), quiet('The first one makes the table, and its Iceberg table with it.')];
  const marks = await json(`${tablePath('hello')}/watermarks`, { signal: within() });
  const landed = marks.lake?.row;
  const lake = marks.lake === undefined ? 'This table has no lake.'
    : !landed ? 'Not in Iceberg yet: it lands within a minute.'
      : landed >= marks.acknowledged.row ? 'All of them in Iceberg.' : `In Iceberg up to row ${count(landed)} of ${count(marks.acknowledged.row)}.`;
  return [line(el('b', {}, plural(known.rows, 'row')), ' on disk'), quiet(lake)];
}

async function lookAtTables() {
  const answer = await post('/v1/sql', { sql: statement(), params: [] }, within());
  const rows = answer.rows.map((row) => el('tr', {}, ...row.map((value, i) => el('td', { class: i ? 'end' : '', title: cellText(value) ?? '' }, cellText(value) ?? 'null'))));
  const head = el('tr', {}, ...answer.columns.map((column, i) => el('th', { scope: 'col', class: i ? 'end' : '' }, column.name)));
  return [el('table', {}, el('thead', {}, head), el('tbody', {}, ...rows)), quiet(`${plural(answer.rows.length, 'row')} in ${ms(answer.took_ms)}`)];
}

/** Returns a word of the newest note's title, for a vault in which no note mentions snapshots. */
async function wordOfNotes() {
  const newest = await newestNote();
  const words = newest?.title.split(/[^\p{L}\p{N}]+/u).filter((w) => w.length > 3) ?? [];
  return words.sort((a, b) => b.length - a.length)[0];
}

async function lookForWords() {
  const indexed = hasSite || (await json('/v1/tables', { signal: within() })).tables.some((t) => (t.indexes ?? []).some((i) => i.kind === 'text'));
  if (!indexed) return [line('Nothing to search yet.'), quiet('Notes are searchable as they are published; tables once they have a text index.')];
  const ask = (q) => json(`/v1/search?${new URLSearchParams({ q, limit: 2, fields: 'title' })}`, { signal: within() });
  let found = await ask(word);
  if (!found.total && word === WORD && hasSite) {
    word = (await wordOfNotes()) ?? word;
    drawCommands();
    found = await ask(word);
  }
  const name = (hit) => hit.row?.title || (hit.key === null ? `${hit.table}, row ${hit.row_id}` : String(hit.key));
  return [line(el('b', {}, `${found.exact ? '' : 'more than '}${plural(found.total, 'hit')}`), ` in ${ms(found.took_ms)}`), ...found.hits.map((hit) => quiet(name(hit)))];
}

async function lookAtAnswer() {
  const answer = await post('/v1/ask', { q: question }, within());
  const told = answer.sources.filter((s) => s.state === 'answered').map((s) => s.name);
  const silent = answer.sources.filter((s) => s.state === 'failed' || s.state === 'timeout').map((s) => `${s.name} ${s.state}`);
  return [line(answer.answer), quiet(`${[told.length ? `said by ${told.join(', ')}` : 'nobody knew', ...silent].join('; ')}, in ${ms(answer.took_ms)}`)];
}

/** Returns the first entry of the site's feed. */
async function newestNote() {
  const feed = new DOMParser().parseFromString(await (await request('/feed.xml', { signal: within() })).text(), 'text/xml');
  const entry = feed.querySelector('entry');
  return entry && { title: entry.querySelector('title')?.textContent ?? '' };
}

async function lookAtSite() {
  performance.clearResourceTimings();
  const began = performance.now();
  // Without a site the root redirects to the page, which fetch reports as an answer without a status.
  const page = await request('/', { signal: within(), redirect: 'manual' }).catch((error) => { if (error.code !== 'http_0') throw error; return null; });
  hasSite = page !== null;
  if (!hasSite) return [line('Nothing is published here.'), quiet('This command publishes all notes of a folder.')];
  const size = (await page.arrayBuffer()).byteLength;
  // The duration of the request itself, if the browser reports it: the script may have waited for its turn.
  const timing = performance.getEntriesByType('resource').findLast((entry) => entry.name === `${location.origin}/`);
  const took = timing ? timing.responseEnd - timing.requestStart : performance.now() - began;
  const sent = Number(page.headers.get('content-length')) || size;
  const figures = await (await request('/metrics', { signal: within() })).text();
  const notes = Number(/^polynya_site_notes (\d+)/m.exec(figures)?.[1] ?? 0);
  const newest = await newestNote();
  return [line(el('b', {}, plural(notes, 'note')), ' published'), quiet(`its first page: ${bytes(sent)} in ${ms(took)}`), ...(newest ? [quiet(`newest: ${newest.title}`)] : [])];
}

const CARDS = [
  {
    id: 'ingest', title: 'Ingest and lake', promise: 'POST JSON. It is answered when it is on disk, and lands in Apache Iceberg by itself.',
    command: () => `curl ${location.origin}/v1/tables/hello/rows -H 'content-type: application/json'${keyHeader()} -d '${JSON.stringify(HELLO)}'`,
    look: lookAtRows, link: ['See the rows', '#sql', seeRows],
  },
  {
    id: 'tables', title: 'Tables', promise: 'SQL over what arrived a moment ago. No reader waits for a writer.',
    command: () => `polynya sql --url ${location.origin} "${statement()}"`,
    look: lookAtTables, link: ['Change the query', '#sql', () => toSql(statement().replaceAll(/ (FROM|WHERE|GROUP|ORDER)/g, '\n$1'))],
  },
  {
    id: 'search', title: 'Search', promise: 'A document is found from the moment that it is acknowledged.',
    command: () => `polynya search --url ${location.origin} ${quoted(word)}`,
    look: lookForWords, link: ['Search for more', '#search', () => { $('search').value = word; $('search').dispatchEvent(new Event('input')); $('search').focus(); }],
  },
  {
    id: 'ask', title: 'Ask', promise: 'One question over tables, notes and metrics. It says who answered.',
    command: () => `polynya ask --url ${location.origin} ${quoted(question)}`,
    look: lookAtAnswer, link: ['Ask something else', '#card-ask', askElse],
  },
  {
    id: 'site', title: 'Site', promise: 'A folder of notes as a website. A file that you save is live within a second.',
    command: () => (hasSite === false ? `polynya demo --data ./try --listen 127.0.0.1:${otherPort()} ~/notes` : `curl -s --compressed -o /dev/null -w '%{http_code}, %{size_download} bytes in %{time_total} s\\n' ${location.origin}/`),
    look: lookAtSite, link: ['Read it', '/', null],
  },
];

/** Shows the rows of `hello`, or the list of tables as long as there are none. */
function seeRows() {
  if (tables.has('hello')) { toSql(HELLO_SQL); return; }
  $('tables').scrollIntoView({ block: 'center' });
  $('tables').focus({ preventScroll: true });
}

/** Replaces the link of the card by an input until the question is submitted. */
function askElse() {
  const card = CARDS[3];
  const input = el('input', { type: 'text', 'aria-label': 'A question', maxlength: 1000, enterkeyhint: 'go', autocomplete: 'off' });
  const form = el('form', { class: 'else' }, input);
  input.value = question;
  const done = () => { form.replaceWith(card.anchor); card.anchor.focus(); };
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    question = input.value.trim() || QUESTION;
    done();
    drawCommands();
    look(card);
  });
  input.addEventListener('keydown', (event) => { if (event.key === 'Escape') { event.stopPropagation(); done(); } });
  card.anchor.replaceWith(form);
  input.select();
}

for (const card of CARDS) {
  card.code = el('code', {});
  card.result = el('div', { class: 'result' }, quiet('…'));
  card.anchor = el('a', { href: card.link[1] }, card.link[0]);
  if (card.link[2]) card.anchor.addEventListener('click', (event) => { event.preventDefault(); card.link[2](); });
  const copying = el('button', { type: 'button', 'aria-label': `Copy the command of ${card.title}` }, 'Copy');
  copying.addEventListener('click', async () => { await copy(card.command()); flash(copying, 'Copied'); });
  const buttons = el('div', { class: 'line' }, copying);
  if (card.id === 'ingest') {
    const sending = el('button', { type: 'button', id: 'card-send' }, 'Send');
    sending.addEventListener('click', async () => {
      try {
        await post(`${tablePath('hello')}/rows`, HELLO, within());
        flash(sending, 'Sent');
        // The feed reports the table within a second. Until then its first row is shown from here.
        if (!tables.has('hello')) tables.set('hello', { name: 'hello', rows: 1 });
        look(card);
      } catch (error) { say(card, error); }
    });
    buttons.append(sending);
  }
  $('cards').append(el('li', { id: `card-${card.id}` }, el('h3', {}, card.title), el('p', {}, card.promise),
    el('pre', { tabindex: 0, 'aria-label': `Command of ${card.title}` }, card.code), buttons, card.result, el('p', { class: 'link' }, card.anchor)));
}

function drawCommands() {
  for (const card of CARDS) text(card.code, card.command());
  CARDS[4].anchor.hidden = hasSite === false;
  text(CARDS[0].anchor, tables.has('hello') ? 'See the rows' : 'See the tables');
}

const say = (card, error) => card.result.replaceChildren(line(error.name === 'TimeoutError' ? 'No answer within ten seconds: the machine is busy.' : error.message), ...(error.hint ? [quiet(error.hint)] : []));

async function look(card) {
  // Two requests for one card may be answered in any order, so only the newest answer is shown.
  const mine = {};
  card.asked = mine;
  try {
    const shown = await card.look();
    if (card.asked === mine) card.result.replaceChildren(...shown);
  } catch (error) {
    if (card.asked === mine) say(card, error);
    if (error.status === 401) await nextKey();
  }
}

let waiting = () => {};
let rest = new AbortController();
let begun = false;
const halted = () => document.hidden || $('hints').hidden;
/** Refreshes the cards at once when they become visible again. */
const wake = () => {
  if (halted()) return;
  waiting();
  rest.abort();
};
const pauseUnlessWoken = async (duration) => {
  rest = new AbortController();
  await pause(duration, rest.signal).catch(() => {});
};

async function follow() {
  // The site's card comes first, because the other cards depend on whether there is a site.
  const order = [CARDS[4], ...CARDS.slice(0, 4)];
  for (let isFirst = true; ; isFirst = false) {
    const began = performance.now();
    let spent = 0;
    for (const card of order) {
      while (halted()) await new Promise((resolve) => { waiting = resolve; });
      const start = performance.now();
      drawCommands();
      await look(card);
      drawCommands();
      const took = performance.now() - start;
      spent += took;
      await pause(isFirst ? FIRST_MS : Math.max(BETWEEN_MS, Math.min(took * SHARE, ROUND_MS)));
    }
    await pauseUnlessWoken(Math.max(ROUND_MS - (performance.now() - began), spent * SHARE));
  }
}

/** Updates the cards. `list` is the list of tables from the live feed. */
export function setCards(list) {
  tables = new Map(list.map((t) => [t.name, t]));
  if (!begun) {
    begun = true;
    follow();
  }
}

export function showCards(on) {
  $('hints').hidden = !on;
  local.set('hints', on);
  wake();
}

document.addEventListener('visibilitychange', wake);
drawCommands();
