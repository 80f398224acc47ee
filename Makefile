# Tollgate. `make` lists what there is.
.DEFAULT_GOAL := help
SHELL := bash

# What building needs beside a Rust toolchain, and what tests and benchmarks need on top: command:package. gcc only recommends
# what it needs to link a program, and recommendations are not installed.
BUILD_NEEDS := cc:gcc c/stdio.h:libc6-dev
SERVER_NEEDS := redis-server:redis-server redis-cli:redis-tools redis-sentinel:redis-sentinel initdb:postgresql nginx:nginx caddy:caddy curl:curl jq:jq psql:postgresql-client promtool:prometheus python/requests:python3-requests node:nodejs python/ensurepip:python3-venv
DEPLOY_NEEDS := promtool:prometheus systemd-analyze:systemd logrotate:logrotate nginx:nginx
# Always of the whole workspace: what one program alone depends on is built with other features, and so again.
BUILD := cargo build --release --workspace
NEXTEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo yes)

.PHONY: help run simulate pictures test check deploy-check layers lines needs programs tools fmt audit release licences soak faults fuzz openapi bench-engine bench-rules bench-identity bench-redis bench-audit bench-metrics bench-gateway surge payments steady attack bench-peers clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# People wait for it: the program alone, barely optimised.
DEMO := cargo build --profile demo --package tollgate-server --bin tollgate

run: tools ## start a demo: a gateway with example rules in front of a small API
	@test -x target/demo/tollgate || echo "Building Tollgate. The first build takes about three minutes on two cores; later ones take seconds."
	@$(DEMO)
	@target/demo/tollgate serve

simulate: tools ## see five algorithms meet the same traffic: a table, and a chart in simulation/
	@$(DEMO)
	@for scenario in boundary burst-idle surge drivers; do \
	   target/demo/tollgate simulate $$scenario --out simulation/$$scenario || exit 1; echo; \
	 done
	@echo "Try your own: target/demo/tollgate simulate --help"

pictures: tools ## draw the pictures in docs/pictures anew
	@cargo build --quiet --package tollgate-server
	@tools/pictures target/debug/tollgate docs/pictures

test: needs check ## everything: format, lints, docs and all tests
	@echo "== tests"
ifeq ($(NEXTEST),yes)
	cargo nextest run --workspace --all-features --no-fail-fast
else
	cargo test --workspace --all-features --lib --bins --tests --no-fail-fast
endif
	@echo "== examples in the documentation"
	cargo test --workspace --all-features --doc
	@echo "== every interleaving of what is lock-free"
	@# Only the library itself is built anew: what it depends on is there already.
	@set -o pipefail; program=$$(cargo rustc --quiet --package tollgate --all-features --lib --profile test --message-format json -- --cfg tollgate_loom \
	  | sed -nE 's/.*"executable":"([^"]+)".*/\1/p') \
	  && { "$$program" --list loom_tests | grep -c ': test$$' >/dev/null || { echo "there is no test called loom_tests" >&2; exit 1; }; } \
	  && "$$program" loom_tests
	@echo "== deployment files"
	@tools/need $(DEPLOY_NEEDS)
	@# By the program that the tests were run with: to build it by itself is to build half of what it depends on again.
	@tools/deploy-check target/debug/tollgate

check: tools
	@echo "== format"
	cargo fmt --all --check
	@echo "== lints"
	cargo clippy --workspace --all-targets --all-features -- --deny warnings
	cargo clippy --package tollgate -- --deny warnings
	cargo clippy --package tollgate --features redis -- --deny warnings
	@echo "== layers"
	@cargo run --quiet --package layers
	@echo "== packages and their licences"
	@tools/deny
	@tools/need python3:python3
	@tools/licences --check
	@echo "== docs"
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --all-features --no-deps --document-private-items

deploy-check: tools ## the files in deploy/, as far as that goes without Docker and Kubernetes (seconds)
	@echo "== deployment files"
	@tools/need $(DEPLOY_NEEDS)
	@tools/need-server envoy target/servers
	@cargo build --quiet --package tollgate-server
	@tools/deploy-check target/debug/tollgate

needs: programs
	@tools/need-server redis-6.2 target/servers
	@tools/need-server valkey target/servers
	@tools/need-server envoy target/servers
	@tools/need-starlette target/attack

programs:
	@tools/need $(BUILD_NEEDS) $(SERVER_NEEDS)

tools:
	@tools/need $(BUILD_NEEDS)

lines: ## files and lines of Rust without tests, now or at COMMIT=…
	@tools/need python3:python3
	@tools/lines $(COMMIT)

layers: tools ## which crate may depend on which, and that modules form no cycle (seconds)
	@cargo run --quiet --package layers

fmt: ## format the code
	cargo fmt --all

audit: tools ## known vulnerabilities of the packages that are used, by RustSec's advisory database, which is fetched
	@tools/deny audit

release: tools ## build the program for production in target/dist: stripped, with its symbols in a file beside it
	@cargo build --release --locked --package tollgate-server --bin tollgate
	@tools/need objcopy:binutils
	@tools/split-symbols target/release/tollgate target/dist
	@cp LICENSE-APACHE LICENSE-MIT THIRD-PARTY-LICENSES.txt target/dist

licences: tools ## write THIRD-PARTY-LICENSES.txt: whose code the program is linked with
	@tools/licences

soak: programs ## the long comparisons: a million operations per algorithm on memory and Redis (about 15 minutes)
	TOLLGATE_SAME_ANSWERS=1000000 cargo test --release --package tollgate --all-features --test it same_answers

