"""Tunes one GPU, window by window: learn or not, undo or adopt, hold or try. No I/O, no clock but the windows' own.

A trial lasts one window. One that breaks an objective is undone with the next, and remembered. Windows during which the
load or the settings changed teach nothing. Where misses pile up, trials pause.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.knobs import Settings
from gpsched.tuner import crowds
from gpsched.tuner.crowds import Crowds
from gpsched.tuner.guard import Guard
from gpsched.tuner.lessons import CHANGING, Lessons
from gpsched.tuner.memory import Memory
from gpsched.tuner.model import Change, Point
from gpsched.tuner.patience import Patiences
from gpsched.tuner.search import Idea, Search
from gpsched.tuner.space import SHARE, Space, Work
from gpsched.tuner.step import Observed, Step, auto_level, left_to_others, promise
from gpsched.tuner.trials import Trials


_PATIENCE = 3  # windows that a trial may wait for one that can be judged
_WARM_TRUST = 0.5  # what is known from history counts for
_CLEAR = 4.0  # standard deviations of a drift after which what failed is worth trying again
_CALM_Z, _REFIT = 2.0, 5  # windows that surprise less need no thought, but now and then


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
        self._lessons, self._trials, self._guard = Lessons(), Trials(), Guard()
        self._calm = self._need_share = self._protecting = False
        self._waited = 0
        self._patiences = Patiences()  # of the search for settings that keep the objectives

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
        self._trials.windows += 1
        search = self._adapt(observed, step)
        watch = self._lessons.watch
        floor = self._work.share_floor if self._work else 0.0
        self._guard.look(search, self._settings, watch.load, expected_load, floor)
        before = watch.load
        why_not = self._lessons.objection(window, self._settings)
        if why_not == CHANGING:
            self._trials.fruitless = 0
        # A crowd that nothing known would have kept is no fault of the settings.
        missed = window.verdict == "missed" and not search.excuses(crowds.of(window.crowd))
        trial = self._trial is not None
        if trial and missed and why_not == CHANGING:  # what overloads a service changes its load, too
            watch.load, why_not = before, None
        if why_not is None:
            self._learn(search, observed, missed)
            self._tell(step)
        step.window = msgspec.structs.replace(window, learned=why_not is None, why_not=why_not or "", trial=trial)
        if why_not is None or missed:
            self._judge(search, observed, step, missed)
        else:
            self._wait(search, observed, step)
        self._make_room(search, step)
        step.settings = dict(self._settings)
        step.window = msgspec.structs.replace(step.window, phase=step.phase)
        return step

    # ---- what a window is worth

    def _learn(self, search: Search, observed: Observed, missed: bool) -> None:
        lesson = self._lessons.learn(search, observed.window, missed=missed)
        if lesson.drift:
            self._trials.wake()
            self._trials.fruitless = 0
            if lesson.drift > _CLEAR:
                self._patiences.renew(self._lessons.watch.load)
        expected = not missed and abs(lesson.surprise) < _CALM_Z
        self._calm = self._trials.resting and self._trial is None and expected
        if not self._calm or self._trials.windows % _REFIT == 0:
            self._update(search, observed)

    def _update(self, search: Search, observed: Observed) -> None:
        watch = self._lessons.watch
        demand = replace(observed.demand, bunch=watch.bunch, crowd=math.exp(watch.crowds.typical))
        search.update(demand, watch.load or 0.0, watch.noise, watch.crowds)

    def _tell(self, step: Step) -> None:
        """The last change has been seen."""
        if self._untold is not None:
            step.tell(self._untold)
            self._untold = None

    # ---- what follows

    def _adapt(self, observed: Observed, step: Step) -> Search:
        """Other work: start from what is known of it. Other knobs: search those, with what is known."""
        key, work = observed.window.key, replace(observed.work, need_share=self._need_share)
        if self._search is not None and key == self._key and work == self._work:
            return self._search
        new, before = key != self._key, self._work
        services = sorted(each.program for each in observed.window.lc)
        same, self._services = services == self._services, services
        # What has kept the same services' objectives beside other jobs is a better start than the defaults.
        proven = self._settings if same and self._trial is None else {}
        memory = self._remembered(key, anew=new or self._search is None, same=same)
        if new:
            self._need_share = any(each.settings.get(SHARE, 1.0) != 1.0 for each in memory.points())
            work = replace(work, need_share=self._need_share)
        space = Space(work)
        start = (proven or space.start(auto_level(observed.window))) if new else self._settings
        self._search = search = Search(space, memory, self._costs, self._seed, start)
        self._key, self._work = key, work
        self._waited = 0
        self._patiences.renew()
        watch = self._lessons.watch
        search.update(observed.demand, observed.window.load, watch.noise, watch.crowds)
        best = search.best()
        if new:
            count = len(memory.entries)
            known = f"{count} settings known of this work: the best of them" if count else "nothing known of this work"
            self._settings = self._settings or dict(work.defaults)
            self._move(best, "start", known, step)
        elif left := left_to_others(work, before):
            self._trial = None
            self._move(Idea(space.complete(self._settings), best.expected, "improve"), "yield", left, step)
        return search

    def _remembered(self, key: str, *, anew: bool, same: bool) -> Memory:
        """What is known of this work; ``anew``: from the history. ``same``: the services are those from before."""
        if not anew and self._search is not None:
            memory = self._search.memory
        else:
            memory = Memory(self._recall(key), _WARM_TRUST)
            self._trial = self._untold = None
            self._lessons.begin(self._lessons.watch.crowds if same else Crowds(memory.points()))
        self._trials.begin(known=bool(memory.entries), anew=anew)
        return memory

    def _judge(self, search: Search, observed: Observed, step: Step, missed: bool) -> None:
        trial, self._trial, self._waited = self._trial, None, 0
        in_force = self._settings
        if self._calm and step.window.learned and not self._guard.waits:  # as expected: no need to think
            self._trials.rested()
            step.phase = "hold"
            return
        if not step.window.learned:
            self._update(search, observed)
        if missed:
            self._trials.missed(blamed=trial is not None and not self._protecting)
        best = self._guard.within(search.best(None if missed and trial else self._settings))
        only_cut = best.settings | {SHARE: 1.0} == self._settings | {SHARE: 1.0}
        if only_cut and self._guard.cap < float(self._settings[SHARE]):
            best = replace(best, settings=self._settings)  # what is cut is told by ``_make_room``
        if missed and best.settings != self._settings:
            step.phase = "undo"
            why = "the trial broke an objective" if trial else "an objective was missed, and these have kept it"
            self._move(best, "undo", why if best.kind == "improve" else promise(best, ""), step)
            if trial is None and not best.keeps:  # no use in what misses, too
                self._try(search, best, in_force, step)
            return
        if trial is not None:
            self._trials.fruitless = 0 if best.settings == self._settings else self._trials.fruitless + 1
        if best.settings != self._settings:
            self._move(best, "adopt", promise(best, "the best of what was measured"), step)
            step.phase = "settle"
        else:
            step.phase = "hold" if trial is None else "settle"
        self._try(search, best, in_force, step)

    def _try(self, search: Search, best: Idea, in_force: Settings, step: Step) -> None:
        if self._trials.paused() or self._guard.waits:
            return
        if best.kind == "protect":
            idea = self._safer(search, best, step)
        elif self._trials.rested():
            return
        else:
            idea = self._better(search, best)
        if idea is None or idea.settings == self._settings:
            if best.kind == "improve":
                self._trials.rest()
            else:
                self._trials.wake()
            return
        step.changes.clear()  # one change a window, from what was in force
        self._settings = in_force
        step.phase = "explore"
        self._move(idea, "try", promise(idea, "may be better"), step)
        self._trial = step.changes[-1] if step.changes else None
        self._protecting = idea.kind == "protect" and not best.keeps

    def _better(self, search: Search, best: Idea) -> Idea | None:
        """Something that may give best-effort work more; less surely safe while a miss would be no harm."""
        idea = search.propose(best, fruitless=self._trials.fruitless)
        if idea is None and self._trials.may_miss():
            idea = search.propose(best, bold=True, fruitless=self._trials.fruitless)
        return idea

    def _safer(self, search: Search, best: Idea, step: Step) -> Idea | None:
        """Something that may keep the objectives more surely. Where nothing does, attempts become ever rarer."""
        patience = self._patiences.at(self._lessons.watch.load or 0.0)
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

    def _wait(self, search: Search, observed: Observed, step: Step) -> None:
        """Nothing can be said of this window."""
        step.phase = "explore" if self._trial is not None else "watch"
        self._waited += 1
        if self._trial is not None and self._waited > _PATIENCE:
            self._trial = None
            self._update(search, observed)
            step.phase = "undo"
            self._move(search.best(), "undo", "the trial could not be judged", step)

    def _make_room(self, search: Search, step: Step) -> None:
        """Cut best-effort work before a busy phase that the settings would not stand, not in it."""
        if self._guard.cap >= float(self._settings[SHARE]):
            return
        settings = self._settings | {SHARE: self._guard.cap}
        self._need_share = True
        self._trial = None
        step.changes.clear()
        self._move(Idea(settings, search.expect(settings), "protect"), "guard", "", step)

    def _move(self, idea: Idea, kind: str, why: str, step: Step) -> None:
        if self._guard.cuts(self._settings, idea.settings):
            kind, why = "guard", self._guard.why(self._lessons.watch.load or 0.0)
        before, self._settings = self._settings, dict(idea.settings)
        if change := step.move(before, idea, kind, why):
            self._untold = change
