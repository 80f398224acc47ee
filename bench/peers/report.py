"""What was found, as Markdown."""

import os
import platform
import re
import subprocess

from exactness import BACK, KILLED
from load import CONNECTIONS, KEYS
from peers import NOT_RUN, ROOT, TARGET
from processes import LOAD_CORE, REDIS_CORE, SERVER_CORE


def _said(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})
        return (done.stdout + done.stderr).strip().splitlines()[0]
    except (OSError, IndexError, subprocess.SubprocessError):
        return "not there"


def versions():
    with open(os.path.join(os.path.dirname(__file__), "Cargo.lock")) as lock:
        crates = dict(re.findall(r'name = "(.+)"\nversion = "(.+)"', lock.read()))
    with open(os.path.join(os.path.dirname(__file__), "node/package.json")) as package:
        packages = re.findall(r'"([a-z-]+)": "([\d.]+)"', package.read())
    lines = [f"{name} {crates[name]}" for name in ("axum", "governor", "limitador", "tollgate")]
    lines += [f"{name} {version}" for name, version in packages]
    lines += [_said("redis-server", "--version").split(" sha")[0], _said("nginx", "-v"), "Node " + _said("node", "--version"),
              re.sub(r".*/(\d+\.\d+\.\d+)/.*", r"Envoy \1", _said(f"{ROOT}/target/servers/envoy", "--version").removeprefix(f"{ROOT}/target/servers/")),
              "throttlecrab-server: " + _said(f"{TARGET}/bin/throttlecrab-server", "--version").removeprefix("throttlecrab-server "), _said("wrk", "-v").split(" Copyright")[0]]
    return lines


def machine():
    model = "unknown"
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{os.cpu_count()} cores of {model}, Linux {platform.release()}; server on core {SERVER_CORE}, wrk on {LOAD_CORE}, Redis on {REDIS_CORE}"


def load_table(peers, figures, memory):
    lines = ["| | kind | checks/s | lowest–highest | p50 ms | p99 ms | CPU µs | Redis CPU µs | denied | bytes per key |", "|---|---|---|---|---|---|---|---|---|---|"]
    known = [peer for peer in peers if peer.name in figures and figures[peer.name].per_second]
    for peer in sorted(known, key=lambda peer: -figures[peer.name].median("per_second")):
        its = figures[peer.name]
        redis = f"{its.median('redis_us'):.1f}" if peer.store == "Redis" else ""
        name = f"**{peer.name}**" if peer.is_ours else peer.name
        broken = f" ({its.errors} broken)" if its.errors else ""
        lines.append(f"| {name} | {peer.kind} | {its.median('per_second'):,.0f}{broken} | {min(its.per_second):,.0f}–{max(its.per_second):,.0f} | "
                     f"{its.median('p50_us') / 1000:.2f} | {its.median('p99_us') / 1000:.2f} | {its.median('cpu_us'):.1f} | {redis} | "
                     f"{'see below' if peer.name.startswith('throttlecrab') else format(its.median('denied'), '.1%')} | {_bytes(memory.get(peer.name, 0))} |")
    return lines


def _bytes(per_key):
    # Buffers of connections come and go beside the keys.
    return f"{per_key:,.0f}" if per_key > 0 else "disturbed"


def exactness_table(results):
    lines = ["| | two tiers: /x, then /y (5, 5) | boundary: most in 2 s (20) | four instances (100) |", "|---|---|---|---|"]
    for name, found in results.items():
        tiers = found.get("two_tiers")
        tiers = f"{tiers[0]}, {tiers[1]}" if isinstance(tiers, tuple) else tiers or ""
        lines.append(f"| {name} | {tiers} | {found.get('boundary', '')} | {found.get('four_instances', '')} |")
    return lines


