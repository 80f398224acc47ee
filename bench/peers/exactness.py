"""Who is right: four tests over HTTP that any caller could make."""

import asyncio
import threading
import time

from asking import Caller, paced, question
from peers import Tier, tollgate
from processes import Redis


def two_tiers(peer, folder, redis):
    """10 an hour, of them 5 on /x: 20 to /x, then 20 to /y. Gives what passed at each; 5 and 5 are right."""
    server = peer.start(folder, [Tier("client", 10, 3600), Tier("x", 5, 3600, "/x")], redis, 1000)
    try:
        caller = Caller(server)
        return caller.passed(20, "somebody", "/x"), caller.passed(20, "somebody", "/y")
    finally:
        server.end()


def boundary(peer, folder, redis, algorithm="token_bucket"):
    """20 in 2 s: one, at 1.8 s 19 more, at 2.1 s 40 more. Gives the most that passed within any 2 s."""
    server = peer.start(folder, [Tier("client", 20, 2, algorithm=algorithm)], redis, 1000)
    try:
        callers, passed = [Caller(server) for _ in range(40)], []
        for caller in callers:
            caller.status("the connection")
        # Windows begin with the first request or by the clock: here, at the same time.
        time.sleep(2.02 - time.time() % 2)
        begun = time.monotonic()
        for at, count in ((0, 1), (1.8, 19), (2.1, 40)):
            time.sleep(max(0, begun + at - time.monotonic()))
            # All at once, each over a connection that is there.
            for caller in callers[:count]:
                caller.send(*question(server, "somebody", "/y")[0])
            passed += [time.monotonic() for caller in callers[:count] if caller.receive() == 200]
        return max(sum(first <= other < first + 2 for other in passed) for first in passed)
    finally:
        server.end()


def four_instances(peer, folder, redis):
    """100 an hour over four processes and one Redis, 200 requests to each at once over 8 connections. Gives how many passed."""
    servers = []
    try:
        for _ in range(4):
            servers.append(peer.start(folder, [Tier("client", 100, 3600)], redis, 1000))
        passed, together = [], threading.Barrier(32)

        def ask(server):
            caller = Caller(server)
            caller.status("the connection")
            together.wait()
            passed.append(caller.passed(25, "somebody"))
        threads = [threading.Thread(target=ask, args=(server,)) for server in servers for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(passed) != 32:
            raise RuntimeError(f"{32 - len(passed)} of 32 callers got no answer")
        return sum(passed)
    finally:
        for server in servers:
            server.end()


KILLED, BACK, END = 2, 7, 11


def outage(peer, folder):
    """10 a second for one client at 50 a second; Redis is killed after 2 s, and comes back empty 5 s later. Everything by defaults."""
    redis = Redis(folder)
    server = None
    try:
        server = peer.start(folder, [Tier("client", 10, 1)], redis)
        Caller(server).status("the connection")
        return asyncio.run(paced(server, "somebody", 50, END, [(KILLED, redis.kill), (BACK, redis.start)]))
    finally:
        if server:
            server.end()
        redis.end()


def run(peers, folder, say):
    """By name: what came out of each test, or why nothing did."""
    results = {}
    redis = Redis(folder)

    def attempt(name, test, *arguments):
        say(f"{test.__name__.replace('_', ' ')}: {name}")
        try:
            found = test(*arguments)
        except Exception as why:  # whatever it is, the others go on, and the report has it
            found = f"failed: {why}"
            say(f"{test.__name__}: {name}: {why}")
        results.setdefault(name, {})[test.__name__] = found

    def fresh():
        # Every peer counts from nothing.
        redis.end()
        redis.start()
        return redis
    for peer in peers:
        shared = peer.store == "Redis"
        attempt(peer.name, two_tiers, peer, folder, fresh() if shared else None)
        attempt(peer.name, boundary, peer, folder, fresh() if shared else None)
        if shared:
            attempt(peer.name, four_instances, peer, folder, fresh())
            attempt(peer.name, outage, peer, folder)
    ours = next((peer for peer in peers if peer.begin.__qualname__.startswith(tollgate.__qualname__) and peer.store == "memory"), None)
    for algorithm in ("sliding_log", "sliding_counter", "fixed_window") if ours else ():
        attempt(f"Tollgate, {algorithm}", boundary, ours, folder, None, algorithm)
    redis.end()
    return results
