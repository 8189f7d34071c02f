"""Every row of the H200 measurements that the engine models, in virtual time, with its tolerance.

The measured figures are those of docs/simgpu.md (one H200, driver 580.159.04).
LC: 100 requests/s; BE: kernels of 0.4 ms.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gpsched.adaptive.simgpu import virtual
from tests.sim import virtual_gpu as v


pytestmark = pytest.mark.sim

SECOND_US = 1_000_000
# Not 10000: shares no divisor with timeslices and turns, so that every phase is met.
PERIOD = 10007.0
REQUESTS = 150
BE_ALONE = 2503
Setup = Callable[[virtual.World, v.Lc, list[v.Be]], object]


@dataclass
class Run:
    mean: float
    p99: float
    rates: list[float]
    switches: int


def co_run(
    prep: float = 200,
    bes: int = 1,
    be_slice: int | None = None,
    lc_slice: int | None = None,
    holds: int = 0,
    kernel: float = 400,
    setup: Setup | None = None,
) -> Run:
    world = virtual.World()
    lc = v.Lc(world, prep, PERIOD, holds)
    others = [v.Be(world, kernel) for _ in range(bes)]
    for other in others:
        if be_slice is not None:
            other.timeslice(be_slice)
    if lc_slice is not None:
        lc.timeslice(lc_slice)
    if setup:
        setup(world, lc, others)
    world.run(100_000)
    begin, before = world.now, [other.stats().kernels for other in others]
    lc.start(begin, REQUESTS)
    world.run(begin + (REQUESTS + 2) * PERIOD)
    seconds = (world.now - begin) / 1e6
    rates = [(other.stats().kernels - k) / seconds for other, k in zip(others, before, strict=True)]
    assert len(lc.latencies) == REQUESTS
    run = Run(lc.mean, lc.quantile(0.99), rates, lc.stats().switches)
    world.close()
    return run


def alone(prep: float) -> float:
    return co_run(prep, bes=0).mean


def timeslice_level(prep: float = 200, **more: object) -> Run:
    return co_run(prep, be_slice=1, lc_slice=SECOND_US, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("prep", "measured"), [(100, 264), (200, 372), (300, 463), (500, 667), (1000, 1163)])
def test_lc_alone(prep: float, measured: float) -> None:
    assert alone(prep) == pytest.approx(measured, rel=0.03)


def test_be_alone() -> None:
    world = virtual.World()
    be = v.Be(world)
    world.run(1_000_000)
    assert be.stats().kernels == pytest.approx(BE_ALONE, rel=0.01)
    world.close()


@pytest.mark.parametrize(
    ("be_slice", "mean", "p99"), [(None, 1609, 2645), (1000, 1054, 1561), (200, 651, 760), (1, 544, 572)]
)
def test_lc_latency_by_be_slice(be_slice: int | None, mean: float, p99: float) -> None:
    run = co_run(be_slice=be_slice, lc_slice=SECOND_US if be_slice else None)
    assert run.mean == pytest.approx(mean, rel=0.05)
    assert run.p99 == pytest.approx(p99, rel=0.05)
    assert run.rates[0] == pytest.approx(2380, rel=0.02)


def test_default_co_run_ratio() -> None:
    assert 3.5 <= co_run().mean / alone(200) <= 5.5


@pytest.mark.parametrize("kernel", [400, 8000])
def test_a_switch_costs_the_same_whatever_the_kernel_length(kernel: float) -> None:
    assert 150 <= timeslice_level(kernel=kernel).mean - alone(200) <= 230


def test_timeslice_zero_behaves_like_one() -> None:
    zero, one = co_run(be_slice=0, lc_slice=SECOND_US), timeslice_level()
    assert zero.mean == pytest.approx(one.mean, rel=0.01)
    assert zero.rates[0] == pytest.approx(one.rates[0], rel=0.01)


def test_restart_runlist_at_the_launch() -> None:
    def setup(world: virtual.World, lc: v.Lc, _: list[v.Be]) -> None:
        lc.on_launch = lambda: world.control(virtual.RESTART, [lc.group])

    run = co_run(setup=setup)
    assert run.mean == pytest.approx(841, rel=0.05)
    assert run.rates[0] == pytest.approx(2378, rel=0.02)


def reservation(kind: str) -> Setup:
    def setup(world: virtual.World, lc: v.Lc, bes: list[v.Be]) -> None:
        channels, group = bes[0].channels, [bes[0].group]
        on = {
            "hard": [(virtual.DISABLE, channels)],
            "soft": [(virtual.DISABLE_SCHEDULING, channels)],
            "soft+preempt": [(virtual.DISABLE_SCHEDULING, channels), (virtual.PREEMPT_WAIT, group)],
        }[kind]
        off = virtual.ENABLE_SCHEDULING if kind == "soft" else virtual.ENABLE
        v.Reservation(world, lc, on, [(off, channels)])

    return setup


@pytest.mark.parametrize(
    ("kind", "prep", "added"),
    [
        ("hard", 200, 345),
        ("hard", 600, 66),
        ("hard", 1000, 79),
        ("soft", 200, 165),
        ("soft", 600, 128),
        ("soft", 1000, 140),
        ("soft+preempt", 1000, 73),
    ],
)
def test_reservation_by_lead(kind: str, prep: float, added: float) -> None:
    run = timeslice_level(prep, setup=reservation(kind))
    assert run.mean - alone(prep) == pytest.approx(added, rel=0.18)
    assert run.rates[0] == pytest.approx(2300, rel=0.05)


@pytest.mark.parametrize(
    ("lead", "switch_only", "x1", "x2"),
    [
        (100, 455, 350, 349),
        (200, 554, 764, 415),
        (300, 650, 835, 479),
        (500, 879, 1087, 685),
        (1000, 1353, 1570, 1209),
    ],
)
def test_hold_by_lead(lead: float, switch_only: float, x1: float, x2: float) -> None:
    for holds, measured in enumerate((switch_only, x1, x2)):
        assert timeslice_level(lead, holds=holds).mean == pytest.approx(measured, rel=0.11), f"hold x{holds}"


def test_a_single_hold_costs_two_switches_and_a_second_saves_them() -> None:
    base = alone(300)
    assert 340 <= timeslice_level(300, holds=1).mean - base <= 420
    assert timeslice_level(300, holds=2).mean - base <= 30


def test_a_single_hold_until_the_end_waits_out_the_slice() -> None:
    world = virtual.World()
    lc, be = v.Lc(world), v.Be(world)
    be.timeslice(1)
    lc.timeslice(100_000)
    world.run(50_000)
    world.submit(lc.side, virtual.HOLD, lc.FLAG, 1)
    world.run(world.now + 1000)
    seq = world.submit(lc.main, virtual.KERNEL, 1000)
    finished: list[float] = []
    world.when_done(lc.main, seq, lambda: finished.append(world.now))
    begin = world.now
    world.run(begin + 150_000)
    assert finished
    assert 95_000 <= finished[0] - begin <= 105_000
    world.close()


# The mean of the row 500 was measured out of line with its neighbours (1644, like 1000): rates only.
@pytest.mark.parametrize(
    ("be_slice", "rate", "mean"),
    [(2048, 1128, 2788), (1000, 1018, 1786), (500, 847, None), (200, 540, 923), (50, 90, 778)],
)
def test_two_be_by_slice(be_slice: int, rate: float, mean: float | None) -> None:
    run = co_run(bes=2, be_slice=be_slice, lc_slice=SECOND_US)
    for each in run.rates:
        assert each == pytest.approx(rate, rel=0.05, abs=20)
    if mean:
        assert run.mean == pytest.approx(mean, rel=0.06)


def test_two_be_at_one_microsecond_starve() -> None:
    run = co_run(bes=2, be_slice=1, lc_slice=SECOND_US)
    assert all(rate < 0.02 * BE_ALONE for rate in run.rates)
    assert run.mean == pytest.approx(786, rel=0.08)


def test_two_be_at_the_default_lose_a_tenth_to_switching() -> None:
    world = virtual.World()
    bes = [v.Be(world) for _ in range(2)]
    world.run(2_000_000)
    assert 0.88 <= sum(be.stats().kernels for be in bes) / 2 / BE_ALONE <= 0.93
    world.close()


def test_two_be_at_the_default() -> None:
    run = co_run(500, bes=2)
    assert run.mean == pytest.approx(3174, rel=0.05)
    assert run.p99 == pytest.approx(5448, rel=0.05)
    assert run.rates == pytest.approx([1095, 1094], rel=0.03)


def test_two_be_hold_and_restart_at_the_hint() -> None:
    def setup(world: virtual.World, lc: v.Lc, _: list[v.Be]) -> None:
        lc.on_hint = lambda: world.control(virtual.RESTART, [lc.group])

    run = co_run(500, bes=2, holds=2, lc_slice=SECOND_US, setup=setup)
    assert run.mean == pytest.approx(1787, rel=0.08)
    assert run.rates == pytest.approx([1065, 1072], rel=0.04)


@pytest.mark.parametrize(
    ("length", "holds", "mean", "rates"),
    [
        (20_000, 0, 851, [1149, 1153]),
        (20_000, 2, 683, [1110, 1113]),
        (50_000, 0, 844, [1195, 1154]),
        (50_000, 2, 689, [1152, 1114]),
    ],
)
def test_turns(length: float, holds: int, mean: float, rates: list[float]) -> None:
    run = timeslice_level(500, bes=2, holds=holds, setup=lambda world, _, bes: v.Turns(world, bes, length))
    assert run.mean == pytest.approx(mean, rel=0.04)
    assert run.rates == pytest.approx(rates, rel=0.04)


def test_turns_beat_the_default_for_everybody() -> None:
    default = co_run(500, bes=2)
    turns = timeslice_level(500, bes=2, holds=2, setup=lambda world, _, bes: v.Turns(world, bes, 50_000))
    assert turns.mean / alone(500) < 1.03
    assert sum(turns.rates) > sum(default.rates)


def test_realtime_makes_things_worse() -> None:
    run = co_run(setup=lambda world, lc, _: world.control(virtual.REALTIME, [lc.group], 1))
    assert run.mean == pytest.approx(2132, rel=0.06)
    assert run.mean > co_run().mean * 1.2


@pytest.mark.parametrize("kind", [virtual.INTERLEAVE, virtual.SCHEDULE])
def test_interleave_and_schedule_change_nothing(kind: int) -> None:
    default = co_run()
    changed = co_run(setup=lambda world, _, bes: world.control(kind, [bes[0].group], 0))
    assert changed.mean == pytest.approx(default.mean, rel=0.02)
    assert changed.rates == pytest.approx(default.rates, rel=0.01)


def kernels_in(world: virtual.World, be: v.Be, us: float) -> int:
    before = be.stats().kernels
    world.run(world.now + us)
    return int(be.stats().kernels - before)


def test_disable_stops_and_enable_resumes_with_the_state_intact() -> None:
    world = virtual.World()
    be = v.Be(world, kernel=8000)
    world.run(world.control(virtual.DISABLE, be.channels) + 4000)
    assert kernels_in(world, be, 50_000) == 0
    gpu_us = be.stats().gpu_ns / 1000
    world.run(world.control(virtual.ENABLE, be.channels))
    assert kernels_in(world, be, 80_000) == pytest.approx(10, abs=1)
    # The kernel that was cut off went on where it was: no GPU time was spent twice.
    done_us = be.stats().kernels * 8000
    assert 0 <= be.stats().gpu_ns / 1000 - done_us < 8000
    assert gpu_us > 0
    world.close()


def test_scheduling_only_disable_acts_at_the_next_switch() -> None:
    world = virtual.World()
    be, other = v.Be(world), virtual.Process(world)
    queue = other.stream()
    world.run(world.control(virtual.DISABLE_SCHEDULING, be.channels) + 5000)
    assert kernels_in(world, be, 40_000) == pytest.approx(100, abs=1)
    world.submit(queue, virtual.KERNEL, 100_000)
    world.run(world.now + 10_000)
    assert kernels_in(world, be, 40_000) == 0
    world.run(world.control(virtual.ENABLE_SCHEDULING, be.channels) + 2000)
    assert kernels_in(world, be, 40_000) == pytest.approx(100, abs=1)
    world.close()


@pytest.mark.parametrize("then", [virtual.DISABLE, virtual.DISABLE_SCHEDULING])
def test_a_channel_that_is_put_off_in_two_ways_is_stuck(then: int) -> None:
    """Measured: nothing made such a job work again, neither enabling it in any way nor preempting or restarting."""
    world = virtual.World()
    be, other = v.Be(world), virtual.Process(world)
    other.stream()
    world.run(world.control(virtual.DISABLE_SCHEDULING, be.channels))
    world.run(world.control(then, be.channels))
    for _ in range(2):
        world.run(world.control(virtual.ENABLE, be.channels) + 2000)
    expected = 100 if then == virtual.DISABLE_SCHEDULING else 0
    assert kernels_in(world, be, 40_000) == pytest.approx(expected, abs=1)
    world.close()


@pytest.mark.parametrize(("off", "expected"), [(virtual.DISABLE, 100), (virtual.DISABLE_SCHEDULING, 0)])
def test_the_last_one_that_is_taken_off_the_runlist_is_stuck(off: int, expected: int) -> None:
    """Seen, of two jobs alone: each was the last for the moment in which the other had its turn no more or not yet."""
    world = virtual.World()
    be = v.Be(world)
    world.run(world.control(off, be.channels))
    world.run(world.control(virtual.ENABLE, be.channels) + 2000)
    assert kernels_in(world, be, 40_000) == pytest.approx(expected, abs=1)
    world.close()


def test_preempt_is_one_shot() -> None:
    world = virtual.World()
    be = v.Be(world)
    switches = be.stats().switches
    world.run(world.control(virtual.PREEMPT, [be.group]) + 1000)
    assert be.stats().switches > switches
    assert kernels_in(world, be, 40_000) == pytest.approx(100, abs=1)
    world.close()


def test_controls_of_one_gpu_queue_behind_each_other() -> None:
    world = virtual.World(gpus=2)
    be, other = v.Be(world), v.Be(world, gpu=1)
    world.run(10_000)
    first = world.control(virtual.RESTART, [be.group]) - world.now
    second = world.control(virtual.RESTART, [be.group]) - world.now
    elsewhere = world.control(virtual.RESTART, [other.group], gpu=1) - world.now
    assert second == pytest.approx(2 * first)
    assert elsewhere == pytest.approx(first)
    world.close()


def test_two_runs_are_identical() -> None:
    assert co_run(bes=2, be_slice=200) == co_run(bes=2, be_slice=200)
