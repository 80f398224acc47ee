"""What the host of a virtual machine took away of its processors, and when (steal in /proc/stat)."""

import os
import threading
import time
from pathlib import Path

SPAN = 0.1
"""Seconds between two looks."""


class Watch:
    """Looks ten times a second, in a thread, for as long as the `with` lasts."""

    def __enter__(self):
        self.looks = [(time.time(), stolen_seconds())]
        self.has_ended = threading.Event()
        self.thread = threading.Thread(target=self.look_on, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.has_ended.set()
        self.thread.join()

    def look_on(self):
        while not self.has_ended.wait(SPAN):
            self.looks.append((time.time(), stolen_seconds()))

    def taken(self, began):
        """Spans of time since `began` and the seconds of processor time that were taken in each."""
        return [
            (before - began, after - began, stolen_after - stolen_before)
            for (before, stolen_before), (after, stolen_after) in zip(self.looks, self.looks[1:])
        ]


def stolen_seconds():
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def share(taken, start, end):
    """Of all processor time between two moments."""
    within = sum(seconds for before, after, seconds in taken if start <= before and after <= end)
    return within / ((end - start) * os.cpu_count())


class Undisturbed:
    """Which requests were due while the host took nothing, nor in the tenth of a second before and after.

    Decided by when a request was due alone: to ask how long it was on its way would leave out the slow ones first.
    """

    def __init__(self, taken):
        self.disturbed = set()
        for before, after, seconds in taken:
            if seconds > 0:
                self.disturbed.update(range(int(before / SPAN) - 1, int(after / SPAN) + 2))

    def __call__(self, request):
        return int(request.due / SPAN) not in self.disturbed
