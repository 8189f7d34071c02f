"""From two of the daemon's measurements to windows: latencies against objectives, progress against solo rates.

What a program is without contention is measured when nobody contends, estimated where everybody always does, and kept
in the history by program and GPU model.
"""

import hashlib
from collections.abc import Mapping
from typing import Protocol

import msgspec

from gpsched.adaptive.config import Config
from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.knobs import GpuSettings
from gpsched.adaptive.measure import BeMeasure, Latencies, LcMeasure, Measurement
from gpsched.tuner import objective, prior
from gpsched.tuner.history import Baseline
from gpsched.tuner.model import BeWindow, LcWindow, Window
from gpsched.tuner.prior import Demand
from gpsched.tuner.space import LEVEL, SHARE, Work
from gpsched.tuner.step import Observed


_ENOUGH = 30  # bursts that an alone-latency takes
_BUSY = (0.25, 0.35)  # share of the GPU at which a service's own slice begins to matter: off, on
_TRIGGERED = 0.9  # share of bursts with a known trigger from which the lead is known
_FIRST = 2  # windows without a reference, where none was ever measured
_FULL = 200.0  # bursts after which an alone-latency follows as a moving average


class Baselines(Protocol):
    """What is needed of the history."""

    def baseline(self, key: str) -> Baseline | None: ...  # noqa: D102
    def put_baseline(self, key: str, baseline: Baseline) -> None: ...  # noqa: D102


