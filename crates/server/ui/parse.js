// Files as streams of text into rows as lines of NDJSON: NDJSON, JSON, CSV (RFC 4180) and access logs.
// Numbers are passed on as they are written, so none loses digits on the way.

export class FileError extends Error {}

// A quote ends a field only before a space or the end: not every server escapes those inside.
const QUOTED = String.raw`"((?:[^"\\]|\\.|"(?! |$))*)"(?= |$)`;
const LOG = new RegExp(String.raw`^(.*?)\[(\d\d)\/(\w{3})\/(\d{4}):(\d\d:\d\d:\d\d) ([+-]\d\d)(\d\d)\] ${QUOTED} +(\d{1,3}|-) +(\d{1,15}|-)(?: +${QUOTED}(?: +${QUOTED})?)?(?: +(.*))?$`);
const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const CLIENT = /^(\d+\.\d+\.\d+\.\d+|\[?[\da-f]*:[\da-f:.]*\]?)$/i;
// The same columns as `polynya ingest` makes of a log.
const LOG_COLUMNS = {
  time: 'timestamp', host: 'string', client: 'string', ident: 'string', user: 'string', method: 'string', path: 'string', protocol: 'string',
  status: 'int64', bytes: 'int64', referer: 'string', agent: 'string', extra: 'string', line: 'string',
};

/** A line of an access log (`common`, `combined`, with or without a virtual host before), or null. */
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

