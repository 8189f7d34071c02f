"""A bed of real programs: a daemon manages them on a real GPU, or on the embedded one in stretched time.

The daemon's own times are real ones: on the embedded GPU objectives are stretched for it, and so are its latencies.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Self

import msgspec
import numpy as np

from gpsched.adaptive import agent
from gpsched.adaptive.calibration.costs import to_costs
from gpsched.adaptive.calibration.model import Calibration
from gpsched.adaptive.client import Client
from gpsched.adaptive.errors import GpschedError
from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.knobs import Proposal, Settings, TuneParams
from gpsched.adaptive.scratch import Scratch
from gpsched.bench.calibration import assumed, calibrate
from gpsched.bench.daemon import running_daemon
from gpsched.bench.device import SIMULATED_SCALE, Device, Kind, open_device
from gpsched.bench.fleet import Fleet, Switchboard
from gpsched.bench.kit import Kit, Wrap
from gpsched.bench.messages import Progress
from gpsched.bench.models import Models
from gpsched.bench.tuner.bed import Bed, NothingKnown, Taken, defaults, worst_over_limit
from gpsched.bench.tuner.control import Actuation
from gpsched.bench.tuner.mix import Mix
from gpsched.bench.tuner.virtual import alone_us, worst_p99
from gpsched.tuner.meter import Meter


_LEARN_S = 3.0  # of GPU time under load, after programs were attached: what announces bursts is learned
_SETTLE_S = 0.2  # real time from new settings to the first request, as the tuner itself waits
_SOLO_S = 1.0  # of GPU time
_ALONE_WINDOWS = 5  # without jobs
_LEASE_S = 120.0  # longer than any arm lets pass between two windows


@dataclass
class LiveBed:
    """A mix as programs. ``solo``: units a second of each job alone."""

    mix: Mix
    gpu: Device
    client: Client
    fleet: Fleet
    costs: dict[str, Costs]
    levels: tuple[str, ...] = ("timeslice", "reserve", "hold")
    solo: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.mix.agent:
            self.levels = self.levels[:2]
        self._attached: set[int] = set()
        self.solo = [self._alone(index) for index in range(len(self.fleet.jobs))]

    def restart(self, seed: int) -> None:
        """As before the change, with nothing known of what ran before."""
        self._seed, self._number, self._changed = seed, 0, False
        self._meter = Meter(NothingKnown(), self.costs)
        for job in self.fleet.jobs[self.mix.jobs(False) :]:
            self._leave(job.pid)
            job.pause()
        self._resume()

    def change(self) -> None:
        """From now on, the load or the jobs are those after the mix' change."""
        self._changed = True
        self._resume()

    def window(self, how: Settings | Actuation) -> Taken:
        """Run one window; programs that nobody shall manage are left alone, the others are attached first."""
        self._number += 1
        if isinstance(how, Actuation) and how.level == "observe":
            self.detach()
        else:
            self._attach()
            self._tell(_settings(how) if isinstance(how, Actuation) else how)
        time.sleep(_SETTLE_S)
        before, started = self.client.measure(time.monotonic_ns() / 1000), self._progress()
        requests = self._serve(self.mix.window_s)
        ended, now = self._progress(), self.client.measure(before.now_us)
        found = self._meter.windows(before, now, self.client.config(), time.time())
        observed = max(found, key=lambda one: len(one.window.lc) + len(one.window.be), default=None)
        shares = [_rate(*pair) / solo for *pair, solo in zip(started, ended, self.solo, strict=False)]
        return Taken(float(np.mean(shares)), worst_over_limit(self.mix, requests), observed)

    def fit(self) -> None:
        """Move the objectives by what services need more or less alone here than in virtual time.

        So the same room is left for switches and slices, which take about as long there.
        """
        self.detach()
        for job in self.fleet.jobs:
            job.pause()
        self._serve(self.mix.window_s)  # the first requests are slow
        here = worst_p99([self._serve(self.mix.window_s) for _ in range(_ALONE_WINDOWS)])
        more = [mine - virtual for mine, virtual in zip(here, alone_us(self.mix, _ALONE_WINDOWS), strict=True)]
        lc = [
            msgspec.structs.replace(each, count=1, slo=f"{round((each.slo_us or 0.0) + added)}us")
            for each, added in zip(self.mix.services, more, strict=True)
        ]
        self.mix = msgspec.structs.replace(self.mix, lc=lc)

    def detach(self) -> None:
        """Leave all programs alone."""
        for pid in list(self._attached):
            self._leave(pid)

    # ---- inside

    def _alone(self, index: int) -> float:
        job = self.fleet.jobs[index]
        job.resume()
        before = job.progress()
        time.sleep(_SOLO_S * self.gpu.scale)
        found = _rate(before, job.progress())
        job.pause()
        return found

    def _resume(self) -> None:
        for job in self.fleet.jobs[: self.mix.jobs(self._changed)]:
            job.resume()

    def _progress(self) -> list[Progress]:
        return [job.progress() for job in self.fleet.jobs[: self.mix.jobs(self._changed)]]

    def _attach(self) -> None:
        new = False
        for lc, service in zip(self.mix.services, self.fleet.services, strict=True):
            if service.pid not in self._attached:
                self.client.attach(service.pid, "lc", slo_us=(lc.slo_us or 0.0) * self.gpu.scale)
                self._attached.add(service.pid)
                new = True
        for job in self.fleet.jobs[: self.mix.jobs(self._changed)]:
            if job.pid not in self._attached:
                self.client.attach(job.pid, "be")
                self._attached.add(job.pid)
        if new:
            self._serve(_LEARN_S)

    def _leave(self, pid: int) -> None:
        if pid in self._attached:
            self.client.detach(pid)
            self._attached.remove(pid)

    def _tell(self, how: Settings) -> None:
        base = defaults()
        values = {name: value for name, value in how.items() if value != base[name]}
        proposals = [Proposal(gpu=gpu.gpu, values=values) for gpu in self.client.settings().gpus]
        self.client.tune(TuneParams(pid=os.getpid(), lease_s=_LEASE_S, proposals=proposals))

    def _serve(self, seconds: float) -> list[list[float]]:
        """Put every service under its load; return the latencies from when each request was due."""
        pairs = list(zip(self.fleet.services, self.mix.services, self.mix.rates(self._changed), strict=True))
        for index, (service, lc, rate) in enumerate(pairs):
            seed = (self._seed * 1000 + self._number) * 64 + index
            service.begin(max(5, round(rate * seconds)), rate, lc.arrival, seed)
        return [service.result().scheduled_us for service, _, _ in pairs]


