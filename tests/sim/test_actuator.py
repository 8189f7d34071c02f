"""The actuator and the hold agent on the embedded GPU, with unmodified programs."""

import os
import signal
import time
from pathlib import Path

import pytest

from gpsched.adaptive.actuator import Mechanism, Reason, Trigger
from gpsched.adaptive.actuator.slots import find_agent
from gpsched.adaptive.agent import environment, library_path
from gpsched.adaptive.probes.events import Call, Kind
from gpsched.adaptive.probes.probes import Probes
from tests.sim.actuator_bed import BE_US, LC_US, OWN_US, Bed, until


pytestmark = [pytest.mark.sim, pytest.mark.root, pytest.mark.bpf]


@pytest.fixture
def make_bed(two_gpus):
    beds = []

    def make(jobs=1, **options):
        bed = Bed(two_gpus, jobs, **options)
        beds.append(bed)
        bed.start()
        return bed

    yield make
    for bed in beds:
        bed.close()


def test_a_reservation_stops_best_effort_work_until_it_ends(make_bed):
    bed = make_bed(jobs=2)
    bed.publish(bed.plan())
    assert len(bed.working()) == 2
    bed.reserve()
    assert bed.working() == []
    (record,) = until(bed.actuator.records)
    assert record.reason is Reason.LIMIT
    assert len(bed.working()) == 2
    assert [job.finish()["bad_counters"] for job in bed.jobs] == [0, 0]


def test_turns_give_each_job_the_gpu_alone(make_bed):
    bed = make_bed(jobs=2)
    bed.set_slices()
    bed.publish(turns_us=(50_000, 50_000))
    seen = set()
    for _ in range(30):
        seen.add(tuple(bed.working()))
        if {(bed.jobs[0].pid,), (bed.jobs[1].pid,)} <= seen:
            break
    assert {(bed.jobs[0].pid,), (bed.jobs[1].pid,)} <= seen
    bed.set_slices(OWN_US, OWN_US)  # two enabled jobs starve each other with slices of 1 µs
    bed.publish()
    until(lambda: bed.actuator.counters().disabled == 0)
    assert [job.finish()["bad_counters"] for job in bed.jobs] == [0, 0]


@pytest.fixture(scope="module")
def probes(two_gpus):
    probes = Probes()
    probes.load(lambda _event: None)
    probes.attach_file(str(two_gpus.directory / "lib" / "libcuda.so.1"))
    assert probes.wait_attached(60)
    yield probes
    probes.close()


def watch(bed, probes):
    """Uprobes on the real entry points, the actuator's own ring buffer: the whole fast way."""
    probes.manage(bed.service.pid, "lc")
    probes.send_fast(bed.service.pid, True)
    bed.actuator.add_ring(probes.fast_ring)


def test_a_hint_from_the_kernel_reserves_without_the_daemon(make_bed, probes):
    bed = make_bed(options=("--prep-us", "500"))
    watch(bed, probes)
    bed.publish(bed.plan(trigger=Trigger(kind=Kind.CUDA_ENTER, call=Call.COPY_H2D)))
    bed.requests(5, announced=False)
    records = bed.actuator.records()
    assert [record.reason for record in records] == [Reason.SYNC] * 5
    assert all(record.trigger_ns < record.launch_ns < record.end_ns for record in records)
    assert all(record.controls for record in records)
    assert probes.lost_fast() == 0


@pytest.fixture
def hold_bed(make_bed, probes):
    if not library_path().exists():
        pytest.skip(f"{library_path()} is not built; run: make native")
    bed = make_bed(lc_env=environment(), options=("--prep-us", "500"))
    watch(bed, probes)
    bed.set_slices()
    until(lambda: page(bed)[8] == 1)  # ready
    return bed


def page(bed):
    found = find_agent(bed.service.pid)
    if found is None:
        return [0] * 12
    _, file = found
    try:
        return [int.from_bytes(os.pread(file, 4, 4 * index), "little") for index in range(12)]
    finally:
        os.close(file)


