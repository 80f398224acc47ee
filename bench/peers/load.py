"""Checks a second, how long they took, and what they cost: wrk with one script for all."""

import os
import statistics
import subprocess
from dataclasses import dataclass, field

from asking import Caller
from peers import Tier
from processes import LOAD_CORE, Redis

KEYS = int(os.environ.get("PEERS_KEYS", "100000"))
# Those who come before memory is looked at, so that connections and the like are there already.
EARLY = KEYS // 50
CONNECTIONS = 64
# Nobody is denied; everybody but those who are new is. (With one an hour throttlecrab admits everything.)
HIGH, LOW = Tier("client", 1_000_000, 3600), Tier("client", 2, 3600)


@dataclass
class Figures:
    per_second: list = field(default_factory=list)
    p50_us: list = field(default_factory=list)
    p99_us: list = field(default_factory=list)
    denied: list = field(default_factory=list)
    cpu_us: list = field(default_factory=list)
    redis_us: list = field(default_factory=list)
    errors: int = 0

    def median(self, of):
        return statistics.median(getattr(self, of))


def wrk(server, what, seconds, keys=KEYS):
    tier = server.tiers[0]
    script = os.path.join(os.path.dirname(__file__), "load.lua")
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s", "-s", script, f"http://127.0.0.1:{server.port}/y", "--",
               server.how, what, str(keys), str(tier.limit), str(tier.seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, preexec_fn=lambda: os.sched_setaffinity(0, {LOAD_CORE}))
    if what == "fill" and done.returncode == 0 and "peers " not in done.stdout:
        return None
    line = next((line for line in done.stdout.splitlines() if line.startswith("peers ")), None)
    if line is None:
        raise RuntimeError(f"wrk said nothing: {done.stderr.strip()[:200]}")
    requests, duration, p50, p99, status, broken = map(int, line.split()[1:])
    return {"requests": requests, "per_second": requests / (duration / 1e6), "p50_us": p50, "p99_us": p99, "not_2xx": status, "broken": broken}


def fill(server, keys):
    """Each client once."""
    if wrk(server, "fill", 120, keys) is not None:
        raise RuntimeError(f"{keys:,} requests took longer than two minutes")


def measure(peers, what, seconds, rounds, folder, say):
    """Figures and bytes per key, by name, of those who could be measured; and why the others could not."""
    tier = HIGH if what == "all" else LOW
    redis = Redis(folder)
    servers, figures, memory, failed = {}, {}, {}, {}
    for peer in peers:
        say(f"{what}: {peer.name}: {KEYS:,} keys")
        try:
            # Under as much load as there can be, Redis takes longer than 10 ms; then others wait and Tollgate would decide without it.
            server = peer.start(folder, [tier], redis if peer.store == "Redis" else None, deadline_ms=2000)
            caller = Caller(server)
            first = [caller.status("somebody") for _ in range(20)]
            if first != ([200] * 20 if what == "all" else [200] * 2 + [429] * 18):
                raise RuntimeError(f"the first 20 answers were {first}")
            fill(server, EARLY)
            before, redis_before = server.process.memory(), redis.used_memory()
            fill(server, KEYS)
            grown = redis.used_memory() - redis_before if peer.store == "Redis" else server.process.memory() - before
            if what == "deny":
                fill(server, KEYS)
            memory[peer.name] = grown / (KEYS - EARLY)
            servers[peer.name], figures[peer.name] = server, Figures()
        except (RuntimeError, OSError, subprocess.SubprocessError) as why:
            failed[peer.name] = str(why)
            say(f"{what}: {peer.name}: {why}")
    for turn in range(rounds):
        for peer in [peer for peer in peers if peer.name in servers]:
            server, its = servers[peer.name], figures[peer.name]
            cpu, redis_cpu = server.process.cpu_seconds(), redis.process.cpu_seconds()
            run = wrk(server, what, seconds)
            asked = max(1, run["requests"])
            its.cpu_us.append((server.process.cpu_seconds() - cpu) / asked * 1e6)
            its.redis_us.append((redis.process.cpu_seconds() - redis_cpu) / asked * 1e6)
            for name in ("per_second", "p50_us", "p99_us"):
                getattr(its, name).append(run[name])
            its.denied.append(run["not_2xx"] / asked)
            its.errors += run["broken"]
            say(f"{what}, round {turn + 1} of {rounds}: {peer.name}: {run['per_second']:,.0f}/s")
    for server in servers.values():
        server.end()
    redis.end()
    return figures, memory, failed
