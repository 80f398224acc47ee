"""The riders' log: every request with when it was due, how late it was sent, what it took, and what came of it."""

from dataclasses import dataclass

GAVE_UP, BROKEN = 0, 1
ENDPOINTS = ["ride request", "fare estimate", "nearby drivers", "driver location", "trip history", "admin statistics"]


@dataclass(slots=True)
class Request:
    due: float
    """Seconds since the start."""
    lag: float
    """Milliseconds by which the load tool was late."""
    took: float
    """Milliseconds from when it was due to the end of its answer."""
    endpoint: int
    attempt: int
    status: int

    @property
    def is_served(self):
        return 200 <= self.status < 300

    @property
    def is_rejected(self):
        return self.status == 429

    @property
    def is_failed(self):
        return not self.is_served and not self.is_rejected


def read_log(path):
    """All requests, and when the first rider came, in seconds since 1970."""
    requests, began = [], None
    with open(path) as lines:
        next(lines)
        for line in lines:
            if line.startswith("began,"):
                began = int(line.partition(",")[2]) / 1e6
                continue
            due, lag, took, endpoint, attempt, status = map(int, line.split(","))
            requests.append(Request(due / 1e6, lag / 1e3, took / 1e3, endpoint, attempt, status))
    if began is None:
        raise SystemExit("the riders' log has no end: was the disk full?")
    return requests, began


def percentile(sorted_values, percent):
    """The smallest value that at least so many percent do not exceed."""
    if not sorted_values:
        return None
    rank = -(-len(sorted_values) * percent // 100)
    return sorted_values[max(int(rank) - 1, 0)]
