// Starts ./restored serve on a free port for a test, and stops it.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

// A configuration of this machine is not the tests' one.
process.env.RESTORED_CONFIG ??= '/dev/null';

export const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
export const binary = process.env.RESTORED_BINARY ?? join(root, 'restored');
// The same program with the layer of runtime/backend/fault.h, which takes RESTORED_FAULTS.
export const faulty = process.env.RESTORED_FAULTY_BINARY ?? join(root, 'build/tests/restored');
export const fixtures = process.env.RESTORED_FIXTURES ?? join(root, 'build/fixtures');

// Arguments with which a server uses the fixtures' networks by default.
export const fixtureModels = [
  '--models', fixtures, '--default_version', 'face', '--default_detector', 'detector',
  '--default_bg_upsampler', 'upscaler', '--default_parser', 'parser',
];

// Resolves when the server prints where it listens: {url, process, log(), stop()}. stop() sends SIGTERM and resolves to
// {code, signal}; a server that does not end within two minutes is killed, which the signal then tells: it may take
// one to end its jobs and answers (server/cli/cli_serve.c).
// cpus: the processors that it may use, as taskset has them.
// cwd: a folder of its own by default, so that no models folder of the repository is found by chance; for the same reason
// the program's own starter models are off, unless env turns them on.
export async function startServer({ program = binary, args = fixtureModels, env = {}, cwd, cpus } = {}) {
  const folder = cwd ?? mkdtempSync(join(tmpdir(), 'restored-'));
  const state = mkdtempSync(join(tmpdir(), 'restored-state-'));
  const [first, ...words] = [...(cpus ? ['taskset', '-c', cpus] : []), program, 'serve', '--listen', '127.0.0.1:0', ...args];
  const child = spawn(first, words, {
    cwd: folder,
    env: { ...process.env, XDG_DATA_HOME: folder, XDG_STATE_HOME: state, RESTORED_STARTER_MODELS: 'false', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const clean = () => {
    const all = { recursive: true, force: true, maxRetries: 10 }; // a process of the server's may end after it, and write until then
    if (!cwd) rmSync(folder, all);
    rmSync(state, all);
  };
  let output = '', log = '';
  child.stderr.on('data', (text) => { log += text; });
  // What it has written by now lies in the pipe, and is read in the loop's next turn. 'close' would also wait for the server's
  // children, which have the pipe, too.
  const read = () => new Promise((done) => setImmediate(() => setImmediate(done)));
  const ended = new Promise((done) => child.on('exit', (code, signal) => read().then(() => done({ code, signal }))));
  const url = await new Promise((done, fail) => {
    const timer = setTimeout(() => { child.kill('SIGKILL'); fail(new Error(`no "listening on" within 180 s:\n${output}${log}`)); }, 180e3);
    child.stdout.on('data', (text) => {
      output += text;
      const found = /listening on (https?:\/\/\S+)/.exec(output);
      if (found) { clearTimeout(timer); read().then(() => done(found[1].replace(/\/$/, ''))); }
    });
    ended.then(({ code, signal }) => { clearTimeout(timer); fail(new Error(`restored serve ended (${code ?? signal}):\n${output}${log}`)); });
  }).catch(async (error) => {
    await ended;
    clean();
    throw error;
  });
  return {
    url,
    process: child,
    log: () => log,
    async stop() {
      const timer = setTimeout(() => child.kill('SIGKILL'), 120e3);
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
      const how = await ended;
      clearTimeout(timer);
      clean();
      return how;
    },
  };
}
