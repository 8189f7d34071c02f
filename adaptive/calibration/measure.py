"""Measures what controls cost and what a switch adds to a burst, with two programs that the caller started.

Only these two are touched. Whatever happens, the best-effort program's channels are enabled in the end; should this
process be killed, the caller has arranged for that program to end too.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Protocol

from gpsched.adaptive.calibration.errors import CalibrationFailedError
from gpsched.adaptive.calibration.model import Bursts, Calibration, ControlCost, Figure, ReservedBursts
from gpsched.adaptive.calibration.store import driver_name
from gpsched.adaptive.config import Timeslice
from gpsched.adaptive.driver import ChannelGroup, ControlError, DriverFiles, HandleGoneError, StockControl, scan_process


Progress = Callable[[str, float], None]

_CONTROL_SAMPLES = 15
_BURST_SAMPLES = 25
_SETTLE_US = 3000.0  # a BE's turn of 2048 µs and a control are over by then
_PACE_US = 1000.0  # between two controls: each finds the GPU as the first did
_LOAD_REQUESTS, _LOAD_HZ = 150, 400.0  # outlast the controls measured beside them
# Shares of the control's duration. The first may be enough; after the second its effect, another switch, falls into
# the burst, and tells what beginning late costs.
_LATE_LEADS = 0.45, 0.3
_BURST_HZ = 100_000.0  # of a single request, which is sent after one period


class Service(Protocol):
    """A latency-critical program that does a burst a request.

    A result has ``server_us``, a duration for each request, and ``end_us``, when the last was done (program time).
    """

    pid: int

    def begin(self, requests: int, rate: float) -> None:
        """Start sending requests."""

    def result(self) -> Any:
        """Return what was begun, once it is done."""


class Job(Protocol):
    """A best-effort program that keeps the GPU full, or launches nothing while paused."""

    pid: int

    def pause(self) -> None:
        """Stop launching; return once the GPU has nothing of it left."""

    def resume(self) -> None:
        """Launch again."""


def calibrate(service: Service, job: Job, gpu: str, scale: float, progress: Progress) -> Calibration:
    """Measure; ``scale`` is real µs per µs of the GPU's clock.

    ``progress`` is told what happens and the share that is done. Raises ``CalibrationFailedError`` and what the driver
    room raises.
    """
    with _bench(service, job, scale) as bench:
        job.pause()
        progress("controls on an idle GPU", 0.0)
        idle = bench.controls()
        progress("a burst alone", 0.2)
        alone = bench.bursts()
        bench.set_slices()
        job.resume()
        progress("controls under load", 0.4)
        load = bench.controls_under_load()
        progress("a burst that waits for a switch", 0.6)
        timeslice = bench.bursts()
        progress("a burst beside disabled channels", 0.8)
        reserved = bench.reserved_bursts(load["disable"])
    bursts = Bursts(alone=alone, timeslice=timeslice, reserved=reserved)
    _check(bursts)
    controls = {name: _merge(idle[name], load[name]) for name in idle}
    return Calibration(time_s=time.time(), gpu=gpu, driver=driver_name(), scale=scale, controls=controls, bursts=bursts)


def _check(bursts: Bursts) -> None:
    """Figures that no GPU can have come from other load; a daemon that believed them would do harm."""
    if bursts.added_us(bursts.timeslice) <= 0:
        raise CalibrationFailedError("a burst beside best-effort work took no longer than alone")
    if bursts.reserved and bursts.added_us(bursts.reserved.early) > 2 * bursts.added_us(bursts.timeslice):
        raise CalibrationFailedError("a burst took longer beside disabled channels than beside running ones")


def _merge(idle: "Figure | str", load: "Figure | str") -> ControlCost:
    refused = next((each for each in (idle, load) if isinstance(each, str)), None)
    figures = (each if isinstance(each, Figure) else None for each in (idle, load))
    return ControlCost(idle=next(figures), load=next(figures), refused=refused)


@contextmanager
def _bench(service: Service, job: Job, scale: float) -> Iterator["_Bench"]:
    with DriverFiles(service.pid) as lc_files, DriverFiles(job.pid) as be_files:
        bench = _Bench(service, scale, lc_files, be_files)
        try:
            yield bench
        finally:
            bench.be.enable_all()


class _Bench:
    """The two programs with their controls. ``lc`` and ``be`` issue controls on one's channel group each."""

    def __init__(self, service: Service, scale: float, lc_files: DriverFiles, be_files: DriverFiles) -> None:
        self._service, self._scale = service, scale
        self.lc, self.be = StockControl(lc_files), StockControl(be_files)
        self._lc_group, self._be_group = _compute_group(lc_files), _compute_group(be_files)

    # ---- controls

    def controls(self) -> dict[str, "Figure | str"]:
        """Return what each control costs now, or why the driver refused it. Slices and channels stay as they are."""
        lc, be, group = self.lc, self.be, self._be_group
        slice_us = be.get_timeslice(group)
        pairs: dict[str, tuple[StockControl, Callable[[], None]]] = {
            "get_timeslice": (be, lambda: _drop(be.get_timeslice(group))),
            "set_timeslice": (be, lambda: be.set_timeslice(group, slice_us)),
            "preempt": (be, lambda: be.preempt(group)),
            "preempt_wait": (be, lambda: be.preempt(group, wait=True)),
            "restart_runlist": (lc, lambda: lc.restart_runlist(self._lc_group)),
        }
        figures = {name: self._figure(control, issue) for name, (control, issue) in pairs.items()}
        for suffix, soft in (("", False), ("_scheduling", True)):
            figures[f"disable{suffix}"], figures[f"enable{suffix}"] = self._disable_and_enable(scheduling_only=soft)
        return figures

    def controls_under_load(self) -> dict[str, "Figure | str"]:
        """Return the same while both programs use the GPU."""
        self._service.begin(_LOAD_REQUESTS, _LOAD_HZ)
        figures = self.controls()
        self._service.result()
        return figures

    def _figure(self, control: StockControl, issue: Callable[[], None]) -> "Figure | str":
        try:
            return Figure.of([self._cost(control, issue) for _ in range(_CONTROL_SAMPLES)])
        except HandleGoneError:
            raise
        except ControlError as error:
            return str(error)

    def _disable_and_enable(self, *, scheduling_only: bool) -> tuple["Figure | str", "Figure | str"]:
        be, group = self.be, self._be_group
        disabling, enabling = [], []
        try:
            for _ in range(_CONTROL_SAMPLES):
                disabling.append(self._cost(be, lambda: be.disable(group, scheduling_only=scheduling_only)))
                enabling.append(self._cost(be, lambda: be.enable(group)))
        except HandleGoneError:
            raise
        except ControlError as error:
            return str(error), str(error)
        return Figure.of(disabling), Figure.of(enabling)

    def _cost(self, control: StockControl, issue: Callable[[], None]) -> float:
        issue()
        cost = control.last_cost_us / self._scale
        self._wait(_PACE_US)
        return cost

    # ---- bursts

    def set_slices(self) -> None:
        """As at level ``timeslice``."""
        slices = Timeslice()
        self.lc.set_timeslice(self._lc_group, slices.lc_us)
        self.be.set_timeslice(self._be_group, slices.be_us)

    def bursts(self, *, disable_before: bool = False) -> Figure:
        """Time single bursts, each some ms after the best-effort program was disabled, or beside it as it is."""
        return Figure.of([self._burst(disable_before) for _ in range(_BURST_SAMPLES)])

    def _burst(self, disable_before: bool) -> float:
        self._wait(_SETTLE_US)
        if disable_before:
            self.be.disable(self._be_group)
            self._wait(_SETTLE_US)
        self._service.begin(1, _BURST_HZ)
        (took_us,) = self._service.result().server_us
        self.be.enable_all()
        return float(took_us)

    def reserved_bursts(self, disabling: "Figure | str") -> ReservedBursts | None:
        """Time bursts that begin long after disabling did, and soon after; None where the driver refuses it."""
        if isinstance(disabling, str):
            return None
        early = self.bursts(disable_before=True)
        found = [self._late_bursts(early, disabling.median_us * share) for share in _LATE_LEADS]
        longer, shorter = found
        return shorter if not longer.was_enough and not shorter.was_enough else longer

    def _late_bursts(self, early: Figure, lead_us: float) -> ReservedBursts:
        late = [self._late_burst(lead_us) for _ in range(_BURST_SAMPLES)]
        took, margins = zip(*late, strict=True)
        return ReservedBursts(early=early, late=Figure.of(took), late_margin_us=round(median(margins), 1))

    def _late_burst(self, lead_us: float) -> tuple[float, float]:
        """Return how long the burst took, and how long before it disabling began."""
        self._wait(_SETTLE_US)
        self._service.begin(1, 1e6 / lead_us)
        issued_us = time.monotonic() * 1e6 / self._scale
        self.be.disable(self._be_group)
        result = self._service.result()
        self.be.enable_all()
        (took_us,) = result.server_us
        return took_us, result.end_us - took_us - issued_us

    def _wait(self, us: float) -> None:
        time.sleep(us * self._scale / 1e6)


def _compute_group(files: DriverFiles) -> ChannelGroup:
    for group in scan_process(files):
        if group.engine == "compute":
            return group
    raise CalibrationFailedError(f"program {files.pid} has no compute channel group")


def _drop(_value: int) -> None:
    """For a call whose answer does not matter."""