faults: needs ## every fault of Redis, one after the other: how long callers waited for a decision, which must be no longer than promised (about three minutes)
	@set -o pipefail; TOLLGATE_FAULTS_ALONE=1 cargo test --release --package tollgate --all-features --test it faults:: -- --nocapture --test-threads=1 2>&1 \
	  | grep -E '^test |decisions, p99.9|pauses of|breaker was open|store was back|longer than|panicked' | sed -E 's/^test faults::([a-z_0-9:]+) \.\.\. ?/\1: /'

# For each target; and which, if not all.
FUZZ_SECONDS ?= 900
FUZZ_TARGETS ?= path limit key forwarded config rls json http_request http_response http_head

fuzz: tools ## hostile input for every parser, on a nightly toolchain, two at a time (15 minutes each, so about 75 minutes; FUZZ_SECONDS=60 for a look)
	@tools/fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

openapi: tools ## the service's OpenAPI document: linted, validated, compared with the service, and a client made of it (about three minutes)
	@tools/need python/ensurepip:python3-venv npm:npm curl:curl
	@cargo build --quiet --package tollgate-server
	@tools/openapi/check target/debug/tollgate target/openapi

bench-engine: tools ## checks per second beside governor, in one run (about a minute)
	cargo bench --package tollgate --bench engine

bench-rules: tools ## a decision with 10,000 rules beside one with 10, in one run (about a minute)
	cargo bench --package tollgate --bench rules

bench-identity: tools ## what it costs to tell who is calling, nanoseconds by the way they come (a few seconds)
	cargo bench --package tollgate-tower --bench identity

bench-redis: programs ## checks in Redis beside the usual script, in one run on a server of its own (about three minutes)
	cargo bench --package tollgate --features redis --bench redis

bench-audit: programs ## what a denial costs with the audit trail, also under a million violations a second (about a minute)
	cargo bench --package tollgate-server --bench audit

bench-metrics: tools ## what it costs to count a decision, nanoseconds (a few seconds)
	cargo bench --package tollgate-server --bench metrics

# Load for the gateway, and what it is compared with.
GATEWAY_NEEDS := nginx:nginx wrk:wrk h2load:nghttp2-client

bench-gateway: tools ## the gateway beside nginx, the limiter's share of it, and decisions per second over HTTP and gRPC (about ten minutes)
	@tools/need $(GATEWAY_NEEDS)
	cargo bench --package tollgate-server --bench gateway

# What the surge needs: its plot is drawn by a library from PyPI, in a place of its own.
SURGE_PYTHON := target/surge/bin/python

surge: tools ## 2,000 impatient riders against a service made for 800 requests a second, without and with Tollgate (about four minutes)
	@tools/need python/ensurepip:python3-venv redis-server:redis-server
	$(BUILD) --bin tollgate --bin ride-hailing
	cargo build --release --locked --manifest-path examples/ride-hailing/load/Cargo.toml --target-dir target/load
	@test -x $(SURGE_PYTHON) || /usr/bin/python3 -m venv target/surge
	@$(SURGE_PYTHON) -m pip install --quiet --disable-pip-version-check --requirement bench/surge/requirements.txt
	@# 2,000 riders, each with a connection of its own.
	@ulimit -n $$(ulimit -Hn) && $(SURGE_PYTHON) bench/surge/surge.py

payments: tools ## merchants with plans behind four gateways on one Redis, which is killed and comes back (about three minutes)
	@tools/need redis-server:redis-server redis-cli:redis-tools
	$(BUILD) --bin tollgate --bin payments
	@mkdir -p bench/results
	@target/release/payments --out bench/results/payments-$$(date -u +%F).md --circumstances \
	  "$$(date -u '+%F %H:%M UTC'), $$(nproc) cores, $$(sed -nE 's/^model name\s*: //p' /proc/cpuinfo | head -1), Linux $$(uname -r); load of the machine before the run: $$(cut -d' ' -f1-3 /proc/loadavg)."

steady: tools ## a busy machine is not a failed Redis: saturated, paced, with pauses, an outage, four gateways, Envoy (about four minutes)
	@tools/need redis-server:redis-server nginx:nginx wrk:wrk
	@tools/need-server envoy target/servers
	$(BUILD) --bin tollgate --bin steady
	@mkdir -p bench/results
	@# 512 connections, each with one to the upstream.
	@ulimit -n $$(ulimit -Hn) && target/release/steady --out bench/results/steady-$$(date -u +%F).md --circumstances \
	  "$$(date -u '+%F %H:%M UTC'), $$(nproc) cores, $$(sed -nE 's/^model name\s*: //p' /proc/cpuinfo | head -1), Linux $$(uname -r); load of the machine before the run: $$(cut -d' ' -f1-3 /proc/loadavg)."

attack: tools ## collected attacks on the built program, with Node's http and Starlette behind it: none may pass a limit (about five minutes)
	@tools/need nginx:nginx node:nodejs
	@tools/need-starlette target/attack
	$(BUILD) --bin tollgate --bin attack
	@ulimit -n $$(ulimit -Hn) && target/release/attack

# Each run of wrk in seconds, rounds in turns, clients; and whom, if not all: PEERS_ONLY='nginx|tollgate'.
PEERS_SECONDS ?= 3
PEERS_ROUNDS ?= 3
PEERS_KEYS ?= 100000
PEERS_ONLY ?=

bench-peers: tools ## Tollgate beside its peers: speed, memory, exactness, an outage of Redis (about ten minutes and the builds; PEERS_SECONDS=1 PEERS_ROUNDS=1 for a look)
	@bench/peers/install
	@PEERS_SECONDS=$(PEERS_SECONDS) PEERS_ROUNDS=$(PEERS_ROUNDS) PEERS_KEYS=$(PEERS_KEYS) PEERS_ONLY='$(PEERS_ONLY)' python3 -B bench/peers/run.py

clean: ## remove what was built and written
	cargo clean
	rm -rf simulation
