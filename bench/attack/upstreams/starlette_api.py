"""An API on Starlette and uvicorn. Logs what it reads of each request, in every way in which applications in Python read it.

    python starlette_api.py LOG h11|httptools

Prints its port, and ends when its standard input does.
"""

import json
import os
import re
import socket
import sys
import threading

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def unique(values):
    return list(dict.fromkeys(value for value in values if value))


def as_it_is(request, name):
    """A header as its first line, as its last, and joined; by its name, and as CGI and WSGI know it. Some servers (lighttpd, PHP's own)
    make one name of all that differ by other characters than letters and digits."""
    alike = [value for key, value in request.headers.items() if re.sub("[^a-z0-9]", "-", key) == name]
    values = []
    for lines in (request.headers.getlist(name), alike):
        values += [*lines[:1], *lines[-1:], ", ".join(lines), ",".join(lines)]
    return unique(values)


def header(request, name):
    """The same with and without spaces around it."""
    values = as_it_is(request, name)
    return unique([*values, *(value.strip() for value in values)])


def bearer(value):
    """The token of an Authorization header, by FastAPI, by Starlette's own example, and by a pattern."""
    scheme, _, token = value.partition(" ")
    words = value.split()
    matched = re.match(r"\s*bearer\s+(\S+)\s*$", value, re.IGNORECASE)
    found = [token.strip()] if scheme.lower() == "bearer" else []
    if len(words) == 2 and words[0].lower() == "bearer":
        found.append(words[1])
    return [*found, matched[1] if matched else ""]


def credential(value):
    """The same, whatever the scheme is."""
    words = value.split()
    return [value, value.partition(" ")[2].strip(), words[1] if len(words) == 2 else ""]


def host_names(request, values):
    names = [value.split(":")[0] for value in values]
    names += [value.rpartition("@")[2].rpartition(":")[0] for value in values if ":" in value]
    try:
        names.append(request.url.hostname or "")
    except ValueError:
        pass
    lower = [name.lower() for name in names]
    return unique(lower + [name.removesuffix(".") for name in lower])


def caller(lines):
    """The address that is not a proxy's: applications name loopback as trusted."""
    entries = [entry.strip(" \t") for entry in ",".join(lines).split(",")]
    normal = [re.sub(r"^::ffff:", "", re.sub(r"^\[(.*)\](:\d+)?$", r"\1", entry), flags=re.I) for entry in entries]
    normal = [re.sub(r"^(\d+\.\d+\.\d+\.\d+):\d+$", r"\1", entry) for entry in normal]
    strangers = [entry for entry in normal if not entry.startswith("127.")]
    return unique([normal[-1], *strangers[-1:]])


def record(request, route):
    lines = lambda name: header(request, name)
    raw = request.scope["raw_path"].decode("latin1")
    query = request.scope["query_string"].decode("latin1")
    method = request.method
    overrides = ["x-http-method-override", "x-http-method", "x-method-override"]
    return {
        "method": method,
        "target": raw + ("?" + query if query else ""),
        "methods": unique([method, method.upper(), *(value for name in overrides for value in lines(name))]),
        "routes": unique([route, request.scope["path"], raw, *lines("x-original-url"), *lines("x-rewrite-url")]),
        "hosts": host_names(request, [*lines("host"), *lines("x-forwarded-host")]),
        "keys": lines("x-api-key"),
        "bearers": unique(token for value in lines("authorization") for token in bearer(value)),
        "credentials": unique(token for value in lines("authorization") for token in credential(value)),
        "users": lines("x-user-id"),
        "tenants": as_it_is(request, "x-tenant"),
        "plans": lines("x-plan"),
        "addresses": caller(request.headers.getlist("x-forwarded-for")),
        "real_addresses": [*lines("x-real-ip"), *lines("forwarded")],
        # Starlette has no trailers. Over httptools, uvicorn takes them for headers.
        "trailers": [],
        "headers": [f"{name}: {value}" for name, value in request.headers.items()],
    }


class Endpoint:
    """Takes any method, and logs under which route it was found."""

    def __init__(self, pattern):
        self.pattern = pattern

    async def __call__(self, scope, receive, send):
        request = Request(scope, receive)
        # Before the headers, as an application that reads them late does.
        try:
            await request.body()
        except ClientDisconnect:
            # An attack that was cut off is no request.
            return
        route = re.sub(r"{(\w+)(:path)?}", lambda name: request.path_params[name[1]], self.pattern)
        os.write(log, (json.dumps(record(request, route)) + "\n").encode())
        await PlainTextResponse("ok\n")(scope, receive, send)


PATTERNS = ["/{p}/charges", "/{p}/users/{id}", "/{p}/public/{rest:path}", "/{rest:path}"]


def end_with_stdin():
    sys.stdin.read()
    os._exit(0)


def main():
    app = Starlette(routes=[Route(pattern, Endpoint(pattern)) for pattern in PATTERNS])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    config = uvicorn.Config(app, http=sys.argv[2], log_level="error", access_log=False, timeout_keep_alive=60, lifespan="off", proxy_headers=False)
    uvicorn.Server(config).run(sockets=[listener])


main()
