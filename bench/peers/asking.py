"""Requests one by one, and what is answered: over kept connections, or at given times whatever the others do."""

import asyncio
import http.client
import json
import time


def question(server, client, path):
    """Method, path, headers and body for each question that a peer has to be asked: throttlecrab has one key in each."""
    if server.how == "get":
        return [("GET", path, {"x-client-id": client}, "")]
    headers = {"Content-Type": "application/json"}
    if server.how == "tollgate":
        return [("POST", "/v1/check?status=decision", headers, json.dumps({"client": client, "method": "GET", "path": path}))]
    return [("POST", "/throttle", headers, json.dumps({"key": f"{tier.name}:{client}", "max_burst": tier.limit,
                                                       "count_per_period": tier.limit, "period": tier.seconds}))
            for tier in server.tiers if tier.path in (None, path)]


def verdict(server, status, body):
    if server.how == "throttlecrab" and status == 200:
        return 200 if json.loads(body)["allowed"] else 429
    return status


class Caller:
    """Asks over one connection."""

    def __init__(self, server):
        self.server = server
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
        server.connections.append(self.connection)

    def send(self, method, at, headers, body):
        self.connection.request(method, at, body or None, headers)

    def receive(self):
        response = self.connection.getresponse()
        return verdict(self.server, response.status, response.read())

    def status(self, client, path="/y"):
        for asked in question(self.server, client, path):
            self.send(*asked)
            status = self.receive()
            if status != 200:
                break
        return status

    def passed(self, count, client, path="/y"):
        """How many of so many."""
        return sum(self.status(client, path) == 200 for _ in range(count))


async def _once(server, client, path, patience):
    method, at, headers, body = question(server, client, path)[0]
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(f"{method} {at} HTTP/1.1\r\nHost: peers\r\n{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        line = await asyncio.wait_for(reader.readline(), patience)
        return int(line.split()[1]) if line else None
    finally:
        writer.close()


async def paced(server, client, per_second, seconds, events, patience=10):
    """Asks at absolute times; `events` are (second, function) that happen meanwhile. Gives (meant to be sent, status or None, wait)."""
    begun = time.monotonic() + 0.1
    answers = []

    async def one(at):
        await asyncio.sleep(max(0, begun + at - time.monotonic()))
        try:
            status = await _once(server, client, "/y", patience)
        except (OSError, asyncio.TimeoutError, ValueError, IndexError):
            status = None
        answers.append((at, status, time.monotonic() - begun - at))

    async def event(at, happens):
        await asyncio.sleep(max(0, begun + at - time.monotonic()))
        await asyncio.to_thread(happens)

    await asyncio.gather(*(one(index / per_second) for index in range(per_second * seconds)), *(event(*it) for it in events))
    return sorted(answers)