/** What a file holds, from its first 64 KiB: {format, delimiter}; throws FileError when that cannot be told. */
export function detect(name, head) {
  if (head.startsWith('PAR1') || /\.parquet$/i.test(name)) throw new FileError('This is a Parquet file. `polynya ingest` reads those.');
  if (head.includes('\0')) throw new FileError('This is not a text file. NDJSON, JSON, CSV and access logs can be read.');
  const first = head.trimStart();
  if (!first) throw new FileError('The file is empty.');
  if (first[0] === '[') return { format: 'json' };
  const line = first.split(/\r?\n/, 1)[0];
  if (first[0] === '{') {
    try { JSON.parse(line); return { format: 'ndjson' }; } catch { return { format: line.length < first.length && !/^\{\s*("|$)/.test(line) ? 'ndjson' : 'json' }; }
  }
  if (first.split(/\r?\n/, 5).some(logRow)) return { format: 'log', columns: LOG_COLUMNS };
  const delimiter = [',', ';', '\t', '|'].map((d) => [line.split(d).length, d]).sort((a, b) => b[0] - a[0])[0];
  if (delimiter[0] < 2 && !/\.(csv|tsv)(\.gz)?$/i.test(name)) throw new FileError('This looks like none of NDJSON, JSON, CSV and access logs.');
  return { format: 'csv', delimiter: delimiter[0] < 2 ? ',' : delimiter[1] };
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

/** Cuts JSON text into its objects: the items of one array, or objects one after the other. */
async function* objects(chunks) {
  let [depth, quoted, escaped, object, array] = [0, false, false, '', false];
  for await (const chunk of chunks) {
    let start = 0;
    const found = [];
    for (let i = 0; i < chunk.length; i++) {
      const c = chunk[i];
      if (quoted) {
        if (escaped) escaped = false;
        else if (c === '\\') escaped = true;
        else if (c === '"') quoted = false;
      } else if (depth === 0) {
        if (c === '{') { depth = 1; start = i; }
        else if (c === '[' && !array) array = true;
        else if (!/[\s,\]]/.test(c)) throw new FileError(`The file must hold objects, one row each; found \`${c}\` between them.`);
      } else if (c === '"') quoted = true;
      else if (c === '{' || c === '[') depth++;
      else if ((c === '}' || c === ']') && --depth === 0) {
        found.push((object + chunk.slice(start, i + 1)).replace(/[\r\n]/g, ' '));
        object = '';
      }
    }
    if (depth) object += chunk.slice(start);
    yield found;
  }
  if (depth) throw new FileError('The JSON ends in the middle of an object.');
}

/** Records of CSV as arrays; an empty field without quotes is null. */
async function* records(chunks, delimiter) {
  let [field, row, quoted, closing, wasQuoted, line, held] = ['', [], false, false, false, 1, ''];
  const end = (tail) => {
    const value = field + tail;
    row.push(value === '' && !wasQuoted ? null : value);
    field = '';
    wasQuoted = false;
  };
  for await (let chunk of chunks) {
    chunk = held + chunk;
    held = chunk.endsWith('\r') ? '\r' : '';
    if (held) chunk = chunk.slice(0, -1);
    const found = [];
    let start = 0;
    for (let i = 0; i < chunk.length; i++) {
      const c = chunk[i];
      if (closing) {
        closing = false;
        if (c === '"') { start = i; continue; }
        quoted = false;
        start = i;
      }
      if (quoted) {
        if (c === '"') { field += chunk.slice(start, i); start = i + 1; closing = true; }
        else if (c === '\n') line++;
      } else if (c === '"' && start === i && field === '' && !wasQuoted) {
        quoted = wasQuoted = true;
        start = i + 1;
      } else if (c === delimiter) { end(chunk.slice(start, i)); start = i + 1; }
      else if (c === '\n') {
        end(chunk.slice(start, chunk[i - 1] === '\r' && i > start ? i - 1 : i));
        start = i + 1;
        line++;
        if (row.length > 1 || row[0] !== null) found.push(row);
        row = [];
      }
    }
    if (!closing) field += chunk.slice(start);
    yield found;
  }
  if (quoted && !closing) throw new FileError(`A quote is opened and never closed; the file ends in line ${line} inside it.`);
  if (field || row.length || wasQuoted) { end(''); yield [row]; }
}

const INTEGER = /^(-?[1-9]\d{0,18}|0)$/;
const FLOAT = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?$/;
const TIME = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)$/;
const TESTS = {
  bool: (v) => /^(true|false)$/i.test(v),
  int64: (v) => INTEGER.test(v) && (v.length < 19 || BigInt.asIntN(64, BigInt(v)) === BigInt(v)),
  float64: (v) => FLOAT.test(v) && v.replace(/[eE].*|\D/g, '').replace(/^0+/, '').length <= 17 && Number.isFinite(Number(v)),
  timestamp: (v) => TIME.test(v) && !Number.isNaN(Date.parse(v)),
};

function columnNames(header) {
  const taken = new Set();
  return header.map((h, i) => {
    const wanted = (h ?? '').replace(/[\0-\x1f\x7f]/g, ' ').trim().replace(/^_+/, '').slice(0, 60) || `column_${i + 1}`;
    let name = wanted;
    for (let n = 2; taken.has(name.toLowerCase()); n++) name = `${wanted}_${n}`;
    taken.add(name.toLowerCase());
    return name;
  });
}

/** Reads a whole CSV file for its columns: a type holds only if each value of the file has it. {name: type} */
export async function csvColumns(chunks, delimiter) {
  let names;
  let fits;
  let number = 0;
  for await (const rows of records(chunks, delimiter)) {
    for (const row of rows) {
      if (!names) { names = columnNames(row); fits = names.map(() => null); continue; }
      number++;
      if (row.length > names.length) throw new FileError(`Row ${number} has ${row.length} fields; the header names ${names.length}.`);
      row.forEach((v, i) => {
        if (v === null || fits[i]?.length === 0) return;
        fits[i] = (fits[i] ?? Object.keys(TESTS)).filter((t) => TESTS[t](v));
      });
    }
  }
  if (!number) throw new FileError('There is no row below the header.');
  return Object.fromEntries(names.map((name, i) => [name, fits[i]?.[0] ?? 'string']));
}

const WRITE = {
  string: JSON.stringify,
  bool: (v) => v.toLowerCase(),
  int64: (v) => v,
  // A fraction in each, so that every piece of the file says float.
  float64: (v) => (/[.eE]/.test(v) ? v : `${v}.0`),
  timestamp: (v) => JSON.stringify(v.replace(' ', 'T')),
};

/** Yields arrays of NDJSON lines; `note.strange` counts lines of a log that were none; they are kept whole in `line`. */
export async function* toNdjson(chunks, { format, delimiter, columns }, note = {}) {
  if (format === 'json') return yield* objects(chunks);
  if (format === 'csv') {
    const writers = Object.entries(columns).map(([name, type]) => [`${JSON.stringify(name)}:`, WRITE[type]]);
    let header = true;
    for await (const rows of records(chunks, delimiter)) {
      yield rows.slice(header ? 1 : 0).map((row) => `{${row.map((v, i) => writers[i][0] + (v === null ? 'null' : writers[i][1](v))).join(',')}}`);
      if (rows.length) header = false;
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
