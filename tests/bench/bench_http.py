"""python3 tests/bench/bench_http.py RESTORED BARE [SECONDS]: requests a second of RESTORED's `serve` beside BARE, a
libmicrohttpd server that always gives the same few bytes (bench_http_bare.c), each row in turns of half a second with it;
16 connections that are kept, one request at a time on each. Prints a markdown table."""
import json
import os
import re
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib

CONNECTIONS = 16


def picture():
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(b"\0" * 49 * 16)) + chunk(b"IEND", b""))


class Clients:
    """Connections to one server, which all send the same request again and again."""

    def __init__(self, port, request):
        self.request, self.selector, self.statuses = request, selectors.DefaultSelector(), {}
        for _ in range(CONNECTIONS):
            one = socket.create_connection(("127.0.0.1", port))
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(one, selectors.EVENT_READ, bytearray())

    def run(self, seconds):
        """How many requests a second were answered."""
        done, waiting, begin = 0, 0, time.perf_counter()
        end = begin + seconds
        for key in self.selector.get_map().values():
            key.fileobj.sendall(self.request)
            waiting += 1
        while waiting:
            for key, _ in self.selector.select():
                data = key.fileobj.recv(1 << 20)
                if not data:
                    sys.exit("a connection was closed: " + repr(bytes(key.data[:300])))
                key.data.extend(data)
                head = key.data.find(b"\r\n\r\n")
                if head < 0:
                    continue
                length = int(re.search(rb"(?i)content-length: (\d+)", key.data).group(1))
                if len(key.data) < head + 4 + length:
                    continue
                status = int(key.data[9:12])
                self.statuses[status] = self.statuses.get(status, 0) + 1
                key.data.clear()
                done += 1
                if time.perf_counter() < end:
                    key.fileobj.sendall(self.request)
                else:
                    waiting -= 1
        return done / (time.perf_counter() - begin)

    def close(self):
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()


def main():
    program, bare, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 4
    folder, load = tempfile.mkdtemp(), os.getloadavg()[0]
    least = subprocess.Popen([bare], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    server = subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--device", "cpu", "--log_level", "warn",
                               "--async_queue", "1000000"], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "XDG_STATE_HOME": folder})
    try:
        bare_port = int(least.stdout.readline())
        port = int(re.search(r":(\d+)\s*$", server.stdout.readline()).group(1))
        url, body = f"http://127.0.0.1:{port}", picture()
        while True:
            try:
                urllib.request.urlopen(url + "/readyz").read()
                break
            except OSError:
                time.sleep(0.1)
        query = "/v1/restore?version=none&bg_upsampler=none&upscale=1&async=true"
        with urllib.request.urlopen(urllib.request.Request(url + query, body)) as answer:
            job = json.load(answer)["id"]
        rows = [("GET /healthz", b"GET /healthz", b""), ("GET /v1/jobs/{id}", f"GET /v1/jobs/{job}".encode(), b""),
                ("GET /metrics", b"GET /metrics", b""), ("POST /v1/restore, async", b"POST " + query.encode(), body)]
        print("| | requests a second | bare libmicrohttpd beside it | ratio |\n|---|---|---|---|")
        for name, line, data in rows:
            request = line + b" HTTP/1.1\r\nHost: localhost\r\n" + (b"Content-Length: %d\r\n" % len(data) if data else b"") + b"\r\n" + data
            ours, theirs, rates = Clients(port, request), Clients(bare_port, request), ([], [])
            for _ in range(max(1, int(seconds))):
                rates[0].append(ours.run(0.5))
                rates[1].append(theirs.run(0.5))
            if set(ours.statuses) != {202 if data else 200}:
                sys.exit(f"{name}: statuses {ours.statuses}")
            ours.close()
            theirs.close()
            middle = [sorted(list_)[len(list_) // 2] for list_ in rates]
            print(f"| `{name}` | {middle[0]:.0f} | {middle[1]:.0f} | {middle[0] / middle[1]:.2f} |", flush=True)
        print(f"\n{os.cpu_count()} cores, load {load:.1f} before it began")
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
        least.stdin.close()
        least.wait()
        shutil.rmtree(folder, ignore_errors=True)


main()
