// Tests the page at /_/ in real Chromium, against a real server. Run with `npm test`; server.mjs describes the two ways to name a
// server.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { chromium } from 'playwright-core';
import { startServer } from './server.mjs';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const missing = !existsSync(CHROMIUM) && `Chromium is not at ${CHROMIUM}. Install it (Debian: apt-get install chromium) or set CHROMIUM.`;
if (missing && process.env.CI) throw new Error(missing);

const WAIT_MS = 10_000;
const ROWS = 120;
// Each run has its own table, since a server at POLYNYA_URL keeps the rows of earlier runs.
const TABLE = `page_${Date.now().toString(36)}`;
const QUERY = `SELECT n, v, note FROM ${TABLE} ORDER BY n LIMIT 100`;

describe('the page', { skip: missing, timeout: 290_000 }, () => {
  let server;
  let recording;
  let browser;
  let context;
  let page;
  let complaints;

  before(async () => {
    server = await startServer();
    // A server at POLYNYA_URL may record as well; here this one must.
    recording = process.env.POLYNYA_BIN ? await startServer(['--record']) : server;
    browser = await chromium.launch({
      executablePath: CHROMIUM,
      args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    });
    const start = Date.UTC(2026, 0, 1);
    const rows = Array.from({ length: ROWS }, (_, n) => JSON.stringify({
      n, v: Math.sin(n / 9) * 10 + 0.5, note: n % 3 ? `<b>note ${n}</b> ${'long '.repeat(n % 60)}` : null, at: new Date(start + n * 60_000).toISOString(),
    }));
    const answer = await fetch(`${server.url}/v1/tables/${TABLE}/rows`, {
      method: 'POST', headers: { 'content-type': 'application/x-ndjson' }, body: rows.join('\n'),
    });
    assert.equal(answer.status, 200, await answer.text());
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
    if (recording !== server) await recording?.stop();
  });

  beforeEach(() => { complaints = []; });
  afterEach(async () => {
    await context?.close();
    context = undefined;
    assert.deepEqual(complaints, [], 'the browser console stays clean');
  });

  /** Opens the page; `prepare(page)` runs before, to intercept requests. The cards are closed unless `first`. */
  async function open({ width = 1280, scheme = 'light', first = false, at = server, prepare = async () => {} } = {}) {
    context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, reducedMotion: 'reduce' });
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    if (!first) await context.addInitScript(() => localStorage.setItem('polynya.hints', 'false'));
    page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    page.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') complaints.push(m.text()); });
    page.on('pageerror', (e) => complaints.push(String(e.stack ?? e)));
    page.on('request', (r) => { if (!r.url().startsWith(at.url)) complaints.push(`asked an outsider: ${r.url()}`); });
    await prepare(page);
    const answer = await page.goto(`${at.url}/_/`);
    await page.locator('#state[data-state=live]').waitFor();
    return answer;
  }

  async function run(sql) {
    await page.fill('#sql', sql);
    await page.press('#sql', 'Control+Enter');
    await page.locator('#run:not([disabled])').waitFor();
  }

  const cells = (row) => page.locator(`#grid .row[aria-rowindex="${row + 2}"] [role=gridcell]`).allTextContents();

  /** Answers that fail on purpose make Chromium write to the console; those lines are expected. */
  function forgiveFailedRequests() {
    complaints = complaints.filter((c) => !c.startsWith('Failed to load resource'));
  }

  test('it loads under a strict content policy, goes live and shows the version', async () => {
    const answer = await open({ first: true });
    assert.match(answer.headers()['content-security-policy'] ?? '', /default-src 'none'/);
    assert.doesNotMatch(answer.headers()['content-security-policy'], /unsafe/);
    assert.match(await page.textContent('#version'), /\d+\.\d+/);
    assert.match(await page.textContent('#lsn'), /^[\d,]+$/);
    assert.equal(await page.locator('#tiles article').count(), 5);
    assert.equal(await page.locator('#cards > li').count(), 5);
    await page.click('#hints-close');
    await page.reload();
    await page.locator('#state[data-state=live]').waitFor();
    assert.equal(await page.isVisible('#hints'), false, 'the cards stay closed');
  });

  test('a query runs by keyboard alone and fills the grid', async () => {
    await open();
    await page.keyboard.press('s');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'sql');
    await page.keyboard.press('Control+A');
    await page.keyboard.type(QUERY);
    await page.keyboard.press('Control+Enter');
    await page.locator('#result:not([hidden])').waitFor();
    assert.match(await page.textContent('#summary'), /^100 rows in /);
    assert.deepEqual((await cells(0)).slice(0, 3), ['0', '0.5', 'null']);
    assert.match((await cells(1))[2], /^<b>note 1<\/b>/, 'data is text, never markup');
    assert.equal(await page.locator('#grid .row').first().locator('.end').count(), 2, 'numbers stand on the right');
    await page.focus('#grid');
    for (const key of ['ArrowDown', 'ArrowDown', 'End']) await page.keyboard.press(key);
    assert.match(await page.textContent('#cell'), /^note \(.+\), row 3\n<b>note 2<\/b>/);
    await page.keyboard.press('Control+End');
    assert.match(await page.textContent('#cell'), /row 100\n/);
    assert.equal(await page.getAttribute('#grid', 'aria-rowcount'), '101');
  });

  async function makeNotes() {
    const send = (path, method, body) => fetch(`${server.url}${path}`, { method, body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });
    const notes = `notes_of_${TABLE.slice(5)}`;
    const made = await send(`/v1/tables/${notes}`, 'PUT', {
      columns: [{ name: 'path', type: 'string' }, { name: 'body', type: 'string' }], primary_key: ['path'], indexes: [{ kind: 'text', columns: ['body'] }],
    });
    assert.ok(made.ok, await made.text());
    const rows = await send(`/v1/tables/${notes}/rows`, 'POST', [
      { path: 'a<i>b.md', body: '<img src=x onerror="alert(1)"> the heron & its rivers</mark>' },
      { path: 'c.md', body: `a heron ${'walks on and on '.repeat(60)}` },
    ]);
    assert.ok(rows.ok, await rows.text());
    return notes;
  }

  test('a short answer has a short frame, and a line of the chart ends where nothing was measured', async () => {
    await open();
    await run('SELECT 1 AS one');
    assert.ok((await page.locator('#grid').boundingBox()).height < 120);
    await run(QUERY);
    assert.ok((await page.locator('#grid').boundingBox()).height > 300);
    const [gaps, few] = await page.evaluate(async () => {
      const { gapOf } = await import('/_/chart.js');
      // One value per second, and an hour without the server.
      const x = Array.from({ length: 60 }, (_, i) => i * 1000 + (i < 30 ? 0 : 3_600_000));
      return [gapOf(x, x.map(() => 1)), gapOf(x.slice(0, 5), [1, 1, 1, 1, 1])];
    });
    assert.ok(gaps >= 1000 && gaps < 3_600_000, `${gaps}`);
    assert.equal(few, Infinity, 'too few to tell');
  });

  test('rows are found by words while they are typed, by keyboard alone, and markup in them stays text', async () => {
    const notes = await makeNotes();
    await open();
    await page.keyboard.press('/');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'search');
    await page.keyboard.type('herons river');
    await page.locator('#search-hits li').nth(1).waitFor();
    assert.match(await page.textContent('#search-total'), /^2 rows in /);
    const first = page.locator('#search-hits li').first();
    assert.equal(await first.locator('.where').textContent(), `${notes} a<i>b.md`);
    assert.equal(await first.locator('.snippet').textContent(), 'body <img src=x onerror="alert(1)"> the heron & its rivers</mark>');
    assert.deepEqual(await first.locator('mark').allTextContents(), ['heron', 'rivers']);
    assert.equal(await page.locator('#search-hits img, #search-hits i').count(), 0);
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    await page.locator('#result:not([hidden])').waitFor();
    assert.match(await page.inputValue('#sql'), /WHERE _row_id = 1$/);
    assert.deepEqual((await cells(0))[0], 'a<i>b.md');
    await page.focus('#search');
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('#search-hits li').count(), 0);
    await page.keyboard.type('zzzabsent');
    await page.getByText('Nothing was found.').waitFor();
    assert.equal(await page.textContent('#search-total'), 'Nothing was found.');
  });

  test('an error of a search shows what to do, and goes with the next answer', async () => {
    let refused = false;
    await open({
      prepare: (p) => p.route('**/v1/search?*', (route) => {
        if (refused) return route.fulfill({ json: { hits: [], total: 0, exact: true, took_ms: 1, lsn: 1, scanned: false, tables: [] } });
        refused = true;
        return route.fulfill({ status: 409, json: { error: { code: 'index_building', message: 'still <b>being</b> built', hint: '7 of 9 rows' } } });
      }),
    });
    await page.fill('#search', 'heron');
    await page.locator('#search-error:not([hidden])').waitFor();
    assert.equal(await page.textContent('#search-error'), 'index_building still <b>being</b> built7 of 9 rows');
    await page.press('#search', 'Enter');
    await page.getByText('Nothing was found.').waitFor();
    assert.equal(await page.isVisible('#search-error'), false);
    forgiveFailedRequests();
  });

  test('what was found fits a phone', async () => {
    await makeNotes();
    await open({ width: 360 });
    await page.fill('#search', 'heron');
    await page.locator('#search-hits li').nth(1).waitFor();
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
    const cut = await page.evaluate(() => [...document.querySelectorAll('#search-hits button')].filter((n) => n.scrollWidth > n.clientWidth + 1).length);
    assert.equal(cut, 0);
  });

  test('ten thousand rows are drawn a screenful at a time', async () => {
    await open();
    await run('SELECT * FROM generate_series(1, 10000)');
    assert.match(await page.textContent('#summary'), /^10,000 rows/);
    await page.focus('#grid');
    await page.keyboard.press('Control+End');
    assert.deepEqual(await cells(9999), ['10000']);
    assert.ok(await page.locator('#grid .row').count() < 60);
  });

  test('a result is copied as CSV and as JSON', async () => {
    await open();
    await run(`SELECT n, note FROM ${TABLE} ORDER BY n LIMIT 2`);
    await page.click('#copy-csv');
    await page.getByText('Copied').waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'n,note\r\n0,\r\n1,<b>note 1</b> long \r\n');
    await page.click('#copy-json');
    await page.locator('#copy-json', { hasText: 'Copied' }).waitFor();
    const copied = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
    assert.deepEqual(copied, [{ n: 0, note: null }, { n: 1, note: '<b>note 1</b> long ' }]);
  });

  test('the file of a COPY is saved, and one that breaks off is not', async () => {
    await open();
    const saved = page.waitForEvent('download');
    await run(`COPY (SELECT n, note FROM ${TABLE} ORDER BY n LIMIT 2) TO STDOUT WITH (HEADER)`);
    const file = await saved;
    assert.equal(file.suggestedFilename(), 'polynya.csv');
    assert.equal(readFileSync(await file.path(), 'utf8'), 'n,note\n0,\n1,<b>note 1</b> long \n');
    assert.match(await page.textContent('#summary'), /^Saved as polynya\.csv, \d+ B in /);
    assert.ok(await page.isHidden('#grid'));
    assert.ok(await page.isHidden('#copy-csv'));

    await run("COPY (SELECT i, 1 / (900000 - i) AS x, md5(cast(i AS text)) AS s FROM generate_series(1, 1000000) AS g(i)) TO STDOUT");
    assert.match(await page.textContent('#error'), /broke off before its end/);
    complaints = complaints.filter((c) => !/ERR_(INCOMPLETE_CHUNKED_ENCODING|CONNECTION|EMPTY_RESPONSE)|Failed to load/.test(c));

    await run('COPY stock FROM STDIN');
    assert.match(await page.textContent('#error'), /POST \/v1\/copy/);
    complaints = complaints.filter((c) => !/status of 4\d\d/.test(c));

    await run('SELECT 1 AS one');
    assert.deepEqual(await cells(0), ['1']);
  });

  test('a chart appears for numbers beside numbers and is read by keyboard', async () => {
    await open();
    await run(`SELECT n, v FROM ${TABLE} ORDER BY n LIMIT 100`);
    await page.click('#chart-toggle');
    await page.locator('#chart .curve').waitFor();
    assert.equal(await page.locator('#chart .curve').count(), 1);
    assert.ok(await page.locator('#chart text').count() >= 6, 'both axes have ticks');
    await page.focus('#chart svg');
    await page.keyboard.press('Home');
    assert.equal(await page.getAttribute('#chart svg', 'aria-valuetext'), '0: v 0.5');
    await page.keyboard.press('ArrowRight');
    assert.match(await page.textContent('#chart .at'), /^n: 1$/);
    await page.click('#chart .legend button');
    assert.equal(await page.locator('#chart .curve').count(), 0, 'the legend hides a line');
  });

  test('a chart runs along time, and is refused where there are no numbers', async () => {
    await open();
    // A dropped file makes a table like this: `at` came as a string, and its texts are times.
    await run(`SELECT at, v FROM ${TABLE} ORDER BY n LIMIT 100`);
    await page.focus('#chart svg');
    await page.keyboard.press('Home');
    assert.match(await page.getAttribute('#chart svg', 'aria-valuetext'), /^2026-01-01 00:00:00\.000 UTC: v 0\.5$/);
    await run(`SELECT note, at FROM ${TABLE} ORDER BY n LIMIT 100`);
    assert.equal(await page.isDisabled('#chart-toggle'), true);
  });

  test('the indexes of a table are made, watched and dropped', async () => {
    const name = `indexed_${Date.now()}`;
    const sql = async (text) => {
      const answer = await fetch(`${server.url}/v1/sql`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ sql: text }) });
      assert.equal(answer.status, 200, await answer.text());
    };
    await sql(`CREATE TABLE ${name} (id bigint primary key, "E mail" text, n bigint)`);
    await sql(`INSERT INTO ${name} VALUES (1, 'a@x', 7), (2, 'b@x', 7)`);
    await open();
    await page.fill('#filter', name);
    await page.locator('#tables [role=gridcell]', { hasText: name }).waitFor();
    await page.press('#filter', 'Enter');
    await page.locator('#indexes-none:not([hidden])').waitFor();
    await page.fill('#index-columns', 'E mail');
    await page.check('#index-unique');
    await page.click('#index-make');
    const line = page.locator('#indexes-list > li');
    await line.locator('.stage', { hasText: 'ready' }).waitFor();
    assert.match(await line.locator('.mono').textContent(), /_E mail_key$/);
    assert.equal(await line.locator('.tag').textContent(), 'unique');
    assert.equal(await line.locator('.of').textContent(), 'E mail');
    assert.equal(await page.inputValue('#index-columns'), '', 'the form is empty for the next one');
    // New rows are indexed, and the page shows it without a reload.
    await sql(`INSERT INTO ${name} VALUES (3, 'c@x', 8)`);
    await line.locator('span', { hasText: /^3 rows, / }).waitFor();
    // Two rows have n = 7: the page shows the error, and no index is made.
    await page.fill('#index-columns', 'n');
    await page.check('#index-unique');
    await page.press('#index-columns', 'Enter');
    await page.locator('#indexes-error:not([hidden])').waitFor();
    assert.match(await page.textContent('#indexes-error'), /two rows have n = 7/);
    forgiveFailedRequests();
    await page.uncheck('#index-unique');
    await page.click('#index-make');
    await line.nth(1).waitFor();
    assert.equal(await page.isVisible('#indexes-error'), false);
    assert.equal(await page.textContent('#indexes-count'), '2');
    // The first press asks for confirmation.
    const drop = line.nth(1).locator('button');
    await page.setViewportSize({ width: 360, height: 900 });
    const { width, height } = await drop.boundingBox();
    assert.ok(width >= 40 && height >= 40, `a finger hits ${width} by ${height}`);
    await page.setViewportSize({ width: 1280, height: 900 });
    await drop.click();
    assert.equal(await drop.textContent(), 'Drop it?');
    assert.equal(await line.count(), 2);
    await drop.click();
    await page.waitForFunction(() => document.querySelectorAll('#indexes-list > li').length === 1);
    // An index that another client made is shown with the next rows.
    await sql(`CREATE INDEX ON ${name} (n)`);
    await sql(`INSERT INTO ${name} VALUES (4, 'd@x', 9)`);
    await line.nth(1).waitFor();
  });

  test('a table is chosen by click or Enter: its columns appear and a query for it', async () => {
    await open();
    await page.fill('#filter', TABLE);
    await page.locator('#tables [role=gridcell]', { hasText: TABLE }).click();
    await page.locator('#columns-list li').first().waitFor();
    const columns = await page.locator('#columns-list li span:first-child').allTextContents();
    for (const name of ['n', 'v', 'note', 'at']) assert.ok(columns.includes(name), `${name} in ${columns}`);
    assert.match(await page.inputValue('#sql'), new RegExp(`^SELECT .*\\s+FROM ${TABLE}\\s+LIMIT 100$`));
    await page.fill('#sql', '');
    await page.focus('#filter');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    assert.match(await page.inputValue('#sql'), new RegExp(`FROM ${TABLE}`));
    await page.click('#columns-run');
    await page.locator('#result:not([hidden])').waitFor();
  });

  test('the history brings earlier queries back', async () => {
    await open();
    await run('SELECT 1 AS first');
    await run('SELECT 2 AS second');
    await page.fill('#sql', 'SELECT dra');
    await page.press('#sql', 'Alt+ArrowUp');
    await page.press('#sql', 'Alt+ArrowUp');
    assert.equal(await page.inputValue('#sql'), 'SELECT 1 AS first');
    await page.press('#sql', 'Alt+ArrowDown');
    await page.press('#sql', 'Alt+ArrowDown');
    assert.equal(await page.inputValue('#sql'), 'SELECT dra');
  });

  test('wrong SQL shows code, message and hint as the server gave them', async () => {
    await open();
    const wrong = `SELECT n FROM ${TABLE}x`;
    const told = (await (await fetch(`${server.url}/v1/sql`, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ sql: wrong, params: [] }),
    })).json()).error;
    await run(wrong);
    const shown = await page.textContent('#error');
    for (const part of [told.code, told.message, told.hint]) assert.ok(part && shown.includes(part), `${part} in ${shown}`);
    assert.equal(await page.getAttribute('#error', 'role'), 'alert');
    await run('SELECT 1 AS one');
    assert.equal(await page.isVisible('#error'), false);
    forgiveFailedRequests();
  });

  test('Escape cancels a running query', async () => {
    await open({ prepare: (p) => p.route('**/v1/sql', () => {}) });
    await page.fill('#sql', 'SELECT 1');
    await page.press('#sql', 'Control+Enter');
    await page.locator('#elapsed', { hasText: /\d\.\d s/ }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByText(/^Cancelled after/).waitFor();
    assert.equal(await page.isDisabled('#cancel'), true);
  });

  test('a refused request asks for the key, and the key is sent from then on', async () => {
    const seen = [];
    await open({
      prepare: (p) => p.route('**/v1/sql', (route) => {
        seen.push(route.request().headers().authorization);
        return seen.length > 1 ? route.continue() : route.fulfill({ status: 401, json: { error: { code: 'unauthorized', message: 'No key came.', hint: 'Bring one.' } } });
      }),
    });
    await run('SELECT 1 AS one');
    // The heading already says it; the server's message would repeat it.
    assert.equal(await page.isVisible('#access-why'), false);
    assert.equal(await page.locator('#access p:visible').count(), 1);
    await page.keyboard.type('secret');
    await page.keyboard.press('Enter');
    await page.locator('#access[hidden]').waitFor({ state: 'attached' });
    await page.route('**/v1/sql', (route) => {
      seen.push(route.request().headers().authorization);
      return route.fulfill({ json: { columns: [], rows: [], count: 0, took_ms: 1 } });
    });
    await run('SELECT 1 AS one');
    assert.deepEqual(seen, [undefined, 'Bearer secret']);
    assert.equal(await page.evaluate(() => localStorage.getItem('polynya.key')), null, 'the key is kept for the tab only');
    forgiveFailedRequests();
  });

  test('a lost connection shows and comes back', async () => {
    let asked = 0;
    await open({
      prepare: async (p) => {
        await p.addInitScript(() => document.addEventListener('readystatechange', () => {
          const node = document.getElementById('state');
          window.states ??= [];
          new MutationObserver(() => {
            if (window.states.at(-1) !== node.dataset.state) window.states.push(node.dataset.state);
          }).observe(node, { attributeFilter: ['data-state'] });
        }, { once: true }));
        await p.route('**/_/live', (route) => {
          asked++;
          if (asked === 1) return route.fulfill({ contentType: 'text/event-stream', body: 'data: {"version":"9.9","uptime_s":61,"tables":[]}\n\n' });
          return asked === 2 ? route.abort() : route.continue();
        });
      },
    });
    await page.waitForFunction(() => window.states.join() === 'live,connecting,live');
    assert.equal(asked, 3);
    forgiveFailedRequests();
  });

  async function drop(name, content) {
    await page.evaluate(([fileName, fileContent]) => {
      const carried = new DataTransfer();
      carried.items.add(new File([fileContent], fileName));
      for (const type of ['dragenter', 'dragover', 'drop']) {
        document.body.dispatchEvent(new DragEvent(type, { dataTransfer: carried, bubbles: true, cancelable: true }));
      }
    }, [name, content]);
  }

  test('a dropped CSV file becomes a table with types', async () => {
    await open();
    await drop('Page Drop.csv', 'city,zip,height,"open"\r\n"Köln, am ""Rhein""",01234,1,true\r\nBonn,50000,2.5,false\r\n');
    await page.locator('#upload-form:not([hidden])').waitFor();
    assert.equal(await page.inputValue('#upload-table'), 'page_drop');
    await page.keyboard.press('Enter');
    await page.getByText('2 rows of Page Drop.csv are in page_drop.').waitFor();
    await page.click('#upload-look');
    await page.locator('#result:not([hidden])').waitFor();
    await run('SELECT city, zip, height, "open" FROM page_drop LIMIT 2');
    assert.deepEqual(await cells(0), ['Köln, am "Rhein"', '01234', '1', 'true']);
    forgiveFailedRequests(); // The check for the table's existence is answered with 404.
  });

  test('a dropped access log is parsed into columns', async () => {
    await open();
    await drop('page_access.log', 'www:80 192.0.2.7 - - [01/Jan/2026:10:00:00 +0200] "GET /a?q="x"&y HTTP/1.1" 200 512 "-" "say \\"hi\\"" 0.003\nno log line\n');
    await page.locator('#upload-form:not([hidden])').waitFor();
    await page.keyboard.press('Enter');
    await page.getByText('2 rows of page_access.log are in page_access. 1 line could not be taken apart: see the column "line".').waitFor();
    await run('SELECT host, client, method, path, status, bytes, referer, agent, extra FROM page_access WHERE line IS NULL LIMIT 1');
    assert.deepEqual(await cells(0), ['www:80', '192.0.2.7', 'GET', '/a?q="x"&y', '200', '512', 'null', 'say "hi"', '0.003']);
    forgiveFailedRequests();
  });

  test('a bad line in a dropped file is named, and what is no data is refused', async () => {
    await open();
    await drop('page_bad.ndjson', '{"a":1}\n{"a":\n');
    await page.locator('#upload-form:not([hidden])').waitFor();
    await page.keyboard.press('Enter');
    await page.locator('#upload-error:not([hidden])').waitFor();
    assert.match(await page.textContent('#upload-error'), /\brows? \d/);
    assert.match(await page.textContent('#upload-status'), /Nothing was added/);
    await page.click('#upload-done');
    await drop('picture.png', '\x89PNG\0\0');
    await page.locator('#upload-error', { hasText: 'not a text file' }).waitFor();
    forgiveFailedRequests();
  });

  // A test of `polynya ingest` reads the same cases: dropped and ingested files make the same table.
  for (const item of JSON.parse(readFileSync(new URL('../files/cases.json', import.meta.url)))) {
    test(`the shared case of a file, ${item.file}: ${item.why}`, async () => {
      await open();
      await drop(item.file, item.text);
      const form = page.locator('#upload-form:not([hidden])');
      const after = page.locator('#upload-after:not([hidden])');
      await form.or(after).first().waitFor();
      if (await form.isVisible()) {
        if (item.table) assert.equal(await page.inputValue('#upload-table'), item.table);
        await page.keyboard.press('Enter');
        await after.waitFor();
      }
      const told = (await page.textContent('#upload-error')).toLowerCase();
      if (item.error !== undefined) {
        assert.equal(await page.isVisible('#upload-error'), true);
        assert.ok(told.includes(item.error), told);
      } else {
        assert.match(await page.textContent('#upload-status'), new RegExp(`^${item.rows} rows? of `), told);
        const made = await (await fetch(`${server.url}/v1/tables/${item.table}`)).json();
        assert.deepEqual(made.columns.filter((c) => !c.name.startsWith('_')).map((c) => [c.name, c.type]), item.columns);
      }
      forgiveFailedRequests();
    });
  }

  test('this machine is drawn live where it is recorded, by keyboard too, and not elsewhere', async () => {
    const asked = [];
    await open({ at: recording, prepare: async (p) => p.on('request', (r) => { if (r.url().endsWith('/v1/sql')) asked.push(r.postData()); }) });
    await page.locator('#machine:not([hidden])').waitFor();
    await page.locator('.meter dd', { hasText: /^\d+(\.\d)? %$/ }).first().waitFor();
    assert.deepEqual(await page.locator('.meter button').allTextContents(), ['CPU', 'Memory', 'Disk', 'Network', 'Pressure']);
    await page.waitForFunction(() => document.querySelector('.meter path').getAttribute('d').split(/[ML]/).length > 4);
    assert.match(await page.textContent('.meter:nth-child(2)'), /of \d.*B.*\d.*B$/s);
    await page.locator('#processes tbody tr:first-child td:first-child', { hasText: /./ }).waitFor();
    assert.match(await page.textContent('#processes tbody tr:first-child td:nth-child(2)'), /^\d.* %$/);

    await page.focus('.meter button');
    await page.keyboard.press('Enter');
    await page.locator('#chart .curve').first().waitFor();
    assert.match(await page.inputValue('#sql'), /'cpu_busy'/);

    // Paused or out of sight, the page sends no requests. Rounds come every two seconds.
    const quiet = async () => {
      const before = asked.length;
      await page.waitForTimeout(4500);
      assert.ok(asked.length <= before + 1, 'at most what was under way');
    };
    await page.click('#machine-pause');
    assert.equal(await page.getAttribute('#machine-pause', 'aria-pressed'), 'true');
    await quiet();
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await page.click('#machine-pause');
    await quiet();
    const before = asked.length;
    await page.evaluate(() => {
      delete document.hidden;
      document.dispatchEvent(new Event('visibilitychange'));
    });
    for (const end = Date.now() + WAIT_MS; asked.length === before && Date.now() < end;) await page.waitForTimeout(50);
    assert.ok(asked.length > before, 'it goes on once it is seen');

    await run("SELECT count(*) AS n FROM polynya.requests WHERE route = '/v1/sql'");
    if (await page.isVisible('#error')) assert.match(await page.textContent('#error'), /polynya\.requests/, 'nothing was recorded at all');
    else assert.deepEqual(await cells(0), ['0'], 'its own questions are not recorded');
    forgiveFailedRequests();

    await context.close();
    await open();
    if (recording !== server) assert.equal(await page.isVisible('#machine'), false);
  });

  // The pauses between its requests had grown to half a minute, so the panel stood still while the page claimed to be live.
  test('this machine goes on as soon as the server is back', async () => {
    await open({
      at: recording,
      // A route cannot end a running stream, so the page's own fetch is cut off.
      prepare: (p) => p.addInitScript(() => {
        const { fetch } = window;
        const gone = () => new TypeError('away');
        const cut = () => new TransformStream({ transform: (chunk, to) => (window.away ? to.error(gone()) : to.enqueue(chunk)) });
        window.fetch = async (path, options) => {
          if (window.away) throw gone();
          const answer = await fetch(path, options);
          return path === '/_/live' ? new Response(answer.body.pipeThrough(cut()), answer) : answer;
        };
      }),
    });
    await page.locator('.meter dd', { hasText: /%$/ }).first().waitFor();
    await page.evaluate(() => { window.away = true; });
    await page.locator('#state[data-state=connecting]').waitFor();
    // Requests failed after 2, 4 and 8 s; the next one would come after 16 s.
    await page.waitForTimeout(14_500);
    const asked = page.waitForRequest((r) => r.url().endsWith('/v1/sql') && /polynya\.metrics/.test(r.postData()), { timeout: 15_000 });
    await page.evaluate(() => { window.away = false; });
    await page.locator('#state[data-state=live]').waitFor({ timeout: 15_000 });
    const live = Date.now();
    await asked;
    assert.ok(Date.now() - live < 1500, `${Date.now() - live} ms after the page was live`);
    forgiveFailedRequests();
  });

  test('on a phone the list of tables shows what fits whole', async () => {
    await fetch(`${server.url}/v1/tables/narrow/rows`, { method: 'POST', body: '{"a":1}' });
    await open({ width: 360 });
    await page.locator('#tables .row').first().waitFor();
    assert.deepEqual(await page.locator('#tables [role=columnheader]').allTextContents(), ['name', 'rows', 'size']);
    assert.ok(await page.$eval('#tables', (node) => node.scrollWidth <= node.clientWidth), 'nothing is cut');
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.locator('#tables [role=columnheader]', { hasText: 'key' }).waitFor();
  });

  for (const scheme of ['light', 'dark']) {
    test(`this machine fits 360 pixels in the ${scheme} scheme`, async () => {
      await open({ at: recording, width: 360, scheme });
      await page.locator('.meter dd', { hasText: /%$/ }).first().waitFor();
      await page.locator('#processes tbody tr:first-child td:first-child', { hasText: /./ }).waitFor();
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
      const cut = await page.evaluate(() => [...document.querySelectorAll('.meter dd, .meter button, #processes td:nth-child(n + 2)')]
        .filter((n) => n.scrollWidth > n.clientWidth + 1 && getComputedStyle(n).display !== 'inline').map((n) => n.textContent));
      assert.deepEqual(cut, [], 'no number is cut');
      if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/machine-360-${scheme}.png`, fullPage: true });
    });
  }

  test('what a key may not do is an error, not a question for a key', async () => {
    await open({ prepare: (p) => p.route('**/v1/sql', (route) => route.fulfill({ status: 403, json: { error: { code: 'forbidden', message: 'This key only reads.', hint: 'Ask for another.' } } })) });
    await run('DELETE FROM x');
    assert.equal(await page.textContent('#error'), 'forbidden This key only reads.Ask for another.');
    assert.equal(await page.isVisible('#access'), false);
    forgiveFailedRequests();
  });

  test('a button that says Copied goes back to its label however often it is pressed', async () => {
    await open({ first: true });
    await run(`SELECT n, note FROM ${TABLE} ORDER BY n LIMIT 2`);
    for (const [id, label, word] of [['#copy-csv', 'Copy CSV', 'Copied'], ['#card-send', 'Send', 'Sent']]) {
      await page.click(id);
      await page.locator(id, { hasText: word }).waitFor();
      await page.click(id);
      await page.locator(id, { hasText: label }).waitFor();
    }
  });

  test('a result names its query once the box holds another', async () => {
    await open();
    await run(`SELECT n FROM ${TABLE} ORDER BY n LIMIT 2`);
    assert.equal(await page.isVisible('#result-of'), false);
    await page.focus('#sql');
    await page.keyboard.type(' -- more');
    assert.equal(await page.textContent('#result-of'), `This is the answer to: SELECT n FROM ${TABLE} ORDER BY n LIMIT 2`);
    await page.fill('#filter', TABLE);
    await page.locator('#tables [role=gridcell]', { hasText: TABLE }).click();
    assert.equal(await page.isVisible('#result-of'), true, 'the query of a chosen table is another one too');
    await run('SELECT 1 AS one');
    assert.equal(await page.isVisible('#result-of'), false);
  });

  test('a chart begins with lines of one unit and size, and offers the others', async () => {
    await open();
    await run('SELECT n AS n, 200 + n AS status, 1000.5 * n + 1 AS duration_us, 50 + n AS bytes_in, 90 - n AS bytes_out FROM generate_series(1, 20) AS s(n)');
    if (!await page.isVisible('#chart')) await page.click('#chart-toggle');
    await page.locator('#chart .curve').first().waitFor();
    const pressed = await page.locator('#chart .legend button').evaluateAll((all) => all.map((b) => [b.firstChild.textContent, b.getAttribute('aria-pressed')]));
    assert.deepEqual(pressed, [['status', 'false'], ['duration_us', 'false'], ['bytes_in', 'true'], ['bytes_out', 'true']]);
    await page.click('#chart .legend button:has-text("duration_us")');
    assert.equal(await page.locator('#chart .curve').count(), 3);
  });

  test('an example that comes while somebody is about to write gives way', async () => {
    let release;
    const focused = new Promise((resolve) => { release = resolve; });
    await open({ prepare: (page) => page.route('**/v1/tables', async (route) => { await focused; await route.continue(); }) });
    await page.focus('#sql');
    assert.equal(await page.inputValue('#sql'), '');
    release();
    await page.waitForFunction(() => document.querySelector('#sql').value !== '');
    await page.keyboard.type('SELECT 1 AS one');
    assert.equal(await page.inputValue('#sql'), 'SELECT 1 AS one');
  });

  test('at 360 pixels nothing makes the page scroll sideways', async () => {
    await open({ width: 360, first: true });
    const overflow = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(await overflow(), 0, 'first visit');
    await run(QUERY);
    await page.click('#chart-toggle');
    await page.locator('#tables [role=gridcell]').first().click();
    await page.locator('#columns-list li').first().waitFor();
    assert.equal(await overflow(), 0, 'with result, chart and columns');
    await drop('page_phone.csv', 'a,b\n1,2\n');
    await page.locator('#upload-form:not([hidden])').waitFor();
    assert.equal(await overflow(), 0, 'with a file');
  });

  for (const scheme of ['light', 'dark']) {
    test(`text has the contrast of WCAG AA in the ${scheme} scheme`, async () => {
      await open({ at: recording, scheme, first: true });
      if (recording !== server) await page.locator('.meter dd', { hasText: /%$/ }).first().waitFor();
      await run(`SELECT n FROM ${TABLE}x`);
      await page.locator('#error:not([hidden])').waitFor();
      const low = await page.evaluate(() => {
        const channels = (color) => color.match(/[\d.]+/g).map(Number);
        const luminance = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
          .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const ground = (node) => {
          for (; node; node = node.parentElement) {
            const c = channels(getComputedStyle(node).backgroundColor);
            if (c.length === 3 || c[3] === 1) return c;
          }
          return channels(getComputedStyle(document.documentElement).backgroundColor);
        };
        const found = [];
        for (const node of document.querySelectorAll('body *')) {
          const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
          if (!own || !node.checkVisibility() || node.disabled) continue;
          const [a, b] = [luminance(channels(getComputedStyle(node).color)), luminance(ground(node))].sort((x, y) => y - x);
          const ratio = (a + 0.05) / (b + 0.05);
          if (ratio < 4.5) found.push(`${node.tagName}.${node.className} “${node.textContent.slice(0, 30)}” ${ratio.toFixed(2)}`);
        }
        return found;
      });
      assert.deepEqual(low, []);
      forgiveFailedRequests();
    });
  }

  test('? opens the list of keys and Escape closes it', async () => {
    await open();
    await page.keyboard.press('?');
    assert.equal(await page.isVisible('#keys'), true);
    await page.keyboard.press('Escape');
    assert.equal(await page.isVisible('#keys'), false);
  });
});
