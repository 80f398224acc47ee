"""Who takes part, and how each is started: as its own documentation has it, one thread or worker each."""

import json
import os
import tempfile
from dataclasses import dataclass, field
from typing import Optional

from processes import LOAD_CORE, SERVER_CORE, Process, free_port

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
TARGET = os.path.join(ROOT, "target/peers")


@dataclass
class Tier:
    """So many in so many seconds for each client, on one path or on all."""
    name: str
    limit: int
    seconds: int
    path: Optional[str] = None
    # Tollgate's alone: the others have one algorithm each.
    algorithm: str = "token_bucket"

    def word(self):
        return f"{self.name}:{self.limit}:{self.seconds}" + (f":{self.path}" if self.path else "")


@dataclass
class Server:
    """A peer that listens. `how` is what it wants to be asked in: see load.lua."""
    process: Process
    port: int
    how: str
    tiers: list
    others: tuple = ()
    connections: list = field(default_factory=list)

    def end(self):
        # Some wait for their callers before they end.
        for connection in self.connections:
            connection.close()
        for process in (self.process, *self.others):
            process.end()


@dataclass
class Peer:
    name: str
    store: str
    kind: str
    begin: object
    # Where it is faster than Tollgate, as far as known.
    why_faster: str = ""

    @property
    def database(self):
        """In Redis, so that peers who name their keys alike do not share them."""
        return ALL.index(self)

    @property
    def trade(self):
        """With whom it is compared."""
        return "library" if self.kind in (LIBRARY, NODE) else "service" if self.kind == SERVICE else "proxy"

    @property
    def is_ours(self):
        return self.name.startswith("Tollgate")

    def start(self, folder, tiers, redis=None, deadline_ms=10):
        folder = tempfile.mkdtemp(dir=folder)
        # nginx's worker is another user, who has to get at its files.
        os.chmod(folder, 0o755)
        return self.begin(folder, tiers, redis.url(self.database) if redis else "-", deadline_ms)


def _started(command, folder, port, how, tiers, others=(), **more):
    process = Process(command, SERVER_CORE, f"{folder}/log", **more)
    try:
        process.wait_for(port)
    except RuntimeError:
        for other in others:
            other.end()
        raise
    return Server(process, port, how, tiers, others)


def axum(which):
    def begin(folder, tiers, redis, deadline_ms):
        port = free_port()
        words = [tier.word() for tier in tiers]
        return _started([f"{TARGET}/server/release/peers-server", which, str(port), redis, str(deadline_ms), *words], folder, port, "get", tiers)
    return begin


def node(script, *mode):
    def begin(folder, tiers, redis, deadline_ms):
        port = free_port()
        words = [tier.word() for tier in tiers]
        return _started(["node", f"{TARGET}/node/{script}", *mode, str(port), redis, *words], folder, port, "get", tiers,
                        env={"NODE_ENV": "production"})
    return begin


def nginx_process(folder, port, core, http):
    with open(f"{folder}/nginx.conf", "w") as conf:
        conf.write(f"daemon off; worker_processes 1; pid {folder}/pid; error_log stderr crit;\nevents {{ worker_connections 4096; }}\n"
                   f"http {{ access_log off; keepalive_requests 1000000000;\n{http}\n}}\n")
    return Process(["nginx", "-p", folder, "-c", f"{folder}/nginx.conf"], core, f"{folder}/nginx.log", env={"PATH": f"{os.environ['PATH']}:/usr/sbin"})


def nginx(folder, tiers, redis, deadline_ms):
    port = free_port()
    zones = places = ""
    for tier in tiers:
        # Whole requests a second or a minute are all it has; an hour's ten become one a minute after the first ten.
        per_second, per_minute = tier.limit // tier.seconds, max(1, tier.limit * 60 // tier.seconds)
        rate = f"{per_second}r/s" if per_second * tier.seconds == tier.limit else f"{per_minute}r/m"
        zones += f"limit_req_zone $http_x_client_id zone={tier.name}:64m rate={rate};\n"
    for path in ["/", *{tier.path for tier in tiers if tier.path}]:
        limits = "".join(f"limit_req zone={tier.name}" + (f" burst={tier.limit - 1} nodelay" if tier.limit > 1 else "") + "; "
                         for tier in tiers if tier.path in (None, path))
        # An answer from memory that comes after limit_req; `return` would come before.
        places += f"location {path} {{ {limits} empty_gif; }}\n"
    http = f"{zones} limit_req_status 429;\nserver {{ listen 127.0.0.1:{port}; {places} }}"
    process = nginx_process(folder, port, SERVER_CORE, http).wait_for(port)
    return Server(process, port, "get", tiers)


