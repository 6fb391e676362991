// Small DOM helpers. Data enters the document as text only; nothing here parses markup.

export const $ = (id) => document.getElementById(id);

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Sets a text only if it differs, so that live numbers cost nothing while they do not change. */
export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

const FLASH_MS = 1200;
const flashing = new WeakMap();

/** Shows `word` on a button for a moment. The original label returns, however often the button is pressed in between. */
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
    // Without https, pages may not use the clipboard API. The old command works inside a click handler.
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

/** Offers a file to the user as a download. */
export function save(blob, name) {
  const href = URL.createObjectURL(blob);
  el('a', { href, download: name }).click();
  // The browser reads the blob after the click, and may finish once it has begun.
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/** Wraps a storage of the browser. A value that the browser refuses to store (private window, full storage) is dropped. */
export const kept = (storage) => ({
  get(name, otherwise) {
    try { return JSON.parse(storage().getItem(`polynya.${name}`)) ?? otherwise; } catch { return otherwise; }
  },
  set(name, value) {
    try { storage().setItem(`polynya.${name}`, JSON.stringify(value)); } catch { /* The value is dropped. */ }
  },
});
export const local = kept(() => localStorage);
export const session = kept(() => sessionStorage);

/** Shows an error: code, message and hint. `node` has role=alert, so screen readers announce it. */
export function showError(node, error) {
  node.replaceChildren();
  if (error.code) node.append(el('b', {}, error.code), ' ');
  node.append(error.message);
  if (error.hint) node.append(el('span', { class: 'hint' }, error.hint));
  node.hidden = false;
}
