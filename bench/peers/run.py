"""`make bench-peers`: Tollgate beside its peers, the same work, the same Redis, the same load.

PEERS_SECONDS   of each run of wrk, 3 by default; 2 or 1 for a look
PEERS_ROUNDS    in turns, 3 by default
PEERS_KEYS      how many clients, 100000 by default
PEERS_ONLY      names that contain this, separated by |
"""

import datetime
import os
import shutil
import signal
import sys
import tempfile
import time

import exactness
import load
import plot
import report
from peers import ALL, NOT_RUN, ROOT
from processes import end_all

SECONDS = int(os.environ.get("PEERS_SECONDS", "3"))
ROUNDS = int(os.environ.get("PEERS_ROUNDS", "3"))
ONLY = [part for part in os.environ.get("PEERS_ONLY", "").lower().split("|") if part]
BEGUN = time.monotonic()


def say(text):
    print(f"[{time.monotonic() - BEGUN:4.0f} s] {text}", flush=True)


def remarks(peers, figures):
    """Who is faster than Tollgate among those who do the same kind of work."""
    lines = []
    speed = {peer.name: figures[peer.name].median("per_second") for peer in peers if peer.name in figures}
    for peer in (peer for peer in peers if peer.is_ours and peer.name in speed):
        for other in peers:
            if not other.is_ours and (other.store, other.trade) == (peer.store, peer.trade) and speed.get(other.name, 0) > speed[peer.name]:
                lines.append(f"- {other.name} ({other.kind}) is {speed[other.name] / speed[peer.name]:.2f} times as fast as {peer.name} ({peer.kind})"
                             + (f": {other.why_faster}." if other.why_faster else "."))
    return lines and ["Faster than Tollgate with all admitted, among those of a kind; reasons as far as the code shows them, not measured apart:", *lines]


def main():
    peers = [peer for peer in ALL if not ONLY or any(part in peer.name.lower() for part in ONLY)]
    load_before = os.getloadavg()
    folder = tempfile.mkdtemp(prefix="peers-")
    # As for the folders in it: see peers.py.
    os.chmod(folder, 0o755)
    try:
        runs = {what: load.measure(peers, what, SECONDS, ROUNDS, folder, say) for what in ("all", "deny")}
        results = exactness.run([peer for peer in peers if peer.name in runs["all"][0]], folder, say)
    finally:
        end_all()
        shutil.rmtree(folder, ignore_errors=True)

    figures = runs["all"][0]
    best = {}
    for peer in peers:
        if peer.name in figures:
            best.setdefault((peer.store, peer.is_ours), []).append((figures[peer.name].median("per_second"), peer.name))

    def fastest(store):
        found = best.get((store, True), []) + best.get((store, False), [])
        return max(found)[1].replace(" ", "_").replace(",", "") if found else "none"
    ours, others = best.get(("Redis", True)), best.get(("Redis", False))
    ratio = f"{max(ours)[0] / max(others)[0]:.2f}" if ours and others else "none"
    last_line = (f"peers: ran={len(figures)} not_run={len(NOT_RUN) + len(peers) - len(figures)} fastest_memory={fastest('memory')} "
                 f"fastest_redis={fastest('Redis')} tollgate_vs_next_redis={ratio}")

    day = datetime.date.today().isoformat()
    target = f"{ROOT}/bench/results" if not ONLY else f"{ROOT}/target/peers/results"
    os.makedirs(target, exist_ok=True)
    charts = [f"peers-{day}-checks.svg", f"peers-{day}-outage.svg"]
    with open(f"{target}/{charts[0]}", "w") as chart:
        chart.write(plot.bars("Checks a second, all admitted", [(f"{peer.name} ({peer.kind.split(',')[0]})" if peer.is_ours else peer.name,
                    figures[peer.name].median("per_second"), peer.is_ours) for peer in peers if peer.name in figures]))
    with open(f"{target}/{charts[1]}", "w") as chart:
        rows = [(name, found["outage"], name.startswith("Tollgate")) for name, found in results.items() if isinstance(found.get("outage"), list)]
        chart.write(plot.waits("Redis killed for 5 s: how long callers waited", rows, (exactness.KILLED, exactness.BACK)))
    settings = (f"{ROUNDS} rounds of {SECONDS} s in turns. Load averages before and after (1, 5, 15 minutes): "
                f"{' '.join(f'{figure:.1f}' for figure in load_before)}, {' '.join(f'{figure:.1f}' for figure in os.getloadavg())}.")
    with open(f"{target}/peers-{day}.md", "w") as file:
        file.write(report.whole(peers, runs, results, settings, last_line, day, charts, remarks(peers, figures)))
    say(f"written: {os.path.relpath(target, ROOT)}/peers-{day}.md")
    print(last_line)


def stop(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    try:
        main()
    except KeyboardInterrupt:
        end_all()
        sys.exit("stopped")
