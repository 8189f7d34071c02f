"""Scripted processes on the engine of the embedded GPU in virtual time: what was measured on an H200, as a script.

``Be`` keeps the GPU full; ``Lc`` is the request loop that was measured. Times are µs.
"""

import math
from collections.abc import Callable, Iterator

from gpsched.adaptive.simgpu.virtual import COPY, DISABLE, ENABLE, HOLD, KERNEL, Process, World


class Be(Process):
    """Keeps ``depth`` kernels of ``kernel`` µs queued."""

    def __init__(self, world: World, kernel: float = 400, depth: int = 8, gpu: int = 0) -> None:
        super().__init__(world, gpu)
        self.kernel_ns, self.queue = round(kernel * 1000), self.stream()
        for _ in range(depth):
            self._launch()

    def _launch(self) -> None:
        seq = self.world.submit(self.queue, KERNEL, self.kernel_ns)
        self.world.when_done(self.queue, seq, self._launch)


class Lc(Process):
    """The measured request loop: preparation, copy in, 20 kernels, copy out, synchronisation; every ``period``."""

    CALL, WAKE, KERNELS, KERNEL_NS, BYTES, FLAG = 4.0, 9.0, 20, 6000, 270336, 4096

    def __init__(self, world: World, prep: float = 200, period: float = 10000, holds: int = 0) -> None:
        super().__init__(world)
        self.prep, self.period, self.holds = prep, period, holds
        self.main, self.side = self.stream(), self.stream()
        self.latencies: list[float] = []
        self.on_hint: Callable[[], None] | None = None
        self.on_launch: Callable[[], None] | None = None
        self.on_done: Callable[[], None] | None = None
        self._seq = 0

    def start(self, at: float, requests: int) -> None:
        # A period that shares no divisor with timeslices and turns: every phase is met.
        for i in range(requests):
            self.world.at(at + i * self.period, self._arrive)

    def _arrive(self) -> None:
        arrived = self.world.now
        self._seq += 1
        if self.on_hint:
            self.on_hint()
        for i in range(self.holds):
            self.world.after(self.CALL * (i + 1), self._hold)
        self.world.after(self.prep, lambda: self._launch(arrived))

    def _hold(self) -> None:
        self.world.submit(self.side, HOLD, self.FLAG, self._seq)

    def _launch(self, arrived: float) -> None:
        self.world.after(self.CALL, lambda: self.world.submit(self.main, COPY, self.BYTES, 0))
        self.world.after(2 * self.CALL, self._graph)
        self.world.after(3 * self.CALL, lambda: self._copy_out(arrived))

    def _graph(self) -> None:
        for _ in range(self.KERNELS):
            self.world.submit(self.main, KERNEL, self.KERNEL_NS)
        if self.on_launch:
            self.on_launch()

    def _copy_out(self, arrived: float) -> None:
        seq, number = self.world.submit(self.main, COPY, self.BYTES, 1), self._seq
        self.world.when_done(self.main, seq, lambda: self.world.after(self.WAKE, lambda: self._finish(arrived)))
        if self.holds:
            self.world.after(10, lambda: self.world.set_flag(self.FLAG, number))

    def _finish(self, arrived: float) -> None:
        self.latencies.append(self.world.now - arrived)
        if self.on_done:
            self.on_done()

    @property
    def mean(self) -> float:
        return sum(self.latencies) / len(self.latencies)

    def quantile(self, q: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(math.floor(q * len(ordered)), len(ordered) - 1)]


class Reservation:
    """``on`` controls at the hint, ``off`` after the burst: each starts when the one before answered."""

    def __init__(self, world: World, lc: Lc, on: list[tuple[int, list[int]]], off: list[tuple[int, list[int]]]) -> None:
        self.world, self.on, self.off = world, on, off
        self.free_at = 0.0
        lc.on_hint, lc.on_done = lambda: self._play(self.on), lambda: self._play(self.off)

    def _play(self, controls: list[tuple[int, list[int]]]) -> None:
        steps = iter(controls)
        self.world.at(max(self.free_at, self.world.now), lambda: self._next(steps))

    def _next(self, steps: Iterator[tuple[int, list[int]]]) -> None:
        for kind, ids in steps:
            self.free_at = self.world.control(kind, ids)
            self.world.at(self.free_at, lambda: self._next(steps))
            return


class Turns:
    """One enabled BE at a time: every ``length`` µs the running one is disabled, then the next enabled."""

    def __init__(self, world: World, processes: list[Be], length: float) -> None:
        self.world, self.length = world, length
        self.processes = processes
        for other in processes[1:]:
            world.control(DISABLE, other.channels)
        world.after(length, self._pass)

    def _pass(self) -> None:
        first, *others = self.processes
        self.processes = [*others, first]
        answered = self.world.control(DISABLE, first.channels)
        self.world.at(answered, self._enable)

    def _enable(self) -> None:
        answered = self.world.control(ENABLE, self.processes[0].channels)
        self.world.at(answered + self.length, self._pass)
