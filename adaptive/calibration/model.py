"""The result of a calibration, as JSON: schema ``gpsched.calibration/1``.

Times are µs on the GPU's clock. It is the real one, except on the embedded GPU, whose time runs ``scale`` times slower.
"""

from collections.abc import Sequence
from statistics import median, quantiles

import msgspec


SCHEMA = "gpsched.calibration/1"


_NOTHING_US = 20.0  # a delay that is none


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took, in µs: median, 10th and 90th percentile of ``samples``."""

    median_us: float
    p10_us: float
    p90_us: float
    samples: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Figure":
        """Summarize at least two durations."""
        tenths = quantiles(samples, n=10, method="inclusive")
        p10, p50, p90 = (round(us, 1) for us in (tenths[0], median(samples), tenths[8]))
        return cls(median_us=p50, p10_us=p10, p90_us=p90, samples=len(samples))


class ControlCost(msgspec.Struct, frozen=True, kw_only=True):
    """One control, on an idle GPU and while both programs use it; ``refused``: why there are no figures."""

    idle: Figure | None = None
    load: Figure | None = None
    refused: str | None = None


class ReservedBursts(msgspec.Struct, frozen=True, kw_only=True):
    """A burst for which the best-effort program's channels are disabled.

    ``early``  disabling began some ms before the burst
    ``late``   it began only ``late_margin_us`` before, and was not over when the burst began
    """

    early: Figure
    late: Figure
    late_margin_us: float

    @property
    def delay_us(self) -> float:
        """What beginning late adds."""
        return self.late.median_us - self.early.median_us

    @property
    def was_enough(self) -> bool:
        """Whether that margin was as good as a long one."""
        return self.delay_us <= _NOTHING_US


class Bursts(msgspec.Struct, frozen=True, kw_only=True):
    """A burst of the latency-critical program.

    ``alone``      while the best-effort program launches nothing
    ``timeslice``  while that keeps the GPU full; slices as at level ``timeslice``
    ``reserved``   the same, with its channels disabled; None where the driver refuses it
    """

    alone: Figure
    timeslice: Figure
    reserved: ReservedBursts | None

    def added_us(self, situation: Figure) -> float:
        """Return what a situation adds to the burst alone."""
        return max(situation.median_us - self.alone.median_us, 0.0)


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU with one driver costs. ``time_s``: when, in seconds since the epoch."""

    schema: str = SCHEMA
    time_s: float
    gpu: str
    driver: str
    scale: float
    controls: dict[str, ControlCost]
    bursts: Bursts
