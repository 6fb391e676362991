// Tests the storm's part of the page: started, watched and ended by keyboard, on a phone, in dark mode. The server's answers are
// mocked, so that nothing depends on the speed of the machine. The real answers are tested with the program.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { chromium } from 'playwright-core';
import { startServer } from './server.mjs';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const missing = !existsSync(CHROMIUM) && `Chromium is not at ${CHROMIUM}. Install it (Debian: apt-get install chromium) or set CHROMIUM.`;
if (missing && process.env.CI) throw new Error(missing);

const WAIT_MS = 30_000;
const KINDS = ['rows', 'sql', 'search', 'pages', 'ask'];
const background = { rows_indexed: 123456, indexes_built: 1, pages_rewritten: 500, page_rounds: 1, slowest_round_ms: 700, lake_commits: 2, seals: 3, merges: 1 };
const second = (phase, at) => ({
  phase, at_s: at, events: at * 1000, events_per_s: 1000, background,
  kinds: KINDS.map((kind, i) => ({ kind, answered: 10, p50_ms: 0.5 + i, p99_ms: 2 + i, longest_ms: phase === 'storm' ? 40 : 5, refused: 0, wrong: 0 })),
});
const latency = { count: 600, p50_ms: 1.5, p99_ms: 4.25, longest_ms: 41.5 };
const outcome = {
  last_line: '9,827,000 events in, 123,456 rows indexed, 30,000 reads answered, longest read 41.5 ms, 1 wrong answers',
  kinds: KINDS.map((kind) => ({ kind, quiet: latency, storm: latency, refused: 0, wrong: kind === 'sql' ? 1 : 0 })),
  claims: [{ claim: 'no read refused', holds: true, found: '0' }, { claim: 'nothing wrong', holds: false, found: '1' }],
  failures: [], verified: { wrong: [] }, examples: ['sql: <b>5</b> expected'],
};

