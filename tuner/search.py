"""Which settings to use, and which to try next: constrained expected improvement within what is believed to be safe.

Pure but for its random numbers, which come from a seed. Nothing is tried whose margin is not above zero with some
certainty, so that experiments hardly ever cost an objective; as long as nothing known keeps the objectives, the
search looks for what does instead.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtr

from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.knobs import Settings
from gpsched.tuner.memory import Memory
from gpsched.tuner.model import Expectation
from gpsched.tuner.outlook import Outlook, expectation, settings_key, was_kept
from gpsched.tuner.space import LEVEL, SHARE, Cube, Space
from gpsched.tuner.surrogate import Prediction


_SURE = 2.0  # standard deviations, of model and window together, by which a trial must be safe
_BOLD = 0.7  # the same while a miss may be afforded
_WORTH, _WORTH_BOLD = 0.003, 0.006  # relative gain that a trial must promise, the latter where it is less safe
_FRUITLESS = 4  # trials in a row that led to nothing, after which one must promise twice as much
_TIE = 0.004  # relative difference of progress that is none: the gentler settings win
_BETTER = 0.003  # relative gain for which settings in force are left
_ROOM_WORTH = 0.02  # of progress: what room for the worst windows is worth to settings that are safe without it
_SAMPLES, _NEAR = 400, 60
_REACH = 0.3  # of a knob's range: how far a trial may go at once
_HOPE = 0.3  # standard deviations of a window by which a trial must be hoped to come nearer to the objectives
_ALIKE = 0.25  # standard deviations of a window within which what is nearest to the objectives cannot be told apart
_ALIKE_RISK = 0.01  # the same of how likely a window misses
_BEARABLE = 0.1  # of windows that may miss, as far as is known, where best-effort progress is weighed against that
_PRICE = 0.5  # windows missed that one is worth as much as, of best-effort progress
_ALLOWED = 0.025  # of windows that may miss at settings that are preferred to safe ones
_MUCH = 0.02  # how far better such settings must be, as a share of windows
_TOLERABLE = 0.05  # the same before safety is looked for at any price
_RISKY = 0.24  # the same of a trial that looks for safety where the objectives are kept
_CHEAP = 0.85  # of the progress that such a trial must leave: what costs more than a miss is worth is never adopted
_HOPELESS = 0.5  # of windows that miss: then it is by how much that matters


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


class Search(Outlook):
    """What follows from what is believed. ``start``: settings to begin with."""

    def __init__(
        self,
        space: Space,
        memory: Memory,
        costs: Mapping[str, Costs] = LEVELS,
        seed: int = 0,
        start: Settings | None = None,
    ) -> None:
        super().__init__(space, memory, costs, start)
        self._random = np.random.default_rng(seed)

    def best(self, current: Settings | None = None) -> Idea:
        """Return the best settings that are known to be safe; those in force stay unless others are clearly better."""
        known = self.known()
        found = self.predict(known)
        safe = found.margin - found.margin_sd >= self.slacks(known)
        if not safe.any():
            return self._nearest(current)
        values = self._values(found)
        most = float(values[safe].max())
        ties = [n for n in range(len(known)) if safe[n] and values[n] >= most * (1.0 - _TIE)]
        number = min(ties, key=lambda n: (self.space.gentleness(known[n]), -values[n]))
        if current in known and safe[here := known.index(current)]:
            gentler = self.space.gentleness(known[number]) < self.space.gentleness(known[here])
            if not gentler and values[number] < values[here] * (1.0 + _BETTER):
                number = here
        number = self._worth_a_risk(known, found, number, current)
        return Idea(known[number], expectation(found, number), "improve")

    def _values(self, found: Prediction, hope: float = 0.0) -> Cube:
        """What settings are worth: their progress, less where they leave no room for the worst windows.

        ``hope``: standard deviations by which they may leave more, so that little known ones are tried all the same.
        """
        room = found.margin + hope * found.margin_sd
        lacking = np.clip(1.0 - room / max(self.noise.tail, 1e-9), 0.0, 1.0)
        values: Cube = found.progress * (1.0 - _ROOM_WORTH * lacking)
        return values

    def _worth_a_risk(self, known: list[Settings], found: Prediction, safest: int, current: Settings | None) -> int:
        """What to prefer to the best that is safe: what hardly ever misses either, where safety costs far more."""
        risks = self.risks(known, found)
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
        known = list({settings_key(each.point.settings): each.point.settings for each in self.close()}.values())
        known = known or self.known()
        found = self.predict(known)
        sure = found.margin - found.margin_sd
        full = np.array([float(each[SHARE]) >= float(self.space.base[SHARE]) for each in known])
        may = full | (sure >= 0.0) if full.any() else ~full
        risks = np.where(may, self.risks(known, found), np.inf)
        costs = 1.0 - found.progress / max(float(found.progress[may].max()), 1e-9)
        if risks.min() < _HOPELESS:
            bearable = risks <= max(float(risks.min()) + _ALIKE_RISK, _BEARABLE)
            scores = np.where(bearable, risks + _PRICE * costs, np.inf)
        else:
            behind = np.where(may, sure[may].max() - sure, np.inf)
            scores = np.where(behind <= _ALIKE * self.spreads(known), costs, np.inf)
        number = int(np.argmin(scores))
        if current in known and scores[here := known.index(current)] <= scores[number] + _BETTER:
            number = here
        return Idea(known[number], expectation(found, number), "protect", keeps=bool(risks[number] <= _TOLERABLE))

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
        found = self.predict(candidates)
        if best.kind == "protect":
            return self._protect(candidates, found, best)
        reach = float(self._values(self.predict([best.settings]))[0])
        gains = _improvement(self._values(found, 1.0), found.progress_sd, reach)
        safety = ndtr((found.margin - self.slacks(candidates)) / np.maximum(found.margin_sd, 1e-9))
        spread = np.hypot(found.margin_sd, self.spreads(candidates))  # of what the trial's window will show
        worth = np.where(found.margin - (_BOLD if bold else _SURE) * spread >= 0.0, gains * safety, 0.0)
        number = int(np.argmax(worth))
        least = (_WORTH_BOLD if bold else _WORTH) * (1.0 + fruitless / _FRUITLESS)
        if worth[number] < least * reach:
            return None
        return Idea(candidates[number], expectation(found, number), "improve", float(worth[number]) / reach)

    def _protect(self, candidates: list[Settings], found: Prediction, best: Idea) -> Idea | None:
        """Anything that may come nearer to the objectives; a cut of the share costs most and is the last resort.

        Levels that were never seen at this load come first: tails differ most between them. Where the objectives are
        kept, if not for sure, only what is likely to keep them, too, and cheap.
        """
        hopes = found.margin + found.margin_sd
        if best.keeps:
            cheap = found.progress >= _CHEAP * (best.expected.progress or 0.0)
            hopes = np.where(cheap & (self.risks(candidates, found) <= _RISKY), hopes, -np.inf)
        share = float(best.settings[SHARE])
        seen = {entry.point.settings[LEVEL] for entry in self.memory.near(self.load)}
        new = np.array([each[LEVEL] not in seen and float(each[SHARE]) >= share for each in candidates])
        if float(np.where(new, hopes, -np.inf).max()) > 0.0:
            number = int(np.argmax(np.where(new, hopes, -np.inf)))
            return Idea(candidates[number], expectation(found, number), "protect")
        for kept in (True, False):
            may = np.array([(float(each[SHARE]) >= share) is kept for each in candidates])
            least = (best.expected.margin or 0.0) + _HOPE * self.noise.margin
            if may.any() and float(hopes[may].max()) > max(least, 0.0 if kept else least):
                number = int(np.argmax(np.where(may, hopes, -np.inf)))
                return Idea(candidates[number], expectation(found, number), "protect")
        return None

    def _candidates(self, centre: Settings) -> list[Settings]:
        if not len(self.space):
            return []
        missed = {settings_key(entry.point.settings) for entry in self.memory.near(self.load) if not was_kept(entry)}
        ideas = self.space.sample(_SAMPLES, self._random) + self.space.around(centre, _NEAR, self._random)
        anchors: dict[object, list[Cube]] = {}
        for each in [centre, *self.known()]:
            anchors.setdefault(each[LEVEL], []).append(self.space.numbers(each))
        base = [self.space.numbers(self.space.base)]
        return [
            each
            for each in ideas
            if settings_key(each) not in missed and self._within_reach(each, np.array(anchors.get(each[LEVEL], base)))
        ]

    def _within_reach(self, settings: Settings, anchors: Cube) -> bool:
        """Whether no number goes far beyond what is known to be fine at this level; at a new one, the defaults.

        Models err most where nothing was measured.
        """
        away = np.abs(anchors - self.space.numbers(settings))
        return anchors.shape[1] == 0 or bool((away.max(axis=1) <= _REACH).any())


def _improvement(mean: Cube, sd: Cube, reach: float) -> Cube:
    """Expected improvement over ``reach``."""
    sd = np.maximum(sd, 1e-9)
    z = (mean - reach) / sd
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    gains: Cube = (mean - reach) * ndtr(z) + sd * density
    return gains
