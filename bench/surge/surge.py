"""The surge: 2,000 impatient riders against a service made for 800 requests a second, without and then with Tollgate before it.

`make surge` builds what this runs and calls it. It starts the service (examples/ride-hailing), the gateway, its Redis and the riders
(examples/ride-hailing/load) as processes, ends them by their ids, and writes a table and a plot to bench/results.
"""

import argparse
import collections
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import host
import plot
import report
from requests_log import read_log

ROOT = Path(__file__).resolve().parents[2]
CAPACITY = 800


class Process:
    """A process that is ended with this, and whose log is read so that it never waits for us."""

    def __init__(self, command, stream, environment=None, folder=None):
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: subprocess.PIPE}
        self.child = subprocess.Popen(command, env={**os.environ, **(environment or {})}, text=True, cwd=folder, **pipes)
        self.lines = getattr(self.child, stream)
        self.last_lines = collections.deque(maxlen=20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()

    def read_until(self, find):
        """The first thing that `find` sees in a line; the rest is read and dropped."""
        said = []
        for line in self.lines:
            said.append(line)
            found = find(line)
            if found:
                self.go_on_reading()
                return found
        sys.exit(f"{self.child.args[0]} did not start:\n{''.join(said)}")

    def go_on_reading(self):
        threading.Thread(target=lambda: self.last_lines.extend(self.lines), daemon=True).start()

    def cpu_seconds(self):
        """What it has used of the processors so far."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """What all processes together have used of the processors."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def start_service(arguments):
    process = Process([arguments.service], "stdout")
    return process, "http://" + process.read_until(lambda line: line.partition("listening at ")[2].strip())


def start_redis(folder):
    socket = Path(folder) / "redis.sock"
    settings = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no"]
    process = Process(["redis-server", *settings], "stdout", folder=folder)
    process.read_until(lambda line: "ready to accept connections" in line.lower())
    return process, f"unix://{socket}"


def start_gateway(arguments, service, redis):
    environment = {"GATEWAY_LISTEN": "127.0.0.1:0", "ADMIN_LISTEN": "127.0.0.1:0", "RIDE_SERVICE": service, "REDIS_URL": redis}
    command = [arguments.tollgate, "serve", "--config", str(ROOT / "examples/ride-hailing/tollgate.yaml")]
    process = Process(command, "stderr", environment)
    addresses = {}

    def listeners(line):
        entry = json.loads(line) if line.startswith("{") else {}
        if entry.get("listener") and entry.get("address"):
            addresses[entry["listener"]] = f"http://{entry['address']}"
        return addresses if {"gateway", "admin"} <= addresses.keys() else None

    process.read_until(listeners)
    wait_for(addresses["gateway"] + "/")
    return process, addresses["gateway"], addresses["admin"]


def decisions(admin):
    """Decisions so far by their source: `store`, `remembered` or `fallback`."""
    with urllib.request.urlopen(admin + "/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'^tollgate_store_decisions_total\{source="(\w+)"\} (\d+)', text, re.MULTILINE)
    return {source: int(count) for source, count in found}


def wait_for(url):
    patience = time.monotonic() + 30
    while time.monotonic() < patience:
        try:
            urllib.request.urlopen(url, timeout=2)
            return
        except urllib.error.HTTPError:
            return  # It answers, and that is all that counts.
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing answers at {url}")


def journal(service):
    with urllib.request.urlopen(service + "/internal/journal", timeout=10) as answer:
        return json.load(answer)


def ride(arguments, name, url, service, others, folder):
    """Lets the riders ride against `url`, and says what they and the service saw."""
    before, surge, after = arguments.phases
    log = Path(folder) / f"{name}.csv"
    environment = {
        "RIDERS_LOG": str(log),
        "RIDERS_PHASES": ",".join(map(str, arguments.phases)),
    }
    command = [arguments.riders, "--host", url, "--users", str(arguments.users), "--increase-time", "3s",
               "--run-time", f"{sum(arguments.phases) - 3}s", "--timeout", str(arguments.patience_ms / 1000),
               "--accept-invalid-certs", "--no-gzip", "--no-metrics", "--no-print-metrics"]
    used_before = {who: process.cpu_seconds() for who, process in others.items()}
    busy_before = busy_seconds()
    began = time.monotonic()
    seen = []
    with host.Watch() as watch, Process(command, "stderr", environment, folder) as riders:
        others = {**others, "riders": riders}
        riders.go_on_reading()
        bound = began + sum(arguments.phases) + 30
        cpu = {}
        while riders.child.poll() is None:
            if time.monotonic() > bound:
                sys.exit("the riders did not come to an end in time")
            time.sleep(1)
            elapsed = time.monotonic() - began
            now = journal(service)
            seen.append({"at": elapsed, **now})
            phase = "calm" if elapsed < before else "surge" if elapsed < before + surge else "calm again"
            progress(f"{name}: {elapsed:3.0f} of {sum(arguments.phases)} s, {phase}: the service has served {now['served']:,} in time "
                     f"and {now['served_nobody']:,} too late, {now['queued']:,} wait", len(seen))
            if riders.child.poll() is None:
                cpu = {who: process.cpu_seconds() - used_before.get(who, 0) for who, process in others.items()}
                cpu["anything else"] = busy_seconds() - busy_before - sum(cpu.values())
        if riders.child.returncode:
            sys.exit(f"the riders ended with {riders.child.returncode}:\n{''.join(riders.last_lines)}")
    if sys.stderr.isatty():
        print(file=sys.stderr)
    seconds = seen[-1]["at"]
    requests, first_came = read_log(log)
    return {
        "name": name,
        "requests": requests,
        "taken_by_host": watch.taken(first_came),
        "journal": seen,
        "cpu": {who: used / seconds for who, used in cpu.items()},
    }


def progress(text, number):
    if sys.stderr.isatty():
        print(f"\r{text:100}", end="", file=sys.stderr, flush=True)
    elif number % 10 == 0:
        print(text, file=sys.stderr, flush=True)


def measure(arguments):
    runs = []
    with tempfile.TemporaryDirectory(prefix="surge-") as folder:
        for name in ("without", "with"):
            process, service = start_service(arguments)
            with process:
                others = {"service": process}
                if name == "without":
                    runs.append(ride(arguments, name, service, service, others, folder))
                    continue
                redis, redis_url = start_redis(folder)
                with redis:
                    gateway, url, admin = start_gateway(arguments, service, redis_url)
                    with gateway:
                        others.update(gateway=gateway, redis=redis)
                        run = ride(arguments, name, url, service, others, folder)
                        runs.append({**run, "decisions": decisions(admin)})
    return runs


def circumstances(arguments, load_before):
    model = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    before, surge, after = arguments.phases
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {model}, {platform.system()} {platform.release()}",
        "load_before": load_before,
        "users": arguments.users,
        "patience_ms": arguments.patience_ms,
        "phases": arguments.phases,
        "capacity": CAPACITY,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tollgate", default=str(ROOT / "target/release/tollgate"))
    parser.add_argument("--service", default=str(ROOT / "target/release/ride-hailing"))
    parser.add_argument("--riders", default=str(ROOT / "target/load/release/impatient-riders"))
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--patience-ms", type=int, default=2000, help="how long a rider waits for an answer")
    parser.add_argument("--phases", type=lambda text: [int(part) for part in text.split(",")], default=[20, 40, 20],
                        help="seconds of calm, surge, and calm again")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()

    about = circumstances(arguments, "%.2f %.2f %.2f" % os.getloadavg())
    runs = measure(arguments)
    figures = [report.figures(run, about) for run in runs]
    arguments.out.mkdir(parents=True, exist_ok=True)
    stem = arguments.out / f"surge-{about['date'][:10]}"
    text = report.markdown(figures, runs, about, stem.name)
    stem.with_suffix(".md").write_text(text)
    plot.draw(runs, about, stem)
    print(text)
    print(f"written to {os.path.relpath(stem, ROOT)}.md, .svg and .png\n")
    print(report.summary(figures))


if __name__ == "__main__":
    main()
