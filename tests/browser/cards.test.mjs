// Tests the five cards of the first page, against the demo with a vault. Each has a command that works when pasted, its current
// answer, and a link.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';
import { startServer } from './server.mjs';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const missing = !existsSync(CHROMIUM) && `Chromium is not at ${CHROMIUM}. Install it (Debian: apt-get install chromium) or set CHROMIUM.`;
if (missing && process.env.CI) throw new Error(missing);
const elsewhere = process.env.POLYNYA_URL && 'these cards need a server of their own (POLYNYA_BIN)';

// The limit is generous, since the first answers come while the machine is busy starting.
const WAIT_MS = 30_000;
const CARDS = ['ingest', 'tables', 'search', 'ask', 'site'];
const run = promisify(execFile);

describe('the five cards', { skip: missing || elsewhere, timeout: 200_000 }, () => {
  let vault;
  let server;
  let bare;
  let browser;
  let context;
  let page;
  let complaints;

  before(async () => {
    vault = await mkdtemp(join(tmpdir(), 'polynya-cards-'));
    await writeFile(join(vault, 'index.md'), '# Harbour\n\nSee [[Lighthouses]].\n');
    await writeFile(join(vault, 'Lighthouses.md'), '# Lighthouses\n\nThey <b>stand</b> at the sea.\n');
    await writeFile(join(vault, 'mine.md'), '---\npublish: false\n---\n# Diary\n\nnobody reads this\n');
    server = await startServer([vault], 'demo');
    bare = await startServer();
    browser = await chromium.launch({
      executablePath: CHROMIUM,
      args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    });
    const deadline = Date.now() + WAIT_MS;
    while (!(await fetch(`${server.url}/Lighthouses`).then((answer) => answer.ok))) {
      assert.ok(Date.now() < deadline, 'the notes are not published');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
    await bare?.stop();
    if (vault) await rm(vault, { recursive: true, force: true });
  });
  beforeEach(() => { complaints = []; });
  afterEach(async () => {
    await context?.close();
    context = undefined;
    assert.deepEqual(complaints, [], 'the browser console stays clean');
  });

  async function open({ width = 1280, scheme = 'light', at = server } = {}) {
    context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, reducedMotion: 'reduce' });
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    page.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') complaints.push(m.text()); });
    page.on('pageerror', (e) => complaints.push(String(e.stack ?? e)));
    page.on('request', (r) => { if (!r.url().startsWith(at.url)) complaints.push(`asked an outsider: ${r.url()}`); });
    await page.goto(`${at.url}/_/`);
    await page.locator('#state[data-state=live]').waitFor();
  }

  /** Every card has answered. */
  const answered = () => page.waitForFunction(() => {
    const all = [...document.querySelectorAll('#cards .result')];
    return all.length === 5 && all.every((result) => result.textContent !== '…');
  });
  const result = (card) => page.textContent(`#card-${card} .result`);
  const shows = (card, pattern) => page.waitForFunction(
    ([id, source]) => new RegExp(source).test(document.querySelector(`#card-${id} .result`).textContent), [card, pattern.source]);
  const copied = async (card) => {
    await page.click(`#card-${card} button:has-text("Copy")`);
    return page.evaluate(() => navigator.clipboard.readText());
  };

  test('each has a command, what it answers now, and one link', async () => {
    await open();
    await answered();
    for (const card of CARDS) {
      assert.equal(await page.locator(`#card-${card} a:visible`).count(), 1, card);
      assert.equal(await page.locator(`#card-${card} pre`).count(), 1, card);
    }
    assert.match(await result('ingest'), /No row yet/);
    await shows('tables', /\d+ rows? in [\d.]+ ms/);
    assert.match(await result('ask'), /full/);
    await shows('site', /2 notes published.*first page: .*newest: (Harbour|Lighthouses)/);
    // No note mentions snapshots, so the card searches for a word of a note.
    await shows('search', /1 hit.*(Harbour|Lighthouses)/);
    assert.ok(!(await page.content()).includes('Diary'), 'what is not published is not shown');
  });

  test('no line of a command or an answer is cut in half, and what is longer shows a shadow', async () => {
    await open();
    await answered();
    const boxes = await page.$$eval('#cards pre', (all) => all.map((box) => {
      const style = getComputedStyle(box);
      const text = box.clientHeight - Number.parseFloat(style.paddingTop) - Number.parseFloat(style.paddingBottom);
      const lines = text / Number.parseFloat(getComputedStyle(box.firstElementChild).lineHeight);
      return { lines, longer: box.scrollHeight > box.clientHeight, shadow: style.backgroundImage.split('linear-gradient').length - 1 };
    }));
    assert.ok(boxes.some((box) => box.longer) && boxes.some((box) => !box.longer), JSON.stringify(boxes));
    for (const { lines, shadow } of boxes) {
      assert.ok(Math.abs(lines - Math.round(lines)) < 0.05, `${lines} lines`);
      assert.equal(shadow, 4);
    }
    assert.ok(await page.$eval('#card-ask .result', (box) => box.scrollHeight <= box.clientHeight), 'the answer is whole');
  });

  test('each command works as it is copied', async () => {
    await open();
    await answered();
    await shows('search', /hit/);
    const environment = { ...process.env, PATH: `${dirname(process.env.POLYNYA_BIN)}:${process.env.PATH}` };
    for (const [card, expected] of [['ingest', /"count":1/], ['tables', /name/], ['search', /Harbour|Lighthouses/], ['ask', /full/], ['site', /^200, \d+ bytes/]]) {
      const line = await copied(card);
      assert.equal(line, await page.textContent(`#card-${card} code`), card);
      const { stdout } = await run('sh', ['-c', line], { cwd: vault, env: environment });
      assert.match(stdout, expected, line);
    }
    // A row posted from outside appears on the card without a reload.
    await shows('ingest', /1 row on disk/);
  });

  test('links lead on, by keyboard too', async () => {
    await open();
    await answered();
    await page.click('#card-send');
    await shows('ingest', /rows? on disk/);
    await page.locator('#card-ingest a', { hasText: 'See the rows' }).press('Enter');
    await page.locator('#result:not([hidden])').waitFor();
    assert.match(await page.inputValue('#sql'), /FROM hello/);
    await page.focus('#card-search a');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'search');
    await page.locator('#search-hits a').first().waitFor();
    await page.focus('#card-ask a');
    await page.keyboard.press('Enter');
    await page.keyboard.type('what tables are there?');
    await page.keyboard.press('Enter');
    await shows('ask', /hello/);
    assert.match(await page.textContent('#card-ask code'), /'what tables are there\?'/);
    await page.click('#card-site a');
    await page.locator('h1', { hasText: 'Harbour' }).waitFor();
  });

  test('a server without notes and records says what is missing, and asks for nothing that is not there', async () => {
    await open({ at: bare });
    await answered();
    assert.match(await result('site'), /Nothing is published here/);
    const told = /^polynya demo .*--listen 127\.0\.0\.1:(\d+) /.exec(await page.textContent('#card-site code'));
    assert.equal(Number(told[1]), Number(new URL(bare.url).port) + 1, 'not where this server listens');
    assert.match(await result('search'), /Nothing to search yet/);
    await shows('tables', /\d+ rows? in/);
    await page.click('#hints-close');
    const asked = [];
    page.on('request', (r) => asked.push(r.url()));
    await page.click('#hints-open');
    await page.waitForRequest((r) => r.url().endsWith('/v1/ask'));
    assert.ok(asked.length > 0, 'what is opened again asks again');
  });

  for (const [width, scheme] of [[1280, 'dark'], [820, 'light'], [360, 'light'], [360, 'dark']]) {
    test(`they fit ${width} px, ${scheme}`, async () => {
      await open({ width, scheme });
      await answered();
      const sizes = await page.evaluate(() => ({ page: document.documentElement.scrollWidth, window: innerWidth }));
      assert.ok(sizes.page <= sizes.window, `${sizes.page} px are wider than ${sizes.window}`);
      const cut = await page.evaluate(() => [...document.querySelectorAll('#cards button, #cards a, #cards h3')]
        .filter((e) => e.checkVisibility() && (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)).map((e) => e.textContent));
      assert.deepEqual(cut, []);
      if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, `cards-${width}-${scheme}.png`), fullPage: true });
    });
  }
});