def envoy(folder, tiers, redis, deadline_ms):
    port = free_port()

    def bucket(tier):
        return {"max_tokens": tier.limit, "tokens_per_fill": tier.limit, "fill_interval": f"{tier.seconds}s"}
    def header(name, key):
        return {"request_headers": {"header_name": name, "descriptor_key": key}}
    descriptors, limits = [], []
    for tier in tiers:
        # A value that is left out stands for any.
        where = [{"key": "path", "value": tier.path}] if tier.path else []
        descriptors.append({"entries": [*where, {"key": tier.name}], "token_bucket": bucket(tier)})
        limits.append({"actions": [*([header(":path", "path")] if tier.path else []), header("x-client-id", tier.name)]})
    everybody = {"max_tokens": 4000000000, "tokens_per_fill": 4000000000, "fill_interval": "1s"}
    always = {"default_value": {"numerator": 100}}
    limit = {"@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit", "stat_prefix": "peers",
             "token_bucket": everybody, "filter_enabled": always, "filter_enforced": always, "descriptors": descriptors, "rate_limits": limits,
             "max_dynamic_descriptors": 1000000}
    routes = [{"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "ok"}}}]
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}
    manager = {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
               "stat_prefix": "peers", "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
               "http_filters": [{"name": "envoy.filters.http.local_ratelimit", "typed_config": limit}, router]}
    listener = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}
    with open(f"{folder}/envoy.json", "w") as conf:
        json.dump({"static_resources": {"listeners": [listener]}}, conf)
    return _started([f"{ROOT}/target/servers/envoy", "--disable-hot-restart", "--concurrency", "1", "--log-level", "error", "-c", f"{folder}/envoy.json"],
                    folder, port, "get", tiers)


def throttlecrab(folder, tiers, redis, deadline_ms):
    port = free_port()
    return _started([f"{TARGET}/bin/throttlecrab-server", "--http", "--http-host", "127.0.0.1", "--http-port", str(port), "--log-level", "error"],
                    folder, port, "throttlecrab", tiers)


def tollgate(door):
    def begin(folder, tiers, redis, deadline_ms):
        port, others = free_port(), ()
        config = {"log": {"level": "error"}, "identity": {"client": ["header:x-client-id"]}, "rules": [_rule(tier) for tier in tiers]}
        if redis != "-":
            config["store"] = {"redis": redis, "deadline": f"{deadline_ms}ms"}
        if door == "service":
            config["service"] = {"listen": f"127.0.0.1:{port}"}
        else:
            behind = free_port()
            http = f"server {{ listen 127.0.0.1:{behind}; location / {{ empty_gif; }} }}"
            others = (nginx_process(folder, behind, LOAD_CORE, http).wait_for(behind),)
            config["gateway"] = {"listen": f"127.0.0.1:{port}", "workers": 1, "upstreams": [{"to": [f"http://127.0.0.1:{behind}"]}]}
        with open(f"{folder}/tollgate.json", "w") as conf:
            json.dump(config, conf)
        return _started([f"{ROOT}/target/release/tollgate", "serve", "-c", f"{folder}/tollgate.json"], folder, port,
                        "tollgate" if door == "service" else "get", tiers, others)
    return begin


def _rule(tier):
    rule = {"id": tier.name, "per": ["client"], "match": {"path": tier.path}} if tier.path else {"id": tier.name, "per": ["client"]}
    if tier.algorithm != "token_bucket":
        return {**rule, "limit": {"algorithm": tier.algorithm, "limit": tier.limit, "window": f"{tier.seconds}s"}}
    rate = f"{tier.limit}/h" if tier.seconds == 3600 else f"{tier.limit / tier.seconds:g}/s"
    return {**rule, "limit": {"rate": rate, "burst": tier.limit}}


LIBRARY, NODE, PROXY, SERVICE = "library in axum", "library in express", "web server", "decision service"
ALL = [
    Peer("governor", "memory", LIBRARY, axum("governor"), "it answers yes or no, and tells callers nothing in header fields, where Tollgate's middleware writes five"),
    Peer("Limitador", "memory", LIBRARY, axum("limitador"), "it tells callers nothing in header fields, where Tollgate's middleware writes five"),
    Peer("Tollgate", "memory", LIBRARY, axum("tollgate")),
    Peer("nginx limit_req", "memory", PROXY, nginx, "it answers from memory itself, without a hop or JSON, and tells callers nothing in header fields; its HTTP costs less than hyper's"),
    Peer("Envoy local rate limit", "memory", PROXY, envoy, "it answers from memory itself, without a hop or JSON"),
    Peer("Tollgate gateway", "memory", "reverse proxy, one more hop", tollgate("gateway")),
    Peer("throttlecrab-server", "memory", SERVICE, throttlecrab, "it has no rules to find: each question brings its limit"),
    Peer("Tollgate service", "memory", SERVICE, tollgate("service")),
    Peer("Limitador, Redis", "Redis", LIBRARY, axum("limitador-redis")),
    Peer("Limitador, Redis cached", "Redis", LIBRARY, axum("limitador-cached"), "it answers from its own memory and tells Redis later, so that several processes together admit more than the limit"),
    Peer("Tollgate, Redis", "Redis", LIBRARY, axum("tollgate-redis")),
    Peer("express-rate-limit", "Redis", NODE, node("express-rate-limit.js")),
    Peer("rate-limiter-flexible", "Redis", NODE, node("rate-limiter-flexible.js", "plain")),
    Peer("rate-limiter-flexible, options", "Redis", NODE, node("rate-limiter-flexible.js", "options")),
    Peer("Tollgate gateway, Redis", "Redis", "reverse proxy, one more hop", tollgate("gateway")),
    Peer("Tollgate service, Redis", "Redis", SERVICE, tollgate("service")),
]
NOT_RUN = [
    ("envoyproxy/ratelimit", "is built with a Go toolchain and modules from Go's module proxy; this harness has neither"),
    ("gubernator", "is built with a Go toolchain and modules from Go's module proxy; this harness has neither"),
]
