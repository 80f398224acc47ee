"""Processes that are measured: started on a core of their own, looked at through /proc, ended by their ids."""

import os
import signal
import socket
import subprocess
import time

CORES = sorted(os.sched_getaffinity(0))
# What is measured has the first core; load, and Redis and upstream if there are no more cores, the second.
SERVER_CORE = CORES[0]
LOAD_CORE = CORES[1 % len(CORES)]
REDIS_CORE = CORES[2] if len(CORES) > 2 else LOAD_CORE
TICKS = os.sysconf("SC_CLK_TCK")

running = []


class Process:
    def __init__(self, command, core, log, cwd=None, env=None):
        self.command = command
        with open(log, "ab") as out:
            # A session of its own, so that Ctrl-C reaches this program alone, which then ends all of them in order.
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd, start_new_session=True,
                                          env={**os.environ, **(env or {})}, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.log = log
        self.pid = self.child.pid
        running.append(self)

    def tree(self):
        """This process and those that it started."""
        found, left = [], [self.pid]
        while left:
            pid = left.pop()
            found.append(pid)
            try:
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children") as children:
                        left += [int(child) for child in children.read().split()]
            except OSError:
                pass
        return found

    def cpu_seconds(self):
        return sum(_cpu_ticks(pid) for pid in self.tree()) / TICKS

    def memory(self):
        """Bytes: what is shared among several processes counts once."""
        return sum(_pss(pid) for pid in self.tree())

    def wait_for(self, port, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.child.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return self
            except OSError:
                time.sleep(0.02)
        with open(self.log, errors="replace") as log:
            said = log.read().strip().splitlines()[-3:]
        self.end()
        raise RuntimeError(f"{os.path.basename(self.command[0])} does not listen: {' / '.join(said)[:300]}")

    def end(self, how=signal.SIGTERM):
        if self in running:
            running.remove(self)
        if self.child.poll() is None:
            tree = self.tree()
            self.child.send_signal(how)
            try:
                self.child.wait(3)
            except subprocess.TimeoutExpired:
                for pid in tree:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                self.child.wait()


def end_all():
    for process in running[:]:
        process.end()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _cpu_ticks(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    except OSError:
        return 0


def _pss(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as rollup:
            return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


class Redis:
    """A server of one's own, without anything on disk."""

    def __init__(self, folder, port=None):
        self.folder, self.port = folder, port or free_port()
        self.start()

    def start(self):
        self.process = Process(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                                "--databases", "64", "--dir", self.folder], REDIS_CORE, f"{self.folder}/redis.log").wait_for(self.port)

    def kill(self):
        self.process.end(signal.SIGKILL)

    def end(self):
        self.process.end()

    def url(self, database):
        return f"redis://127.0.0.1:{self.port}/{database}"

    def used_memory(self):
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(b"INFO memory\r\n")
            text = b""
            while b"used_memory:" not in text or b"\r\n" not in text.split(b"used_memory:", 1)[1]:
                text += connection.recv(65536)
        return int(text.split(b"used_memory:", 1)[1].split(b"\r\n", 1)[0])
