"""Turns blocks into figures: latencies over LC alone, job rates over native co-run, misses, gaps."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gpsched.bench.arms import BE_ALONE, NATIVE, REFERENCE
from gpsched.bench.outcome import ArmResult, BeFigures, Block, LcFigures, LcRun, Reserved
from gpsched.bench.scenario import Lc
from gpsched.bench.stats import Ratio, block_ratio, mean, mean_interval, p99, summarize


Blocks = Sequence[Block]


def lc_figures(
    index: int, name: str, lc: Lc, rate: float, arm: Blocks, reference: Blocks, reserved: Reserved | None
) -> LcFigures:
    """Figures of one service that was asked ``rate`` times a second.

    ``reference``: blocks of the service alone, none when that arm did not run.
    """
    latencies = [block.lc[index].latency_us for block in arm]
    scheduled = np.concatenate([block.lc[index].scheduled_us for block in arm])
    alone = [block.lc[index].latency_us for block in reference]
    return LcFigures(
        name=name,
        latency=summarize(np.concatenate(latencies)),
        scheduled=summarize(scheduled),
        slo_us=lc.slo_us,
        slo_misses=None if lc.slo_us is None else int((scheduled > lc.slo_us).sum()),
        mean_over_alone=block_ratio(latencies, alone, mean) if alone else None,
        p99_over_alone=block_ratio(latencies, alone, p99) if alone else None,
        reserved=reserved,
        kept_up=float(np.mean([_kept_up(block.lc[index], rate) for block in arm])),
    )


def _kept_up(run: LcRun, rate: float) -> float:
    """Share of the rate at which requests were answered: below 1 when the last one was sent later than due."""
    asked_us = len(run.latency_us) / rate * 1e6
    late_us = max(0.0, run.scheduled_us[-1] - run.latency_us[-1])
    return asked_us / (asked_us + late_us)


def rate(index: int, blocks: Blocks) -> float:
    """Units a second of one job."""
    time_us = sum(block.be[index].time_us for block in blocks)
    return sum(block.be[index].units for block in blocks) / time_us * 1e6 if time_us else 0.0


def be_figures(
    index: int, name: str, arm: Blocks, native: Blocks, alone: Blocks, share: float | None = None
) -> BeFigures:
    """Figures of one job; ``native`` and ``alone`` are empty when those arms did not run."""
    own = rate(index, arm)
    rates = [rate(index, [block]) for block in arm]
    return BeFigures(
        name=name,
        per_s=own,
        per_s_interval=mean_interval(rates),
        largest_gap_us=max(block.be[index].largest_gap_us for block in arm),
        over_native=_over(own, rate(index, native)),
        over_alone=_over(own, rate(index, alone)),
        share=share,
    )


def _over(value: float, base: float) -> float | None:
    return value / base if base else None


def overall_be(arm: ArmResult, native: ArmResult | None) -> float | None:
    """All jobs over native co-run: the mean of their ratios, so that a fast one does not hide a starved one."""
    ratios = [be.over_native for be in arm.be if be.over_native is not None]
    return float(np.mean(ratios)) if ratios and native is not None else None


def mean_over_alone(arm: ArmResult) -> float | None:
    """The mean of the services' ratios; None where they were not compared."""
    return mean_ratio(lc.mean_over_alone for lc in arm.lc)


def p99_over_alone(arm: ArmResult) -> float | None:
    """The same of the 99th percentiles."""
    return mean_ratio(lc.p99_over_alone for lc in arm.lc)


def mean_ratio(ratios: Iterable[Ratio | None]) -> float | None:
    """The mean of those that are known."""
    values = [ratio.value for ratio in ratios if ratio is not None]
    return float(np.mean(values)) if values else None


def references(blocks: Mapping[str, Blocks], arm: str) -> tuple[Blocks, Blocks, Blocks]:
    """The blocks with which an arm is compared: LC alone, native co-run, BE alone."""
    return (
        blocks.get(REFERENCE, ()) if arm != REFERENCE else (),
        blocks.get(NATIVE, ()),
        blocks.get(BE_ALONE, ()),
    )


def share_of_core(blocks: Blocks) -> float | None:
    """Mean share of one core that the daemon used."""
    known = [(block.daemon_cpu, block.real_s) for block in blocks if block.daemon_cpu is not None]
    total = sum(seconds for _, seconds in known)
    return sum(cpu * seconds for cpu, seconds in known) / total if total else None


def switches_per_s(blocks: Blocks, scale: float) -> float | None:
    """Switches of the GPU between programs, a second of its own time; None where nobody counts them."""
    known = [block for block in blocks if block.switches is not None]
    seconds = sum(block.real_s for block in known) / scale
    return sum(block.switches or 0 for block in known) / seconds if known else None
