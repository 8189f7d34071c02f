"""Fabricated benchmark results, for what reads them."""

import functools

import msgspec
import numpy as np

from gpsched.bench import figures, outcome
from gpsched.bench.messages import End
from gpsched.bench.result import Host
from gpsched.bench.scenario import Lc, Scenario


LC = Lc(rate=100.0, slo="1ms")
HINTS = outcome.Hints(
    trigger="socket_read",
    lead_us={"p1": 500.4, "p50": 520.0, "p99": 600.0},
    learned_after=17,
    early_share=0.955,
    allowed_share=0.96,
    allowed_early_share=0.992,
    in_vain_share=0.0,
    wasted_share=0.0065,
    reacted_us={"p50": 30.2, "p99": 120.0},
)


def block(mean_us: float, units: int, seed: int) -> outcome.Block:
    latencies = np.random.default_rng(seed).normal(mean_us, mean_us / 50, 400).tolist()
    run = outcome.LcRun(latency_us=latencies, scheduled_us=latencies)
    be = outcome.BeRun(units=units, time_us=4e6, largest_gap_us=5e3)
    return outcome.Block(lc=[run], be=[be], real_s=4.0, daemon_cpu=0.05, switches=800)


def _lc(blocks: list[outcome.Block], alone: list[outcome.Block]) -> outcome.LcFigures:
    return figures.lc_figures(0, "service", LC, 100.0, blocks, alone, None)


@functools.cache
def arm(name: str, mean_us: float, units: int, lost_events: int = 0) -> outcome.ArmResult:
    blocks = [block(mean_us, units + seed, seed) for seed in (1, 2, 3)]
    alone = [block(380, 0, seed) for seed in (4, 5, 6)]
    native = [block(1600, 9500, seed) for seed in (7, 8, 9)]
    return outcome.ArmResult(
        arm=name,
        title=name,
        lc=[msgspec.structs.replace(_lc(blocks, alone), hints=HINTS if name == "gpsched" else None)],
        be=[figures.be_figures(0, "job", blocks, native, native)] if units else [],
        blocks=blocks,
        daemon_cpu=figures.share_of_core(blocks),
        switches_per_s=figures.switches_per_s(blocks, 1.0),
        lost_events=lost_events,
    )


def result(
    gpsched_us: float = 400,
    units: int = 9400,
    *,
    wrong: int = 0,
    error: str | None = None,
    values: tuple[float | None, ...] = (None,),
    gpu: str = "GPU",
) -> outcome.BenchResult:
    points = [
        outcome.Point(
            value=value,
            rates=[100.0],
            arms=[
                arm("resident", 380, 0),
                arm("default", 1600, 9500),
                arm("gpsched", gpsched_us, units, lost_events=2),
            ],
            skipped=[outcome.Skipped(arm="freeze", reason="no <cgroup>")],
            checks={"BE job": End(kernels=100, verified=True, bad_counters=wrong)},
        )
        for value in values
    ]
    sweep = {"field": "lc.rate", "values": list(values)} if values != (None,) else None
    return outcome.BenchResult(
        host=Host(date="2026-01-01", kernel="6.1", gpu=gpu, driver="1", simulated=False, scale=1.0),
        command=["gpsched", "bench", "run", "x"],
        rounds=3,
        scenarios=[
            outcome.ScenarioResult(
                name="x",
                scenario=Scenario(title="sample <b>", lc=[LC], be=[], **({"sweep": _sweep(sweep)} if sweep else {})),
                scale=1.0,
                seconds=12.0,
                commands={"LC service": ["gpsched-lc"]},
                notes=["a note"],
                points=points,
                error=error,
            )
        ],
    )


def _sweep(raw: object) -> object:
    from gpsched.bench.scenario import Sweep

    return msgspec.convert(raw, Sweep)
