// The storm: a load test on a server of its own, drawn second by second beside the quiet time before it.
// The server is not polled until a storm is started on this page or was started in this tab.

import { json, pause, post } from './api.js';
import { $, el, session, showError, svg, text } from './dom.js';
import { count, ms, short } from './format.js';

const EVERY_MS = 1000;
const KINDS = { rows: 'Rows', sql: 'SQL', search: 'Search', pages: 'Pages', ask: 'Answers' };
const LINES = [['p50', 'p50_ms'], ['p99', 'p99_ms'], ['longest', 'longest_ms']];
const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [300, 150, 34, 6, 16];
const DECADES = [0.1, 1, 10, 100, 1000, 10000];
const PHASES = { prepare: 'Preparing', quiet: 'Quiet', storm: 'Storm', kill: 'kill -9', verify: 'Verifying' };

/** The seconds of the storm that is shown, oldest first. */
let seconds = [];
let wanted = { seconds: 60, quiet_seconds: 60 };
let following = false;
/** True once the stop button was pressed. The button will disappear, so the focus moves to the start button. */
let ending = false;

const charts = Object.entries(KINDS).map(([kind, name]) => {
  const picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img' });
  const values = LINES.map(([line]) => el('dd', {}, '–'));
  $('storm-charts').append(el('article', { class: 'gust', 'aria-label': name },
    el('h3', {}, name),
    picture,
    el('dl', {}, ...LINES.map(([line], i) => el('div', { class: `l${i}` }, el('dt', {}, line), values[i])))));
  return { kind, name, picture, values };
});

const of = (second, kind) => second.kinds.find((k) => k.kind === kind);
const line = (x1, y1, x2, y2, name) => svg('line', { class: name, x1, y1, x2, y2 });

function label(x, y, words, anchor = 'middle') {
  const node = svg('text', { x, y, 'text-anchor': anchor });
  node.textContent = words;
  return node;
}

