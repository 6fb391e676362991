// Small helpers for the page. Data enters the document as text only; nothing here parses markup.

export const $ = (id) => document.getElementById(id);

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Sets text only when it differs, so that live numbers cost nothing while they stand still. */
export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

const FLASH_MS = 1200;
const flashing = new WeakMap();

/** Says `word` on a button for a moment. Its own label comes back however often it is pressed meanwhile. */
export function flash(button, word) {
  const before = flashing.get(button);
  const label = before?.label ?? button.textContent;
  clearTimeout(before?.timer);
  text(button, word);
  flashing.set(button, { label, timer: setTimeout(() => { text(button, label); flashing.delete(button); }, FLASH_MS) });
}

export async function copy(value) {
  try {
    await navigator.clipboard.writeText(value);
  } catch {
    // Without https the clipboard is closed to pages; the old way works on a click.
    const area = el('textarea');
    area.value = value;
    const before = document.activeElement;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
    before?.focus();
  }
}

/** Hands a file to the reader, as if he had downloaded it. */
export function save(blob, name) {
  const href = URL.createObjectURL(blob);
  el('a', { href, download: name }).click();
  // The browser reads it after the click; it keeps what it has begun to read.
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/** What the browser may refuse to keep (private windows, full storage) is simply not kept. */
export const kept = (storage) => ({
  get(name, otherwise) {
    try { return JSON.parse(storage().getItem(`polynya.${name}`)) ?? otherwise; } catch { return otherwise; }
  },
  set(name, value) {
    try { storage().setItem(`polynya.${name}`, JSON.stringify(value)); } catch { /* see above */ }
  },
});
export const local = kept(() => localStorage);
export const session = kept(() => sessionStorage);

/** Shows a failure: code, message, hint. `node` is a role=alert, so it is read out. */
export function showError(node, error) {
  node.replaceChildren();
  if (error.code) node.append(el('b', {}, error.code), ' ');
  node.append(error.message);
  if (error.hint) node.append(el('span', { class: 'hint' }, error.hint));
  node.hidden = false;
}
