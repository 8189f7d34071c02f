"""Whose each GPU was in the last seconds: the share of every process, and when best-effort work had it.

A latency-critical process has the GPU during its bursts. A best-effort one has it for what bursts and reservations of
others leave, within its turns where there are turns: that is time in which it may run, whether or not it had work.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gpsched.adaptive.actuator.plans import PlanSet, Role
from gpsched.adaptive.model import ProcessView, Span


KEPT_US = 10e6
_BIN_US = 100_000.0
_BINS = round(KEPT_US / _BIN_US)
_RECENT_US = 2e6
_SHOWN = 0.2  # of a bin: from here on it is drawn as the process's


class Course:
    """How much of each of the last bins something lasted. Times are µs of CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._filled = [0.0] * _BINS
        self._of = [-1] * _BINS

    def add(self, start_us: float, end_us: float, density: float = 1.0) -> None:
        """It lasted from ``start_us`` to ``end_us``, for this part of the time."""
        start_us = max(start_us, end_us - KEPT_US)
        for number in range(int(start_us // _BIN_US), int(end_us // _BIN_US) + 1):
            inside = min(end_us, (number + 1) * _BIN_US) - max(start_us, number * _BIN_US)
            place = number % _BINS
            before = self._filled[place] if self._of[place] == number else 0.0
            self._filled[place], self._of[place] = before + density * inside / _BIN_US, number

    def shares(self, now_us: float) -> list[float]:
        """The last bins that are over, oldest first, each from 0 to 1."""
        last = int(now_us // _BIN_US)
        numbers = range(last - _BINS + 1, last)
        return [min(1.0, self._filled[n % _BINS]) if self._of[n % _BINS] == n else 0.0 for n in numbers]


class Occupancy:
    """Fed by the daemon's loop."""

    def __init__(self) -> None:
        self._bursts: dict[int, Course] = defaultdict(Course)
        self._reserved: dict[int, Course] = defaultdict(Course)
        self._turns: dict[int, Course] = defaultdict(Course)
        self._in_turns: dict[int, float] = {}
        self._told: tuple[dict[tuple[int, int], int], float] = ({}, 0.0)

    def burst(self, pid: int, start_us: float, end_us: float) -> None:
        """A latency-critical process had a burst."""
        self._bursts[pid].add(start_us, end_us)

    def reserved(self, pid: int, start_us: float, end_us: float) -> None:
        """The GPU was reserved for it."""
        self._reserved[pid].add(start_us, end_us)

    def turns(self, plan_set: PlanSet, had_ns: Sequence[Sequence[int]], now_us: float) -> None:
        """What each turn of each GPU has had so far, as the actuator tells it."""
        before, since_us = self._told
        self._told = ({}, now_us)
        for member in plan_set.members:
            if member.role is Role.BE and len(plan_set.gpus[member.gpu].turns_us) > 1:
                self._in_turns[member.pid] = now_us
                key = (member.pid, member.gpu)
                self._told[0][key] = now = had_ns[member.gpu][member.turn]
                self._turn(member.pid, (now - before.get(key, now)) / 1000, since_us, now_us)

    def _turn(self, pid: int, had_us: float, since_us: float, now_us: float) -> None:
        """A turn is told when it is over: it may have begun before the last look."""
        start = min(since_us, now_us - had_us)
        if had_us > 0:
            self._turns[pid].add(start, now_us, had_us / (now_us - start))

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        for known in (self._bursts, self._reserved, self._turns, self._in_turns):
            known.pop(pid, None)

    def fill(self, views: Iterable[ProcessView]) -> list[ProcessView]:
        """The views with ``gpu_share``, and with the turns of best-effort processes in ``spans``."""
        views, now_us = list(views), time.monotonic() * 1e6
        held = {gpu: self._held(views, gpu, now_us) for gpu in {gpu for view in views for gpu in view.gpus}}
        return [self._filled(view, held, now_us) for view in views]

    def _held(self, views: list[ProcessView], gpu: int, now_us: float) -> list[float]:
        """How much of each bin latency-critical processes had this GPU."""
        held = [0.0] * (_BINS - 1)
        for view in views:
            if view.class_ == "lc" and gpu in view.gpus:
                bursts, reserved = (courses[view.pid].shares(now_us) for courses in (self._bursts, self._reserved))
                held = [min(1.0, had + max(pair)) for had, *pair in zip(held, bursts, reserved, strict=True)]
        return held

    def _filled(self, view: ProcessView, held: dict[int, list[float]], now_us: float) -> ProcessView:
        if not view.gpus or view.class_ == "unmanaged":
            return view
        if view.class_ == "lc":
            return msgspec.structs.replace(view, gpu_share=_mean(self._bursts[view.pid].shares(now_us)))
        if now_us - self._in_turns.get(view.pid, 0.0) < _RECENT_US:
            shares = self._turns[view.pid].shares(now_us)
        else:
            shares = [1.0 - max(bins) for bins in zip(*(held[gpu] for gpu in view.gpus), strict=True)]
        spans = [*view.spans, *_spans(shares, now_us)]
        return msgspec.structs.replace(view, gpu_share=_mean(shares), spans=spans)


def _mean(shares: list[float]) -> float:
    return round(sum(shares) / len(shares), 4)


def _spans(shares: list[float], now_us: float) -> Iterator[Span]:
    """The stretches of bins that were the process's, in wall-clock time."""
    begin_s = time.time() - (now_us % _BIN_US + len(shares) * _BIN_US) / 1e6
    start: int | None = None
    for place, share in enumerate([*shares, 0.0]):
        if share > _SHOWN and start is None:
            start = place
        elif share <= _SHOWN and start is not None:
            yield Span(kind="turn", start_s=begin_s + start * _BIN_US / 1e6, end_s=begin_s + place * _BIN_US / 1e6)
            start = None