describe('the storm', { skip: missing, timeout: 200_000 }, () => {
  let server;
  let browser;
  let context;
  let page;
  let complaints;
  /** What the server says next, and what it was asked. */
  let said;
  let asked;

  before(async () => {
    server = await startServer();
    browser = await chromium.launch({
      executablePath: CHROMIUM,
      args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    });
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });
  beforeEach(() => {
    complaints = [];
    asked = [];
    said = { state: 'running', wanted: { seconds: 10, quiet_seconds: 10, load: 'full', scale: 0.1 }, phase: null, seconds: [], outcome: null, error: null };
  });
  afterEach(async () => {
    await context?.close();
    context = undefined;
    assert.deepEqual(complaints, [], 'the browser console stays clean');
  });

  async function open({ width = 1280, scheme = 'light' } = {}) {
    context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, reducedMotion: 'reduce' });
    page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    page.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') complaints.push(m.text()); });
    page.on('pageerror', (e) => complaints.push(String(e.stack ?? e)));
    await page.route(/\/v1\/storm/, (route) => {
      const request = route.request();
      const after = Number(new URL(request.url()).searchParams.get('after') ?? 0);
      asked.push([request.method(), request.postDataJSON()]);
      if (request.method() === 'DELETE') said = { ...said, state: 'stopped' };
      route.fulfill({ status: request.method() === 'GET' ? 200 : 202, json: { ...said, after: said.seconds.length, seconds: said.seconds.slice(after) } });
    });
    await page.goto(`${server.url}/_/`);
    await page.locator('#state[data-state=live]').waitFor();
  }

  const curves = () => page.locator('#storm-charts .curve').count();
  const shows = (id, words) => page.waitForFunction(([id, words]) => document.getElementById(id).textContent.includes(words), [id, words]);
  const overflow = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

  test('nothing is asked until somebody starts one; then it is started, drawn and ended by keyboard', async () => {
    await open();
    assert.deepEqual(asked, [], 'a page that is only looked at asks for no storm');
    assert.equal(await page.isVisible('#storm-live'), false);
    await page.selectOption('#storm-length', '10');
    await page.focus('#storm-start');
    await page.keyboard.press('Enter');
    await page.locator('#storm-live:not([hidden])').waitFor();
    assert.deepEqual(asked[0], ['POST', { seconds: 10, quiet_seconds: 10, load: 'full', scale: 0.1 }]);
    assert.equal(await page.isDisabled('#storm-start'), true, 'one at a time');
    said.phase = { phase: 'quiet', text: 'readers alone', seconds: 10 };
    said.seconds = [second('quiet', 1), second('quiet', 2)];
    await shows('storm-phase', 'Quiet: readers alone');
    said.phase = { phase: 'storm', text: 'everything', seconds: 10 };
    said.seconds = [...said.seconds, second('storm', 1), second('storm', 2), second('storm', 3)];
    await shows('storm-now', '123,456 rows indexed');
    assert.equal(await curves(), 15, 'three lines for each of five kinds');
    assert.match(await page.getAttribute('#storm-charts svg', 'aria-label'), /Rows: longest 5\.00 ms in the quiet time, 40\.0 ms in the storm/);
    const d = await page.getAttribute('#storm-charts .curve', 'd');
    assert.equal(d.split('M').length - 1, 2, 'quiet time and storm are not joined by a line');
    await page.focus('#storm-stop');
    await page.keyboard.press('Enter');
    await shows('storm-phase', 'Stopped');
    assert.ok(asked.some(([method]) => method === 'DELETE'));
    assert.equal(await page.evaluate(() => document.activeElement.id), 'storm-start', 'the keyboard goes on from there');
    const before = asked.length;
    await page.waitForTimeout(1500);
    assert.equal(asked.length, before, 'nothing is asked once it is over');
  });

  test('the end shows the figures, the limits and what was wrong, as text, and comes back after a reload', async () => {
    await open();
    await page.click('#storm-start');
    said = { ...said, state: 'done', seconds: [second('quiet', 1), second('storm', 1)], outcome };
    await shows('storm-last', '9,827,000 events in');
    assert.equal(await page.locator('#storm-kinds tbody tr').count(), 5);
    assert.deepEqual(await page.locator('#storm-kinds tbody tr').nth(1).locator('td').allTextContents(),
      ['1.50 ms', '4.25 ms', '41.5 ms', '1.50 ms', '4.25 ms', '41.5 ms', '0', '1']);
    assert.equal(await page.locator('#storm-claims .missed').count(), 2);
    assert.match(await page.textContent('#storm-claims'), /sql: <b>5<\/b> expected/, 'data is text, never markup');
    assert.equal(await page.isDisabled('#storm-start'), false);
    await page.reload();
    await shows('storm-last', '9,827,000 events in');
  });

  test('a refusal is shown and can be tried again', async () => {
    await open();
    await page.unroute(/\/v1\/storm/);
    await page.route(/\/v1\/storm/, (route) => route.fulfill({ status: 403, json: { error: { code: 'forbidden', message: 'from this machine only', hint: 'go there' } } }));
    await page.click('#storm-start');
    await shows('storm-error', 'from this machine only');
    assert.equal(await page.isDisabled('#storm-start'), false);
    complaints = complaints.filter((c) => !c.startsWith('Failed to load resource'));
  });

  for (const [width, scheme] of [[360, 'light'], [360, 'dark'], [1280, 'dark']]) {
    test(`nothing sticks out at ${width} px in the ${scheme} scheme`, async () => {
      await open({ width, scheme });
      await page.click('#storm-start');
      said = { ...said, state: 'done', seconds: Array.from({ length: 20 }, (_, i) => second(i < 10 ? 'quiet' : 'storm', (i % 10) + 1)), outcome };
      await shows('storm-last', '9,827,000 events in');
      assert.equal(await overflow(), 0);
      // The table scrolls by itself; everything else fits its panel.
      const out = await page.evaluate(() => {
        const edge = document.getElementById('storm').getBoundingClientRect().right;
        return [...document.querySelectorAll('#storm *')].filter((n) => !n.closest('.kinds') && n.checkVisibility() && n.getBoundingClientRect().right > edge).map((n) => n.id || n.tagName);
      });
      assert.deepEqual(out, []);
      if (process.env.SHOTS) await page.locator('#storm').screenshot({ path: `${process.env.SHOTS}/storm-${width}-${scheme}.png` });
    });
  }
});
