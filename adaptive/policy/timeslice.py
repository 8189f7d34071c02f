"""Level ``timeslice``: which slice each process should have on each GPU.

A best-effort slice of 1 µs beside a latency-critical one of 1 s makes the driver switch to the latency-critical process
at once. The same setting starves best-effort processes as soon as there are two, so they keep their own slices then,
unless they take turns: only one of them is enabled at a time then. It also starves them beside a service that always
has work; then slices are in proportion to the floor. Several services have the slices of their order.
"""

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpsched.adaptive.config import Timeslice
from gpsched.adaptive.policy import floor
from gpsched.adaptive.policy.situation import Situation, on_gpus, refused_on
from gpsched.adaptive.workloads.registry import Process


Gpu = int | None


@dataclass(frozen=True)
class Decision:
    """The slice in µs, None for the program's own, and why."""

    timeslice_us: int | None
    reason: str


def decide(
    processes: Collection[Process],
    settings: Timeslice,
    turns: Container[Gpu] = frozenset(),
    tuned: Mapping[Gpu, Timeslice] = MappingProxyType({}),
    situation: Situation | None = None,
) -> dict[tuple[int, Gpu], Decision]:
    """Return a decision for every (pid, GPU) on which a managed process computes.

    ``turns``: GPUs whose best-effort processes take turns. ``tuned``: settings of single GPUs.
    """
    decisions = {(each.pid, gpu): _untouched(each) for each in processes for gpu in each.gpus()}
    refused = refused_on(processes)
    for gpu, (lc, be) in on_gpus(processes).items():
        own = _OneGpu(lc, be, tuned.get(gpu, settings), gpu in turns, situation or Situation(), gpu, gpu in refused)
        decisions |= {(pid, gpu): decision for pid, decision in own.decisions().items()}
    return decisions


def _untouched(process: Process) -> Decision:
    return Decision(None, "own slice" if process.stand_in else "unmanaged: never touched")


@dataclass(frozen=True)
class _OneGpu:
    lc: list[Process]
    be: list[Process]
    settings: Timeslice
    turns: bool
    situation: Situation
    gpu: Gpu
    refused: bool

    def decisions(self) -> dict[int, Decision]:
        if self.lc and self.be and self.gpu in self.situation.crowded and not self.situation.actuator:
            return self._floor()
        decisions = {each.pid: self._best_effort() for each in self.be}
        order = self.situation.standings(
            self.lc, best_effort=bool(self.be), first_us=self.settings.lc_us, gives_way_us=self.settings.be_us
        )
        for each in self.lc:
            standing = order.get(each.pid)
            decisions[each.pid] = Decision(standing.slice_us, standing.reason) if standing else self._alone()
        return decisions

    def _alone(self) -> Decision:
        if not self.be and not self.refused:
            return Decision(None, "no best-effort process on this GPU: own slice")
        if not self.be:
            return Decision(self.settings.lc_us, "runs to the end of its burst beside one that was not admitted")
        return Decision(self.settings.lc_us, f"runs to the end of its burst beside {len(self.be)} best-effort")

    def _best_effort(self) -> Decision:
        others = len(self.be) - 1
        if not self.lc:
            shared = f"takes turns with {others} other best-effort" if self.turns else "own slice"
            return Decision(None, f"no latency-critical process on this GPU: {shared}")
        if self.turns:
            return Decision(
                self.settings.be_us, f"gives way to latency-critical work, and takes turns with {others} other"
            )
        if others and self.gpu in self.situation.together:
            return Decision(
                self.situation.together[self.gpu],
                f"gives way to latency-critical work; runs together with {others} other",
            )
        if others:
            return Decision(None, f"{len(self.be)} best-effort processes on this GPU: short slices would starve them")
        return Decision(self.settings.be_us, "gives way to latency-critical work at once")

    def _floor(self) -> dict[int, Decision]:
        share = self.situation.crowded[self.gpu]
        running = 1 if self.turns else len(self.be)
        lc_us, be_us = floor.slices(share, self.situation.switch_us, len(self.lc), running)
        reason = f"latency-critical work would leave less than reservations.be_floor = {share:g}: slices keep it"
        decisions = {each.pid: Decision(lc_us, reason) for each in self.lc}
        return decisions | {each.pid: Decision(be_us, reason) for each in self.be}
