"""How long `restored serve` takes from exec to ready, and its first pictures: bench_start.py RESTORED MODELS [PICTURE]

Starts it with an empty cache, then with the cache that this left, with files of the official sizes (build/make_models)
or any others, on the device that it would take or $BENCH_DEVICE. Prints a markdown table, and of the first and last
start what happened when (the debug log)."""
import datetime
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

WARM_STARTS = 3
EVENTS = ("start", "vulkan-instance", "device-opened", "plan-made", "pipelines-made", "weights-uploaded", "prepared",
          "tiles-measured", "pipeline-cache", "self-test", "model-opened", "models", "device")


def wait_for(url, seconds):
    end = time.time() + seconds
    while time.time() < end:
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.003)
    return False


def post(url, picture):
    begin = time.time()
    request = urllib.request.Request(url + "/v1/restore", picture, {"Content-Type": "image/jpeg"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        reply.read()
    return (time.time() - begin) * 1e3


def since(begin, line):
    """ms from exec to the line's time."""
    stamp = datetime.datetime.strptime(line.split()[0], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
    return (stamp.timestamp() - begin) * 1e3


def quiet(path, seconds, most):
    """Until the log has not grown for so long: what is measured while there is no job."""
    end, size, still = time.time() + most, -1, time.time()
    while time.time() < end and time.time() - still < seconds:
        now = os.path.getsize(path)
        if now != size:
            size, still = now, time.time()
        time.sleep(0.05)


def start(restored, models, cache, picture, log_path, settle):
    environment = dict(os.environ, XDG_CACHE_HOME=cache)
    command = [restored, "serve", "--listen", "127.0.0.1:0", "--models", models, "--log_level", "debug"]
    if os.environ.get("BENCH_DEVICE"):
        command += ["--device", os.environ["BENCH_DEVICE"]]
    with open(log_path, "w") as log:
        begin = time.time()
        server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        line = server.stdout.readline()
        listening = (time.time() - begin) * 1e3
        url = line.split()[-1] if line else ""
        ready = bool(url) and wait_for(url + "/readyz", 300)
        times = [listening, (time.time() - begin) * 1e3]
        if ready:
            quiet(log_path, 3 if settle else 0.3, 120)
            times += [post(url, picture) for _ in range(3)]
            quiet(log_path, 3 if settle else 0, 120)
        server.send_signal(signal.SIGTERM)
        server.wait()
    if not ready:
        sys.exit(f"it did not become ready; see {log_path}")
    return begin, times


def phases(begin, log_path):
    for line in open(log_path):
        event = line.split()[2] if len(line.split()) > 2 else ""
        if event in EVENTS:
            print(f"    {since(begin, line):7.0f} ms  {re.sub(r'^.*? (debug|info|warn|error) ', '', line.strip())[:150]}")


def main(restored, models, picture):
    with open(picture, "rb") as file:
        jpeg = file.read()
    folder = tempfile.mkdtemp(prefix="bench-start-")
    logs = []
    print("| start | listening, ms | ready, ms | first picture, ms | second | third |\n|---|---|---|---|---|---|")
    for number in range(1 + WARM_STARTS):
        log = os.path.join(folder, f"log{number}")
        begin, times = start(restored, models, os.path.join(folder, "cache"), jpeg, log, number == 0)
        print(f"| {'warm' if number else 'cold'} | " + " | ".join(f"{ms:.0f}" for ms in times) + " |", flush=True)
        logs.append((begin, log))
    for name, (begin, log) in (("cold", logs[0]), ("warm", logs[-1])):
        print(f"\n{name}:\n")
        phases(begin, log)
    kept = os.path.join(folder, "cache", "restored")
    print("\ncache: " + ", ".join(f"{entry.name} {entry.stat().st_size} bytes"
                                  for entry in (os.scandir(kept) if os.path.isdir(kept) else ())))
    shutil.rmtree(folder)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "static/sample.jpg")
