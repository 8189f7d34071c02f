"""A bed of programs without programs: who is attached when, what the daemon is told, how windows are judged."""

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from gpsched.adaptive.config import Config
from gpsched.adaptive.hints.costs import LEVELS
from gpsched.adaptive.knobs import GpuSettings, KnobView, SettingsView
from gpsched.adaptive.measure import Measurement
from gpsched.bench.device import Device
from gpsched.bench.tuner import live
from gpsched.bench.tuner import mix as mixes
from gpsched.bench.tuner.bed import defaults
from gpsched.bench.tuner.control import Actuation
from gpsched.bench.tuner.live import Live, LiveBed
from gpsched.bench.tuner.mix import Mix
from gpsched.bench.tuner.virtual import alone_us


SCALE = 5.0


class Job:
    def __init__(self, pid: int) -> None:
        self.pid, self.running, self.kernels, self.time_us = pid, False, 0, 0.0

    def resume(self) -> None:
        self.running = True

    def pause(self) -> None:
        self.running = False

    def progress(self) -> SimpleNamespace:
        """Half as fast as alone beside the service: the first two looks are alone."""
        self.time_us += 1e6
        self.kernels += (1000 if self.time_us <= 2e6 else 500) * self.running
        return SimpleNamespace(kernels=self.kernels, time_us=self.time_us)


class Service:
    def __init__(self, pid: int) -> None:
        self.pid, self.begun, self.takes_us = pid, [], [750.0]

    def begin(self, requests: int, rate: float, arrival: str, seed: int) -> None:
        self.begun.append((requests, rate, seed))

    def result(self) -> SimpleNamespace:
        takes_us = self.takes_us.pop(0) if len(self.takes_us) > 1 else self.takes_us[0]
        return SimpleNamespace(scheduled_us=[takes_us] * self.begun[-1][0])


class Daemon:
    def __init__(self) -> None:
        self.attached: dict[int, float | None] = {}
        self.told: list[Any] = []
        knobs = [KnobView(name=n, value=v, default=v, owner="default") for n, v in defaults().items()]
        self.view = SettingsView(gpus=[GpuSettings(gpu=0, knobs=knobs)])

    def attach(self, pid: int, class_: str, slo_us: float | None = None) -> None:
        self.attached[pid] = slo_us

    def detach(self, pid: int) -> None:
        del self.attached[pid]

    def settings(self) -> SettingsView:
        return self.view

    def tune(self, params: Any) -> None:
        self.told.append(params.proposals[0].values)

    def config(self) -> Config:
        return Config()

    def measure(self, since_us: float) -> Measurement:
        settings = self.view if self.attached else SettingsView()
        return Measurement(
            since_us=since_us, now_us=since_us + 1e6, lost_events=0, models={}, lc=[], be=[], settings=settings
        )


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> LiveBed:
    monkeypatch.setattr(live.time, "sleep", lambda _s: None)
    mix = mixes.load(["pair"])["pair"]
    fleet = SimpleNamespace(lcs=mix.services, services=[Service(10)], jobs=[Job(20), Job(21), Job(22)])
    gpu = Device(simulated=True, name="embedded GPU", driver="simulated", scale=SCALE, environment={})
    made = LiveBed(mix=mix, gpu=gpu, client=Daemon(), fleet=fleet, costs=dict(LEVELS))  # type: ignore[arg-type]
    made.restart(seed=1)
    return made


def daemon(bed: LiveBed) -> Daemon:
    return bed.client  # type: ignore[return-value]


def test_nobody_is_managed_under_the_drivers_default(bed: LiveBed) -> None:
    taken = bed.window(Actuation())
    assert not daemon(bed).attached
    assert taken.observed is None
    assert taken.latency == pytest.approx(0.5)
    assert taken.progress == pytest.approx(0.5)


def test_managed_programs_are_attached_once_with_objectives_on_the_daemons_clock(bed: LiveBed) -> None:
    service: Any = bed.fleet.services[0]
    bed.window(defaults())
    bed.window(defaults())
    assert daemon(bed).attached == {10: 1500.0 * SCALE, 20: None, 21: None}
    assert len(service.begun) == 3  # one stretch to learn from, two windows


def test_only_what_differs_from_the_defaults_is_told(bed: LiveBed) -> None:
    bed.window({**defaults(), "timeslice.be_us": 200})
    assert daemon(bed).told == [{"timeslice.be_us": 200}]


def test_somebody_elses_constants_are_imitated(bed: LiveBed) -> None:
    bed.window(Actuation(level="hold", lc_slice_us=1_000_000, be_slice_us=1, offset_us=100.0))
    assert daemon(bed).told == [{"reservations.level": "hold", "reservations.offset_shift_us": 100}]


def test_the_change_brings_a_job_and_a_restart_sends_it_away(bed: LiveBed) -> None:
    late: Any = bed.fleet.jobs[2]
    bed.window(defaults())
    assert not late.running
    bed.change()
    bed.window(defaults())
    assert late.running
    assert late.pid in daemon(bed).attached
    bed.restart(seed=2)
    assert not late.running
    assert late.pid not in daemon(bed).attached


def test_requests_are_the_same_for_the_same_seed(bed: LiveBed) -> None:
    service: Any = bed.fleet.services[0]
    bed.window(Actuation())
    bed.restart(seed=1)
    bed.window(Actuation())
    assert service.begun[0] == service.begun[1]


def test_objectives_are_fitted_by_what_services_need_alone(bed: LiveBed) -> None:
    """The worst window counts, but for the first, in which programs are slow."""
    service: Any = bed.fleet.services[0]
    (virtual,) = alone_us(bed.mix, 5)
    service.takes_us = [5000.0, 900.0, 900.0, virtual + 300.0, 900.0, 900.0]
    bed.fit()
    assert not any(job.running for job in bed.fleet.jobs)
    assert bed.mix.limits_us() == [pytest.approx(1800.0, abs=1.0)]
    bed.restart(seed=1)
    bed.window(defaults())
    assert daemon(bed).attached[10] == pytest.approx(1800.0 * SCALE, rel=0.001)


def test_programs_stay_while_a_mix_is_the_one_that_was_fitted(monkeypatch: pytest.MonkeyPatch, bed: LiveBed) -> None:
    place = Live.__new__(Live)
    place._bed, place._programs = None, ExitStack()
    started: list[Mix] = []
    monkeypatch.setattr(place, "_started", lambda mix: started.append(mix) or bed)
    mix = place.fitted(bed.mix)
    with place.beds(mix, 1) as used:
        assert used is bed
    assert len(started) == 1
