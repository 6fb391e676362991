// The page at /_/: wires the parts together. Reading order: dom, format, api, tiles, grid, chart, sql, machine, tables, parse,
// upload.

import { followLive, hasKey, post, tablePath, useKey, whenLocked } from './api.js';
import { $, copy, flash, local, showError, text } from './dom.js';
import { count, uptime } from './format.js';
import { setMachine } from './machine.js';
import { cancelSql, putSql, runSql } from './sql.js';
import { drawTables, setTables } from './tables.js';
import { addSample, drawTiles } from './tiles.js';
import './upload.js';

const STATES = { live: 'Live', connecting: 'Reconnecting', locked: 'Needs a key', refused: 'Refused' };
let latest = null;

function draw() {
  if (!latest || document.hidden) return;
  drawTiles(latest);
  text($('version'), latest.version ?? '–');
  text($('uptime'), uptime(latest.uptime_s));
  text($('lsn'), count(latest.log?.lsn));
}

followLive((sample) => {
  latest = sample;
  addSample(sample);
  setTables(sample.tables ?? []);
  setMachine(sample.tables ?? []);
  draw();
}, (state, error) => {
  $('state').dataset.state = state;
  text($('state'), STATES[state]);
  if (error) showError($('error'), error);
});
document.addEventListener('visibilitychange', () => { draw(); if (latest && !document.hidden) drawTables(); });

function askForKey(error) {
  showError($('access-why'), { message: error.message, hint: error.hint });
  if (!$('access').hidden) return;
  $('access').hidden = false;
  $('access-key').focus();
}
whenLocked(askForKey);
$('access-open').hidden = !hasKey();
$('access-open').addEventListener('click', () => askForKey({ message: 'Another key takes the place of the one in use.' }));
$('access').addEventListener('submit', (event) => {
  event.preventDefault();
  $('access').hidden = true;
  useKey($('access-key').value);
  $('access-open').hidden = !hasKey();
  $('access-key').value = '';
  $('sql').focus();
});

const curl = () => `curl ${location.origin}/v1/tables/hello/rows \\\n  -H 'content-type: application/json' \\\n${hasKey() ? '  -H "authorization: Bearer $POLYNYA_KEY" \\\n' : ''}  -d '{"who": "me", "said": "hello"}'`;
const FIND = 'SELECT * FROM hello\nORDER BY _time DESC LIMIT 10';
const run = (sql) => { putSql(sql); runSql(); $('sql').focus(); };

function showHints(on) {
  $('hints').hidden = !on;
  local.set('hints', on);
  text($('hint-post'), curl());
  text($('hint-find'), FIND);
}
$('hints-open').addEventListener('click', () => { showHints(true); $('hints-close').focus(); });
$('hints-close').addEventListener('click', () => { showHints(false); $('hints-open').focus(); });
$('hint-ask-run').addEventListener('click', () => run($('hint-ask').textContent));
$('hint-find-run').addEventListener('click', () => run(FIND));
$('hint-post-copy').addEventListener('click', async () => { await copy(curl()); flash($('hint-post-copy'), 'Copied'); });
$('hint-post-send').addEventListener('click', async () => {
  try {
    await post(`${tablePath('hello')}/rows`, { who: 'me', said: 'hello' });
    flash($('hint-post-send'), 'Sent');
  } catch (error) { showError($('error'), error); }
});
for (const id of ['hint-file', 'add']) $(id).addEventListener('click', () => $('file').click());
if (local.get('hints', true)) showHints(true);

$('keys-open').addEventListener('click', () => $('keys').showModal());
addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !$('keys').open) cancelSql();
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select, dialog')) return;
  if (event.key === '/') { event.preventDefault(); $('sql').focus(); }
  if (event.key === '?') $('keys').showModal();
});
