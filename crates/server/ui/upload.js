// Turns a file that is dropped on the page into rows of a table. The file is read as a stream and sent in pieces.

import { ApiError, json, pause, request, tablePath } from './api.js';
import { $, showError, text } from './dom.js';
import { bytes, count, plural, short, tableIdentifier } from './format.js';
import { csvShape, detect, FileError, tableName, toNdjson } from './parse.js';
import { putSql, runSql } from './sql.js';

const PIECE_BYTES_MAX = 4 << 20;
const TRIES_MAX = 6;
const NAMES = { ndjson: 'NDJSON', json: 'JSON', csv: 'CSV', log: 'Access log' };
const encoder = new TextEncoder();
const queue = [];
let current = null;

/** Reads the file as text. Calls `seen(bytes)` to report progress. */
async function* read(file, seen = () => {}) {
  let stream = file.stream().pipeThrough(new TransformStream({ transform(chunk, out) { seen(chunk.length); out.enqueue(chunk); } }));
  if (/\.gz$/i.test(file.name)) stream = stream.pipeThrough(new DecompressionStream('gzip'));
  const reader = stream.pipeThrough(new TextDecoderStream('utf-8', { fatal: true })).getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw error instanceof TypeError ? new FileError('The file is not UTF-8 text (or not whole). Save it as UTF-8 and try again.') : error;
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Sends a piece again only if the server said that it stored nothing (429, 503). A piece without an answer may have been stored.
async function sendPiece(body, state) {
  const headers = { 'content-type': 'application/x-ndjson' };
  for (let tried = 1; ; tried++) {
    try {
      return await (await request(`${tablePath(state.table)}/rows`, { method: 'POST', body, headers, signal: state.abort.signal })).json();
    } catch (error) {
      if (![429, 503].includes(error.status) || tried === TRIES_MAX) throw error;
      await pause((error.retryAfter || 2 ** tried / 4) * 1000, state.abort.signal);
    }
  }
}

async function send(file, kind, state) {
  const { signal } = state.abort;
  const progress = (say) => (n) => {
    signal.throwIfAborted();
    state.read += n;
    $('upload-progress').value = state.read / file.size;
    text($('upload-status'), say());
  };
  if (kind.format === 'csv') {
    const { names, types, header } = await csvShape(read(file, progress(() => 'Reading once for the types of the columns')), kind.delimiter);
    Object.assign(kind, { header, columns: Object.fromEntries(names.map((name, i) => [name, types[i]])) });
    state.read = 0;
  }
  if (kind.columns) {
    // A new table gets these types. An existing one keeps its own, and the server reports values that do not fit.
    const known = await json(tablePath(state.table), { signal }).catch((error) => { if (error.status !== 404) throw error; });
    if (known) {
      for (const name of Object.keys(kind.columns)) {
        const there = known.columns.find((c) => c.name.toLowerCase() === name.toLowerCase());
        if (there) kind.columns[name] = there.type;
      }
    } else {
      const columns = Object.entries(kind.columns).map(([name, type]) => ({ name, type, nullable: true }));
      await request(tablePath(state.table), { method: 'PUT', signal, body: JSON.stringify({ columns }), headers: { 'content-type': 'application/json' } });
    }
  }
  const begin = performance.now();
  const piece = new Uint8Array(PIECE_BYTES_MAX);
  let [used, rows] = [0, 0];
  const flush = async (body = piece.slice(0, used)) => {
    if (!rows) return;
    state.piece = [state.sent + 1, state.sent + rows];
    const told = await sendPiece(body, state);
    state.stored += told.count ?? rows;
    state.sent += rows;
    used = rows = 0;
  };
  const say = () => `${Math.floor((state.read / file.size) * 100)} % · ${plural(state.stored, 'row')} · ${short(state.stored / (performance.now() - begin) * 1000)} rows/s`;
  for await (const lines of toNdjson(read(file, progress(say)), kind, state)) {
    for (const line of lines) {
      for (;;) {
        const { read: taken, written } = encoder.encodeInto(line, piece.subarray(used, -1));
        if (taken === line.length) { piece[used + written] = 10; used += written + 1; rows++; break; }
        if (rows) { await flush(); continue; }
        rows = 1;
        await flush(encoder.encode(line));
        break;
      }
    }
    signal.throwIfAborted();
  }
  await flush();
}

async function start() {
  const { file, kind } = current;
  const state = current.state = { table: $('upload-table').value.trim(), abort: new AbortController(), read: 0, sent: 0, stored: 0 };
  $('upload-form').hidden = true;
  $('upload-run').hidden = false;
  $('upload-stop').focus();
  try {
    await send(file, kind, state);
    const left = state.sent - state.stored;
    text($('upload-status'), `${plural(state.stored, 'row')} of ${file.name} ${state.stored === 1 ? 'is' : 'are'} in ${state.table}.${left > 0 ? ` ${plural(left, 'row')} had a key that came again.` : ''}${
      state.strange ? ` ${plural(state.strange, 'line')} could not be taken apart: see the column "line".` : ''}`);
    $('upload-progress').value = 1;
  } catch (error) {
    const stopped = state.abort.signal.aborted;
    // Rows in flight when the user stopped the upload, or when the server stopped answering, may have been stored.
    const unsure = stopped || error.status === 0;
    const there = state.stored ? `${unsure ? 'At least ' : ''}${plural(state.stored, 'row')} ${state.stored === 1 ? 'is' : 'are'} in ${state.table}.` : unsure ? '' : 'Nothing was added.';
    text($('upload-status'), `${stopped ? 'Stopped' : 'It did not go through'}. ${there}`);
    if (!stopped) showError($('upload-error'), state.piece && error instanceof ApiError ? located(error, state.piece) : error);
  }
  $('upload-stop').parentNode.hidden = true;
  $('upload-after').hidden = false;
  $('upload-look').hidden = !state.stored;
  $(state.stored ? 'upload-look' : 'upload-done').focus();
}

/** Adds the row number in the file to an error. The server counts rows within the piece. */
function located(error, [first, last]) {
  const within = /\brow (\d+)/i.exec(error.message);
  const where = within && first > 1 ? ` In the file that is row ${count(first + Number(within[1]) - 1)}.` : within ? '' : ` This concerns rows ${count(first)} to ${count(last)} of the file.`;
  return { code: error.code, message: error.message + where, hint: error.hint };
}

async function next() {
  const file = queue.shift();
  current = file ? { file } : null;
  $('upload').hidden = !file;
  if (!file) { $('add').focus(); return; }
  for (const id of ['upload-error', 'upload-run', 'upload-after', 'upload-form']) $(id).hidden = true;
  $('upload-stop').parentNode.hidden = false;
  $('upload-progress').value = 0;
  text($('upload-title'), `Add ${file.name}`);
  try {
    const head = await read(/\.gz$/i.test(file.name) ? file : Object.assign(file.slice(0, 65536), { name: file.name })).next()
      .catch(async (error) => { if (file.size <= 65536) throw error; return read(file).next(); });
    current.kind = detect(file.name, head.value ?? '');
    text($('upload-what'), `${NAMES[current.kind.format]}, ${bytes(file.size)}${queue.length ? `, ${count(queue.length)} more after it` : ''}.`);
    $('upload-table').value = tableName(file.name);
    $('upload-form').hidden = false;
    $('upload-table').focus();
    $('upload-table').select();
  } catch (error) {
    showError($('upload-error'), error);
    $('upload-after').hidden = false;
    $('upload-look').hidden = true;
    $('upload-done').focus();
  }
}

export function addFiles(files) {
  queue.push(...files);
  if (!current) next();
  $('upload').scrollIntoView({ block: 'nearest' });
}

$('upload-form').addEventListener('submit', (event) => { event.preventDefault(); start(); });
$('upload-close').addEventListener('click', next);
$('upload-done').addEventListener('click', next);
$('upload-stop').addEventListener('click', () => current?.state.abort.abort());
$('upload-look').addEventListener('click', () => {
  putSql(`SELECT *\nFROM ${tableIdentifier(current.state.table)}\nLIMIT 100`);
  runSql();
  next();
  $('sql').focus();
});
$('file').addEventListener('change', () => { addFiles([...$('file').files]); $('file').value = ''; });

let depth = 0;
const carries = (event) => event.dataTransfer?.types.includes('Files');
addEventListener('dragenter', (event) => { if (carries(event)) { depth++; $('drop').hidden = false; } });
addEventListener('dragleave', (event) => { if (carries(event) && --depth <= 0) { depth = 0; $('drop').hidden = true; } });
addEventListener('dragover', (event) => { if (carries(event)) event.preventDefault(); });
addEventListener('drop', (event) => {
  if (!carries(event)) return;
  event.preventDefault();
  depth = 0;
  $('drop').hidden = true;
  addFiles([...event.dataTransfer.files]);
});
