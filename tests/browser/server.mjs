// Starts the server under test: the binary in POLYNYA_BIN on a new directory and a free port. A server at POLYNYA_URL is used as
// it is.

import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const START_MS = 30_000;
const STOP_MS = 15_000;

/**
 * Starts `polynya serve`, or `demo`, with `more` flags. Resolves to {url, stop()}. Rejects with the binary's output if it names
 * no address.
 */
export async function startServer(more = [], command = 'serve') {
  if (process.env.POLYNYA_URL) return { url: process.env.POLYNYA_URL.replace(/\/$/, ''), stop: async () => {} };
  const binary = process.env.POLYNYA_BIN;
  if (!binary) throw new Error('Set POLYNYA_BIN to the polynya binary, or POLYNYA_URL to a server that runs.');
  const data = await mkdtemp(join(tmpdir(), 'polynya-page-'));
  const child = spawn(binary, [command, '--data', data, '--listen', '127.0.0.1:0', ...more], { stdio: ['ignore', 'pipe', 'pipe'] });
  const exited = new Promise((resolve) => { child.on('exit', resolve); child.on('error', resolve); });
  let printed = '';
  const stop = async () => {
    child.kill('SIGTERM');
    const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    await exited;
    clearTimeout(late);
    await rm(data, { recursive: true, force: true });
  };
  try {
    const url = await new Promise((resolve, reject) => {
      const fail = (why) => reject(new Error(`${binary} ${why}. It printed:\n${printed}`));
      const late = setTimeout(() => fail(`named no address within ${START_MS} ms`), START_MS);
      const read = (chunk) => {
        printed += chunk;
        const found = /127\.0\.0\.1:(\d+)/.exec(printed);
        if (!found || found[1] === '0') return;
        clearTimeout(late);
        resolve(`http://127.0.0.1:${found[1]}`);
      };
      child.stdout.on('data', read);
      child.stderr.on('data', read);
      child.on('error', (error) => fail(`did not start: ${error.message}`));
      child.on('exit', (code) => fail(`exited with ${code}`));
    });
    const deadline = Date.now() + START_MS;
    while (!(await fetch(`${url}/ready`).then((r) => r.ok, () => false))) {
      if (Date.now() > deadline) throw new Error(`${url}/ready never said yes. The server printed:\n${printed}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return { url, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
