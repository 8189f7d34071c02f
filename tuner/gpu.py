"""Tunes one GPU, window by window: learn or not, undo or adopt, hold or try. No I/O, no clock but the windows' own.

A trial lasts one window. One that breaks an objective is undone with the next, and remembered. Windows during which the
load or the settings changed teach nothing. Where misses pile up, trials pause.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.knobs import KNOBS, Settings, Value
from gpsched.tuner import crowds
from gpsched.tuner.crowds import Crowds
from gpsched.tuner.memory import Memory
from gpsched.tuner.model import Change, Expectation, Phase, Point, Window
from gpsched.tuner.patience import Patiences
from gpsched.tuner.prior import Demand
from gpsched.tuner.search import Idea, Search
from gpsched.tuner.space import LEVEL, SHARE, Space, Work
from gpsched.tuner.watch import Watch


_FIRST = 10  # windows in which misses do not pause trials
_RECENT = 80  # windows for which a trial's miss counts
_PAUSES = (4, 16, 40)  # windows without trials after the first, second and any further miss
_RECHECK = 15  # windows after which a search that had nothing to try looks again
_PATIENCE = 3  # windows that a trial may wait for one that can be judged
_OVERLOAD = -0.7  # a margin from which requests piled up: the next window suffers, whatever its settings
_WARM_TRUST, _DOUBT = 0.5, 0.2  # what is known from history, and from before a drift, counts for
_CLEAR = 4.0  # standard deviations of a drift after which what failed is worth trying again
_CALM_Z, _REFIT = 2.0, 5  # windows that surprise less need no thought, but now and then
_BUSIER = 1.3  # a load that is so much larger is a busy phase
_SHARES = (0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1)
_BASE = 5  # learned windows at the first settings before anything is tried: how much windows differ by themselves
_CHANGING = "the load is changing"


@dataclass(frozen=True)
class Observed:
    """A measured window with what the search must know of the work in it."""

    window: Window
    work: Work
    demand: Demand


@dataclass
class Step:
    """What follows from a window: ``settings`` for the next one (none: the defaults), and what to remember.

    ``seen``: an earlier change, with what it came to. ``note``: what people should know of the phase.
    """

    window: Window
    settings: Settings
    phase: Phase
    note: str = ""
    changes: list[Change] = field(default_factory=list)
    seen: list[Change] = field(default_factory=list)


class GpuTuner:
    """``recall(key)`` returns what history knows of a kind of work. Call ``step`` once a window."""

    def __init__(
        self,
        recall: Callable[[str], Sequence[Point]] = lambda _key: (),
        costs: Mapping[str, Costs] = LEVELS,
        seed: int = 0,
    ) -> None:
        self._recall, self._costs, self._seed = recall, costs, seed
        self._key: str | None = None
        self._work: Work | None = None
        self._services: list[str] = []
        self._search: Search | None = None
        self._settings: Settings = {}
        self._trial: Change | None = None
        self._untold: Change | None = None  # the last change, until a window shows what it came to
        self._watch = Watch()
        self._calm = self._overloaded = False
        self._windows = self._idle = self._waited = self._pause = self._fruitless = 0
        self._misses: deque[int] = deque(maxlen=8)  # windows that missed
        self._need_share = self._protecting = False
        self._patiences = Patiences()  # of the search for settings that keep the objectives
        self._cap, self._expected = 1.0, 0.0

    @property
    def key(self) -> str | None:
        """The work that is tuned now."""
        return self._key

    def points(self) -> list[Point]:
        """Return what was learned of the present work, for the history."""
        return self._search.memory.points() if self._search else []

    def forget(self) -> None:
        """Start anew with the present work."""
        if self._search:
            self._search.memory.forget()
        self._key = None

    def step(self, observed: Observed, expected_load: float | None = None) -> Step:
        """Take a window. ``expected_load``: the largest of the next minutes, where it can be told."""
        window = observed.window
        step = Step(window, {}, "watch")
        if not (observed.work.services and observed.work.jobs):
            self._key, self._search, self._trial, self._untold = None, None, None, None
            return step
        self._windows += 1
        self._adapt(observed, step)
        self._expected = expected_load or 0.0
        self._cap = self._cap_for(expected_load)
        before = self._watch.load
        why_not = self._objection(observed)
        missed = window.verdict == "missed" and not self._excused(window)
        trial = self._trial is not None
        if trial and missed and why_not == _CHANGING:  # what overloads a service changes its load, too
            self._watch.load, why_not = before, None
        if why_not is None:
            self._learn(observed, missed)
            self._tell(step)
        step.window = msgspec.structs.replace(window, learned=why_not is None, why_not=why_not or "", trial=trial)
        if why_not is None or missed:
            self._judge(observed, step, missed)
        else:
            self._wait(observed, step)
        self._guard(step)
        step.settings = dict(self._settings)
        step.window = msgspec.structs.replace(step.window, phase=step.phase)
        return step

    # ---- what a window is worth

    def _objection(self, observed: Observed) -> str | None:
        """Why nothing can be learned from this window; None when something can."""
        window = observed.window
        overloaded = self._overloaded
        self._overloaded = not overloaded and window.margin is not None and window.margin < _OVERLOAD
        stepped = self._watch.follow(window)
        relearned = self._watch.meaning_changed([each.triggered for each in window.lc])
        if window.margin is None or window.progress is None:
            return "too few bursts to judge the objectives"
        if window.settings != self._settings:
            return "the settings were not in force all the time"
        if stepped:
            self._fruitless = 0
            return _CHANGING
        if overloaded and window.verdict == "missed":
            return "what piled up in the window before was still being worked off"
        if relearned:
            return "what announces the bursts is still being learned"
        return None

    def _excused(self, window: Window) -> bool:
        """Whether it was missed by how requests crowded, not by the settings."""
        return self._search is not None and self._search.excuses(crowds.of(window.crowd))

    def _learn(self, observed: Observed, missed: bool) -> None:
        search, watch, window = self._search, self._watch, observed.window
        assert search is not None
        assert watch.load is not None
        margin = window.margin or 0.0
        progress = search.carried(self._settings, window.progress or 0.0, window.load, watch.load)
        known = search.memory.find(self._settings, watch.load)
        crowd, level = crowds.of(window.crowd), str(self._settings[LEVEL])
        surprise = math.inf
        if known is not None:
            watch.crowds.learn(level, known.point, margin, crowd)
            carried = watch.crowds.carried(level, margin, crowd, known.point.crowd)
            surprise = watch.repeated(known.point, carried, progress)
        entry = search.memory.add(
            self._settings, margin, progress, watch.load, crowd=crowd, missed=missed, time_s=window.time_s
        )
        if drift := watch.drifted():
            search.memory.doubt(min(_DOUBT, drift**-2), keep=entry)  # what was known may be as far off
            entry.point = msgspec.structs.replace(
                entry.point, margin=margin, progress=progress, crowd=crowd, windows=1, misses=int(missed)
            )
            self._idle = self._fruitless = 0
            if drift > _CLEAR:
                self._patiences.renew(watch.load)
            surprise = math.inf
        self._calm = self._idle > 0 and self._trial is None and not missed and abs(surprise) < _CALM_Z
        if not self._calm or self._windows % _REFIT == 0:
            self._update(observed)

    def _update(self, observed: Observed) -> None:
        if self._search is not None:
            watch = self._watch
            demand = replace(observed.demand, bunch=watch.bunch, crowd=math.exp(watch.crowds.typical))
            self._search.update(demand, watch.load or 0.0, watch.noise, watch.crowds)

    def _tell(self, step: Step) -> None:
        """The last change has been seen."""
        if self._untold is not None:
            seen = Expectation(progress=step.window.progress, margin=step.window.margin)
            step.seen.append(msgspec.structs.replace(self._untold, seen=seen))
            self._untold = None

    # ---- what follows

    def _adapt(self, observed: Observed, step: Step) -> None:
        """Other work: start from what is known of it. Other knobs: search those, with what is known."""
        key, work = observed.window.key, replace(observed.work, need_share=self._need_share)
        if key == self._key and work == self._work:
            return
        new = key != self._key
        services = sorted(each.program for each in observed.window.lc)
        # What has kept the same services' objectives beside other jobs is a better start than the defaults.
        before, self._services = self._services, services
        proven = self._settings if services == before and self._trial is None else {}
        if new:
            self._need_share = False
            work = replace(work, need_share=any(point.settings.get(SHARE, 1.0) != 1.0 for point in self._recall(key)))
            self._need_share = work.need_share
        space = Space(work)
        if new or self._search is None:
            memory = Memory(self._recall(key), _WARM_TRUST)
            self._trial = self._untold = None
            arrivals = self._watch.crowds if services == before else Crowds(memory.points())
            self._windows, self._fruitless = 1, 0
            self._watch = Watch(self._watch.noise, self._watch.spread, arrivals)
            self._misses.clear()
        else:
            memory = self._search.memory
        left = self._left_to_others(work)
        start = (proven or space.start(_auto_level(observed.window))) if new else self._settings
        self._search = Search(space, memory, self._costs, self._seed, start)
        self._key, self._work = key, work
        self._idle = self._waited = self._pause = 0
        self._patiences.renew()
        if not memory.entries:
            self._pause = _BASE - 1
        self._search.update(observed.demand, observed.window.load, self._watch.noise, self._watch.crowds)
        best = self._search.best()
        if new:
            count = len(memory.entries)
            known = f"{count} settings known of this work: the best of them" if count else "nothing known of this work"
            self._settings = self._settings or dict(work.defaults)
            self._move(best, "start", known, step)
        elif left:
            self._trial = None
            self._move(Idea(space.complete(self._settings), best.expected, "improve"), "yield", left, step)

    def _left_to_others(self, work: Work) -> str:
        before = self._work.closed if self._work else {}
        names = [KNOBS[name].key for name in work.closed if before.get(name) != work.closed[name]]
        return f"{', '.join(names)}: set by an administrator, so left alone" if names else ""

    def _judge(self, observed: Observed, step: Step, missed: bool) -> None:
        search = self._search
        assert search is not None
        trial, self._trial, self._waited = self._trial, None, 0
        in_force = self._settings
        if self._calm and step.window.learned and self._cap == 1.0:  # as expected, and nothing to try: no need to think
            self._idle -= 1
            step.phase = "hold"
            return
        if not step.window.learned:
            self._update(observed)
        if missed:
            self._missed(trial)
        best = self._within_cap(search.best(None if missed and trial else self._settings))
        if best.settings | {SHARE: 1.0} == self._settings | {SHARE: 1.0} and self._cap < float(self._settings[SHARE]):
            best = replace(best, settings=self._settings)  # what is cut is told by ``_guard``
        if missed and best.settings != self._settings:
            step.phase = "undo"
            why = "the trial broke an objective" if trial else "an objective was missed, and these have kept it"
            self._move(best, "undo", why if best.kind == "improve" else _promise(best, ""), step)
            if trial is None and not best.keeps:  # no use in what misses, too
                self._try(search, best, in_force, step)
            return
        if trial is not None:
            self._fruitless = 0 if best.settings == self._settings else self._fruitless + 1
        if best.settings != self._settings:
            self._move(best, "adopt", _promise(best, "the best of what was measured"), step)
            step.phase = "settle"
        elif trial is not None:
            step.phase = "settle"
        else:
            step.phase = "hold"
        self._try(search, best, in_force, step)

    def _missed(self, trial: Change | None) -> None:
        """Whoever caused it, the objectives' allowance is used up; where trials do, they pause."""
        self._misses.append(self._windows)
        if trial is not None and not self._protecting:
            recent = sum(at > max(self._windows - _RECENT, _FIRST) for at in self._misses)
            self._pause = max(self._pause, _PAUSES[min(recent, len(_PAUSES)) - 1] if recent else 1)

    def _try(self, search: Search, best: Idea, in_force: Settings, step: Step) -> None:
        if self._pause > 0:
            self._pause -= 1
            return
        if self._cap < 1.0:
            return
        if best.kind == "protect":
            idea = self._safer(search, best, step)
        elif self._idle > 0:
            self._idle -= 1
            return
        else:
            idea = search.propose(best, fruitless=self._fruitless)
            if idea is None and self._may_miss():
                idea = search.propose(best, bold=True, fruitless=self._fruitless)
        if idea is None or idea.settings == self._settings:
            self._idle = _RECHECK if best.kind == "improve" else 0
            return
        step.changes.clear()  # one change a window, from what was in force
        self._settings = in_force
        step.phase = "explore"
        self._move(idea, "try", _promise(idea, "may be better"), step)
        self._trial = step.changes[-1] if step.changes else None
        self._protecting = idea.kind == "protect" and not best.keeps

    def _safer(self, search: Search, best: Idea, step: Step) -> Idea | None:
        """Something that may keep the objectives more surely. Where nothing does, attempts become ever rarer."""
        patience = self._patiences.at(self._watch.load or 0.0)
        idea = None
        if not patience.waits():
            idea = search.propose(best)
            patience.spend()
        if (best.expected.margin or 0.0) < 0.0 and (idea is None or patience.tired):
            self._need_share = True  # the next window's space has it
        if patience.left:
            what = (
                "nothing tried keeps the objectives more surely" if best.keeps else "nothing tried keeps the objectives"
            )
            step.note = f"{what}; next attempt in {patience.left} windows"
        return idea

    def _may_miss(self) -> bool:
        """Whether one miss would be no harm: at the beginning, and after a long time without any."""
        return self._windows <= _FIRST or not any(self._windows - at < _RECENT // 2 for at in self._misses)

    def _wait(self, observed: Observed, step: Step) -> None:
        """Nothing can be said of this window."""
        step.phase = "explore" if self._trial is not None else "watch"
        self._waited += 1
        if self._trial is not None and self._waited > _PATIENCE and self._search is not None:
            self._trial = None
            self._update(observed)
            step.phase = "undo"
            self._move(self._search.best(), "undo", "the trial could not be judged", step)

    def _cap_for(self, expected_load: float | None) -> float:
        """The largest share for best-effort work that a busy phase to come would stand; 1 without one."""
        search, now = self._search, self._watch.load
        if search is None or expected_load is None or now is None or expected_load < _BUSIER * now:
            return 1.0
        full = self._settings | {SHARE: 1.0}
        if search.predict_margin(full, expected_load) >= 0.0:
            return 1.0
        floor = self._work.share_floor if self._work else 0.0
        shares = [share for share in _SHARES if share >= floor] or [1.0]
        fit = (share for share in shares if search.predict_margin(full | {SHARE: share}, expected_load) >= 0.0)
        return next(fit, shares[-1])

    def _guard(self, step: Step) -> None:
        """Cut best-effort work before a busy phase that the settings would not stand, not in it."""
        if self._cap >= float(self._settings[SHARE]) or self._search is None:
            return
        settings = self._settings | {SHARE: self._cap}
        self._need_share = True
        self._trial = None
        step.changes.clear()
        self._move(Idea(settings, self._search.expect(settings), "protect"), "guard", "", step)

    def _within_cap(self, idea: Idea) -> Idea:
        share = min(float(idea.settings[SHARE]), self._cap)
        return replace(idea, settings=idea.settings | {SHARE: share}) if share < 1.0 else idea

    def _move(self, idea: Idea, kind: str, why: str, step: Step) -> None:
        if self._cap < 1.0 and float(idea.settings[SHARE]) < float(self._settings[SHARE]):
            kind = "guard"
            why = f"{self._expected:.0f} bursts a second are expected, {self._watch.load:.0f} now: room is made before"
        what = _difference(self._settings, idea.settings)
        self._settings = dict(idea.settings)
        if not what:
            return
        change = Change(
            time_s=step.window.time_s,
            gpu=step.window.gpu,
            key=step.window.key,
            kind=kind,  # type: ignore[arg-type]
            what=what,
            why=why,
            expected=idea.expected,
        )
        step.changes.append(change)
        self._untold = change


def _auto_level(window: Window) -> str | None:
    """The level that ``auto`` came to; None while nothing is reserved yet, for hints are still learned."""
    found = {each.level for each in window.lc if each.level in ("reserve", "hold")}
    return found.pop() if len(found) == 1 else None


def _difference(before: Settings, after: Settings) -> dict[str, tuple[Value | None, Value | None]]:
    return {name: (before.get(name), after.get(name)) for name in KNOBS if before.get(name) != after.get(name)}


def _promise(idea: Idea, what: str) -> str:
    margin = idea.expected.margin
    room = "" if margin is None else f", the tightest objective with {math.expm1(margin):+.0%} to spare"
    if idea.kind == "protect":
        return f"nothing known keeps the objectives for sure; this comes nearest{room}"
    gain = f"{idea.gain:+.1%} expected for best-effort work" if idea.gain else what
    return gain + room