class Meter:
    """Remembers what must stay the same from window to window."""

    def __init__(self, baselines: Baselines, costs: Mapping[str, Costs] = LEVELS) -> None:
        self._baselines, self._costs = baselines, costs
        self._known: dict[str, Baseline | None] = {}
        self._covered: dict[str, float] = {}  # estimates of alone-latencies, where nobody is ever alone
        self._first: dict[str, list[float]] = {}
        self._lead: dict[str, float] = {}  # from trigger to first launch
        self._solo: dict[str, float] = {}  # fixed for a run, so that progress stays comparable
        self._base: dict[str, float] = {}  # the objective's statistic, less what the settings in force add
        self._busy: dict[int, bool] = {}
        self._quiet: dict[int, int] = {}  # GPU -> windows in a row without best-effort launches

    def windows(self, before: Measurement, now: Measurement, config: Config, time_s: float) -> list[Observed]:
        """Return a window for every GPU that managed processes use. ``time_s``: when it ended."""
        return [self._window(gpu, before, now, config, time_s) for gpu in now.settings.gpus]

    def _window(
        self, settings: GpuSettings, before: Measurement, now: Measurement, config: Config, time_s: float
    ) -> Observed:
        gpu, length_s = settings.gpu, max((now.now_us - before.now_us) / 1e6, 1e-3)
        model = now.models.get(gpu, "unknown GPU")
        lc = [each for each in now.lc if gpu in each.gpus]
        be = [each for each in now.be if gpu in each.gpus]
        started = {each.pid: each.launches for each in before.be}
        rates = {each.pid: (each.launches - started.get(each.pid, each.launches)) / length_s for each in be}
        self._quiet[gpu] = 0 if any(rates.values()) else self._quiet.get(gpu, 0) + 1
        earlier = {each.pid: each for each in before.lc}
        services = [self._lc(each, earlier.get(each.pid), length_s, model, self._quiet[gpu] > 1) for each in lc]
        idle = not any(each.bursts for each in services)
        jobs = [self._be(each, rates[each.pid], model, config, solo=idle and len(be) == 1) for each in be]
        floors = {"": config.reservations.be_floor} | dict(config.tuner.guarantees)
        window = Window(
            time_s=time_s,
            length_s=round(length_s, 3),
            gpu=gpu,
            gpu_model=model,
            key=_key(services, jobs, model),
            settings=settings.values,
            lc=services,
            be=jobs,
            verdict=objective.verdict(services),
            margin=objective.margin(services, jobs, floors),
            progress=objective.progress(jobs),
            load=round(sum(each.rate_hz for each in services), 3),
            crowd=objective.crowd(services),
        )
        return Observed(window, self._work(settings, lc, be, window, config), self._demand(window))

    def _lc(
        self, found: LcMeasure, earlier: LcMeasure | None, length_s: float, model: str, uncontended: bool
    ) -> LcWindow:
        program = _program(found.name, found.command)
        key = f"alone {program} @ {model}"
        latency, count = self._with_lead(key, found), found.latency.count
        if uncontended and count:
            self._learn(key, latency.mean_us, count)
        elif found.covered.count and found.level in self._costs:
            estimate = found.covered.mean_us - self._costs[found.level].residual_us
            before_us = self._covered.setdefault(key, estimate)
            # Contention only adds: what is lower is nearer to the truth.
            self._covered[key] = before_us + (0.3 if estimate < before_us else 0.01) * (estimate - before_us)
        alone = self._alone(key)
        before = earlier or found
        wanted = objective.objective(found.slo_us, alone)
        window = LcWindow(
            pid=found.pid,
            name=found.name,
            program=program,
            tenant=found.tenant,
            objective=wanted,
            bursts=count,
            rate_hz=round(count / length_s, 3),
            mean_us=latency.mean_us,
            p50_us=latency.p50_us,
            p90_us=latency.p90_us,
            p99_us=latency.p99_us,
            max_us=latency.max_us,
            over=found.over,
            triggered=found.triggered / count if count else 0.0,
            alone_us=alone,
            busy_share=round(min(found.busy_us / 1e6 / length_s, 1.0), 4),
            level=found.level,
            reservations=max(0, found.reservations - before.reservations),
            hidden_us=max(0.0, found.hidden_us - before.hidden_us),
            wasted_us=max(0.0, found.wasted_us - before.wasted_us),
            trigger=found.trigger,
            crowd=found.crowd,
        )
        return msgspec.structs.replace(window, verdict=objective.lc_verdict(window))

    def _with_lead(self, key: str, found: LcMeasure) -> Latencies:
        """Latencies as if every trigger were known: where hints lose one, what is left must not look better."""
        latency, count = found.latency, found.latency.count
        if not count:
            return latency
        known = found.triggered / count
        lead = max(latency.mean_us - found.busy_us / count, 0.0)
        if known >= _TRIGGERED:
            self._lead[key] = 0.8 * self._lead.get(key, lead) + 0.2 * lead
            return latency
        missing = (1.0 - known) * self._lead.get(key, 0.0)
        names = ("mean_us", "p50_us", "p90_us", "p99_us", "max_us")
        return msgspec.structs.replace(latency, **{name: getattr(latency, name) + missing for name in names})

    def _be(self, found: BeMeasure, rate_hz: float, model: str, config: Config, *, solo: bool) -> BeWindow:
        program = _program(found.name, found.command)
        key = f"solo {program} @ {model}"
        if solo and rate_hz > 0.0:
            self._learn(key, rate_hz, 1)
        if key not in self._solo and rate_hz > 0.0:
            self._settle_reference(key, rate_hz)
        reference = self._solo.get(key)
        return BeWindow(
            pid=found.pid,
            name=found.name,
            program=program,
            tenant=found.tenant,
            rate_hz=round(rate_hz, 3),
            solo_hz=reference,
            progress=rate_hz / reference if reference and rate_hz > 0.0 else None,  # without launches it is idle
            weight=config.tenants.get(found.tenant, 1.0),
        )

    def _settle_reference(self, key: str, rate_hz: float) -> None:
        """What was measured alone; else the best of the first windows, since programs start slowly."""
        known = self._baseline(key)
        first = self._first.setdefault(key, [])
        first.append(rate_hz)
        if known is not None or len(first) > _FIRST:
            self._solo[key] = known.value if known else max(first)

    def _alone(self, key: str) -> float | None:
        known = self._baseline(key)
        if known is not None and known.count >= _ENOUGH:
            return known.value
        return self._covered.get(key)

    def _baseline(self, key: str) -> Baseline | None:
        if key not in self._known:
            self._known[key] = self._baselines.baseline(key)
        return self._known[key]

    def _learn(self, key: str, value: float, count: int) -> None:
        old = self._baseline(key) or Baseline(value, 0)
        before = min(old.count, _FULL)
        new = Baseline((old.value * before + value * count) / (before + count), old.count + count)
        self._known[key] = new
        self._baselines.put_baseline(key, new)

    def _demand(self, window: Window) -> Demand:
        """What is asked by the service that is hardest to serve."""
        busy = [each for each in window.lc if each.bursts]
        if not busy:
            return Demand(0.0, 1000.0, 0.0, 1e6, len(window.be))
        tightest = min(busy, key=lambda each: objective.lc_margin(each) or 0.0)
        in_force = window.settings | {LEVEL: tightest.level}
        added = float(in_force[SHARE]) * window.crowd * prior.added_us(in_force, len(window.be), self._costs)
        now = max(tightest.value_us - added, 0.2 * tightest.value_us, 1.0)
        place = f"{window.key} {tightest.program}"
        base = self._base[place] = 0.8 * self._base.get(place, now) + 0.2 * now
        limit = tightest.objective.limit_us or base * objective.OVER_ALONE
        share = min(sum(each.busy_share for each in busy), 1.0)
        return Demand(window.load, base, share, limit, len(window.be), crowd=window.crowd)

    def _work(
        self, settings: GpuSettings, lc: list[LcMeasure], be: list[BeMeasure], window: Window, config: Config
    ) -> Work:
        busy = sum(each.busy_share for each in window.lc)
        self._busy[window.gpu] = busy > _BUSY[0 if self._busy.get(window.gpu) else 1]
        levels = {level for each in lc for level in each.levels}
        guaranteed = [config.tuner.guarantees.get(each.tenant, 0.0) for each in be]
        return Work(
            services=len(lc),
            jobs=len(be),
            levels=tuple(sorted(levels)) or ("timeslice",),
            busy=self._busy[window.gpu],
            defaults={each.name: each.default for each in settings.knobs},
            closed={each.name: each.value for each in settings.knobs if each.owner in ("pin", "admin")},
            share_floor=max(config.reservations.be_floor, 0.05, *guaranteed),
        )


def _program(name: str, command: str) -> str:
    """Names a program with its arguments: the same server with another model is another program."""
    digest = hashlib.sha256(command.encode(errors="replace")).hexdigest()[:8]
    return f"{name}:{digest}"


def _key(lc: list[LcWindow], be: list[BeWindow], model: str) -> str:
    services, jobs = (" + ".join(sorted(each.program for each in group)) or "nobody" for group in (lc, be))
    return f"{services} beside {jobs} @ {model}"
