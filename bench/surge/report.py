"""What was measured, as Markdown and as one line."""

import host
from requests_log import BROKEN, ENDPOINTS, GAVE_UP, percentile


def figures(run, about):
    """Those of the surge; what was due before and after it is in the plot."""
    before, surge, _ = about["phases"]
    requests = [request for request in run["requests"] if before <= request.due < before + surge]
    if not requests:
        raise SystemExit(f"{run['name']}: no request was sent in the surge")
    rejected = sorted(request.took for request in requests if request.is_rejected)
    admitted = sorted(request.took for request in requests if not request.is_rejected)
    served = [request for request in requests if request.is_served]
    failed = [request for request in requests if request.is_failed]
    lag = sorted(request.lag for request in requests)
    after = [request for request in run["requests"] if request.due >= before + surge]
    undisturbed = host.Undisturbed(run["taken_by_host"])
    in_peace = sorted(request.took for request in requests if request.is_rejected and undisturbed(request))
    return {
        "name": run["name"],
        "requests": len(requests),
        "admitted": len(admitted),
        "mean": sum(admitted) / max(len(admitted), 1),
        "median": percentile(admitted, 50),
        "p95": percentile(admitted, 95),
        "p99": percentile(admitted, 99),
        "failed": len(failed) / len(requests),
        "failed_of_admitted": len(failed) / max(len(admitted), 1),
        "gave_up": sum(request.status == GAVE_UP for request in failed),
        "broken": sum(request.status == BROKEN for request in failed),
        "answered_badly": sum(request.status > BROKEN for request in failed),
        "rejected": len(rejected) / len(requests),
        "rejected_median": percentile(rejected, 50),
        "rejected_p99": percentile(rejected, 99),
        "rejected_p99_sent": percentile(sorted(request.took - request.lag for request in requests if request.is_rejected), 99),
        "in_peace_p99": percentile(in_peace, 99),
        "in_peace": len(in_peace) / max(len(rejected), 1),
        "taken_by_host": host.share(run["taken_by_host"], before, before + surge),
        "goodput": len(served) / surge,
        "by_endpoint": [by_endpoint(requests, number) for number in range(len(ENDPOINTS))],
        "peak": run["journal"][-1]["peak"],
        "served_nobody": run["journal"][-1]["served_nobody"],
        "longest_queue": max(seen["queued"] for seen in run["journal"]),
        "lag_p50": percentile(lag, 50),
        "lag_p99": percentile(lag, 99),
        "after_failed": sum(request.is_failed for request in after) / max(len(after), 1),
        "cpu": run["cpu"],
        "decisions": run.get("decisions"),
    }


def by_endpoint(requests, number):
    of_it = [request for request in requests if request.endpoint == number]
    served = sorted(request.took for request in of_it if request.is_served)
    share = lambda count: count / max(len(of_it), 1)
    return {
        "requests": len(of_it),
        "served": share(len(served)),
        "rejected": share(sum(request.is_rejected for request in of_it)),
        "failed": share(sum(request.is_failed for request in of_it)),
        "p99": percentile(served, 99),
    }


def ms(value):
    return "–" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def percent(share):
    return f"{share * 100:.2f} %"


def by_store(counts):
    """The share of decisions that Redis took; remembered denials are left out, because they ask nobody."""
    if not counts:
        return "–"
    asked = counts["store"] + counts["fallback"]
    return f"{percent(counts['store'] / max(asked, 1))} of {asked:,}, and {counts['remembered']:,} remembered denials"


ROWS = [
    ("requests in the surge", lambda it: f"{it['requests']:,}"),
    ("admitted (all but 429)", lambda it: f"{it['admitted']:,}"),
    ("admitted: mean, ms", lambda it: ms(it["mean"])),
    ("admitted: median, ms", lambda it: ms(it["median"])),
    ("admitted: p95, ms", lambda it: ms(it["p95"])),
    ("admitted: p99, ms", lambda it: ms(it["p99"])),
    ("failures, of all requests", lambda it: percent(it["failed"])),
    ("failures, of those admitted", lambda it: percent(it["failed_of_admitted"])),
    ("– gave up, connection broken, 5xx", lambda it: f"{it['gave_up']:,}, {it['broken']:,}, {it['answered_badly']:,}"),
    ("429, of all requests", lambda it: percent(it["rejected"])),
    ("429: median, ms", lambda it: ms(it["rejected_median"])),
    ("429: p99, ms", lambda it: ms(it["rejected_p99"])),
    ("429: p99 from when it was sent, ms", lambda it: ms(it["rejected_p99_sent"])),
    ("429: p99 while the host of this machine took nothing of its processors, ms (share of all 429)",
     lambda it: f"{ms(it['in_peace_p99'])} ({percent(it['in_peace'])})" if it["rejected"] else "–"),
    ("goodput (answered 2xx in time), per s", lambda it: f"{it['goodput']:,.0f}"),
    ("at the service: most requests in any second", lambda it: f"{it['peak']:,}"),
    ("at the service: longest queue", lambda it: f"{it['longest_queue']:,}"),
    ("at the service: served after the caller had gone", lambda it: f"{it['served_nobody']:,}"),
    ("failures in the calm after the surge", lambda it: percent(it["after_failed"])),
    ("load tool: requests sent late by, median and p99, ms", lambda it: f"{ms(it['lag_p50'])}, {ms(it['lag_p99'])}"),
    ("decisions by Redis, in the whole run", lambda it: by_store(it["decisions"])),
    ("processors used: riders, gateway, Redis, service, anything else on the machine",
     lambda it: ", ".join(f"{it['cpu'][who]:.2f}" if who in it["cpu"] else "–" for who in ("riders", "gateway", "redis", "service", "anything else"))),
    ("taken by the host of this machine, of all processor time", lambda it: percent(it["taken_by_host"])),
]


def markdown(both, runs, about, stem):
    before, surge, after = about["phases"]
    without, with_it = both
    lines = [
        "# The surge",
        "",
        f"{about['date']}, {about['machine']}; load of the machine before the run: {about['load_before']}.",
        "",
        f"{about['users']:,} riders against a service made for {about['capacity']} requests a second: {before} s calm (1 to 5 s between requests), {surge} s surge "
        f"(0.1 to 0.5 s), {after} s calm again. A rider gives up after {about['patience_ms']:,} ms, and tries what failed again, up to three times. "
        "The table is of the surge; times count from when a request was due, and one that was given up counts with the time it was waited for.",
        "",
        f"![latency and goodput over time]({stem}.svg)",
        "",
        "| | without Tollgate | with Tollgate |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {show(without)} | {show(with_it)} |" for name, show in ROWS]
    lines += ["", "By endpoint, with Tollgate, in the surge:", "", "| | requests | served | 429 | failed | p99 of served, ms |", "|---|---|---|---|---|---|"]
    for name, it in zip(ENDPOINTS, with_it["by_endpoint"]):
        lines.append(f"| {name} | {it['requests']:,} | {percent(it['served'])} | {percent(it['rejected'])} | {percent(it['failed'])} | {ms(it['p99'])} |")
    lines += ["", f"    {summary(both)}", ""]
    return "\n".join(lines)


def summary(both):
    without, with_it = both
    shown = lambda value: "none" if value is None else f"{value:.1f}"
    return (
        f"surge: p99_without={without['p99']:.0f} p99_with={with_it['p99']:.0f} failures_without={without['failed']:.4f} "
        f"failures_with={with_it['failed']:.4f} rejected_p99={shown(with_it['rejected_p99'])} "
        f"rejected_p99_undisturbed={shown(with_it['in_peace_p99'])} upstream_peak={with_it['peak']}"
    )
