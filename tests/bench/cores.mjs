// Which cores a measurement has, and what processor time its processes took, both by Linux's /proc and /sys.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';

const read = (name) => { try { return fs.readFileSync(name, 'utf8'); } catch { return ''; } };
const numbers = (list) => list.trim().split(',').filter(Boolean).flatMap((part) => { const [from, to = from] = part.split('-').map(Number); return Array.from({ length: to - from + 1 }, (_, i) => from + i); });

// The cores that this process has for itself, each a list of its processors: two threads of a core are no two cores, and one of which a
// thread is somebody else's is none.
export function coresHere() {
  const mine = new Set(numbers(/Cpus_allowed_list:\s*(\S+)/.exec(read('/proc/self/status'))[1])), cores = new Map();
  for (const cpu of mine) {
    const threads = numbers(read(`/sys/devices/system/cpu/cpu${cpu}/topology/thread_siblings_list`) || String(cpu));
    if (threads.every((thread) => mine.has(thread))) cores.set(threads.join(), threads);
  }
  return cores.size ? [...cores.values()] : [...mine].map((cpu) => [cpu]);
}

// Divides them: {own, rest}: `workers` times `each` cores (0: as many as leave an eighth), one thread of each, as taskset has them; and
// all that is left, null where there is nothing.
export function divide(cores, workers, each = 0) {
  const most = Math.floor((cores.length - Math.ceil(cores.length / 8)) / workers), count = each || Math.max(1, most), first = cores.length - workers * count;
  const own = Array.from({ length: workers }, (_, i) => Array.from({ length: count }, (_, k) => cores[(Math.max(first, 0) + i * count + k) % cores.length][0]).join());
  return { own, count, rest: first > 0 ? cores.slice(0, first).flat().join() : null };
}

// All threads of these processes, and what they start later.
export const pin = (cpus, ...pids) => pids.forEach((pid) => execFileSync('taskset', ['-a', '-p', '-c', cpus, String(pid)], { stdio: ['ignore', 'ignore', 'inherit'] }));

// Seconds of a process, the children that it has waited for included; 0: it is gone.
export function seconds(pid) {
  const fields = read(`/proc/${pid}/stat`).replace(/^.*\) /s, '').split(' ');
  return fields.length > 14 ? fields.slice(11, 15).reduce((a, b) => a + Number(b), 0) / 100 : 0; // USER_HZ
}

// The server of tests/postgres.sh in that folder, 0: there is none.
export const postmaster = (folder) => Number(read(`${folder}/data/postmaster.pid`).split('\n')[0]) || 0;
const children = (pid) => fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name) && Number(read(`/proc/${name}/stat`).replace(/^.*\) /s, '').split(' ')[1]) === pid);
export const databaseSeconds = (pid) => [pid, ...children(pid)].reduce((sum, one) => sum + seconds(one), 0);

// How busy each processor has been since: busy().of(an earlier one, number), 0 to 1.
export function busy() {
  const times = new Map([...read('/proc/stat').matchAll(/^cpu(\d+) (.*)$/gm)].map(([, cpu, line]) => {
    const all = line.split(' ').map(Number).slice(0, 8);
    return [Number(cpu), { all: all.reduce((a, b) => a + b, 0), idle: all[3] + all[4] }];
  }));
  const of = (before, cpu) => {
    const then = before.times.get(cpu), now = times.get(cpu);
    return then && now ? 1 - (now.idle - then.idle) / Math.max(1, now.all - then.all) : 0;
  };
  return { times, of };
}
