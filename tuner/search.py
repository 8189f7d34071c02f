"""Which settings to use, and which to try next: constrained expected improvement within what is believed to be safe.

Pure but for its random numbers, which come from a seed. Nothing is tried whose margin is not above zero with some
certainty, so that experiments hardly ever cost an objective; as long as nothing known keeps the objectives, the
search looks for what does instead.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtr

from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.knobs import Settings, Value
from gpsched.tuner.crowds import Crowds
from gpsched.tuner.memory import Entry, Memory, near
from gpsched.tuner.model import Expectation
from gpsched.tuner.prior import Demand
from gpsched.tuner.space import LEVEL, SHARE, Cube, Space
from gpsched.tuner.surrogate import Noise, Prediction, Surrogate


_SURE = 2.0  # standard deviations, of model and window together, by which a trial must be safe
_BOLD = 0.7  # the same while a miss may be afforded
_QUIET = 2.3  # standard deviations of a window by which settings must be safe to stay
_SLACK = (0.01, 1.0)  # bounds of what the latter comes to
_WORTH, _WORTH_BOLD = 0.003, 0.006  # relative gain that a trial must promise, the latter where it is less safe
_FRUITLESS = 4  # trials in a row that led to nothing, after which one must promise twice as much
_TIE = 0.004  # relative difference of progress that is none: the gentler settings win
_BETTER = 0.003  # relative gain for which settings in force are left
_SAMPLES, _NEAR = 400, 60
_REACH = 0.3  # of a knob's range: how far a trial may go at once
_HOPE = 0.3  # standard deviations of a window by which a trial must be hoped to come nearer to the objectives
_ALIKE = 0.25  # standard deviations of a window within which what is nearest to the objectives cannot be told apart
_ALIKE_RISK = 0.01  # the same of how likely a window misses
_ALIKE_WITHIN = 1.0  # of a knob's range: misses are so rare that most of a level counts together
_BEARABLE = 0.1  # of windows that may miss, as far as is known, where best-effort progress is weighed against that
_PRICE = 0.5  # windows missed that one is worth as much as, of best-effort progress
_ALLOWED = 0.025  # of windows that may miss at settings that are preferred to safe ones
_MUCH = 0.02  # how far better such settings must be, as a share of windows
_TOLERABLE = 0.05  # the same before safety is looked for at any price
_RISKY = 0.24  # the same of a trial that looks for safety where the objectives are kept
_HALF = 0.5  # of the progress that such a trial may cost
_HOPELESS = 0.5  # of windows that miss: then it is by how much that matters
_MODEL_WORTH = 2.0  # windows that the model's word on misses is worth
_MISSES = (0.5, 0.04)  # so many windows at a setting, plus this share of them, may have missed


@dataclass(frozen=True)
class Idea:
    """Settings with what they are expected to give. ``kind`` protect: nothing known keeps the objectives for sure.

    ``keeps``: whether they most likely do all the same.
    """

    settings: Settings
    expected: Expectation
    kind: Literal["improve", "protect"]
    gain: float = 0.0
    keeps: bool = True


class Search:
    """One kind of work on one GPU. Call ``update`` after the memory changed or the load did."""

    def __init__(
        self,
        space: Space,
        memory: Memory,
        costs: Mapping[str, Costs] = LEVELS,
        seed: int = 0,
        start: Settings | None = None,
    ) -> None:
        self.space, self.memory = space, memory
        self.start = space.complete(start) if start else space.start()
        self._surrogate = Surrogate(space, costs)
        self._random = np.random.default_rng(seed)
        self._load, self._noise, self._crowds = 0.0, Noise(), Crowds()
        self._spread: dict[Value, float] = {}

    def slacks(self, settings: Sequence[Settings]) -> Cube:
        """The margin that each must have, so that noise and crowds hardly ever make a window miss."""
        return np.clip(_QUIET * self._spreads(settings), *_SLACK)

    def _spreads(self, settings: Sequence[Settings]) -> Cube:
        """What windows differ by at each of these, as a standard deviation of the margin."""
        return np.array([self._spread.get(each[LEVEL], self._noise.margin) for each in settings])

    def update(self, demand: Demand, load: float, noise: Noise, crowds: Crowds) -> None:
        """Fit the model to what is known."""
        self._load, self._noise, self._crowds = load, noise, crowds
        levels = {*self.space.levels, *(entry.point.settings[LEVEL] for entry in self.memory.entries)}
        self._spread = {level: crowds.spread(str(level), noise.margin, noise.least) for level in levels}
        self._surrogate.fit(self.memory, demand, noise, crowds)

    def excuses(self, crowd: float) -> bool:
        """Whether such a crowd alone makes a window miss.

        It is one that was never seen before, and nothing known, nor a level that was not tried, may keep it then.
        """
        if not self._crowds.unheard_of(crowd):
            return False
        seen = {entry.point.settings[LEVEL] for entry in self.memory.near(self._load)}
        known = self._known() + [self.space.start(level) for level in self.space.levels if level not in seen]
        found = self._surrogate.predict(known, self._load)
        slopes = np.array([self._crowds.slope(str(each[LEVEL])) for each in known])
        sd = np.hypot(found.margin_sd, self._noise.margin)
        hopes = found.margin + sd
        return bool((hopes >= 0.0).any() and (hopes < slopes * (crowd - self._crowds.typical)).all())

    def carried(self, settings: Settings, progress: float, load: float, to: float) -> float:
        """Return what progress measured at one load would have been at another: most of its noise is the load's."""
        return self._surrogate.carried(settings, progress, load, to)

    def expect(self, settings: Settings) -> Expectation:
        """Return what is expected of these settings at the present load."""
        return _expectation(self._surrogate.predict([settings], self._load), 0)

    def predict_margin(self, settings: Settings, load: float) -> float:
        """Return the margin expected at another load, less one standard deviation."""
        found = self._surrogate.predict([settings], load)
        return float(found.margin[0] - found.margin_sd[0])

    def best(self, current: Settings | None = None) -> Idea:
        """Return the best settings that are known to be safe; those in force stay unless others are clearly better."""
        known = self._known()
        found = self._surrogate.predict(known, self._load)
        safe = found.margin - found.margin_sd >= self.slacks(known)
        if not safe.any():
            return self._nearest(current)
        most = float(found.progress[safe].max())
        ties = [n for n in range(len(known)) if safe[n] and found.progress[n] >= most * (1.0 - _TIE)]
        number = min(ties, key=lambda n: (self.space.gentleness(known[n]), -found.progress[n]))
        if current in known and safe[here := known.index(current)]:
            gentler = self.space.gentleness(known[number]) < self.space.gentleness(known[here])
            if not gentler and found.progress[number] < found.progress[here] * (1.0 + _BETTER):
                number = here
        number = self._worth_a_risk(known, found, number, current)
        return Idea(known[number], _expectation(found, number), "improve")

    def _worth_a_risk(self, known: list[Settings], found: Prediction, safest: int, current: Settings | None) -> int:
        """What to prefer to the best that is safe: what hardly ever misses either, where safety costs far more."""
        risks = self._risks(known, found)
        scores = np.where(risks <= _ALLOWED, risks - _PRICE * found.progress / max(found.progress.max(), 1e-9), np.inf)
        number = int(np.argmin(scores))
        if current in known and scores[here := known.index(current)] <= scores[number] + _BETTER:
            number = here
        safe_score = float(risks[safest] - _PRICE * found.progress[safest] / max(found.progress.max(), 1e-9))
        return number if scores[number] < safe_score - _MUCH else safest

    def _nearest(self, current: Settings | None) -> Idea:
        """What most likely keeps the objectives, weighed against what it costs; where nothing does, what is nearest.

        A cut of the share costs so much that it counts only where it keeps them.
        """
        known = list({_key(each.point.settings): each.point.settings for each in self._close()}.values())
        known = known or self._known()
        found = self._surrogate.predict(known, self._load)
        sure = found.margin - found.margin_sd
        full = np.array([float(each[SHARE]) >= float(self.space.base[SHARE]) for each in known])
        may = full | (sure >= 0.0) if full.any() else ~full
        risks = np.where(may, self._risks(known, found), np.inf)
        costs = 1.0 - found.progress / max(float(found.progress[may].max()), 1e-9)
        if risks.min() < _HOPELESS:
            bearable = risks <= max(float(risks.min()) + _ALIKE_RISK, _BEARABLE)
            scores = np.where(bearable, risks + _PRICE * costs, np.inf)
        else:
            behind = np.where(may, sure[may].max() - sure, np.inf)
            scores = np.where(behind <= _ALIKE * self._spreads(known), costs, np.inf)
        number = int(np.argmin(scores))
        if current in known and scores[here := known.index(current)] <= scores[number] + _BETTER:
            number = here
        return Idea(known[number], _expectation(found, number), "protect", keeps=bool(risks[number] <= _TOLERABLE))

    def _close(self) -> list[Entry]:
        return [each for each in self.memory.near(self._load) if self.space.holds(each.point.settings)]

    def _risks(self, settings: list[Settings], found: Prediction) -> Cube:
        """How likely a window misses: what the model says, corrected by the windows that were seen to.

        Misses are rare, so those of all that is alike count together.
        """
        expected = ndtr(-found.margin / np.hypot(found.margin_sd, self._spreads(settings)))
        close = self._close()
        if not close:
            return np.asarray(expected)
        alike = np.array([[self._likeness(one, entry.point.settings) for entry in close] for one in settings])
        misses = np.array([entry.point.misses for entry in close])
        windows = np.array([entry.point.windows for entry in close])
        risks: Cube = (_MODEL_WORTH * expected + alike @ misses) / (_MODEL_WORTH + alike @ windows)
        return risks

    def _likeness(self, one: Settings, other: Settings) -> float:
        """From 1 (the same) to 0; other levels are nothing alike."""
        away = self.space.numbers(one) - self.space.numbers(other)
        return math.exp(-0.5 * float(away @ away) / _ALIKE_WITHIN**2) if one[LEVEL] == other[LEVEL] else 0.0

    def propose(self, best: Idea, *, bold: bool = False, fruitless: int = 0) -> Idea | None:
        """Return what to try next; None when nothing promises enough.

        ``bold``: less certainty of safety will do. ``fruitless``: trials in a row that led to nothing; the more, the
        more a trial must promise.
        """
        candidates = self._candidates(best.settings)
        if best.kind == "improve":  # less of the time is no gain
            candidates = [each for each in candidates if float(each[SHARE]) >= float(best.settings[SHARE])]
        if not candidates:
            return None
        found = self._surrogate.predict(candidates, self._load)
        if best.kind == "protect":
            return self._protect(candidates, found, best)
        reach = float(self._surrogate.predict([best.settings], self._load).progress[0])
        gains = _improvement(found.progress, found.progress_sd, reach)
        safety = ndtr((found.margin - self.slacks(candidates)) / np.maximum(found.margin_sd, 1e-9))
        spread = np.hypot(found.margin_sd, self._spreads(candidates))  # of what the trial's window will show
        worth = np.where(found.margin - (_BOLD if bold else _SURE) * spread >= 0.0, gains * safety, 0.0)
        number = int(np.argmax(worth))
        least = (_WORTH_BOLD if bold else _WORTH) * (1.0 + fruitless / _FRUITLESS)
        if worth[number] < least * reach:
            return None
        return Idea(candidates[number], _expectation(found, number), "improve", float(worth[number]) / reach)

    def _known(self) -> list[Settings]:
        """Settings of which something is known at this load, else at any; those that missed if there are no others."""
        usable = [entry for entry in self.memory.entries if self.space.holds(entry.point.settings)]
        close = [entry for entry in usable if near(entry.point.load, self._load)]
        for entries in ([each for each in close if _ok(each)], [each for each in usable if _ok(each)], usable):
            if entries:
                known = {_key(each.point.settings): each.point.settings for each in entries}
                return list(known.values()) + ([] if entries == close else [self.start])
        return [self.start]

    def _protect(self, candidates: list[Settings], found: Prediction, best: Idea) -> Idea | None:
        """Anything that may come nearer to the objectives; a cut of the share costs most and is the last resort.

        Levels that were never seen at this load come first: tails differ most between them. Where the objectives are
        kept, if not for sure, only what is likely to keep them, too, and at no more than half of the progress.
        """
        hopes = found.margin + found.margin_sd
        if best.keeps:
            cheap = found.progress >= _HALF * (best.expected.progress or 0.0)
            hopes = np.where(cheap & (self._risks(candidates, found) <= _RISKY), hopes, -np.inf)
        share = float(best.settings[SHARE])
        seen = {entry.point.settings[LEVEL] for entry in self.memory.near(self._load)}
        new = np.array([each[LEVEL] not in seen and float(each[SHARE]) >= share for each in candidates])
        if float(np.where(new, hopes, -np.inf).max()) > 0.0:
            number = int(np.argmax(np.where(new, hopes, -np.inf)))
            return Idea(candidates[number], _expectation(found, number), "protect")
        for kept in (True, False):
            may = np.array([(float(each[SHARE]) >= share) is kept for each in candidates])
            least = (best.expected.margin or 0.0) + _HOPE * self._noise.margin
            if may.any() and float(hopes[may].max()) > max(least, 0.0 if kept else least):
                number = int(np.argmax(np.where(may, hopes, -np.inf)))
                return Idea(candidates[number], _expectation(found, number), "protect")
        return None

    def _candidates(self, centre: Settings) -> list[Settings]:
        if not len(self.space):
            return []
        missed = {_key(entry.point.settings) for entry in self.memory.near(self._load) if not _ok(entry)}
        ideas = self.space.sample(_SAMPLES, self._random) + self.space.around(centre, _NEAR, self._random)
        anchors: dict[object, list[Cube]] = {}
        for each in [centre, *self._known()]:
            anchors.setdefault(each[LEVEL], []).append(self.space.numbers(each))
        base = [self.space.numbers(self.space.base)]
        return [
            each
            for each in ideas
            if _key(each) not in missed and self._within_reach(each, np.array(anchors.get(each[LEVEL], base)))
        ]

    def _within_reach(self, settings: Settings, anchors: Cube) -> bool:
        """Whether no number goes far beyond what is known to be fine at this level; at a new one, the defaults.

        Models err most where nothing was measured.
        """
        away = np.abs(anchors - self.space.numbers(settings))
        return anchors.shape[1] == 0 or bool((away.max(axis=1) <= _REACH).any())


def _ok(entry: Entry) -> bool:
    """Whether the objectives were kept here, but for rare bad luck."""
    return entry.point.misses <= _MISSES[0] + _MISSES[1] * entry.point.windows


def _key(settings: Settings) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(settings.items()))


def _improvement(mean: Cube, sd: Cube, reach: float) -> Cube:
    """Expected improvement over ``reach``."""
    sd = np.maximum(sd, 1e-9)
    z = (mean - reach) / sd
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    gains: Cube = (mean - reach) * ndtr(z) + sd * density
    return gains


def _expectation(found: Prediction, number: int) -> Expectation:
    return Expectation(progress=round(float(found.progress[number]), 4), margin=round(float(found.margin[number]), 4))
