"""Level ``timeslice``: which slice each process should have on each GPU.

A best-effort slice of 1 µs beside a latency-critical one of 1 s makes the driver switch to the latency-critical process
at once. The same setting starves best-effort processes as soon as there are two, so they keep their own slices then,
unless they take turns: only one of them is enabled at a time then.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpsched.adaptive.config import Timeslice
from gpsched.adaptive.workloads.registry import Process


Gpu = int | None


@dataclass(frozen=True)
class Decision:
    """The slice in µs, None for the program's own, and why."""

    timeslice_us: int | None
    reason: str


def decide(
    processes: Iterable[Process],
    settings: Timeslice,
    turns: Container[Gpu] = frozenset(),
    tuned: Mapping[Gpu, Timeslice] = MappingProxyType({}),
) -> dict[tuple[int, Gpu], Decision]:
    """Return a decision for every (pid, GPU) on which a managed process computes.

    ``turns``: GPUs whose best-effort processes take turns. ``tuned``: settings of single GPUs.
    """
    on_gpu: dict[Gpu, list[Process]] = {}
    for process in processes:
        for gpu in process.gpus():
            on_gpu.setdefault(gpu, []).append(process)
    return {
        (process.pid, gpu): _decide_one(process, sharers, tuned.get(gpu, settings), gpu in turns)
        for gpu, sharers in on_gpu.items()
        for process in sharers
    }


def _decide_one(process: Process, sharers: list[Process], settings: Timeslice, turns: bool) -> Decision:
    lc = sum(other.class_ == "lc" for other in sharers)
    be = sum(other.class_ == "be" for other in sharers)
    if process.class_ == "lc":
        return _decide_lc(lc, be, settings)
    if process.class_ == "be":
        return _decide_be(lc, be, settings, turns)
    return Decision(None, "unmanaged: never touched")


def _decide_lc(lc: int, be: int, settings: Timeslice) -> Decision:
    if be == 0:
        return Decision(None, "no best-effort process on this GPU: own slice")
    if lc > 1:
        return Decision(None, f"{lc} latency-critical processes on this GPU: long slices would block one another")
    return Decision(settings.lc_us, f"runs to the end of its burst beside {be} best-effort")


def _decide_be(lc: int, be: int, settings: Timeslice, turns: bool) -> Decision:
    if lc == 0:
        shared = f"takes turns with {be - 1} other best-effort" if turns else "own slice"
        return Decision(None, f"no latency-critical process on this GPU: {shared}")
    if turns:
        return Decision(settings.be_us, f"gives way to latency-critical work, and takes turns with {be - 1} other")
    if be > 1:
        return Decision(None, f"{be} best-effort processes on this GPU: short slices would starve them")
    return Decision(settings.be_us, "gives way to latency-critical work at once")
