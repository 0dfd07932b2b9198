"""How fast /healthz answers while all workers are busy: bench_health.py RESTORED [--count 1000] [SERVE OPTION]...

Starts a server and asks it COUNT times, 20 times a second, on a new connection each time; first while it has nothing to
do, then while its queue is never empty (twice as many clients as there are workers send a picture of 1920x1440 for x2
each, without a pause). Prints a markdown table; the machine should be idle otherwise, and the last line says whether it
was. /readyz and /metrics are asked in turns with it."""
import http.client
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib

ROUTES = ("/healthz", "/readyz", "/metrics")
PAUSE = 0.05


def picture(width, height):
    """A PNG without much in it; what networks do does not depend on it."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((x * 7 + y * 3) & 255 for x in range(width * 3)) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def ask(port, route):
    begin = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", route)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        sys.exit(f"{route}: status {answer.status}")
    return (time.perf_counter() - begin) * 1e3


def measure(port, count):
    times = {route: [] for route in ROUTES}
    for _ in range(count):
        for route in ROUTES:
            times[route].append(ask(port, route))
            time.sleep(PAUSE)
    return {route: sorted(list_) for route, list_ in times.items()}


def busy_share(before, after):
    """Of all processors' time between two readings of /proc/stat: what was not idle."""
    spent = [b - a for a, b in zip(before, after)]
    return 1 - (spent[3] + spent[4]) / max(sum(spent[:8]), 1)


def processors():
    with open("/proc/stat") as file:
        return [int(word) for word in file.readline().split()[1:]]


def main():
    program, options = sys.argv[1], sys.argv[2:]
    count = 1000
    if options[:1] == ["--count"]:
        count, options = int(options[1]), options[2:]
    time.sleep(1)
    before = processors()
    time.sleep(5)
    others = busy_share(before, processors())
    folder = tempfile.mkdtemp()
    server = subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--log_level", "warn", *options],
                              stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "XDG_STATE_HOME": folder})
    port = int(re.search(r":(\d+)\s*$", server.stdout.readline()).group(1))
    body, stop, done = picture(1920, 1440), threading.Event(), []

    def client():
        while not stop.is_set():
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/restore", body, {"Content-Type": "image/png"})
            try:
                with urllib.request.urlopen(request, timeout=600) as answer:
                    answer.read()
                done.append(time.time())
            except urllib.error.HTTPError:
                return  # it ends

    try:
        while True:
            try:
                ask(port, "/readyz")
                break
            except SystemExit:
                time.sleep(0.1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/devices") as answer:
            device = [d for d in json.load(answer)["devices"] if d["reason"] is None]
        rows = [("idle", measure(port, count // 4))]
        clients = [threading.Thread(target=client, daemon=True) for _ in range(2 * max(len(device), 1))]
        for thread in clients:
            thread.start()
        time.sleep(2)
        rows.append(("busy", measure(port, count)))
        stop.set()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)
    print("| workers | route | p50, ms | p95, ms | p99, ms | slowest, ms |\n|---|---|---|---|---|---|")
    for name, times in rows:
        for route, list_ in times.items():
            at = [list_[min(len(list_) * share // 100, len(list_) - 1)] for share in (50, 95, 99, 100)]
            print(f"| {name} | `{route}` | " + " | ".join(f"{ms:.1f}" for ms in at) + " |")
    print(f"\n{', '.join(d['name'] for d in device)}; {os.cpu_count()} cores; {count} requests each; {len(done)} pictures "
          f"meanwhile; before it started, {others:.0%} of the cores were in use by others")


main()
