// Formats numbers with at most four digits, so that live values keep their width.

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const known = (n) => typeof n === 'number' && Number.isFinite(n);

export const count = (n) => (known(n) ? whole.format(n) : '–');

function scaled(n, steps, base) {
  let i = 0;
  while (i < steps.length - 1 && Math.abs(n) >= base * 0.9995) { n /= base; i++; }
  const digits = Number.isInteger(n) && i === 0 ? 0 : Math.abs(n) < 10 ? 2 : Math.abs(n) < 100 ? 1 : 0;
  return n.toFixed(digits) + steps[i];
}

/** Formats a number like 0, 7.5, 950, 12.3k or 4.56M. */
export const short = (n) => (known(n) ? scaled(n, ['', 'k', 'M', 'G', 'T'], 1000) : '–');
/** Formats a size in bytes, in the same way as the commands do. */
export const bytes = (n) => (known(n) ? scaled(n, [' B', ' KiB', ' MiB', ' GiB', ' TiB'], 1024) : '–');

/** Formats milliseconds as value and unit: ['0.42', 'ms'] or ['1.20', 's']. */
export function msParts(n) {
  if (!known(n)) return ['–', 'ms'];
  if (n >= 1000) return [n >= 100000 ? whole.format(n / 1000) : (n / 1000).toFixed(n < 10000 ? 2 : 1), 's'];
  return [n === 0 ? '0' : n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : n.toFixed(0), 'ms'];
}
export const ms = (n) => msParts(n).join(' ');

export function uptime(s) {
  if (!known(s)) return '–';
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min ${Math.floor(s) % 60} s` : `${Math.floor(s)} s`;
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** Returns the value of a result cell as text; nested values as JSON, null as null. */
export const cellText = (v) => (v === null || v === undefined ? null : typeof v === 'object' ? JSON.stringify(v) : String(v));

/** Returns the kind of a result column (number, time or other) by its type, or by its first value if there is no type. */
export function kind(type, sample) {
  const t = String(type ?? '').toLowerCase();
  if (/^(u?int|float|double|real|decimal|numeric|bigint|smallint)/.test(t)) return 'number';
  if (/^(timestamp|date)/.test(t)) return 'time';
  if (t === '' && typeof sample === 'number') return 'number';
  return 'other';
}

/** Returns an SQL identifier, quoted if it would otherwise be folded to lower case or read as a keyword. */
export const identifier = (name) => (/^[a-z][a-z0-9_]*$/.test(name) && !RESERVED.has(name) ? name : `"${name.replaceAll('"', '""')}"`);
export const tableIdentifier = (name) => name.split('.').map(identifier).join('.');

const RESERVED = new Set(('all analyze and any array as asc between both by case cast check collate column constraint create cross current_date '
  + 'current_time current_timestamp default delete desc distinct do drop else end except exists false fetch for foreign from full grant group '
  + 'having in inner insert intersect into is join lateral left like limit natural not null offset on only or order outer primary references '
  + 'right select set some table then to true union unique update user using values view when where window with').split(' '));
