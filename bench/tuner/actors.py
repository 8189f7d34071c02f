"""Services and jobs as scripts on the engine in virtual time. Times are µs.

They do what the programs of bench/programs do, as the engine sees it. A job's kernels are long and a graph's are two:
the engine cuts kernels by the clock, so their number changes nothing but how long this takes to compute.
"""

from collections import deque
from collections.abc import Callable

import numpy as np

from gpsched.adaptive.simgpu.virtual import COPY, HOLD, KERNEL, Process, World
from gpsched.bench.scenario import Lc


_CALL = 4.0  # a call of the driver API
_WAKE = 9.0  # from the end of a copy to the return of the synchronisation
_BYTES = 270_336
_RELEASE = 10.0  # from the return of a launch to the end of a hold
_JOB_KERNEL_NS = 20_000_000
_LAST_NS = 5_000  # the last kernel of a graph
_PREP_SPREAD = 0.05  # relative deviation of the host's preparation
_FLAGS = 4096

Heard = Callable[["ScriptedService"], None]


class ScriptedJob(Process):
    """Keeps two kernels queued, always. ``wanted`` and ``enabled``: whether its channels should be and are on."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.wanted = self.enabled = True
        self._queue = self.stream()
        for _ in range(2):
            self._launch()

    def _launch(self) -> None:
        seq = self.world.submit(self._queue, KERNEL, _JOB_KERNEL_NS)
        self.world.when_done(self._queue, seq, self._launch)

    def work_us(self) -> float:
        """GPU time it has computed for."""
        return self.stats().gpu_ns / 1000


class ScriptedService(Process):
    """Serves requests in the order they arrive, one at a time: preparation, then bursts with host work between them.

    It tells ``on_trigger`` (a request is taken up), ``on_launch`` and ``on_end`` (the synchronisation of a burst
    returned). ``served``: when each request since the last look arrived and was answered; ``busy_us``: time in bursts.
    """

    def __init__(self, world: World, lc: Lc, number: int, random: np.random.Generator) -> None:
        super().__init__(world)
        self.lc = lc
        self.on_trigger: Heard = _nothing
        self.on_launch: Heard = _nothing
        self.on_end: Heard = _nothing
        self.served: list[tuple[float, float]] = []
        self.busy_us = 0.0
        self._random = random
        self._main, self._side = self.stream(), self.stream()
        self._flag, self._held = _FLAGS + number, 0
        self._waiting: deque[float] = deque()
        self._busy = False
        self._launched_at = 0.0

    def arrive(self) -> None:
        """A request comes in now."""
        self._waiting.append(self.world.now)
        if not self._busy:
            self._take_up()

    def hold(self) -> None:
        """Launch two hold kernels, one behind the other; they end soon after the next launch."""
        self._held += 1
        for place in range(2):
            self.world.after(_CALL * place, lambda: self._submit_hold(self._held))

    def _submit_hold(self, number: int) -> None:
        self.world.submit(self._side, HOLD, self._flag, number)

    def _take_up(self) -> None:
        self._busy = True
        arrived = self._waiting.popleft()
        self.on_trigger(self)
        preparation = self.lc.prep_us * max(0.5, self._random.normal(1.0, _PREP_SPREAD))
        self.world.after(preparation, lambda: self._burst(arrived, self.lc.steps))

    def _burst(self, arrived: float, steps: int) -> None:
        self.world.after(_CALL, self._copy_in)
        launch = self._graph if self.lc.mode == "graph" else self._eager
        self.world.after(2 * _CALL, lambda: launch(lambda: self._copy_out(arrived, steps)))

    def _copy_in(self) -> None:
        self.world.submit(self._main, COPY, _BYTES, 0)

    def _graph(self, then: Callable[[], None]) -> None:
        total = round(self.lc.kernels * self.lc.kernel_us * 1000)
        self.world.submit(self._main, KERNEL, max(total - _LAST_NS, _LAST_NS))
        self.world.submit(self._main, KERNEL, _LAST_NS)
        self._launched()
        self.world.after(_CALL, then)

    def _eager(self, then: Callable[[], None]) -> None:
        distance = _CALL + self.lc.gap_us
        for number in range(self.lc.kernels):
            self.world.after(number * distance, self._kernel)
        self.world.after(self.lc.kernels * distance, then)
        self._launched()

    def _kernel(self) -> None:
        self.world.submit(self._main, KERNEL, round(self.lc.kernel_us * 1000))

    def _launched(self) -> None:
        self._launched_at = self.world.now
        self.on_launch(self)
        if self.lc.mode == "graph":
            self.world.after(_RELEASE, self._release)

    def _release(self) -> None:
        self.world.set_flag(self._flag, self._held)

    def _copy_out(self, arrived: float, steps: int) -> None:
        self._release()  # entering the synchronisation
        seq = self.world.submit(self._main, COPY, _BYTES, 1)
        self.world.when_done(self._main, seq, lambda: self.world.after(_WAKE, lambda: self._ended(arrived, steps)))

    def _ended(self, arrived: float, steps: int) -> None:
        self.busy_us += self.world.now - self._launched_at
        self.on_end(self)
        if steps > 1:
            self.world.after(self.lc.step_gap_us, lambda: self._burst(arrived, steps - 1))
            return
        self.served.append((arrived, self.world.now))
        self._busy = False
        if self._waiting:
            self._take_up()


def _nothing(_service: ScriptedService) -> None:
    """Nobody listens."""


def arrivals(lc: Lc, rate: float, start: float, length: float, random: np.random.Generator) -> list[float]:
    """Times of a window's requests, by the scenario's kind of arrival."""
    period = 1e6 / rate
    if lc.arrival == "constant":  # its phase against jobs and windows is never the same
        times = np.arange(random.uniform(0, period), length, period)
    elif lc.arrival == "jitter":
        times = np.cumsum(random.uniform(0.5 * period, 1.5 * period, size=round(2 * length / period) + 8))
    elif lc.arrival == "bursty":  # a handful at once, as far apart as the rate wants
        starts = np.cumsum(random.exponential(4 * period, size=round(length / period) + 16))
        times = (starts[:, None] + np.arange(4) * 0.1 * period).ravel()
    else:
        times = np.cumsum(random.exponential(period, size=round(2 * length / period) + 32))
    return [start + float(time) for time in np.sort(times) if time < length]
