"""python3 tests/bench/bench_jobs.py RESTORED BENCH_STORE [JOBS]: the whole server with that many finished jobs (100,000)
in its store, made by bench_store, each with a file in the spool. Prints a markdown table: the start, then each request
200 times on one connection, then the same while half of the jobs expire."""
import glob
import http.client
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time


def start(program, state):
    begin = time.perf_counter()
    server = subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--device", "cpu", "--log_level", "warn",
                               "--state_dir", state], stdout=subprocess.PIPE, text=True)
    port = int(re.search(r":(\d+)\s*$", server.stdout.readline()).group(1))
    return server, port, (time.perf_counter() - begin) * 1e3


def stop(server):
    server.send_signal(signal.SIGTERM)
    server.wait()


def measure(port, path, count=200):
    connection, times = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
    for _ in range(count):
        begin = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        times.append((time.perf_counter() - begin) * 1e3)
        if answer.status != 200:
            sys.exit(f"{path}: status {answer.status}")
    return sorted(times)


def row(what, times):
    print(f"| {what} | {times[len(times) // 2]:.1f} | {times[len(times) * 95 // 100]:.1f} | {times[-1]:.1f} |", flush=True)


def main():
    program, maker, jobs = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "100000"
    state = tempfile.mkdtemp()
    try:
        stop(start(program, state)[0])
        for path in glob.glob(f"{state}/jobs.db*"):
            os.remove(path)
        subprocess.run([maker, f"{state}/jobs.db", jobs, "keep"], check=True, stdout=subprocess.DEVNULL)
        store = sqlite3.connect(f"{state}/jobs.db")
        expires = int(time.time() * 1e3) + 3600000
        store.execute("DELETE FROM jobs WHERE state < 2")
        store.execute("UPDATE jobs SET expires = ? + rowid % 2 * 3600000", (expires,))
        store.commit()
        ids = [id for id, in store.execute("SELECT id FROM jobs")]
        for id in ids:
            with open(f"{state}/spool/{id}.output", "wb") as file:
                file.write(b"x")
        starts = []
        for _ in range(5):
            server, port, ms = start(program, state)
            starts.append(ms)
            stop(server)
        server, port, _ = start(program, state)
        print(f"{len(ids)} finished jobs\n\n| | median ms | p95 ms | longest ms |\n|---|---|---|---|")
        row("start, from exec to listening", sorted(starts))
        paths = ["/healthz", "/metrics", "/v1/jobs?limit=100", f"/v1/jobs?limit=100&after={ids[len(ids) // 2]}",
                 "/v1/jobs?state=failed", "/v1/batches/one", f"/v1/jobs/{ids[7]}"]
        for path in paths:
            row(f"`{re.sub('[0-9a-f]{32}', '…', path)}`", measure(port, path))
        stop(server)
        store.execute("UPDATE jobs SET expires = ? WHERE rowid % 2", (int(time.time() * 1e3) + 3000,))
        store.commit()
        server, port, _ = start(program, state)
        time.sleep(4)
        slowest, begin = [], time.perf_counter()
        left = len(ids)
        while left > len(ids) // 2 + 1 and time.perf_counter() < begin + 300:
            slowest += measure(port, "/healthz", 20) + measure(port, "/v1/jobs?limit=100", 20)
            left = len(glob.glob(f"{state}/spool/*.output"))
        seconds = time.perf_counter() - begin
        row(f"`/healthz`, `/v1/jobs?limit=100` while {len(ids) - left} expire, in {seconds:.0f} s", sorted(slowest))
        stop(server)
        print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    finally:
        shutil.rmtree(state, ignore_errors=True)


main()
