// Entry point of the page at /_/: connects the parts. Reading order: dom, format, api, tiles, grid, chart, sql, search, cards,
// machine, tables, parse, upload, storm.

import { followLive, hasKey, useKey, whenLocked } from './api.js';
import { setCards, showCards } from './cards.js';
import { $, local, showError, text } from './dom.js';
import { count, uptime } from './format.js';
import { lookAgain, setMachine } from './machine.js';
import './search.js';
import { cancelSql } from './sql.js';
import './storm.js';
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
  setCards(sample.tables ?? []);
  draw();
}, (state, error) => {
  if (state === 'live' && $('state').dataset.state !== 'live') lookAgain();
  $('state').dataset.state = state;
  text($('state'), STATES[state]);
  if (error) showError($('error'), error);
});
document.addEventListener('visibilitychange', () => { draw(); if (latest && !document.hidden) drawTables(); });

function askForKey(error) {
  // Without a key the heading explains everything. If a key was sent, the reason why it was refused matters.
  if (hasKey()) showError($('access-why'), { message: error.message });
  else $('access-why').hidden = true;
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

$('hints-open').addEventListener('click', () => { showCards(true); $('hints-close').focus(); });
$('hints-close').addEventListener('click', () => { showCards(false); $('hints-open').focus(); });
for (const id of ['hint-file', 'add']) $(id).addEventListener('click', () => $('file').click());
if (local.get('hints', true)) showCards(true);

$('keys-open').addEventListener('click', () => $('keys').showModal());
addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !$('keys').open) cancelSql();
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select, dialog')) return;
  if (event.key === '/') { event.preventDefault(); $('search').focus(); }
  if (event.key === 's') { event.preventDefault(); $('sql').focus(); }
  if (event.key === '?') $('keys').showModal();
});