def test_holds_hide_the_switch(hold_bed):
    """The luckier half, since the test shares its machine with others and a late hint hides nothing."""
    hold_bed.publish(hold_bed.plan(Mechanism.NONE))
    hold_bed.requests(20)
    without = hold_bed.waits()
    hold_bed.publish(hold_bed.plan(Mechanism.HOLD))
    hold_bed.requests(20)
    held = hold_bed.waits()
    assert held[len(held) // 4] * 3 < without[len(without) // 4]
    assert page(hold_bed)[9] >= 10  # launched
    assert page(hold_bed)[10] == 0  # failures


def test_the_agents_own_launches_are_not_bursts(hold_bed):
    """They come at once; the program's first one only after its preparation, which is busy waiting."""
    hold_bed.publish(hold_bed.plan(Mechanism.HOLD))
    hold_bed.requests(5)
    records = hold_bed.actuator.records()
    assert [record.reason for record in records] == [Reason.SYNC] * 5
    assert all(record.lead_us >= hold_bed.us(450) for record in records)


def test_a_hold_whose_actuator_died_ends_at_its_limit(hold_bed):
    hold_bed.publish(hold_bed.plan(Mechanism.HOLD, limit_us=40_000))
    hold_bed.announce()
    until(lambda: page(hold_bed)[9] == 1)
    os.kill(hold_bed.actuator.pid, signal.SIGKILL)
    until(hold_bed.working)
    assert page(hold_bed)[4] == 0  # released by its limit, not by anybody


def test_a_hold_without_burst_ends_at_its_limit(hold_bed):
    hold_bed.publish(hold_bed.plan(Mechanism.HOLD, limit_us=20_000))
    hold_bed.announce()
    (record,) = until(hold_bed.actuator.records)
    assert record.reason is Reason.LIMIT
    until(hold_bed.working)
    assert page(hold_bed)[4] == 1  # released


LAUNCHED = [(Kind.CUDA_ENTER, Call.GRAPH_LAUNCH), (Kind.CUDA_RETURN, Call.GRAPH_LAUNCH)]


@pytest.mark.parametrize(
    "calls",
    [
        LAUNCHED,
        [(Kind.CUDA_ENTER, Call.LAUNCH), (Kind.CUDA_ENTER, Call.COPY_D2H)],
        [(Kind.CUDA_ENTER, Call.LAUNCH), (Kind.CUDA_RETURN, Call.EVENT_QUERY)],
    ],
    ids=["calls nothing more", "may wait in a copy", "polls"],
)
def test_a_hold_ends_when_all_is_queued_though_no_wait_is_seen(hold_bed, calls):
    hold_bed.publish(hold_bed.plan(Mechanism.HOLD, limit_us=4_000_000))
    hold_bed.announce()
    until(lambda: page(hold_bed)[9] == 1)
    for kind, call in calls:
        hold_bed.call(kind, call)
    until(lambda: page(hold_bed)[4] == 1)
    assert hold_bed.actuator.records() == []  # the reservation goes on
    until(hold_bed.working)


def test_a_hold_stays_while_the_program_goes_on_calling(hold_bed):
    hold_bed.publish(hold_bed.plan(Mechanism.HOLD, limit_us=4_000_000))
    hold_bed.announce()
    until(lambda: page(hold_bed)[9] == 1)
    for kind, call in [*LAUNCHED, (Kind.CUDA_ENTER, Call.COPY_H2D)]:
        hold_bed.call(kind, call)
    time.sleep(0.2)
    assert page(hold_bed)[4] == 0


def test_a_program_with_an_agent_that_nobody_uses_is_as_without(make_bed):
    bed = make_bed(jobs=0, lc_env=environment())
    bed.requests(3, announced=False)


def test_a_job_that_exits_while_disabled_leaves_nothing_behind(make_bed):
    bed = make_bed(jobs=2)
    bed.publish(bed.plan(limit_us=2_000_000))
    bed.reserve()
    os.kill(bed.jobs[0].pid, signal.SIGKILL)
    until(lambda: bed.actuator.counters().disabled == 1)
    held = [link.readlink().name for link in Path(f"/proc/{bed.actuator.pid}/fd").iterdir()]
    assert held.count("nvidiactl") == 2  # the service's and the other job's


def test_slices_stay_as_the_daemon_set_them(make_bed):
    bed = make_bed()
    bed.set_slices()
    bed.publish(bed.plan(limit_us=20_000))
    bed.reserve()
    until(bed.actuator.records)
    assert bed.slices() == [LC_US, BE_US]
