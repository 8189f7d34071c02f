"""The demonstration: one service alone, beside a job under the driver's default, and beside it under gpsched.

The three arms take turns in blocks, so that clocks, heat and other load fall on all of them alike.
"""

import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

import msgspec

from gpsched.adaptive import agent
from gpsched.bench import result, workload
from gpsched.bench.calibration import calibrate
from gpsched.bench.daemon import running_daemon
from gpsched.bench.demo_arms import ARMS, Stage, measure
from gpsched.bench.device import SIMULATED_SCALE, Device, Kind, favour, open_device


Progress = Callable[[str, float], None]

#: Real seconds of measuring; with all set-up a demonstration stays under 90 s.
DEFAULT_SECONDS = 45.0
_ROUNDS = 3
_MIN_REQUESTS = 10  # a block


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What to compare. ``python``: an interpreter with PyTorch, for the ``torch`` programs."""

    programs: Literal["cuda", "torch"] = "cuda"
    lc_options: tuple[str, ...] = ()
    be_options: tuple[str, ...] = ()
    rate: float = 100.0
    arrival: str = "constant"
    seconds: float = DEFAULT_SECONDS
    python: str = sys.executable


def run_demo(
    device: Kind = "auto",
    comparison: Comparison | None = None,
    *,
    scale: float = SIMULATED_SCALE,
    progress: Progress = lambda _what, _share: None,
) -> result.DemoResult:
    """Measure the three arms. ``progress`` is told what happens and the share that is done.

    ``scale`` is that of the embedded GPU. Raises ``UnsupportedHostError`` where it cannot run, ``ProgramFailedError``
    when a program dies and ``ProgramTimeoutError`` when it hangs; nothing stays behind in either case.
    """
    comparison = comparison or Comparison()
    progress("calibrating", 0.0)
    with open_device(device, scale) as gpu, running_daemon(calibration=calibrate(gpu)) as client:
        progress("starting the programs", 0.0)
        with _started(comparison, gpu) as (service, job):
            if gpu.simulated:
                favour(service.pid)
                favour(job.pid)
            stage = Stage(client, service, job, comparison.rate)
            arms = _measure_arms(stage, comparison, gpu.scale, progress)
            progress("checking the state on the GPU", 1.0)
            daemon = client.snapshot().daemon
            return result.DemoResult(
                host=_host(gpu),
                command=sys.argv,
                lc_command=service.command,
                be_command=job.command,
                rate=comparison.rate,
                arrival=comparison.arrival,
                arms=arms,
                ratios=result.make_ratios(*arms),
                managed=result.Managed(
                    levels=stage.levels,
                    lost_events=daemon.lost_events,
                    failed_controls=daemon.failed_controls,
                    last_failure=daemon.last_failure,
                ),
                lc_verification=service.finish(),
                be_verification=job.finish(),
            )


def _measure_arms(stage: Stage, comparison: Comparison, scale: float, progress: Progress) -> list[result.Arm]:
    total = _ROUNDS * len(ARMS)
    requests = max(_MIN_REQUESTS, round(comparison.seconds / total / scale * comparison.rate))
    blocks: dict[str, list[result.Block]] = {arm: [] for arm in ARMS}
    for turn in range(_ROUNDS):
        for place, arm in enumerate(ARMS):
            progress(f"measuring: {arm}", (turn * len(ARMS) + place) / total)
            blocks[arm].append(measure(stage, arm, requests, comparison.rate, comparison.arrival, seed=turn + 1))
    return [result.make_arm(arm, blocks[arm], be_runs=arm != "alone") for arm in ARMS]


@contextmanager
def _started(comparison: Comparison, gpu: Device) -> Iterator[tuple[workload.Service, workload.Job]]:
    """The service first: it calibrates itself while the GPU is idle, and the job then while the service is."""
    lc_options, be_options = comparison.lc_options, comparison.be_options
    lc_environment = {**gpu.environment, **agent.environment()}  # as `gpsched run --class lc` starts it
    if comparison.programs == "torch":
        with (
            workload.torch_service(lc_environment, *lc_options, python=comparison.python) as service,
            workload.torch_job(gpu.environment, *be_options, python=comparison.python) as job,
        ):
            yield service, job
        return
    small = ("--blocks", "16") if gpu.simulated else ()  # its kernels last as long whatever their grid
    with (
        workload.cuda_service(lc_environment, *small, *lc_options) as service,
        workload.cuda_job(gpu.environment, *small, *be_options) as job,
    ):
        yield service, job


def _host(gpu: Device) -> result.Host:
    return result.Host(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        kernel=platform.release(),
        gpu=gpu.name,
        driver=gpu.driver,
        simulated=gpu.simulated,
        scale=gpu.scale,
    )
