// Runs the command line in a folder of its own for each test.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, beforeEach } from 'node:test';
import { binary } from './server.mjs';

export let folder, here; // all of a file's, and the running test's
before(() => { folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-cli-')); });
after(() => fs.rmSync(folder, { recursive: true, force: true }));
beforeEach(() => { here = fs.mkdtempSync(path.join(folder, 'run-')); });

// Runs the program in `here`: {status, out, err}.
export function run(args, { env = {}, ms = 600000, signal } = {}) {
  return new Promise((resolve) => {
    const child = spawn(binary, args, { cwd: here, env: { ...process.env, RESTORED_STARTER_MODELS: 'false', ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '', err = '';
    const timer = setTimeout(() => child.kill('SIGKILL'), ms);
    child.stdout.on('data', (data) => { out += data; });
    child.stderr.on('data', (data) => { err += data; });
    if (signal) signal(child);
    child.on('close', (status) => { clearTimeout(timer); resolve({ status, out, err }); });
  });
}
export const put = (name, bytes) => { fs.mkdirSync(path.dirname(path.join(here, name)), { recursive: true }); fs.writeFileSync(path.join(here, name), bytes); };
export const files = (dir = '.') => fs.readdirSync(path.join(here, dir), { recursive: true, withFileTypes: true }).filter((e) => e.isFile() && e.name !== '.restored-index').map((e) => path.relative(path.join(here, dir), path.join(e.parentPath ?? e.path, e.name))).sort();
export const read = (name) => fs.readFileSync(path.join(here, name));
