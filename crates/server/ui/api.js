// The client of the server's API: sends the key, turns error answers into ApiError, and reads server-sent events.

import { session } from './dom.js';

export class ApiError extends Error {
  constructor(status, code, message, hint) {
    super(message);
    Object.assign(this, { status, code, hint });
  }
}

let key = session.get('key', '');
let onLocked = () => {};
let unlocked = [];

export const hasKey = () => key !== '';
export function useKey(value) {
  key = value.trim();
  session.set('key', key);
  for (const wake of unlocked.splice(0)) wake();
}
/** Sets `listener(error)`, which is called when the server refuses the key or asks for one (401). A key that lacks a right (403)
    is an ordinary error. */
export const whenLocked = (listener) => { onLocked = listener; };
export const nextKey = () => new Promise((resolve) => unlocked.push(resolve));

/** Sends a request; resolves to a successful Response, else throws ApiError (or AbortError). */
export async function request(path, { headers = {}, ...options } = {}) {
  let response;
  try {
    response = await fetch(path, {
      ...options, cache: 'no-store', credentials: 'same-origin',
      headers: key ? { ...headers, authorization: `Bearer ${key}` } : headers,
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, 'unreachable', 'The server did not answer.', 'Is it still running? This page reconnects by itself.');
  }
  if (response.ok) return response;
  let told = {};
  try { told = (await response.json()).error ?? {}; } catch { /* The body is not JSON: it may come from a proxy. */ }
  const error = new ApiError(response.status, told.code ?? `http_${response.status}`,
    told.message ?? `The server answered ${response.status} ${response.statusText}`.trim() + '.', told.hint);
  error.retryAfter = Number(response.headers.get('retry-after')) || 0;
  if (response.status === 401) onLocked(error);
  throw error;
}

export const json = async (path, options) => (await request(path, options)).json();
const posted = (value, signal) => ({
  method: 'POST', signal, body: JSON.stringify(value), headers: { 'content-type': 'application/json', accept: 'application/json' },
});
export const post = (path, value, signal) => json(path, posted(value, signal));

/** Runs a statement and returns its answer. For COPY … TO STDOUT the result is `{ file }`, with the bytes as a Blob. */
export async function postSql(sql, signal) {
  const response = await request('/v1/sql', posted({ sql, params: [] }, signal));
  if (response.headers.get('content-type')?.startsWith('application/json')) return response.json();
  try {
    return { file: await response.blob() };
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, 'broken_off', 'The file broke off before its end, so it was not kept.',
      'A row of the query may have failed: run the query without COPY to see its error.');
  }
}
export const tablePath = (name) => `/v1/tables/${encodeURIComponent(name)}`;

export const pause = (duration, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, duration);
  signal?.addEventListener('abort', () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
});

/** Calls `take(data)` for each event of a text/event-stream body. EventSource is not used because it cannot send a key. */
export async function readEvents(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === '') {
        if (data.length) take(data.join('\n'));
        data = [];
      } else if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
    }
  }
}

const SILENCE_MS = 6000;
const HIDDEN_MS = 60000;

/**
 * Follows the live feed for the lifetime of the page: reconnects with growing pauses, notices a connection that has become
 * silent, and disconnects a minute after the page went into the background.
 */
export async function followLive(onSample, onState) {
  let wait = 500;
  for (;;) {
    if (document.hidden) {
      await new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true }));
      continue;
    }
    const abort = new AbortController();
    let watch = setTimeout(() => abort.abort(), SILENCE_MS);
    let away;
    const visibility = () => {
      clearTimeout(away);
      if (document.hidden) away = setTimeout(() => abort.abort(), HIDDEN_MS);
    };
    document.addEventListener('visibilitychange', visibility);
    let refusal = {};
    try {
      const response = await request('/_/live', { signal: abort.signal, headers: { accept: 'text/event-stream' } });
      await readEvents(response.body, (data) => {
        clearTimeout(watch);
        watch = setTimeout(() => abort.abort(), SILENCE_MS);
        wait = 500;
        onState('live');
        onSample(JSON.parse(data));
      });
    } catch (error) {
      refusal = error;
    }
    clearTimeout(watch);
    clearTimeout(away);
    document.removeEventListener('visibilitychange', visibility);
    if (refusal.status === 401 || refusal.status === 403) {
      onState(refusal.status === 401 ? 'locked' : 'refused', refusal.status === 403 ? refusal : undefined);
      await nextKey();
      wait = 500;
      continue;
    }
    onState('connecting');
    await pause(wait * (0.75 + Math.random() / 2));
    wait = Math.min(wait * 2, 10000);
  }
}
