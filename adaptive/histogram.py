"""Counts durations in buckets of a factor of two, from 8 µs to 8.4 s: what Prometheus and percentiles need."""

from bisect import bisect_left
from collections.abc import Sequence

from gpsched.adaptive.model import Histogram, ProcessView


BOUNDS_US = [8.0 * 2**step for step in range(21)]


class DurationHistogram:
    """A histogram that grows; ``view`` is what the snapshot shows."""

    def __init__(self, bounds_us: Sequence[float] = BOUNDS_US) -> None:
        self._bounds_us = list(bounds_us)
        self._counts = [0] * (len(bounds_us) + 1)
        self._sum_us = 0.0

    def observe(self, us: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds_us, us)] += 1
        self._sum_us += us

    def view(self) -> Histogram:
        """The counts now."""
        return Histogram(bounds_us=self._bounds_us, counts=list(self._counts), sum_us=self._sum_us)


def latency_quantile(view: ProcessView, percent: float) -> float | None:
    """The latency in µs that ``percent`` of the bursts do not exceed.

    Exact for the last bursts where the daemon tells p50, p90 and p99 of those, else interpolated over all.
    """
    recent = view.recent_us.get(f"p{percent:g}")
    if recent is not None or view.latency is None:
        return recent
    return quantile(view.latency, percent / 100)


def quantile(histogram: Histogram, share: float) -> float | None:
    """The duration in µs that ``share`` of the counted ones do not exceed, interpolated in its bucket; None when empty.

    Durations above the last bound count as the last bound.
    """
    wanted = share * sum(histogram.counts)
    if wanted == 0:
        return None
    below, lower = 0, 0.0
    for bound, count in zip(histogram.bounds_us, histogram.counts, strict=False):
        if below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below, lower = below + count, bound
    return histogram.bounds_us[-1]


def above(histogram: Histogram, us: float) -> float:
    """How many of the counted durations are longer than ``us``, interpolated in its bucket."""
    longer, lower = 0.0, 0.0
    for bound, count in zip([*histogram.bounds_us, float("inf")], histogram.counts, strict=True):
        if us <= lower:
            longer += count
        elif us < bound < float("inf"):
            longer += count * (bound - us) / (bound - lower)
        lower = bound
    return longer
