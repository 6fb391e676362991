// Parses files (streams of text) into rows as lines of NDJSON. The formats are NDJSON, JSON, CSV (RFC 4180) and access logs. A
// file becomes the same table as with `polynya ingest`.
// Numbers are passed on as they are written, so they lose no digits.

import { plural } from './format.js';

export class FileError extends Error {}

// A quote ends a field only before a space or the end, because not every server escapes quotes inside a field.
const QUOTED = String.raw`"((?:[^"\\]|\\.|"(?! |$))*)"(?= |$)`;
const LOG = new RegExp(String.raw`^(.*?)\[(\d\d)\/(\w{3})\/(\d{4}):(\d\d:\d\d:\d\d) ([+-]\d\d)(\d\d)\] ${QUOTED} +(\d{1,3}|-) +(\d{1,15}|-)(?: +${QUOTED}(?: +${QUOTED})?)?(?: +(.*))?$`);
const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const CLIENT = /^(\d+\.\d+\.\d+\.\d+|\[?[\da-f]*:[\da-f:.]*\]?)$/i;
// The columns that `polynya ingest` makes of a log.
const LOG_COLUMNS = {
  time: 'timestamp', host: 'string', client: 'string', ident: 'string', user: 'string', method: 'string', path: 'string', protocol: 'string',
  status: 'int64', bytes: 'int64', referer: 'string', agent: 'string', extra: 'string', line: 'string',
};

