"""Follows the reservations that a choice leads to: which bursts they served, what they hid and wasted, and drift.

This is the same bookkeeping that the actuator does on its plans; here it tells the learner how good its choice is, and
lets a daemon without an actuator reserve by the learner's outputs.
"""

from collections import deque

from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.model import Outcome, Past, Result, Trigger
from gpsched.adaptive.hints.observations import WakeKind


class Window:
    """One reservation that waits for its burst. µs."""

    __slots__ = ("occurred_us", "start_us", "tid", "trigger", "until_us")

    def __init__(self, occurred_us: float, start_us: float, until_us: float, trigger: Trigger, tid: int | None) -> None:
        self.occurred_us, self.start_us, self.until_us, self.trigger = occurred_us, start_us, until_us, trigger
        self.tid = tid  # only this thread's launch claims it


class Reservations:
    """The open windows and what became of the earlier ones."""

    OPEN = 64
    SHOWN = 32
    _RECENT = 16  # outcomes that drift is judged by
    _DRIFT = 5  # bad ones among them: far more than the 1 % that are expected
    _COMPANIONS = 32
    _TRUSTED = 0.95
    _HASTY = 1.5  # limits after its trigger: a burst that comes then was announced all the same
    _FORGIVEN = 8  # of those in a row

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.expected_recall = 0.0
        self.hasty = False
        self._forgiven = 0
        self._stopped = False  # a reservation was in vain since the last burst
        self._given_up: Window | None = None
        self._windows: deque[Window] = deque()
        self._recent: deque[Result] = deque(maxlen=self._RECENT)
        self._announced: deque[bool] = deque(maxlen=self._RECENT * 2)
        self._companion: Window | None = None
        self._followed: deque[bool] = deque(maxlen=self._COMPANIONS)
        self._bursts = self._reserved = self._in_time = self._made = self._false = 0
        self._hidden = self._unhidden = self._waste = 0.0
        self._past: deque[Past] = deque(maxlen=self.SHOWN)
        self._history: deque[tuple[float, float]] = deque(maxlen=64)  # time and waste so far at each burst
        self._began_us = self._now_us = 0.0

    @property
    def keep_companions(self) -> bool:
        """Whether a wake too young to have caused a burst reliably announces the next one."""
        reliable = len(self._followed) >= 8 and sum(self._followed) >= self._TRUSTED * len(self._followed)
        return reliable and self.recent_waste_share <= self.costs.waste_budget

    @property
    def recent_waste_share(self) -> float:
        """Share of GPU time wasted over the last bursts."""
        if not self._history:
            return 0.0
        since, before = self._history[0]
        return (self._waste - before) / max(self._now_us - since, 1.0)

    def waiting(self, now_us: float) -> bool:
        """Whether a trigger has occurred and its burst has yet to come."""
        return any(window.occurred_us <= now_us for window in self._windows)

    def kept(self) -> list[Window]:
        """Return the open windows."""
        return list(self._windows)

    def open(
        self, occurred_us: float, start_us: float, until_us: float, trigger: Trigger, tid: int | None = None
    ) -> None:
        """A trigger occurred (or will, for the clock): a reservation waits from ``start_us`` to ``until_us``."""
        if len(self._windows) >= self.OPEN:
            self._windows.popleft()
        begin_us = max(start_us, occurred_us + self.costs.of(trigger.matcher.kind).wake_us)
        self._windows.append(Window(occurred_us, begin_us, until_us, trigger, tid))

    def follow(self, tid: int) -> bool:
        """Thread ``tid`` launches within a burst: what waited for it is served; True when that was anything."""
        if not self._windows:
            return False
        before = len(self._windows)
        self._windows = deque(window for window in self._windows if window.tid != tid)
        return len(self._windows) < before

    def launch(self, time_us: float, gap_us: float, tid: int, *, queued: bool = False) -> float | None:
        """A burst begins, ``gap_us`` after the last; return how long it has been reserved for, None when it was not.

        ``queued``: nothing woke the process since the last burst, so that nothing could announce this one. ``hasty``
        tells then whether a reservation for it was given up shortly before it came.
        """
        self._began_us = self._began_us or time_us
        self._now_us = time_us
        self.expire(time_us)
        self._stopped = False
        causes: list[Window] = []
        companions: list[Window] = []
        ahead: list[Window] = []  # for a later burst: of the clock, and of other threads
        for window in self._windows:
            age = time_us - window.occurred_us
            if age < 0.0 or window.tid not in (None, tid):
                ahead.append(window)
            else:
                (companions if _is_companion(window, age) else causes).append(window)
        if not causes:
            causes, companions = companions, []
        margin = max((time_us - window.start_us for window in causes), default=-1.0)
        self.hasty = self._came_late(time_us) and not causes
        self._forgiven = self._forgiven + 1 if self.hasty else 0 if causes else self._forgiven
        if self.hasty and self._recent and self._forgiven <= self._FORGIVEN:
            self._recent.pop()
        self._judge(time_us, margin, gap_us, causes, queued=queued or self.hasty)
        self._companion = companions[-1] if companions else None
        self._windows = deque(companions + ahead if self.keep_companions else ahead)
        return margin if margin >= 0.0 else None

    def _came_late(self, time_us: float) -> bool:
        """Whether the burst comes shortly after its reservation was given up.

        A service that has idled for long takes longer. Its trigger did announce the burst, and is no wrong one.
        """
        given_up, self._given_up = self._given_up, None
        if given_up is None:
            return False
        return time_us <= given_up.occurred_us + self._HASTY * (given_up.until_us - given_up.occurred_us)

    def expire(self, now_us: float) -> bool:
        """Give up windows whose limit has passed; True when a reservation ended without a burst.

        Requests that stop leave several of the clock in vain, which has one cause and counts once.
        """
        if not self._windows:
            return False
        gone = [window for window in self._windows if window.until_us < now_us]
        if not gone:
            return False
        self._windows = kept = deque(window for window in self._windows if window.until_us >= now_us)
        start, until = min(window.start_us for window in gone), max(window.until_us for window in gone)
        if any(window.start_us <= until for window in kept):
            return False  # still reserved: the rest tells whether it was in vain
        waste = max(until - start - self.costs.need_us, 0.0) + self.costs.switch_us
        self._made += 1
        self._false += 1
        self._waste += waste
        if not (self._stopped and gone[-1].trigger.matcher.kind == WakeKind.CLOCK):
            self._recent.append("false")
        self._stopped = True
        self._given_up = gone[-1]
        self._note(now_us, gone, "false", None, 0.0, waste)
        return True

    def drop(self) -> bool:
        """Forget the open windows without a verdict; True when there were any."""
        had = bool(self._windows)
        self._windows.clear()
        self._companion = None
        return had

    def skip(self, missed_us: float) -> None:
        """So long nothing was observed: that is no time in which nothing was wasted."""
        self._began_us += missed_us
        self._now_us += missed_us
        self._history = deque(((at + missed_us, waste) for at, waste in self._history), maxlen=self._history.maxlen)

    def fresh(self, expected_recall: float) -> None:
        """A new choice is in force: judge it by its own outcomes."""
        self.expected_recall = expected_recall
        self._recent.clear()
        self._announced.clear()
        self._companion = None

    @property
    def drift(self) -> str:
        """How the outcomes are far from what was expected of the choice; empty while they are not."""
        late, false = self._recent.count("late"), self._recent.count("false")
        if late + false >= self._DRIFT:
            return f"of the last {len(self._recent)} reservations {late} came too late and {false} in vain"
        missing = self._announced.count(False)
        if missing > (1.0 - self.expected_recall) * len(self._announced) + self._RECENT / 2:
            return f"{missing} of the last {len(self._announced)} bursts came unannounced"
        return ""

    @property
    def late(self) -> int:
        """How many of the last reservations came too late, where it is mostly these that make the drift; else 0."""
        late, false = self._recent.count("late"), self._recent.count("false")
        return late if late > false and late + false >= self._DRIFT else 0

    def outcome(self) -> Outcome:
        """Return all counts since the start."""
        elapsed = max(self._now_us - self._began_us, 1.0)
        return Outcome(
            bursts=self._bursts,
            reserved=self._reserved,
            in_time=self._in_time,
            reservations=self._made,
            false=self._false,
            hidden_us=round(self._hidden, 1),
            unhidden_us=round(self._unhidden, 1),
            waste_us=round(self._waste, 1),
            waste_share=self._waste / elapsed,
        )

    def _judge(self, time_us: float, margin: float, gap_us: float, causes: list[Window], *, queued: bool) -> None:
        followed = self._companion is not None and time_us <= self._companion.until_us
        if self._companion is not None:
            self._followed.append(followed)
            self._companion = None
        self._bursts += 1
        self._history.append((time_us, self._waste))
        hidden = self.costs.hidden(margin)
        waste = max(min(margin, gap_us) - self.costs.need_us, 0.0)
        self._hidden += hidden
        self._unhidden += self.costs.switch_us - hidden
        self._waste += waste
        self._made += margin >= 0.0
        self._reserved += margin >= 0.0
        self._in_time += margin >= self.costs.need_us
        wanted = min((min(self.costs.need_us, w.trigger.margin_us) for w in causes), default=self.costs.need_us)
        good = margin >= 0.8 * wanted
        result: Result = "none" if not causes else "in time" if good else "late"
        if causes:
            self._recent.append(result)
        if not (followed or queued):  # a burst right behind another may have lost its wake to that one
            self._announced.append(bool(causes))
        self._note(time_us, causes, result, margin if margin >= 0.0 else None, hidden, waste)

    def recent(self) -> list[Past]:
        """Return the last reservations and bursts, oldest first."""
        return list(self._past)

    def _note(
        self, time: float, windows: list[Window], result: Result, reserved: float | None, hidden: float, waste: float
    ) -> None:
        trigger = str(windows[0].trigger.matcher) if windows else None
        self._past.append(
            Past(time_us=time, trigger=trigger, result=result, reserved_us=reserved, hidden_us=hidden, waste_us=waste)
        )


def _is_companion(window: Window, age_us: float) -> bool:
    """Younger than half of the shortest usual lead: another wake must have caused this launch."""
    return age_us < window.trigger.young_us
