"""A fabricated result, for what reads results."""

import numpy as np

from gpsched.bench import result
from gpsched.bench.messages import End


def block(mean_us: float, kernels: int, seed: int) -> result.Block:
    latencies = np.random.default_rng(seed).normal(mean_us, mean_us / 20, 50).tolist()
    return result.Block(
        start_us=0.0,
        end_us=5e5,
        latency_us=latencies,
        scheduled_us=latencies,
        server_us=[us - 10 for us in latencies],
        be_kernels=kernels,
        be_us=5e5,
        be_largest_gap_us=800.0,
    )


def demo_result(*, bad_counters: int = 0, lost_events: int = 0) -> result.DemoResult:
    arms = [
        result.make_arm("alone", [block(380, 0, seed) for seed in (1, 2)], be_runs=False),
        result.make_arm("default", [block(1600, 1190, seed) for seed in (3, 4)], be_runs=True),
        result.make_arm("gpsched", [block(560, 1180, seed) for seed in (5, 6)], be_runs=True),
    ]
    return result.DemoResult(
        host=result.Host(date="2026-01-01", kernel="6.1", gpu="GPU", driver="1", simulated=True, scale=5.0),
        command=["gpsched", "demo"],
        lc_command=["gpsched-lc"],
        be_command=["gpsched-be"],
        rate=100.0,
        arrival="constant",
        arms=arms,
        ratios=result.make_ratios(*arms),
        managed=result.Managed(
            levels={"lc": "timeslice: stock driver", "be": "timeslice: one [BE] only"},
            lost_events=lost_events,
            failed_controls=0,
            last_failure=None,
        ),
        lc_verification=End(kernels=10, verified=True, bad_counters=0),
        be_verification=End(kernels=4800, verified=True, bad_counters=bad_counters),
    )