/** Parses a line of an access log (`common`, `combined`, or with a virtual host in front). Returns null for other lines. */
export function logRow(line) {
  const m = LOG.exec(line);
  if (!m) return null;
  const [, head, day, monthName, year, clock, zoneHours, zoneMinutes, request, status, bytes, referer, agent, extra] = m;
  const said = (v) => (v === undefined || v === '-' || v === '' ? null : v);
  const clear = (v) => said(v?.replace(/\\(["\\])/g, '$1'));
  const month = MONTHS.indexOf(monthName.toLowerCase()) + 1;
  const words = head.trim().split(/\s+/);
  const host = words.length > 3 && words[1] !== '-' && CLIENT.test(words[1]) ? words.shift() : null;
  const time = `${year}-${String(month).padStart(2, '0')}-${day}T${clock}${zoneHours}:${zoneMinutes}`;
  if (Number.isNaN(Date.parse(time)) || words.length < 3) return null;
  const asked = /^([A-Z_-]+) (.*?)(?: (HTTP\/\S*))?$/.exec(clear(request) ?? '');
  return {
    time, host: said(host ?? undefined), client: said(words[0]), ident: said(words[1]), user: said(words.slice(2).join(' ')),
    method: asked?.[1] ?? null, path: asked ? said(asked[2].trim()) : clear(request), protocol: asked?.[3] ?? null,
    status: status === '-' ? null : Number(status), bytes: bytes === '-' ? null : Number(bytes),
    referer: clear(referer), agent: clear(agent), extra: said(extra?.trim()),
  };
}

const DELIMITERS = [',', ';', '\t', '|'];
const LINES_LOOKED_AT = 20;
const RECORDS_LOOKED_AT = 50;
const WHOLE_CHARS_MAX = 16000;
const ENDINGS = { csv: 'csv', tsv: 'csv', ndjson: 'ndjson', jsonl: 'ndjson', json: 'json', log: 'log', parquet: 'parquet' };

/** Returns the format that a file's name suggests, or ''. `access.log.2.gz` is a log. */
function promised(name) {
  const parts = name.toLowerCase().split('.').slice(1).filter((part) => !/^(gz|zst|\d+)$/.test(part));
  return ENDINGS[parts.at(-1)] ?? (name.toLowerCase().includes('access') ? 'log' : '');
}

/** Returns the table name for a file, by the same rule as `polynya ingest`; '' if the file name suggests none. */
export function tableName(file) {
  const stem = file.replace(/^\.+/, '').split('.')[0];
  const clean = stem.replace(/[^\p{Alphabetic}\p{N}-]/gu, '_').replace(/^[^\p{Alphabetic}0-9]+|[^\p{Alphabetic}0-9]+$/gu, '').toLowerCase();
  return /^\p{Alphabetic}/u.test(clean) || !clean ? clean : `t${clean}`;
}

/** Returns the first complete records of a file's beginning. Synchronous, because the result decides whether the file is read. */
function firstRecords(head, delimiter, max = RECORDS_LOOKED_AT) {
  const cutter = new Records(delimiter);
  const found = cutter.take(head);
  // The last record may be cut off at the end of `head`, unless the file is short.
  if (found.length < max && (!found.length || head.length < WHOLE_CHARS_MAX)) try { found.push(...cutter.end()); } catch { /* A quote is still open. */ }
  return found.slice(0, max);
}

/** Returns the delimiter that splits the first records into equal numbers of fields, at least two; '' if there is none. */
function delimiterOf(head) {
  const even = DELIMITERS.map((delimiter) => {
    const records = firstRecords(head, delimiter);
    const width = records[0]?.fields.length ?? 0;
    return [width > 1 && records.every((r) => r.fields.length === width) ? width : 0, delimiter];
  }).sort((a, b) => b[0] - a[0])[0];
  return even[0] ? even[1] : '';
}

/** Returns the delimiter that splits the first record into the most fields. */
const likelyDelimiter = (head) => DELIMITERS.map((d) => [firstRecords(head, d, 1)[0]?.fields.length ?? 0, d]).sort((a, b) => b[0] - a[0])[0][1];

const short = (line) => (line.length > 80 ? `${line.slice(0, 80)}…` : line);

/** Detects the format of a file by its beginning: {format, delimiter}. The name decides ties. Throws FileError if the format is
    not recognised. */
export function detect(name, head) {
  head = head.replace(/^\ufeff/, '');
  const promise = promised(name);
  if (head.startsWith('PAR1') || promise === 'parquet') throw new FileError('This is a Parquet file. `polynya ingest` reads those.');
  if (head.includes('\0')) throw new FileError('This is not a text file. NDJSON, JSON, CSV and access logs can be read.');
  const found = head.split('\n').map((l) => l.trim()).filter(Boolean).slice(0, LINES_LOOKED_AT);
  if (!found.length) throw new FileError('The file is empty.');
  const first = found[0];
  if (first[0] === '{') {
    try { JSON.parse(first); return { format: 'ndjson' }; } catch { return { format: found.length > 1 && !/^\{\s*("|$)/.test(first) ? 'ndjson' : 'json' }; }
  }
  if (first[0] === '[' && (promise === 'json' || /^\[\s*(\{|\]|$)/.test(first))) return { format: 'json' };
  const logged = found.filter(logRow).length;
  if (logged * 2 > found.length || (logged && promise === 'log')) return { format: 'log', columns: LOG_COLUMNS };
  const delimiter = delimiterOf(head);
  if (promise === 'csv') return { format: 'csv', delimiter: delimiter || (likelyDelimiter(head)) };
  if (promise === 'ndjson' || promise === 'json') throw new FileError(`Line 1 is no JSON object: \`${short(first)}\``);
  if (promise === 'log' && !delimiter) throw new FileError(`None of the first ${found.length} lines is one of an access log. Line 1: \`${short(first)}\``);
  if (!delimiter) throw new FileError('This looks like none of NDJSON, JSON, CSV and access logs.');
  return { format: 'csv', delimiter };
}

async function* lines(chunks) {
  let rest = '';
  for await (const chunk of chunks) {
    const found = (rest + chunk).split('\n');
    rest = found.pop();
    yield found;
  }
  if (rest) yield [rest];
}

/** Splits JSON text into its objects: the items of one array, or a sequence of objects. */
async function* objects(chunks) {
  let [depth, quoted, escaped, object, line] = [0, false, false, '', 1];
  // State of the array around the objects: '' (nothing read yet), 'none', 'begun', 'after an item', 'after a comma', 'ended'.
  let array = '';
  const wrong = (c, wanted) => new FileError(`Line ${line}: \`${c}\` where ${wanted} is expected. The file must hold objects, one row each.`);
  for await (const chunk of chunks) {
    let start = 0;
    const found = [];
    for (let i = 0; i < chunk.length; i++) {
      const c = chunk[i];
      if (c === '\n') line++;
      if (quoted) {
        if (escaped) escaped = false;
        else if (c === '\\') escaped = true;
        else if (c === '"') quoted = false;
      } else if (depth === 0) {
        if (/[\s\ufeff]/.test(c)) continue;
        if (array === 'ended') throw wrong(c, 'the end of the file after the array');
        if (c === '{' && array !== 'after an item') { depth = 1; start = i; if (!array) array = 'none'; }
        else if (c === '[' && !array) array = 'begun';
        else if (c === ',' && array === 'after an item') array = 'after a comma';
        else if (c === ']' && (array === 'begun' || array === 'after an item')) array = 'ended';
        else throw wrong(c, array === 'after an item' ? '`,` or `]`' : 'an object');
      } else if (c === '"') quoted = true;
      else if (c === '{' || c === '[') depth++;
      else if ((c === '}' || c === ']') && --depth === 0) {
        found.push((object + chunk.slice(start, i + 1)).replace(/[\r\n]/g, ' '));
        object = '';
        if (array !== 'none') array = 'after an item';
      }
    }
    if (depth) object += chunk.slice(start);
    yield found;
  }
  if (depth) throw new FileError('The JSON ends in the middle of an object. Is the file whole?');
  if (array && array !== 'none' && array !== 'ended') throw new FileError('The JSON ends before its array does: the closing `]` is missing. Is the file whole?');
}

/** Splits CSV (RFC 4180) into records: {line, fields}. An empty field is null; an empty line is not a record. */
class Records {
  constructor(delimiter) {
    Object.assign(this, { delimiter, field: '', row: [], quoted: false, closing: false, wasQuoted: false, line: 1, began: 1, opened: 1, held: '' });
  }

  close(tail) {
    this.row.push(this.field + tail || null);
    this.field = '';
    this.wasQuoted = false;
  }

  take(chunk) {
    chunk = this.held + chunk;
    this.held = chunk.endsWith('\r') ? '\r' : '';
    if (this.held) chunk = chunk.slice(0, -1);
    const found = [];
    let start = 0;
    for (let i = 0; i < chunk.length; i++) {
      const c = chunk[i];
      if (this.closing) {
        this.closing = false;
        if (c === '"') { start = i; continue; }
        this.quoted = false;
        start = i;
      }
      if (this.quoted) {
        if (c === '"') { this.field += chunk.slice(start, i); start = i + 1; this.closing = true; }
        else if (c === '\n') this.line++;
      } else if (c === '"' && start === i && this.field === '' && !this.wasQuoted) {
        this.quoted = this.wasQuoted = true;
        this.opened = this.line;
        start = i + 1;
      } else if (c === this.delimiter) { this.close(chunk.slice(start, i)); start = i + 1; }
      else if (c === '\n') {
        const nothing = !this.wasQuoted && !this.row.length;
        this.close(chunk.slice(start, chunk[i - 1] === '\r' && i > start ? i - 1 : i));
        start = i + 1;
        this.line++;
        if (!nothing || this.row[0] !== null) found.push({ line: this.began, fields: this.row });
        this.row = [];
        this.began = this.line;
      }
    }
    if (!this.closing) this.field += chunk.slice(start);
    return found;
  }

  /** Returns the record after the last line break, if there is one. */
  end() {
    if (this.quoted && !this.closing) throw new FileError(`Line ${this.opened}: a quote opens here and is never closed.`);
    if (!this.field && !this.row.length && !this.wasQuoted) return [];
    this.close('');
    return [{ line: this.began, fields: this.row }];
  }
}

async function* records(chunks, delimiter) {
  const cutter = new Records(delimiter);
  let first = true;
  for await (const chunk of chunks) {
    yield cutter.take(first ? chunk.replace(/^\ufeff/, '') : chunk);
    first = false;
  }
  yield cutter.end();
}

const WHOLE = /^-?\d+$/;
const FLOAT = /^-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
const DATE = /^\d{4}-\d\d-\d\d$/;
const TIME = /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d(?:\.\d+)?)(?:\s*([Zz]|[+-]\d\d(?::?\d\d)?))?$/;
const isDay = (v) => { const t = Date.parse(`${v}T00:00:00Z`); return !Number.isNaN(t) && new Date(t).toISOString().startsWith(v); };

/** Converts a time to RFC 3339 (UTC if it has no zone), or returns null. */
function rfc3339(v) {
  const m = TIME.exec(v);
  if (!m || !isDay(m[1]) || !/^([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)/.test(m[2])) return null;
  const zone = !m[3] || /z/i.test(m[3]) ? 'Z' : m[3].length === 3 ? `${m[3]}:00` : m[3].includes(':') ? m[3] : `${m[3].slice(0, 3)}:${m[3].slice(3)}`;
  return `${m[1]}T${m[2]}${zone}`;
}

/** Returns the narrowest type that fits a field's text. `polynya ingest` finds the same; the cases in tests/files check both. */
export function typeOf(v) {
  const digits = v.replace(/^[-+]/, '');
  // `007` is a name: as a number it would lose its zeros. A number with more digits than 64 bits hold stays text too.
  if (v[0] === '+' || (digits.length > 1 && /^0\d*$/.test(digits))) return 'string';
  if (WHOLE.test(v)) return BigInt.asIntN(64, BigInt(v)) === BigInt(v) ? 'int64' : 'string';
  if (FLOAT.test(v) || v === 'NaN' || v === 'inf' || v === '-inf') return 'float64';
  if (/^(true|false)$/i.test(v)) return 'bool';
  if (DATE.test(v) && isDay(v)) return 'date';
  return rfc3339(v) ? 'timestamp' : 'string';
}

/** Returns the narrowest type that fits both. */
function join(a, b) {
  if (a === b || !b) return a;
  if (!a) return b;
  const both = [a, b].sort().join();
  return both === 'float64,int64' ? 'float64' : both === 'date,timestamp' ? 'timestamp' : 'string';
}

/** Returns true for a header. A first record with a number, a date or an empty field is data. */
const isHeader = (fields) => fields.every((v) => v !== null && typeOf(v) === 'string');

/** Reads a whole CSV file to find its columns: {names, types, header}. A type is used only if every value in the file fits it. */
export async function csvShape(chunks, delimiter) {
  let shape;
  for await (const found of records(chunks, delimiter)) {
    for (const { line, fields } of found) {
      if (!shape) {
        const header = isHeader(fields);
        const names = fields.map((v, i) => (header ? v.trim() : '') || `column${i + 1}`);
        const twice = names.find((n, i) => names.findIndex((m) => m.toLowerCase() === n.toLowerCase()) < i);
        if (twice !== undefined) throw new FileError(`Two columns are called \`${twice}\`. Rename one in the first line.`);
        shape = { names, types: names.map(() => undefined), header };
        if (header) continue;
      }
      if (fields.length !== shape.names.length) throw new FileError(`Line ${line} has ${plural(fields.length, 'field')} where ${shape.names.length} ${shape.names.length === 1 ? 'is' : 'are'} expected. Fields that hold the delimiter need quotes.`);
      fields.forEach((v, i) => { if (v !== null && shape.types[i] !== 'string') shape.types[i] = join(shape.types[i], typeOf(v)); });
    }
  }
  if (!shape) throw new FileError('There is no row in this file.');
  shape.types = shape.types.map((t) => t ?? 'string');
  return shape;
}

const asNumber = (v) => { const n = String(Number(v)); return /[.eE]/.test(n) ? n : `${n}.0`; };
const WRITE = {
  bool: (v) => (/^(true|false)$/i.test(v) ? v.toLowerCase() : JSON.stringify(v)),
  int64: (v) => (typeOf(v) === 'int64' ? String(BigInt(v)) : JSON.stringify(v)),
  // Every float gets a fraction, so that each piece of the file has the type float.
  float64: (v) => (Number.isFinite(Number(v)) ? asNumber(v) : JSON.stringify(v)),
  timestamp: (v) => JSON.stringify(rfc3339(v) ?? (DATE.test(v) ? `${v}T00:00:00Z` : v)),
};
/** Returns the function that writes values of a column type as JSON. Other types are sent as text, which the server parses. */
const writer = (type) => WRITE[type] ?? (/^u?int/.test(type) ? WRITE.int64 : /^float/.test(type) ? WRITE.float64 : /^timestamp/.test(type) ? WRITE.timestamp : JSON.stringify);

/** Yields arrays of NDJSON lines. `note.strange` counts lines of a log that could not be parsed; they are stored in the column
    `line`. */
export async function* toNdjson(chunks, { format, delimiter, columns, header }, note = {}) {
  if (format === 'json') return yield* objects(chunks);
  if (format === 'csv') {
    const writers = Object.entries(columns).map(([name, type]) => [`${JSON.stringify(name)}:`, writer(type)]);
    let skip = header;
    for await (const found of records(chunks, delimiter)) {
      yield found.slice(skip ? 1 : 0).map(({ fields }) => `{${fields.map((v, i) => writers[i][0] + (v === null ? 'null' : writers[i][1](v))).join(',')}}`);
      if (found.length) skip = false;
    }
    return;
  }
  for await (const found of lines(chunks)) {
    const full = found.map((l) => (l.endsWith('\r') ? l.slice(0, -1) : l)).filter((l) => l.trim());
    if (format === 'ndjson') { yield full; continue; }
    yield full.map((l) => {
      const row = logRow(l);
      if (!row) note.strange = (note.strange ?? 0) + 1;
      return JSON.stringify(row ?? { line: l });
    });
  }
}
