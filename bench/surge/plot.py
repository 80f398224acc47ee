"""Latency and goodput over time, without and with, as SVG and PNG."""

import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot

from requests_log import percentile

BLUE, PALE, RED, GREY, GREEN = "#2b6cd9", "#9db9ea", "#c61a2b", "#8a939e", "#0c9686"
TITLES = {"without": "Without Tollgate", "with": "With Tollgate"}


def draw(runs, about, stem):
    figure, rows = pyplot.subplots(2, 2, figsize=(13, 8), sharex=True, sharey="row", constrained_layout=True)
    seconds = range(sum(about["phases"]))
    for column, run in enumerate(runs):
        draw_latency(rows[0][column], seconds, by_second(run["requests"], seconds, lambda request: request.due))
        draw_rates(rows[1][column], seconds, run["requests"], about)
        rows[0][column].set_title(TITLES[run["name"]], loc="left", fontweight="bold")
        for axes in rows[:, column]:
            before, surge, _ = about["phases"]
            axes.axvspan(before, before + surge, color="#f3efe6", zorder=0)
            axes.grid(color="#eef0f3")
            axes.spines[["top", "right"]].set_visible(False)
        rows[1][column].set_xlabel("seconds; shaded: the surge")
    # The colours are the same on both sides.
    rows[0][0].legend(loc="lower right", frameon=False, fontsize=9)
    rows[1][0].legend(loc="upper center", frameon=False, fontsize=9, ncols=5)
    rows[0][0].set_ylabel("ms, from when a request was due")
    rows[1][0].set_ylabel("requests per second")
    figure.suptitle(f"{about['users']:,} impatient riders, a service made for {about['capacity']} requests a second ({about['date'][:10]})", x=0.01, ha="left")
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(stem.with_suffix(".png"), dpi=110)


def by_second(requests, seconds, when):
    bins = [[] for _ in seconds]
    for request in requests:
        if 0 <= when(request) < len(bins):
            bins[int(when(request))].append(request)
    return bins


def draw_latency(axes, seconds, bins):
    def line(keep, percent, **style):
        values = [percentile(sorted(request.took for request in of_second if keep(request)), percent) for of_second in bins]
        # A second without any is a gap in the line.
        axes.plot(seconds, [math.nan if value is None else value for value in values], **style)

    admitted = lambda request: not request.is_rejected
    line(admitted, 99, color=BLUE, label="admitted, p99")
    line(admitted, 50, color=PALE, label="admitted, median")
    line(lambda request: request.is_rejected, 99, color=GREY, linestyle="--", label="429, p99")
    axes.set_yscale("log")


def draw_rates(axes, seconds, requests, about):
    sent = by_second(requests, seconds, lambda request: request.due)
    ended = by_second(requests, seconds, lambda request: request.due + request.took / 1000)

    def line(bins, keep, **style):
        axes.plot(seconds, [sum(map(keep, of_second)) for of_second in bins], **style)

    line(sent, lambda request: True, color=PALE, label="sent")
    line(ended, lambda request: request.is_rejected, color=GREY, linestyle="--", label="429")
    line(ended, lambda request: request.is_failed, color=RED, label="failed")
    line(ended, lambda request: request.is_served, color=GREEN, linewidth=2, label="goodput")
    axes.axhline(about["capacity"], color="#3d4855", linewidth=1, linestyle=":", label="made for")
    axes.set_yscale("symlog", linthresh=100)
    axes.set_ylim(0, 10 * about["users"])
