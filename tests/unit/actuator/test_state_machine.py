"""Whatever happens in whatever order: in the end every group is enabled, and every record makes sense."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gpsched.adaptive.actuator import GpuPlan, Mechanism, Role, Trigger, binary_path
from gpsched.adaptive.driver.status import code
from gpsched.adaptive.probes.events import Call, Hint, Kind
from tests.unit.actuator.rig import PREEMPT, RESTART, SWITCH, Rig, until


MECHANISMS = st.sampled_from(
    [
        Mechanism.NONE,
        Mechanism.DISABLE,
        Mechanism.DISABLE | Mechanism.START_ON_LAUNCH,
        Mechanism.DISABLE_SCHEDULING,
        Mechanism.DISABLE_SCHEDULING | Mechanism.PREEMPT | Mechanism.RESTART,
        Mechanism.HOLD,
        Mechanism.ORDER | Mechanism.START_ON_LAUNCH,
        Mechanism.ORDER | Mechanism.DISABLE,
        Mechanism.WHEN_IDLE | Mechanism.DISABLE,
    ]
)
STATUSES = st.sampled_from([code(name) for name in ("BUSY_RETRY", "TIMEOUT", "INVALID_STATE", "GPU_IS_LOST")])


class Life(RuleBasedStateMachine):
    library: Path

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.rig = Rig(Path(self.folder.name), self.library, best_effort=3)
        self.living = list(self.rig.be)
        self.publish(Mechanism.DISABLE, 3, 0, 20_000, 0, 0, 0, (0, 0), None)

    @rule(
        mechanism=MECHANISMS,
        jobs=st.integers(0, 3),
        turns=st.integers(0, 3),
        limit_us=st.integers(1, 30_000),
        quiet_us=st.integers(0, 3000),
        offset_us=st.integers(0, 3000),
        launch_within_us=st.integers(0, 3000),
        breaks=st.sampled_from([(0, 0), (2000, 5000)]),
        second=st.none() | st.tuples(st.integers(0, 1), st.sampled_from([0, 1000, 50_000])),
    )
    def publish(self, mechanism, jobs, turns, limit_us, quiet_us, offset_us, launch_within_us, breaks, second):
        """``second``: rank and due time of the last job, which is latency-critical then."""
        members = [self.rig.member(self.rig.lc)]
        members += [self.rig.member(pid, turn=index) for index, pid in enumerate(self.living[:jobs])]
        plan = self.rig.plan(
            mechanism,
            trigger=Trigger(offset_us=offset_us),  # any event
            limit_us=limit_us,
            quiet_us=quiet_us,
            launch_within_us=launch_within_us,
        )
        plans = [plan]
        if second and jobs:
            last = members.pop()
            members.append(replace(last, role=Role.LC, waits=True))
            plans.append(replace(plan, pid=last.pid, rank=second[0], due_us=second[1]))
        gpu = GpuPlan((2000, 3000, 4000)[:turns], break_us=breaks[0], break_every_us=breaks[1])
        self.rig.publish(*plans, members=members, gpus=(gpu,))

    @rule(kind=st.sampled_from([Kind.CUDA_ENTER, Kind.CUDA_RETURN]), call=st.sampled_from(list(Call)))
    def call(self, kind, call):
        self.rig.event(kind, call, is_async=call in (Call.LAUNCH, Call.GRAPH_LAUNCH))

    @rule(hint=st.sampled_from(list(Hint)), in_us=st.sampled_from([0, 1000, 2**63]))
    def hint(self, hint, in_us):
        self.rig.event(Kind.HINT, hint, handle=in_us)

    @rule(end=st.booleans(), own=st.booleans())
    def burst(self, end, own):
        pid = self.rig.lc if own else self.living[-1]
        self.rig.launch(pid=pid)
        if end:
            self.rig.sync(pid=pid)

    @rule(status=STATUSES, times=st.integers(1, 6), command=st.sampled_from([SWITCH, PREEMPT, RESTART, 0]))
    def the_driver_fails(self, status, times, command):
        self.rig.fail(status, times=times, command=command)

    @rule(cost_us=st.sampled_from([0, 300, 2000]))
    def the_driver_is_slow(self, cost_us):
        self.rig.rm.cost_us = cost_us

    @precondition(lambda self: len(self.living) > 1)
    @rule()
    def a_job_exits(self):
        self.rig.exit(self.living.pop())

    @invariant()
    def it_lives(self):
        assert self.rig.actuator.alive
        self.rig.actuator.check()

    def teardown(self):
        rig = self.rig
        try:
            rig.rm.fail_count = 0
            rig.publish(members=[rig.member(rig.lc)])
            until(lambda: rig.actuator.counters().disabled == 0)
            until(lambda: not any(map(rig.is_disabled, [rig.lc, *self.living])))
            for record in rig.actuator.records():
                times = (record.begin_ns, record.ready_ns, record.end_ns, record.undone_ns)
                happened = [time for time in times if time]
                assert happened == sorted(happened)
                assert record.end_ns
            assert rig.actuator._process.poll() is None
        finally:
            rig.close()
            self.folder.cleanup()


def test_lives(fake_rm):
    if not binary_path().exists():
        pytest.skip(f"{binary_path()} is not built; run: make native")
    Life.library = fake_rm
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        Life, settings=settings(max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=checks)
    )