def _part(answers, begin, end):
    part = [(status, wait) for at, status, wait in answers if begin <= at < end]
    waits = sorted(wait for _, wait in part)
    return {"passed": sum(status == 200 for status, _ in part) / (end - begin), "429": sum(status == 429 for status, _ in part),
            "5xx": sum(status is not None and status >= 500 for status, _ in part), "none": sum(status is None for status, _ in part),
            "p99": waits[int(len(waits) * 0.99)] * 1000, "longest": waits[-1] * 1000}


def outage_table(results):
    lines = ["| | passed/s before | passed/s while away | 429 | 5xx | no answer | p99 wait ms | longest ms | passed/s after |", "|---|---|---|---|---|---|---|---|---|"]
    for name, found in results.items():
        answers = found.get("outage")
        if isinstance(answers, str):
            lines.append(f"| {name} | {answers} | | | | | | | |")
        elif answers:
            before, away = _part(answers, 0, KILLED), _part(answers, KILLED, BACK)
            after = _part(answers, BACK + 1, int(answers[-1][0]) + 1)
            lines.append(f"| {name} | {before['passed']:.1f} | {away['passed']:.1f} | {away['429']} | {away['5xx']} | {away['none']} | "
                         f"{away['p99']:,.0f} | {away['longest']:,.0f} | {after['passed']:.1f} |")
    return lines


def whole(peers, runs, results, settings, last_line, day, charts, remarks):
    """runs: what → (figures, bytes per key, failed)."""
    (all_figures, memory, _), (deny_figures, deny_memory, _) = runs["all"], runs["deny"]
    of = {store: [peer for peer in peers if peer.store == store] for store in ("memory", "Redis")}
    lines = [f"# Tollgate beside its peers, {day}", "", f"{machine()}. {settings}", "", "Versions: " + "; ".join(versions()) + ".", "",
             f"wrk, {CONNECTIONS} connections, one thread, {KEYS:,} clients at random. One core and one thread or worker for what is measured. "
             "Medians of rounds in turns; ratios within a table are worth more than figures, and CPU per check is what neighbours disturb least. CPU is the server's and Redis's per check. Bytes per key are the growth of the "
             "server's memory, or of Redis's, when clients come for the first time.", "", f"    {last_line}", ""]
    for store in ("memory", "Redis"):
        lines += [f"## In {store}, all admitted", *load_table(of[store], all_figures, memory), "",
                  f"## In {store}, 99 % denied", *load_table(of[store], deny_figures, deny_memory), ""]
    lines += ["throttlecrab-server answers 200 with the verdict in the body; twenty requests before each run saw that it counts. With a burst of 1 (one an hour) it admits everything, so the limit where 99 % are denied is 2 an hour for all. nginx has no rate below one a minute, and Limitador's cache holds 10,000 clients by default: where the denied are fewer than 99 %, that is why.", "", *remarks, ""]
    lines += [f"![]({name})" for name in charts]
    lines += ["", "## Who is right", "What is right is in brackets. Two tiers: 10 an hour, of them 5 on /x; 20 requests to /x, then 20 to /y. Boundary: 20 in 2 s; one request, 19 at 1.8 s, 40 at 2.1 s; "
              "token buckets promise the burst and what flows in, 23 here. Four instances: 100 an hour, 200 requests to each of four processes at once.", "",
              *exactness_table(results), "", "## Redis killed for 5 s",
              "One client, 50 requests a second against 10 a second, everything by defaults; Redis comes back empty. Waits count from when a request was meant to be sent. "
              "Before, token buckets also let their burst pass, 15 a second over 2 s. Tollgate enforces its share of the limit (0.8 ÷ instances) meanwhile, and Redis decides again within a second of its return.", "",
              *outage_table(results), "", "## Not run", *[f"- {name}: {why}" for name, why in NOT_RUN]]
    missing = {name: why for _, _, failed in runs.values() for name, why in failed.items()}
    lines += [f"- {name}: {why}" for name, why in missing.items()]
    return "\n".join(lines) + "\n"
