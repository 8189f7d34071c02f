"""Durations as people write them: ``300us``, ``5ms``, ``1.5s``."""

import re

from gpsched.adaptive.errors import UsageError


_FACTORS = {"us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|µs|μs|ms|s)\s*")
_SPAN_FACTORS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_SPAN = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(s|min|m|h|d)\s*")


class DurationError(UsageError):
    """A duration that cannot be read. Field: ``text``."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text!r} is not a duration; write a number and a unit: 300us, 5ms, 1.5s")


def parse_duration(text: str) -> float:
    """Return the duration in µs; raise ``DurationError`` unless it is positive and has a unit."""
    match = _DURATION.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise DurationError(text)
    return float(match[1]) * _FACTORS[match[2]]


class SpanError(UsageError):
    """A stretch of time that cannot be read. Field: ``text``."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text!r} is not a stretch of time; write a number and a unit: 90s, 15m, 1h, 2d")


def parse_span(text: str) -> float:
    """Return a stretch of wall-clock time in seconds; raise ``SpanError`` unless it is positive and has a unit.

    Not for latencies: ``m`` means minutes here, and nothing there.
    """
    match = _SPAN.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise SpanError(text)
    return float(match[1]) * _SPAN_FACTORS[match[2]]


def format_duration(us: float) -> str:
    """Write µs with the unit that keeps the number short: ``1 µs``, ``2.05 ms``, ``1 s``."""
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if us >= factor:
            return f"{us / factor:.3g} {unit}"
    return f"{us:.3g} µs"
