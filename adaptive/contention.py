"""Who needs how much of each GPU, second by second, and what follows: who is not admitted, who may not reserve, where
slices must keep the floor, which best-effort process is idle. Policy decides; this keeps the state between the seconds.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping

from gpsched.adaptive.actuator.records import Record
from gpsched.adaptive.config import Config
from gpsched.adaptive.hints.bursts import Burst
from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.model import Class
from gpsched.adaptive.policy.admission import Admissions, Claim
from gpsched.adaptive.policy.conduct import Conduct
from gpsched.adaptive.policy.demand import WINDOW_US, Demand
from gpsched.adaptive.policy.floor import Crowding
from gpsched.adaptive.policy.situation import Situation, on_gpus
from gpsched.adaptive.policy.turns import TOGETHER_US
from gpsched.adaptive.workloads.registry import Process, Registry


log = logging.getLogger(__name__)

Gpu = int | None
_IDLE_S = 10.0  # longer than nearly any work that one call queues
_STEADY = 0.2  # a burst length within this part of the one in use is no news: plans would change every second
_INSTEAD: dict[str, Class] = {"observe": "unmanaged", "be": "be"}
_CROWDED = "it always has work: no reservations, and breaks for reservations.be_floor"


class Contention:
    """Fed by the daemon's loop; ``update`` sets ``stand_in`` and ``restraint`` of the processes. Not thread-safe."""

    def __init__(
        self,
        registry: Registry,
        costs: Mapping[str, Costs] = LEVELS,
        clock: Callable[[], float] = lambda: time.monotonic_ns() / 1000,
    ) -> None:
        """``clock`` gives µs."""
        self._registry, self._costs, self._clock = registry, costs, clock
        self._since = clock()
        self._demand, self._admissions, self._conduct = Demand(self._since), Admissions(), Conduct()
        self._crowding: dict[Gpu, Crowding] = {}
        self._crowded: dict[Gpu, float] = {}
        self._lengths: dict[int, float] = {}
        self._together: dict[Gpu, int] = {}
        self._calls: dict[int, tuple[int, float, bool]] = {}  # so many, since when, and whether there were ever more

    # ---- what is seen

    def began(self, pid: int, time_us: float) -> None:
        """The first launch of a burst."""
        self._demand.began(pid, time_us)

    def ended(self, pid: int, burst: Burst) -> None:
        """The burst is over."""
        self._demand.ended(pid, burst.start_us, burst.end_us)

    def asked(self, pid: int) -> None:
        """A reservation was asked for."""
        self._conduct.asked(pid)

    def reserved(self, record: Record) -> None:
        """A reservation ended."""
        if record.begin_ns:
            length_us = (record.end_ns - record.begin_ns) / 1000
            self._conduct.reserved(record.pid, length_us, record.waste_us, record.gpu)

    def called(self, pid: int, calls: int) -> None:
        """A best-effort process has called CUDA so often."""
        before, since, ever = self._calls.get(pid, (calls, self._clock(), False))
        if calls != before:
            since, ever = self._clock(), True
        self._calls[pid] = (calls, since, ever)

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self._demand.forget(pid)
        self._conduct.forget(pid)
        self._lengths.pop(pid, None)
        self._calls.pop(pid, None)

    # ---- what follows

    @property
    def together(self) -> Mapping[Gpu, int]:
        """GPUs whose several best-effort processes run together, and their slices in µs."""
        return self._together

    def situation(self, config: Config, has_actuator: Callable[[], bool] = lambda: True) -> Situation:
        """Return what plans and slices depend on; ``has_actuator`` is asked where it matters."""
        return Situation(
            policy=config.policy,
            tenants=config.tenants,
            burst_us=dict(self._lengths),
            crowded=dict(self._crowded),
            idle=self._idle(),
            together=dict(self._together),
            control_us=self._costs["reserve"].need_us,
            switch_us=self._costs["reserve"].switch_us,
            actuator=not self._crowded or has_actuator(),
        )

    def update(self, config: Config, tuned: Mapping[Gpu, Config]) -> bool:
        """Judge once a second; return whether anything that plans and slices depend on is different now."""
        now = self._clock()
        if now - self._since < WINDOW_US:
            return False
        gpus = self._gpus()
        self._demand.close(now, [[each.pid for each in lc] for lc, _ in gpus.values()])
        elapsed_s, self._since = (now - self._since) / 1e6, now
        before = self._state()
        self._admissions.keep_only({each.family for each in self._registry})
        self._admissions.feed(
            now / 1e6, {gpu: self._claims(lc, config) for gpu, (lc, _) in gpus.items()}, config.admission
        )
        used = {each.pid: self._demand.last(each.pid) for each in self._registry}
        self._conduct.close(now / 1e6, elapsed_s, used, config.reservations)
        self._judge_crowding(gpus, {gpu: tuned.get(gpu, config).reservations.be_floor for gpu in gpus})
        self._mark(config)
        self._measure_lengths()
        self._judge_turns(config, tuned)
        return self._state() != before

    def _state(self) -> tuple[object, ...]:
        marks = [(each.pid, each.stand_in, each.restraint) for each in self._registry]
        return marks, dict(self._lengths), dict(self._crowded), self._idle(), dict(self._together)

    def _judge_turns(self, config: Config, tuned: Mapping[Gpu, Config]) -> None:
        """Those whose shares are to differ take turns, whatever the configuration says."""
        self._together = {}
        for gpu, (_, be) in on_gpus(list(self._registry)).items():
            own = tuned.get(gpu, config).reservations
            weights = {(each.weight, config.tenants.get(each.tenant, 1.0)) for each in be}
            shared = len(weights) > 1 or len({each.tenant for each in be}) > 1 or own.be_share < 1.0
            if own.turns == "never" and len(be) > 1 and not shared:
                self._together[gpu] = TOGETHER_US

    def _gpus(self) -> dict[Gpu, tuple[list[Process], list[Process]]]:
        """By class, whatever they are treated as now."""
        found: dict[Gpu, tuple[list[Process], list[Process]]] = {}
        for process in self._registry:
            for gpu in process.gpus():
                found.setdefault(gpu, ([], []))[process.class_ == "be"].append(process)
        return found

    def _claims(self, lc: Collection[Process], config: Config) -> list[Claim]:
        services: dict[str, list[Process]] = {}
        for each in lc:
            services.setdefault(each.family, []).append(each)
        return [self._claim(service, members, config) for service, members in services.items()]

    def _claim(self, service: str, members: list[Process], config: Config) -> Claim:
        """Of all processes of a service: they are let in or left out together."""
        needs = [self._demand.need(each.pid, config.admission.quantile) for each in members]
        known = [need for need in needs if need is not None]
        bursts = sum(self._demand.rate(each.pid) for each in members)
        time_us = sum(self._demand.rate(each.pid) * self._demand.burst_us(each.pid) for each in members)
        return Claim(
            service,
            sum(known) if known else None,
            bursts,
            time_us / bursts if bursts else max(self._demand.burst_us(each.pid) for each in members),
            max(each.priority for each in members),
            min(each.since for each in members),
        )

    def _judge_crowding(
        self, gpus: Mapping[Gpu, tuple[list[Process], list[Process]]], floors: Mapping[Gpu, float]
    ) -> None:
        self._crowding = {gpu: self._crowding.get(gpu, Crowding()) for gpu in gpus}
        self._crowded = {}
        for gpu, (lc, be) in gpus.items():
            inside = [each.pid for each in lc if each.stand_in != "be"]
            switches = 2 * self._costs["reserve"].switch_us / 1e6
            used = sum(self._demand.last(pid) + self._demand.rate(pid) * switches for pid in inside)
            self._crowding[gpu].feed(used if be else 0.0, floors[gpu])
            if self._crowding[gpu].crowded:
                self._crowded[gpu] = floors[gpu]

    def _mark(self, config: Config) -> None:
        refused, suspended = self._admissions.refused, self._conduct.suspended
        for process in self._registry:
            before = process.restraint
            out = refused.get(process.family) if process.class_ == "lc" else None
            process.stand_in = _INSTEAD[config.admission.action] if out and config.admission.action != "off" else None
            crowded = process.class_ == "lc" and not process.gpus().isdisjoint(self._crowded)
            process.restraint = out or suspended.get(process.pid) or (_CROWDED if crowded else "")
            if bool(before) != bool(process.restraint):
                log.warning("pid %d: %s", process.pid, process.restraint or "admitted, and free to reserve, again")

    def _measure_lengths(self) -> None:
        for process in self._registry:
            now, before = self._demand.burst_us(process.pid), self._lengths.get(process.pid, 0.0)
            if abs(now - before) > _STEADY * before:
                self._lengths[process.pid] = now

    def _idle(self) -> frozenset[int]:
        late = self._clock() - _IDLE_S * 1e6
        return frozenset(pid for pid, (_, since, ever) in self._calls.items() if ever and since < late)
