"""The result of a comparison, as JSON: schema ``gpsched.demo/1``. Times are µs of program time."""

import msgspec
import numpy as np

from gpsched.bench.messages import End
from gpsched.bench.stats import Interval, Summary, mean_ratio_interval, summarize


SCHEMA = "gpsched.demo/1"


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of one arm: the service under load, and what the job completed meanwhile."""

    start_us: float
    end_us: float
    latency_us: list[float]
    scheduled_us: list[float]
    server_us: list[float]
    be_kernels: int
    be_us: float
    be_largest_gap_us: float


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """All blocks of one setting: ``alone``, ``default`` or ``gpsched``. ``be_per_s``: None where the job is paused."""

    name: str
    latency: Summary
    server: Summary
    be_per_s: float | None
    blocks: list[Block]

    @property
    def latencies(self) -> list[float]:
        """Every latency of the arm."""
        return [us for block in self.blocks for us in block.latency_us]


class Ratios(msgspec.Struct, frozen=True, kw_only=True):
    """gpsched against the driver's default, and each against the service alone."""

    mean: float
    mean_interval: Interval
    p50: float
    p99: float
    be: float
    default_mean_over_alone: float
    gpsched_mean_over_alone: float
    gpsched_p99_over_alone: float


class Managed(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon did: level of each process with its reason, and what it lost or failed at."""

    levels: dict[str, str]
    lost_events: int
    failed_controls: int
    last_failure: str | None


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when it was measured."""

    date: str
    kernel: str
    gpu: str
    driver: str
    simulated: bool
    scale: float


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison, with every raw latency."""

    schema: str = SCHEMA
    host: Host
    command: list[str]
    lc_command: list[str]
    be_command: list[str]
    rate: float
    arrival: str
    arms: list[Arm]
    ratios: Ratios
    managed: Managed
    lc_verification: End
    be_verification: End

    @property
    def ok(self) -> bool:
        """True when the state of both programs on the GPU is what their kernels make of it."""
        return self.be_verification.ok and self.lc_verification.ok


def make_arm(name: str, blocks: list[Block], *, be_runs: bool) -> Arm:
    """Put the blocks of one arm together."""
    be_us = sum(block.be_us for block in blocks)
    return Arm(
        name=name,
        latency=summarize(np.concatenate([block.latency_us for block in blocks])),
        server=summarize(np.concatenate([block.server_us for block in blocks])),
        be_per_s=sum(block.be_kernels for block in blocks) / be_us * 1e6 if be_runs else None,
        blocks=blocks,
    )


def make_ratios(alone: Arm, default: Arm, gpsched: Arm) -> Ratios:
    """Compare the arms; both last ones ran beside the job."""
    assert default.be_per_s
    assert gpsched.be_per_s is not None
    return Ratios(
        mean=gpsched.latency.mean / default.latency.mean,
        mean_interval=mean_ratio_interval(gpsched.latencies, default.latencies),
        p50=gpsched.latency.p50 / default.latency.p50,
        p99=gpsched.latency.p99 / default.latency.p99,
        be=gpsched.be_per_s / default.be_per_s,
        default_mean_over_alone=default.latency.mean / alone.latency.mean,
        gpsched_mean_over_alone=gpsched.latency.mean / alone.latency.mean,
        gpsched_p99_over_alone=gpsched.latency.p99 / alone.latency.p99,
    )
