"""Second by second: who needs how much of a GPU, and what follows for plans, slices, and what people are told."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpsched.adaptive.actuator.plans import Mechanism, PlanSet
from gpsched.adaptive.actuator.records import Reason, Record
from gpsched.adaptive.config import Admission, Config, Policy, Reservations, Timeslice
from gpsched.adaptive.contention import Contention
from gpsched.adaptive.driver.types import ChannelGroup
from gpsched.adaptive.hints.bursts import Burst
from gpsched.adaptive.model import Class
from gpsched.adaptive.policy import plans
from gpsched.adaptive.policy.timeslice import decide
from gpsched.adaptive.probes.events import Hint, HintEvent, Kind, ProcFork
from gpsched.adaptive.workloads.procinfo import ProcessInfo
from gpsched.adaptive.workloads.registry import Group, Process, Registry
from tests.unit.node.test_node import Machine


def _process(pid: int, class_: Class, *gpus: int) -> Process:
    info = ProcessInfo(
        pid=pid, start_ticks=1, parent=1, name="p", exe="", command="", user="a", cgroup="/", container=None, env={}
    )
    process = Process(info, class_, "run", "a", since=float(pid))
    for gpu in gpus or (0,):
        group = ChannelGroup(client=gpu, handle=1, engine="compute", gpu_id=gpu)
        process.groups[group.key] = Group(group)
    return process


class Watch:
    """A registry, and seconds in which its processes are busy for some share."""

    def __init__(self, *processes: Process, config: Config | None = None) -> None:
        self.now_us, self.config = 0.0, config or Config()
        self.registry = Registry()
        for process in processes:
            self.registry.put(process)
        self.contention = Contention(self.registry, clock=lambda: self.now_us)

    def second(self, shares: dict[int, float], bursts: int = 20) -> bool:
        """Pass a second: the bursts of several come one after another, as on a GPU."""
        start = self.now_us
        for index in range(bursts):
            time = start + index * 1e6 / bursts
            for pid, share in shares.items():
                self.contention.began(pid, time)
                self.contention.ended(pid, Burst(time, time + share * 1e6 / bursts, 1, "sync"))
                time += share * 1e6 / bursts
        self.now_us += 1e6
        return self.contention.update(self.config, {})

    def seconds(self, count: int, shares: dict[int, float]) -> None:
        for _ in range(count):
            self.second(shares)

    def restraint(self, pid: int) -> str:
        process = self.registry.get(pid)
        assert process is not None
        return process.restraint

    def stands_in(self, pid: int) -> Class | None:
        process = self.registry.get(pid)
        assert process is not None
        return process.stand_in


@pytest.mark.parametrize(("action", "stand_in"), [("observe", "unmanaged"), ("be", "be"), ("off", None)])
def test_who_does_not_fit_becomes_what_is_configured(action: str, stand_in: Class | None) -> None:
    config = Config(admission=Admission(action=action))  # type: ignore[arg-type]
    watch = Watch(_process(1, "lc"), _process(2, "lc"), config=config)
    watch.seconds(8, {1: 0.5, 2: 0.49})
    assert (watch.stands_in(1), watch.stands_in(2)) == (None, stand_in)
    assert ("not admitted: needs 49% of the GPU" in watch.restraint(2)) == (stand_in is not None)


def test_the_processes_of_one_service_are_not_each_others_excess() -> None:
    processes = [_process(pid, "lc") for pid in (1, 2, 3)]
    for process in processes[:2]:
        process.service = "one"
    watch = Watch(*processes)
    watch.seconds(8, {1: 0.5, 2: 0.49})
    assert [watch.stands_in(pid) for pid in (1, 2, 3)] == [None, None, None]
    watch.seconds(8, {1: 0.5, 2: 0.3, 3: 0.19})
    assert [watch.stands_in(pid) for pid in (1, 2, 3)] == [None, None, "unmanaged"]


def test_a_process_on_two_gpus_must_fit_on_both() -> None:
    watch = Watch(_process(1, "lc", 0), _process(2, "lc", 0, 1), _process(3, "lc", 1))
    watch.seconds(8, {1: 0.2, 2: 0.4})
    assert watch.stands_in(2) is None
    for _ in range(8):
        watch.second({2: 0.45, 3: 0.5})
    assert (watch.stands_in(2), watch.stands_in(3)) == (None, "unmanaged")


def test_best_effort_work_gets_its_floor_where_a_service_never_rests() -> None:
    watch = Watch(_process(1, "lc"), _process(2, "be"), _process(3, "lc", 1))
    watch.seconds(2, {1: 0.99, 3: 0.99})
    assert watch.contention.situation(watch.config).crowded == {0: 0.1}
    assert "it always has work: no reservations" in watch.restraint(1)
    assert watch.restraint(3) == ""  # nobody there whom it could starve
    watch.seconds(2, {1: 0.5})
    assert watch.contention.situation(watch.config).crowded == {}
    assert watch.restraint(1) == ""


def test_a_burst_without_end_is_crowding_too() -> None:
    watch = Watch(_process(1, "lc"), _process(2, "be"))
    watch.contention.began(1, 0.0)
    watch.seconds(4, {})
    assert watch.contention.situation(watch.config).crowded == {0: 0.1}


def test_what_reserves_too_much_is_told_and_forgiven() -> None:
    watch = Watch(_process(1, "lc"), _process(2, "be"), config=Config(reservations=Reservations(max_per_second=100)))
    for _ in range(2):
        for _ in range(500):
            watch.contention.asked(1)
        watch.second({1: 0.1})
    assert "asked for 500 a second" in watch.restraint(1)
    watch.seconds(11, {1: 0.1})
    assert watch.restraint(1) == ""


def _record(pid: int, begin_us: float, end_us: float) -> Record:
    ns = {"begin_ns": round(begin_us * 1000), "ready_ns": round(begin_us * 1000), "end_ns": round(end_us * 1000)}
    return Record(
        **ns,  # type: ignore[arg-type]
        sequence=1,
        trigger_ns=0,
        launch_ns=0,
        undone_ns=0,
        pid=pid,
        gpu=0,
        trigger=0,
        reason=Reason.NO_LAUNCH,
        merged=0,
        controls=0,
        failures=0,
        last_status=0,
    )


def test_reservations_for_nothing_are_counted() -> None:
    watch = Watch(_process(1, "lc"), _process(2, "be"))
    for second in range(2):
        watch.contention.reserved(_record(1, second * 1e6 + 1, second * 1e6 + 300_000))
        watch.second({})
    assert "left the GPU idle for 30% of the time" in watch.restraint(1)


def test_lengths_of_bursts_are_steady() -> None:
    watch = Watch(_process(1, "lc"), _process(2, "lc"))
    watch.second({1: 0.2})
    before = watch.contention.situation(watch.config).burst_us
    assert before[1] == pytest.approx(10_000)
    assert not watch.second({1: 0.21})  # no news
    assert watch.contention.situation(watch.config).burst_us == before


def test_a_job_is_idle_when_it_calls_nothing_any_more() -> None:
    watch = Watch(_process(1, "be"), _process(2, "be"), _process(3, "be"))
    for second in range(15):
        watch.contention.called(1, second)  # always busy
        watch.contention.called(2, min(second, 2))
        watch.contention.called(3, 7)  # nothing was ever seen of it: its libcuda may be unknown
        watch.second({})
    assert watch.contention.situation(watch.config).idle == {2}
    watch.contention.called(2, 3)
    assert watch.contention.situation(watch.config).idle == frozenset()


def test_who_is_forgotten_leaves_nothing() -> None:
    watch = Watch(_process(1, "lc"), _process(2, "lc"))
    watch.seconds(8, {1: 0.5, 2: 0.49})
    process = watch.registry.remove(2)
    assert process is not None
    watch.contention.forget(2)
    watch.seconds(1, {1: 0.5})
    watch.registry.put(process)
    watch.seconds(1, {1: 0.5})
    assert watch.stands_in(2) is None


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def _attach(machine: Machine, class_: str, **terms: object) -> int:
    pid = machine.process()
    machine.node.attach(pid, class_, terms.pop("slo_us", None), None, starting=True, **terms)  # type: ignore[arg-type]
    machine.context(pid)
    return pid


def _reason(machine: Machine, pid: int) -> str:
    return next(view.reason for view in machine.node.views() if view.pid == pid)


def test_the_node_switches_the_order_live(machine: Machine) -> None:
    first = _attach(machine, "lc", slo_us=2_000.0, weight=1.0)
    second = _attach(machine, "lc", slo_us=9_000.0, priority=5, weight=3.0)
    slices = lambda: (machine.slice(first), machine.slice(second))  # noqa: E731
    assert slices() == (1_000_000, 1)  # by deadline, and without best-effort work the other can give way at once
    assert "by objective: 1 before it" in _reason(machine, second)
    machine.node.reconfigure(Config(policy=Policy(order="priority")))
    machine.node.apply()
    assert slices() == (1, 1_000_000)
    machine.node.reconfigure(Config(policy=Policy(order="share")))
    machine.node.apply()
    assert slices() == (2_000, 6_000)
    be = machine.start("be")
    machine.node.reconfigure(Config())
    machine.node.apply()
    assert (*slices(), machine.slice(be)) == (1_000_000, 1_000, 1)
    machine.node.detach(first)
    assert slices() == (2048, 1_000_000)  # what it had; and the other is alone


@pytest.mark.parametrize(("stand_in", "us", "level"), [("be", 1, "timeslice"), ("unmanaged", 2048, "observe")])
def test_who_is_not_admitted_is_treated_so_and_says_why(machine: Machine, stand_in: Class, us: int, level: str) -> None:
    first, second = _attach(machine, "lc"), _attach(machine, "lc")
    process = machine.node.registry.get(second)
    assert process is not None
    process.stand_in, process.restraint = stand_in, "not admitted: because"
    machine.node.apply()
    assert machine.slice(second) == us
    view = next(view for view in machine.node.views() if view.pid == second)
    assert (view.class_, view.level) == ("lc", level)
    assert "not admitted: because" in view.reason
    assert machine.slice(first) == 1_000_000  # it runs to the end of its burst


def test_what_was_learned_outlives_a_detach(machine: Machine) -> None:
    pid = _attach(machine, "lc")
    learner = machine.node.steering.learners.of(pid)
    machine.node.detach(pid)
    machine.node.attach(pid, "lc", None, None, starting=True)
    assert machine.node.steering.learners.of(pid) is learner
    machine.node.detach(pid)
    machine.node.attach(pid, "be", None, None, starting=True)  # another class has no use for it
    assert machine.node.steering.learners.of(pid) is None


def test_children_inherit_their_place(machine: Machine) -> None:
    parent = _attach(machine, "lc", priority=7, weight=2.0)
    child = machine.process()
    machine.node.handle(ProcFork(0, child, child, parent, "child"))
    process = machine.node.registry.get(child)
    assert process is not None
    assert (process.priority, process.weight, process.family) == (7, 2.0, str(parent))


def test_what_was_not_admitted_counts_for_the_floor() -> None:
    """It has its own slices, and takes GPU time with them."""
    watch = Watch(_process(1, "lc"), _process(2, "lc"), _process(3, "be"))
    watch.seconds(8, {1: 0.5, 2: 0.49})
    assert watch.stands_in(2) == "unmanaged"
    assert watch.contention.situation(watch.config).crowded == {0: 0.1}


@pytest.mark.parametrize(
    ("settings", "weights", "together"),
    [
        (Reservations(), (1.0, 1.0), False),
        (Reservations(turns="never"), (1.0, 1.0), True),
        (Reservations(turns="never", be_share=0.5), (1.0, 1.0), False),
        (Reservations(turns="never"), (3.0, 1.0), False),
    ],
)
def test_jobs_take_turns_unless_they_are_not_to_and_no_shares_are_asked_for(
    settings: Reservations, weights: tuple[float, float], together: bool
) -> None:
    lc, *be = (_process(1, "lc"), _process(2, "be"), _process(3, "be"))
    for process, weight in zip(be, weights, strict=True):
        process.weight = weight
    watch = Watch(lc, *be, config=Config(reservations=settings))
    watch.second({1: 0.1})
    assert watch.contention.together == ({0: 200} if together else {})
    situation = watch.contention.situation(watch.config)
    assert situation.together == watch.contention.together
    plan = plans.build(list(watch.registry), {}, settings, situation=situation).gpus[0]
    assert bool(plan.turns_us) is not together
    slices = {
        decision.timeslice_us
        for (pid, _), decision in decide([lc, *be], Timeslice(), (), {}, situation).items()
        if pid > 1
    }
    assert (slices == {200}) is together


@pytest.fixture
def planned(machine: Machine) -> Iterator[list[PlanSet]]:
    """The plans that the machine's node publishes, to an actuator that only takes them."""
    published: list[PlanSet] = []
    reader, writer = os.pipe()
    actuator = SimpleNamespace(pid=1, fileno=lambda: reader, records=list, stop=lambda: None, publish=published.append)
    machine.probes.send_fast = lambda *_args, **_named: None  # type: ignore[method-assign]
    machine.node.steering.execution.start = lambda _files, _ring: actuator  # type: ignore[assignment,return-value]
    yield published
    os.close(reader)
    os.close(writer)