def _rate(before: Progress, after: Progress) -> float:
    return (after.kernels - before.kernels) / max(after.time_us - before.time_us, 1.0) * 1e6


def _settings(actuation: Actuation) -> Settings:
    """Something else's constants, as far as gpsched can imitate them: jobs take turns here."""
    wanted: Settings = {
        "reservations.level": actuation.level,
        "timeslice.lc_us": actuation.lc_slice_us or defaults()["timeslice.lc_us"],
        "timeslice.be_us": actuation.be_slice_us or defaults()["timeslice.be_us"],
        "reservations.offset_shift_us": round(actuation.offset_us),
    }
    return {**defaults(), **wanted}


class Live:
    """Beds on one GPU and one daemon, whose own tuner is off. Programs stay while the same mix is asked for again.

    ``costs_note``: whose costs the daemon and the tuner reckon with. Raises what the GPU and the daemon raise.
    """

    def __init__(self, kind: Kind, scale: float = SIMULATED_SCALE, *, measure_costs: bool = True) -> None:
        self._stack, self._programs = ExitStack(), ExitStack()
        self._bed: LiveBed | None = None
        self.costs_note = "costs of an H200"
        with ExitStack() as undo:
            undo.push(self._stack)
            self.gpu = self._stack.enter_context(open_device(kind, scale))
            calibration = self._calibrated() if measure_costs else assumed(self.gpu)
            self._costs = to_costs(calibration)
            self._client = self._stack.enter_context(running_daemon("[tuner]\nenabled = false\n", calibration))
            self._stack.callback(self._end)
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _calibrated(self) -> Calibration:
        try:
            found = calibrate(self.gpu)
        except GpschedError as error:
            self.costs_note = f"costs of an H200, for calibrating failed: {error}"
            return assumed(self.gpu)
        self.costs_note = "costs as calibrated there"
        return found

    @contextmanager
    def beds(self, mix: Mix, seed: int) -> Iterator[Bed]:
        """Yield a bed as it is at the start of a mix. Every request was answered before, so no queue is inherited."""
        yield self._at_start(mix, seed)

    def fitted(self, mix: Mix) -> Mix:
        """Return the mix with objectives that leave the room there that they leave in virtual time."""
        bed = self._at_start(mix, 0)
        bed.fit()
        return bed.mix

    def _at_start(self, mix: Mix, seed: int) -> LiveBed:
        if self._bed is None or self._bed.mix != mix:
            self._end()
            self._bed = self._started(mix)
        self._bed.restart(seed)
        return self._bed

    def _started(self, mix: Mix) -> LiveBed:
        folder = self._programs.enter_context(Scratch("gpsched-bench-"))
        kit = Kit(
            simulated=self.gpu.simulated,
            environment=self.gpu.environment,
            models=Models(),
            folder=folder,
            board=Switchboard(folder / "switchboard").path,
            python=None,
        )
        without_agent = {} if mix.agent else dict.fromkeys(agent.environment(), "")
        fleet = self._programs.enter_context(Fleet(mix.scenario(), kit, Wrap(environment=without_agent), Wrap()))
        fleet.start_jobs()
        bed = LiveBed(mix=mix, gpu=self.gpu, client=self._client, fleet=fleet, costs=self._costs)
        self._programs.callback(bed.detach)
        return bed

    def _end(self) -> None:
        self._bed = None
        self._programs.close()
