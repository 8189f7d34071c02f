"""Realistic streams of observations with the truth about each burst: a small event model of several kinds of service.

Times in µs. Jitter as measured (facts: wakes 20-300 µs late; preparation of 1 ms spreads by some tens of µs).
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from gpsched.adaptive.hints.observations import (
    Copy,
    Launch,
    Observation,
    SyncEnter,
    SyncReturn,
    SyncScope,
    Wake,
    WakeKind,
    size_bucket,
)


@dataclass
class Truth:
    """One burst as it was: first launch, end, and the longest lead that any wake of its own gave."""

    launch_us: float
    end_us: float
    lead_us: float


@dataclass
class Stream:
    observations: list[Observation] = field(default_factory=list)
    bursts: list[Truth] = field(default_factory=list)

    def sorted(self) -> list[Observation]:
        return sorted(self.observations, key=lambda observation: observation.time_us)

    def extend(self, other: "Stream") -> None:
        self.observations += other.observations
        self.bursts += other.bursts


def arrivals(shape: str, rate: float, count: int, rng: random.Random, start: float = 1e6) -> list[float]:
    """``constant`` (2 % jitter), ``poisson``, or ``bursty`` (groups of 1-8 back to back, same mean rate)."""
    times, now = [], start
    while len(times) < count:
        mean = 1e6 / rate
        if shape == "constant":
            now += mean * rng.uniform(0.98, 1.02)
            times.append(now)
        elif shape == "poisson":
            now += rng.expovariate(1 / mean)
            times.append(now)
        else:
            size = rng.randint(1, 8)
            now += rng.expovariate(1 / (mean * size))
            times += [now + i * rng.uniform(50, 400) for i in range(size)]
    return sorted(times)[:count]


def wake_noise(rng: random.Random) -> float:
    """Lognormal around 45 µs, within 20 to 300."""
    return min(max(rng.lognormvariate(math.log(45), 0.6), 20.0), 300.0)


def spread(rng: random.Random, mean: float) -> float:
    """Preparation time: a floor, a short tail, and now and then an interruption."""
    late = rng.uniform(50, 300) if rng.random() < 0.01 else 0.0
    return mean + rng.gammavariate(2.0, 8.0) + late


def burst(
    stream: Stream, rng: random.Random, tid: int, at: float, work: float, lead: float, launches: int = 3
) -> float:
    """A copy in, launches, a copy out and a stream synchronisation; return its end. The copy precedes the launch."""
    stream.observations.append(Copy(at - 12.0, tid, to_device=True, size=size_bucket(150_528)))
    for i in range(launches):
        stream.observations.append(Launch(at + 6.0 * i, tid, stream=7))
    queued = at + 6.0 * launches
    end = queued + work * rng.uniform(0.97, 1.03)
    stream.observations += [
        Copy(queued, tid, stream=7),
        SyncEnter(queued + 4.0, tid),
        SyncReturn(end, tid, SyncScope.STREAM, 7),
    ]
    stream.bursts.append(Truth(at, end, lead))
    return end


Prepare = Callable[[int], float]


def plain_loop(
    times: list[float],
    rng: random.Random,
    *,
    prepare: Prepare = lambda _: 1000.0,
    work: Prepare = lambda _: 300.0,
    size: Prepare = lambda _: 20_000,
    tid: int = 10,
    descriptor: int = 5,
) -> Stream:
    """One thread: recv, prepare, launch, synchronise, send."""
    stream, free = Stream(), 0.0
    for i, arrived in enumerate(times):
        read = free + 3.0 if arrived < free else arrived + wake_noise(rng)
        lead = spread(rng, prepare(i))
        stream.observations.append(
            Wake(read, tid, WakeKind.SOCKET_READ, descriptor, size_bucket(int(size(i) * rng.uniform(0.95, 1.05))))
        )
        free = burst(stream, rng, tid, read + lead, work(i), lead) + 20.0
    return stream


def asyncio_server(
    times: list[float], rng: random.Random, *, health_rate: float = 20.0, connections: int = 4, prepare: float = 1200.0
) -> Stream:
    """One event loop: epoll, recv, handle. Health checks of 90 bytes on the same connections announce nothing."""
    stream, free, tid = Stream(), 0.0, 20
    count = int((times[-1] - times[0]) * health_rate / 1e6)
    requests = [(time, 16_500 + rng.randint(-200, 200)) for time in times]
    requests += [(rng.uniform(times[0], times[-1]), 90) for _ in range(count)]
    for arrived, size in sorted(requests):
        now = free + 4.0 if arrived < free else arrived + wake_noise(rng)
        stream.observations.append(Wake(now, tid, WakeKind.EPOLL, 3))
        read = now + 30.0
        descriptor = 8 + rng.randrange(connections)
        stream.observations.append(Wake(read, tid, WakeKind.SOCKET_READ, descriptor, size_bucket(size)))
        if size < 1000:
            free = read + 60.0
            continue
        lead = spread(rng, prepare)
        free = burst(stream, rng, tid, read + lead, 400.0, lead + 30.0) + 40.0
    return stream


def batching_server(times: list[float], rng: random.Random, *, prepare: float = 900.0) -> Stream:
    """Connection threads read and queue; a worker, woken by a futex, takes all that is queued and launches."""
    stream, worker, free = Stream(), 40, 0.0
    queue = [(time + wake_noise(rng), 30 + i % 4) for i, time in enumerate(times)]
    queue.sort()
    for read, tid in queue:
        stream.observations.append(Wake(read, tid, WakeKind.SOCKET_READ, tid - 20, size_bucket(12_000)))
    i = 0
    while i < len(queue):
        read, tid = queue[i]
        taken = free + 2.0
        if read + 15.0 > free:
            taken = read + 15.0 + wake_noise(rng)
            stream.observations.append(Wake(taken, worker, WakeKind.FUTEX))
        waiting = []
        while i < len(queue) and queue[i][0] + 15.0 <= taken:
            waiting.append(queue[i])
            i += 1
        lead = spread(rng, prepare)
        end = burst(stream, rng, worker, taken + lead, 300.0 + 40.0 * len(waiting), taken + lead - read)
        for _, answered in waiting:
            stream.observations.append(Wake(end + wake_noise(rng), answered, WakeKind.FUTEX))
        free = end + 30.0
    return stream


def concurrent_server(times: list[float], rng: random.Random, *, prepare: float = 1000.0) -> Stream:
    """A thread for each connection reads, prepares and launches on a stream of its own, whatever the others do."""
    stream, parts = Stream(), []
    for i, arrived in enumerate(times):
        tid = 80 + i % 8
        read, lead = arrived + wake_noise(rng), spread(rng, prepare)
        start, end = read + lead, read + lead + 318.0 * rng.uniform(0.97, 1.03)
        stream.observations += [
            Wake(read, tid, WakeKind.SOCKET_READ, tid - 70, size_bucket(9_000)),
            Launch(start, tid, stream=tid),
            SyncEnter(start + 5.0, tid),
            SyncReturn(end, tid, SyncScope.STREAM, tid),
        ]
        parts.append(Truth(start, end, lead))
    for part in sorted(parts, key=lambda part: part.launch_us):
        if stream.bursts and part.launch_us <= stream.bursts[-1].end_us:
            stream.bursts[-1].end_us = max(stream.bursts[-1].end_us, part.end_us)
        else:
            stream.bursts.append(part)
    return stream


def timer_loop(count: int, rng: random.Random, *, period: float = 33_333.0, prepare: float = 2500.0) -> Stream:
    """A camera: timer, preparation, launch."""
    stream = Stream()
    for i in range(count):
        wake = 1e6 + i * period + wake_noise(rng)
        stream.observations.append(Wake(wake, 50, WakeKind.TIMER, 6))
        lead = spread(rng, prepare)
        burst(stream, rng, 50, wake + lead, 4000.0, lead)
    return stream


def decode_loop(count: int, rng: random.Random, *, tokens: int = 24, gap: float = 120.0) -> Stream:
    """An LLM: a request, then a launch and a synchronisation for every token with a short host gap between."""
    stream = Stream()
    for i in range(count):
        read = 1e6 + i * 150_000.0 + rng.uniform(0, 20_000)
        stream.observations.append(Wake(read, 60, WakeKind.SOCKET_READ, 9, size_bucket(2_000)))
        lead = spread(rng, 1800.0)
        at = start = read + lead
        for _ in range(rng.randint(tokens // 2, tokens)):
            stream.observations.append(Launch(at, 60, stream=1))
            end = at + rng.uniform(1800, 2200)
            stream.observations += [SyncEnter(at + 10, 60), SyncReturn(end, 60, SyncScope.STREAM, 1)]
            at = end + gap * rng.uniform(0.8, 1.5)
        stream.bursts.append(Truth(start, end, lead))
    return stream


def noise(start: float, end: float, rate: float, rng: random.Random, kind: WakeKind = WakeKind.PIPE) -> Stream:
    """Wakes that announce nothing (logging, housekeeping)."""
    count = int((end - start) * rate / 1e6)
    return Stream([Wake(rng.uniform(start, end), 70, kind, 11) for _ in range(count)])