def test_a_program_that_announces_its_bursts_itself_gets_a_level_for_it(
    machine: Machine, planned: list[PlanSet]
) -> None:
    lc, _ = machine.start("lc"), machine.start("be")
    machine.node.handle(HintEvent(time.monotonic_ns(), lc, lc, Hint.RESERVE, 1_000))
    machine.node.follow()
    process = machine.node.registry.get(lc)
    assert process is not None
    assert process.level == "reserve"
    (plan,) = planned[-1].plans
    assert [trigger.kind for trigger in plan.triggers] == [Kind.HINT]


def test_reservations_lost_are_out_of_the_plans_and_come_back(machine: Machine, planned: list[PlanSet]) -> None:
    lc, _ = machine.start("lc"), machine.start("be")
    machine.node.handle(HintEvent(time.monotonic_ns(), lc, lc, Hint.RESERVE, 1_000))
    machine.node.follow()
    assert planned[-1].plans
    process = machine.node.registry.get(lc)
    assert process is not None
    process.restraint = "has no reservations: it asked too often"
    machine.node.apply()
    assert (planned[-1].plans, process.level) == ((), "timeslice")
    assert "it asked too often" in _reason(machine, lc)
    process.restraint = ""
    machine.node.apply()
    assert planned[-1].plans


def test_channels_of_a_service_that_may_be_kept_off_are_on_disk(machine: Machine, planned: list[PlanSet]) -> None:
    """Should everybody be killed while it is off, ``gpsched restore`` and the next start know of it."""
    first, second = _attach(machine, "lc", slo_us=2_000.0), _attach(machine, "lc", slo_us=9_000.0)
    on_disk = lambda: {each.pid for each in machine.undo.pending() if each.kind == "channels"}  # noqa: E731
    assert on_disk() == set()
    machine.node.steering.contention._lengths = {first: 5_000.0, second: 5_000.0}
    machine.node.apply()
    orders = {plan.pid: bool(plan.mechanism & Mechanism.ORDER) for plan in planned[-1].plans}
    assert orders == {first: False, second: True}  # the second gives way at once by its slice; the first does not
    assert on_disk() == {first, second}
    machine.node.reconfigure(Config(policy=Policy(order="share")))
    machine.node.apply()
    assert planned[-1].plans == ()
    assert on_disk() == set()