/** Draws the chart of one kind: the quiet time on the left, the storm on the right, latencies on a logarithmic scale. */
function draw({ kind, name, picture, values }, top) {
  const span = wanted.quiet_seconds + wanted.seconds;
  const x = (s) => LEFT + (((s.phase === 'storm' ? wanted.quiet_seconds : 0) + Math.min(s.at_s, s.phase === 'storm' ? wanted.seconds : wanted.quiet_seconds)) / span) * (WIDTH - LEFT - 4);
  const [low, high] = [Math.log10(DECADES[0]), Math.log10(top)];
  const y = (v) => HEIGHT - BOTTOM - ((Math.log10(Math.max(v, DECADES[0])) - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const parts = [];
  for (const decade of DECADES) {
    if (decade > top) break;
    parts.push(line(LEFT, y(decade), WIDTH - 4, y(decade), 'rule'), label(LEFT - 5, y(decade) + 4, decade < 1 ? String(decade) : short(decade), 'end'));
  }
  const border = LEFT + (wanted.quiet_seconds / span) * (WIDTH - LEFT - 4);
  parts.push(line(border, TOP, border, HEIGHT - BOTTOM, 'border'));
  parts.push(label((LEFT + border) / 2, HEIGHT - 4, 'quiet'), label((border + WIDTH - 4) / 2, HEIGHT - 4, 'storm'));
  LINES.forEach(([, key], i) => {
    let d = '';
    let before = null;
    for (const second of seconds) {
      const found = of(second, kind);
      if (!found?.answered) { before = null; continue; }
      d += `${before === second.phase ? 'L' : 'M'}${x(second).toFixed(1)} ${y(found[key]).toFixed(1)}${before === second.phase ? '' : 'h.01'}`;
      before = second.phase;
    }
    if (d) parts.push(svg('path', { class: `curve l${i}`, d }));
  });
  picture.replaceChildren(...parts);
  const last = seconds.length ? of(seconds.at(-1), kind) : undefined;
  LINES.forEach(([, key], i) => text(values[i], last?.answered ? ms(last[key]) : '–'));
  const longest = (phase) => Math.max(0, ...seconds.filter((s) => s.phase === phase).map((s) => of(s, kind)?.longest_ms ?? 0));
  picture.setAttribute('aria-label', `${name}: longest ${ms(longest('quiet'))} in the quiet time, ${ms(longest('storm'))} in the storm`);
}

function drawAll() {
  if (document.hidden) return;
  const most = Math.max(1, ...seconds.flatMap((s) => s.kinds.map((k) => k.longest_ms)));
  const top = DECADES.find((d) => d >= Math.max(100, most)) ?? DECADES.at(-1);
  for (const chart of charts) draw(chart, top);
}

const cells = (...values) => values.map((value) => el('td', {}, value));

/** Shows the results of the whole storm. Percentiles cannot be derived from those of the seconds, so the server sends them. */
function drawOutcome(outcome) {
  $('storm-outcome').hidden = !outcome;
  if (!outcome) return;
  text($('storm-last'), outcome.last_line);
  $('storm-kinds').tBodies[0].replaceChildren(...outcome.kinds.map(({ kind, quiet, storm, refused, wrong }) => el('tr', {},
    el('th', { scope: 'row' }, KINDS[kind]),
    ...cells(ms(quiet.p50_ms), ms(quiet.p99_ms), ms(quiet.longest_ms), ms(storm.p50_ms), ms(storm.p99_ms), ms(storm.longest_ms), count(refused), count(wrong)))));
  const found = outcome.claims.map((claim) => el('li', { class: claim.holds ? 'holds' : 'missed' },
    el('b', {}, claim.holds ? 'holds' : 'missed'), ` ${claim.claim}: ${claim.found}`));
  const wrong = [...outcome.failures, ...outcome.verified.wrong, ...outcome.examples].map((what) => el('li', { class: 'missed' }, el('b', {}, 'wrong'), ` ${what}`));
  $('storm-claims').replaceChildren(...found, ...wrong);
}

function show(storm) {
  const isUnderWay = storm.state === 'running' || storm.state === 'stopping';
  if (storm.wanted) wanted = storm.wanted;
  $('storm-live').hidden = storm.state === 'none';
  $('storm-start').disabled = isUnderWay;
  $('storm-stop').disabled = storm.state !== 'running';
  $('storm-stop').hidden = !isUnderWay;
  if (ending && !isUnderWay) { ending = false; $('storm-start').focus(); }
  const phase = storm.phase ? `${PHASES[storm.phase.phase] ?? storm.phase.phase}: ${storm.phase.text}` : 'Starting';
  text($('storm-phase'), { none: '', stopping: 'Stopping', stopped: 'Stopped. Its server and its directory are gone.', failed: 'Ended before its end.', done: 'Done.' }[storm.state] ?? phase);
  const now = seconds.at(-1);
  const inStorm = isUnderWay && now?.phase === 'storm';
  text($('storm-now'), inStorm ? `${short(now.events_per_s)} events/s, ${count(now.background.rows_indexed)} rows indexed, ${count(now.background.pages_rewritten)} pages rendered, `
    + `${count(now.background.seals)} seals, ${count(now.background.merges)} merges, ${count(now.background.lake_commits)} commits to the lake` : '');
  const done = Math.min(1, seconds.length / (wanted.quiet_seconds + wanted.seconds));
  $('storm-progress').value = done;
  $('storm-progress').hidden = !isUnderWay;
  $('storm-error').hidden = true;
  if (storm.error) showError($('storm-error'), storm.error);
  drawOutcome(storm.outcome);
  drawAll();
  return isUnderWay;
}

/** Polls the server once a second while a storm runs. */
async function follow() {
  if (following) return;
  following = true;
  try {
    for (let isUnderWay = true; isUnderWay;) {
      try {
        const storm = await json(`/v1/storm?after=${seconds.length}`);
        // The server has fewer seconds than are known here, so another storm was started elsewhere.
        if (storm.after < seconds.length) { seconds = []; continue; }
        seconds.push(...storm.seconds);
        isUnderWay = show(storm);
        session.set('storm', storm.state !== 'none');
      } catch (error) {
        showError($('storm-error'), error);
        // The server is busy or restarting, so polling goes on. After any other error, such as a missing right, it ends.
        if (error.status !== 0 && error.status !== 429) return;
      }
      if (isUnderWay) await pause(EVERY_MS);
    }
  } finally {
    following = false;
  }
}

$('storm-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const length = Number($('storm-length').value);
  $('storm-error').hidden = true;
  $('storm-start').disabled = true;
  try {
    const storm = await post('/v1/storm', { seconds: length, quiet_seconds: length, load: $('storm-load').value, scale: length < 30 ? 0.1 : 1 });
    seconds = [];
    show(storm);
  } catch (error) {
    $('storm-start').disabled = false;
    // A storm is already running, so that one is shown.
    if (error.status !== 409) { showError($('storm-error'), error); return; }
  }
  follow();
});
$('storm-stop').addEventListener('click', async () => {
  $('storm-stop').disabled = true;
  ending = true;
  try { await json('/v1/storm', { method: 'DELETE' }); } catch (error) { showError($('storm-error'), error); }
});
document.addEventListener('visibilitychange', () => { if (seconds.length) drawAll(); });
if (session.get('storm', false)) follow();
