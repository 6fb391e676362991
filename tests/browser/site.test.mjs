// Tests published pages in real Chromium, from a vault of its own, at 1280 and 360 px, light and dark. SHOTS=DIR keeps
// screenshots.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { chromium } from 'playwright-core';
import { startServer } from './server.mjs';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const missing = !existsSync(CHROMIUM) && `Chromium is not at ${CHROMIUM}. Install it (Debian: apt-get install chromium) or set CHROMIUM.`;
if (missing && process.env.CI) throw new Error(missing);
const elsewhere = process.env.POLYNYA_URL && 'these pages need a server of their own (POLYNYA_BIN)';

const WAIT_MS = 10_000;
const PIXEL = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');
const GUIDE = `---
publish: true
tags: [guide, ice]
date: 2026-11-21
---
# A guide to open water

A polynya stays open where [[Currents|warm currents]] rise. Not published: [[Secret plan]].

> [!note] Good to know
> A callout with \`code\`.

## A table that is wide

| ${Array.from({ length: 12 }, (_, i) => `column ${i}`).join(' | ')} |
|${'---|'.repeat(12)}
| ${Array.from({ length: 12 }, (_, i) => `value_${i}_that_is_long`).join(' | ')} |

## Code

\`\`\`rust
fn main() { println!("${'a long line '.repeat(20)}"); }
\`\`\`

## A picture

![[p.png|40]]

- [x] done
- [ ] open

${Array.from({ length: 6 }, (_, i) => `## Part ${i}\n\n${'Some words about ice and water. '.repeat(40)}\n`).join('\n')}
`;
const FILES = {
  'index.md': '---\npublish: true\n---\n# Welcome\n\nSee the [[guide]].\n',
  'guide.md': GUIDE,
  'sea/Currents.md': '---\npublish: true\n---\n# Currents\n\nBack to the [[guide#Code]].\n',
  'Secret plan.md': '# Secret plan\n\nnobody reads this\n',
  'p.png': PIXEL,
};

describe('a published page', { skip: missing || elsewhere, timeout: 200_000 }, () => {
  let vault;
  let server;
  let browser;
  let context;
  let page;
  let complaints;

  before(async () => {
    vault = await mkdtemp(join(tmpdir(), 'polynya-vault-'));
    for (const [path, text] of Object.entries(FILES)) {
      await mkdir(dirname(join(vault, path)), { recursive: true });
      await writeFile(join(vault, path), text);
    }
    server = await startServer(['--set', `site.vault=${vault}`, '--set', 'site.title=Open water']);
    browser = await chromium.launch({
      executablePath: CHROMIUM,
      args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    });
    await until('/guide', (answer) => answer.status === 200);
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
    if (vault) await rm(vault, { recursive: true, force: true });
  });
  beforeEach(() => { complaints = []; });
  afterEach(async () => {
    await context?.close();
    context = undefined;
    assert.deepEqual(complaints, [], 'the browser console stays clean');
  });

  /** Asks until the answer is as wanted; how many milliseconds it took. */
  async function until(path, is) {
    const start = performance.now();
    for (;;) {
      const answer = await fetch(server.url + path);
      if (await is(answer)) return performance.now() - start;
      assert.ok(performance.now() - start < WAIT_MS, `${path} answers ${answer.status}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  async function open(path, { width = 1280, scheme = 'light' } = {}) {
    context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, reducedMotion: 'reduce' });
    page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    page.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') complaints.push(m.text()); });
    page.on('pageerror', (e) => complaints.push(String(e.stack ?? e)));
    page.on('request', (r) => { if (!r.url().startsWith(server.url)) complaints.push(`asked an outsider: ${r.url()}`); });
    const answer = await page.goto(server.url + path);
    if (process.env.SHOTS) {
      const name = `${path.replaceAll(/[^a-z]/gi, '_')}-${width}-${scheme}.png`;
      await page.screenshot({ path: join(process.env.SHOTS, name), fullPage: true });
    }
    return answer;
  }

  /** Relative luminance of a CSS color. */
  const luminance = (css) => {
    const [r, g, b] = css.match(/[\d.]+/g).map(Number).map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };

  for (const width of [1280, 360]) {
    for (const scheme of ['light', 'dark']) {
      test(`fits ${width} px and can be read, ${scheme}`, async () => {
        const answer = await open('/guide', { width, scheme });
        assert.equal(answer.status(), 200);
        const sizes = await page.evaluate(() => ({ page: document.documentElement.scrollWidth, window: innerWidth }));
        assert.ok(sizes.page <= sizes.window, `${sizes.page} px are wider than ${sizes.window}`);
        const colors = await page.evaluate(() => {
          const opaque = (e) => {
            const color = getComputedStyle(e).backgroundColor;
            return color === 'rgba(0, 0, 0, 0)' && e.parentElement ? opaque(e.parentElement) : color;
          };
          return [...document.querySelectorAll('article h1, article p, article a, article td, article pre, nav a')].map((e) => ({
            what: `${e.tagName} ${e.textContent.slice(0, 30)}`, ink: getComputedStyle(e).color, paper: opaque(e),
          }));
        });
        assert.ok(colors.length > 10);
        for (const { what, ink, paper } of colors) {
          const [a, b] = [luminance(ink), luminance(paper === 'rgba(0, 0, 0, 0)' ? 'rgb(255,255,255)' : paper)].sort((x, y) => y - x);
          assert.ok((a + 0.05) / (b + 0.05) >= 4.5, `${what}: ${ink} on ${paper}`);
        }
        const dark = luminance(await page.evaluate(() => getComputedStyle(document.body).backgroundColor)) < 0.2;
        assert.equal(dark, scheme === 'dark', 'the scheme that the reader wants');
        assert.equal(await page.locator('article img').evaluate((img) => img.naturalWidth), 1, 'the picture is there');
      });
    }
  }

  test('a wide table takes the free width and shows at its edges that there is more', async () => {
    for (const [width, wider] of [[1280, true], [360, false]]) {
      await open('/guide', { width });
      const [table, text] = await Promise.all(['article .table', 'article p'].map((part) => page.locator(part).first().boundingBox()));
      assert.equal(table.width > text.width + 50, wider, `${table.width} px beside ${text.width} at ${width}`);
      assert.ok(table.x >= 0 && table.x + table.width <= width);
      for (const part of ['article .table', 'article pre']) {
        const shown = await page.locator(part).first().evaluate((box) => ({ more: box.scrollWidth > box.clientWidth, shadow: getComputedStyle(box).backgroundImage, at: getComputedStyle(box).backgroundAttachment }));
        assert.ok(shown.more && shown.shadow.includes('linear-gradient'), part);
        assert.equal(shown.at, 'local, local, scroll, scroll');
      }
      await context.close();
      context = undefined;
    }
  });

  test('is found by its title on the page at /_/, and Enter opens it; a private note shows its row', async () => {
    context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
    await context.addInitScript(() => localStorage.setItem('polynya.hints', 'false'));
    page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    await page.goto(`${server.url}/_/`);
    await page.locator('#state[data-state=live]').waitFor();
    await page.fill('#search', 'rise');
    const first = page.locator('#search-hits a').first();
    await first.waitFor();
    assert.equal(await first.locator('b').textContent(), 'A guide to open water');
    await page.press('#search', 'ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForURL(`${server.url}/guide`);
    await page.goto(`${server.url}/_/`);
    await page.locator('#state[data-state=live]').waitFor();
    await page.fill('#search', 'nobody reads');
    await page.locator('#search-hits button', { hasText: 'private' }).waitFor();
    assert.equal(await page.locator('#search-hits a').count(), 0);
  });

  test('has its contents below the title and folded where there is no room, and the search keeps its words', async () => {
    for (const [width, beside] of [[1280, true], [900, false], [360, false]]) {
      context = await browser.newContext({ viewport: { width, height: 900 } });
      page = await context.newPage();
      await page.goto(`${server.url}/guide`);
      assert.equal(await page.isVisible('nav.contents'), beside, `at ${width}`);
      assert.equal(await page.isVisible('details.contents'), !beside, `at ${width}`);
      if (!beside) {
        const [title, folded] = await Promise.all(['h1', 'details.contents'].map((part) => page.locator(part).first().boundingBox()));
        assert.ok(folded.y >= title.y + title.height, `at ${width}`);
        await page.click('details.contents summary');
        await page.locator('details.contents a').last().click();
        assert.match(page.url(), /#part-5$/);
      }
      await page.goto(`${server.url}/?q=currents`);
      assert.equal(await page.inputValue('header input[name=q]'), 'currents');
      await page.getByText(/^\d notes?$/).waitFor();
      await context.close();
      context = undefined;
    }
  });

  test('leads along links, contents and backlinks by keyboard and pointer', async () => {
    await open('/');
    await page.click('article a:has-text("guide")');
    assert.equal(new URL(page.url()).pathname, '/guide');
    await page.click('article a:has-text("warm currents")');
    assert.equal(new URL(page.url()).pathname, '/sea/Currents');
    await page.click('article a:has-text("guide")');
    assert.equal(new URL(page.url()).hash, '#code');
    assert.ok(await page.locator('text=Linked from').count() > 0, 'who links here');
    await page.keyboard.press('Tab');
    assert.notEqual(await page.evaluate(() => document.activeElement?.tagName), 'BODY', 'the keyboard finds something');
  });

  test('tells nothing of a private note, and runs no script', async () => {
    await open('/guide');
    assert.ok(!(await page.content()).includes('Secret plan'));
    const missed = await fetch(`${server.url}/Secret%20plan`);
    assert.equal(missed.status, 404);
    assert.ok(!(await missed.text()).includes('nobody reads'));
    assert.equal(await page.locator('script').count(), 0);
  });

  test('is another within a second of a change', async () => {
    // Other load on the machine may take a second of its own, but not each time.
    const times = [];
    for (let round = 0; round < 5 && !times.some((took) => took < 1000); round++) {
      await writeFile(join(vault, 'guide.md'), GUIDE.replace('A guide to open water', `Changed guide ${round}`));
      times.push(await until('/guide', async (answer) => (await answer.text()).includes(`Changed guide ${round}`)));
    }
    assert.ok(times.at(-1) < 1000, `${times} ms`);
  });
});
