"""Calibrates this GPU for the daemons of a benchmark: without that they would reckon with another machine's costs."""

import time

from gpsched.adaptive.calibration import measure, store
from gpsched.adaptive.calibration.errors import CalibrationFailedError, CalibrationTimeoutError
from gpsched.adaptive.calibration.limit import time_limit
from gpsched.adaptive.calibration.model import Bursts, Calibration, ControlCost, Figure, ReservedBursts
from gpsched.adaptive.hints.costs import LEVELS
from gpsched.bench.device import Device, favour
from gpsched.bench.workload import Job, Service, program


_LIMIT_S = 40.0  # on a GPU whose time runs at most 5 times slower; more the slower it runs
_LIMIT_SCALE = 5.0
_TRIES = 3  # on a busy machine what is not the GPU's can hide what is measured


def calibrate(gpu: Device) -> Calibration:
    """Measure what controls and switches cost, in about 20 s; raises what the last measurement raises."""
    for _ in range(_TRIES - 1):
        try:
            return _calibrate_once(gpu)
        except CalibrationTimeoutError:
            raise
        except CalibrationFailedError:
            continue
    return _calibrate_once(gpu)


def _calibrate_once(gpu: Device) -> Calibration:
    options = ["--commands", *(["--blocks", "16"] if gpu.simulated else [])]
    # The job's channels are disabled for a moment: should this process be killed then, the job must not stay behind.
    job_command = ["setpriv", "--pdeathsig", "KILL", program("gpsched-be"), *options]
    with (
        Service([program("gpsched-lc"), *options], gpu.environment) as service,
        Job(job_command, gpu.environment) as job,
        time_limit(_LIMIT_S * max(1.0, gpu.scale / _LIMIT_SCALE)),
    ):
        if gpu.simulated:
            favour(service.pid)
            favour(job.pid)
        return measure.calibrate(service, job, gpu.name, gpu.scale, lambda _what, _share: None)


def assumed(gpu: Device) -> Calibration:
    """What the daemon assumes without a calibration (an H200's figures), in the time of this GPU."""
    reserve = LEVELS["reserve"]
    early, late = reserve.residual_us, reserve.residual_us + reserve.late_us
    return Calibration(
        time_s=time.time(),
        gpu=gpu.name,
        driver=store.driver_name(),
        scale=gpu.scale,
        controls={"disable": ControlCost(load=_figure(reserve.control_us, reserve.need_us))},
        bursts=Bursts(
            alone=_figure(0.0),
            timeslice=_figure(reserve.switch_us),
            reserved=ReservedBursts(early=_figure(early), late=_figure(late), late_margin_us=0.0),
        ),
    )


def _figure(median_us: float, p90_us: float | None = None) -> Figure:
    return Figure(median_us=median_us, p10_us=median_us, p90_us=p90_us or median_us, samples=1)
