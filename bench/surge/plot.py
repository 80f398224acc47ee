"""Latency and goodput over time, without and with, as SVG and PNG."""

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
        bins = [[] for _ in seconds]
        for request in run["requests"]:
            if 0 <= request.due < len(bins):
                bins[int(request.due)].append(request)
        draw_latency(rows[0][column], seconds, bins)
        draw_rates(rows[1][column], seconds, bins, about)
        rows[0][column].set_title(TITLES[run["name"]], loc="left", fontweight="bold")
        for axes in rows[:, column]:
            before, surge, _ = about["phases"]
            axes.axvspan(before, before + surge, color="#f3efe6", zorder=0)
            axes.grid(color="#eef0f3")
            axes.spines[["top", "right"]].set_visible(False)
        rows[1][column].set_xlabel("seconds; shaded: the surge")
    rows[0][0].set_ylabel("ms, from when a request was due")
    rows[1][0].set_ylabel("requests per second")
    figure.suptitle(f"{about['users']:,} impatient riders, a service made for {about['capacity']} requests a second ({about['date'][:10]})", x=0.01, ha="left")
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(stem.with_suffix(".png"), dpi=110)


def draw_latency(axes, seconds, bins):
    def line(keep, percent, **style):
        values = [percentile(sorted(request.took for request in of_second if keep(request)), percent) for of_second in bins]
        points = [(second, value) for second, value in zip(seconds, values) if value is not None]
        if points:
            axes.plot(*zip(*points), **style)

    admitted = lambda request: not request.is_rejected
    line(admitted, 99, color=BLUE, label="admitted, p99")
    line(admitted, 50, color=PALE, label="admitted, median")
    line(lambda request: request.is_rejected, 99, color=GREY, linestyle="--", label="429, p99")
    axes.set_yscale("log")
    axes.legend(loc="upper right", frameon=False, fontsize=9)


def draw_rates(axes, seconds, bins, about):
    def line(keep, **style):
        axes.plot(seconds, [sum(map(keep, of_second)) for of_second in bins], **style)

    line(lambda request: True, color=PALE, label="sent")
    line(lambda request: request.is_rejected, color=GREY, linestyle="--", label="429")
    line(lambda request: request.is_failed, color=RED, label="failed")
    line(lambda request: request.is_served, color=GREEN, linewidth=2, label="goodput")
    axes.axhline(about["capacity"], color="#3d4855", linewidth=1, linestyle=":", label="made for")
    axes.set_yscale("symlog", linthresh=100)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right", frameon=False, fontsize=9, ncols=2)
