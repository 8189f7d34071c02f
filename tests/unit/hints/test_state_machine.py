"""Whatever is observed, in whatever order: memory is bounded, no lead is negative, the choice is valid."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gpsched.adaptive.hints.candidates import CandidateTable
from gpsched.adaptive.hints.leads import LeadWindow
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import (
    Copy,
    EventRecord,
    Explicit,
    Launch,
    Lost,
    Observation,
    SyncEnter,
    SyncReturn,
    SyncScope,
    Tick,
    Wake,
    WakeKind,
)
from gpsched.adaptive.hints.outputs import BurstBegan, BurstEnded, ChoiceChanged, Reserve
from gpsched.adaptive.hints.reservations import Reservations


TIDS = st.integers(1, 4)
HANDLES = st.integers(0, 4)
STEPS = st.one_of(st.floats(0.0, 2_000.0), st.floats(0.0, 300_000.0), st.just(-30.0))
WAKES = st.sampled_from([kind for kind in WakeKind if kind <= WakeKind.FUTEX])


class Learning(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.learner = HintLearner()
        self.now = 1e6
        self.began = 0
        self.ended = 0

    def feed(self, observation: Observation) -> None:
        for output in self.learner.observe(observation):
            if isinstance(output, Reserve):
                assert output.until_us >= output.start_us
            elif isinstance(output, BurstBegan):
                self.began += 1
                assert output.reserved_us is None or output.reserved_us >= 0.0
            elif isinstance(output, BurstEnded):
                self.ended += 1
                assert output.burst.end_us >= output.burst.start_us
                assert output.burst.launches >= 1
            elif isinstance(output, ChoiceChanged):
                assert output.choice == self.learner.chosen()

    def pass_time(self, step: float) -> float:
        self.now += step
        return self.now

    @rule(step=STEPS, tid=TIDS, kind=WAKES, descriptor=st.integers(-1, 6), size=st.integers(-1, 20))
    def wake(self, step: float, tid: int, kind: WakeKind, descriptor: int, size: int) -> None:
        self.feed(Wake(self.pass_time(step), tid, kind, descriptor, size))

    @rule(step=STEPS, tid=TIDS, stream=HANDLES, copies=st.booleans())
    def request(self, step: float, tid: int, stream: int, copies: bool) -> None:
        """What programs do most: read, prepare, launch, synchronise."""
        start = self.pass_time(step)
        self.feed(Wake(start, tid, WakeKind.SOCKET_READ, 3, 9))
        if copies:
            self.feed(Copy(start + 700.0, tid, stream, to_device=True, size=12))
        self.feed(Launch(start + 800.0, tid, stream))
        self.feed(SyncEnter(start + 810.0, tid))
        self.feed(SyncReturn(start + 1_200.0, tid, SyncScope.STREAM, stream))
        self.now = start + 1_200.0

    @rule(step=STEPS, tid=TIDS, stream=HANDLES)
    def launch(self, step: float, tid: int, stream: int) -> None:
        self.feed(Launch(self.pass_time(step), tid, stream))

    @rule(step=STEPS, tid=TIDS, scope=st.sampled_from(SyncScope), handle=HANDLES, enters=st.booleans())
    def synchronise(self, step: float, tid: int, scope: SyncScope, handle: int, enters: bool) -> None:
        if enters:
            self.feed(SyncEnter(self.now, tid))
        self.feed(SyncReturn(self.pass_time(step), tid, scope, handle))

    @rule(step=STEPS, tid=TIDS, event=HANDLES, stream=HANDLES)
    def record(self, step: float, tid: int, event: int, stream: int) -> None:
        self.feed(EventRecord(self.pass_time(step), tid, event, stream))

    @rule(step=STEPS, tid=TIDS, in_us=st.floats(0.0, 5_000.0), cancel=st.booleans())
    def hint(self, step: float, tid: int, in_us: float, cancel: bool) -> None:
        self.feed(Explicit(self.pass_time(step), tid, in_us, cancel))

    @rule(step=STEPS)
    def tick(self, step: float) -> None:
        self.feed(Tick(self.pass_time(step)))

    @rule()
    def lose(self) -> None:
        self.feed(Lost(self.now))

    @rule(step=st.sampled_from([-1e9, 1e9]))
    def step_clock(self, step: float) -> None:
        self.now = max(self.now + step, 1.0)
        self.feed(Tick(self.now))

    @invariant()
    def memory_is_bounded(self) -> None:
        table = self.learner._table
        assert len(table) <= CandidateTable.CANDIDATES
        assert all(len(pending) <= CandidateTable.PENDING for pending in table._pending.values())
        assert len(self.learner._reservations.kept()) <= Reservations.OPEN

    @invariant()
    def no_lead_is_negative(self) -> None:
        for _, window in self.learner._table.windows():
            bursts = [burst for _, burst in window.occurrences()]
            assert len(bursts) <= LeadWindow.SIZE
            assert all(lead >= 0.0 for lead, _ in window.occurrences())
            assert bursts == sorted(bursts)

    @invariant()
    def the_choice_is_valid(self) -> None:
        choice = self.learner.chosen()
        assert choice.why
        assert bool(choice.triggers) == (choice.state in ("sure", "explicit"))
        for trigger in choice.triggers:
            assert trigger.limit_us > max(trigger.offset_us, 0.0)
            assert 0.0 <= trigger.precision <= 1.0
            assert 0.0 <= trigger.recall <= 1.0
        assert 0.0 <= choice.quiet_us <= 5_000.0
        assert 10_000.0 <= choice.burst_limit_us <= 1_000_000.0

    @invariant()
    def bursts_begin_and_end_in_turn(self) -> None:
        assert 0 <= self.began - self.ended <= 1

    def teardown(self) -> None:
        report = self.learner.report()
        assert report.outcome.bursts == self.began
        assert report.outcome.reserved <= report.outcome.bursts
        assert report.outcome.waste_us >= 0.0


TestLearning = Learning.TestCase
TestLearning.settings = settings(
    max_examples=30, stateful_step_count=80, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
