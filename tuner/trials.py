"""When something may be tried: not while misses pile up, and rarely where trials led to nothing. Pure."""

from collections import deque


_FIRST = 10  # windows in which misses do not pause trials
_RECENT = 80  # windows for which a trial's miss counts
_PAUSES = (4, 16, 40)  # windows without trials after the first, second and any further miss
_RECHECK = 15  # windows after which a search that had nothing to try looks again
_BASE = 5  # learned windows at the first settings before anything is tried: how much windows differ by themselves


class Trials:
    """Of one GPU. ``windows``: of the present work; ``fruitless``: trials in a row that led to nothing."""

    def __init__(self) -> None:
        self.windows = self.fruitless = 0
        self._pause = self._rest = 0
        self._misses: deque[int] = deque(maxlen=8)  # windows that missed

    def begin(self, *, known: bool, anew: bool) -> None:
        """Other knobs are searched, of other work if ``anew``; ``known``: something was learned of it before."""
        if anew:
            self.windows, self.fruitless = 1, 0
            self._misses.clear()
        self._rest, self._pause = 0, 0 if known else _BASE - 1

    def missed(self, *, blamed: bool) -> None:
        """Whoever caused it, the objectives' allowance is used up; where a trial is to blame, others wait."""
        self._misses.append(self.windows)
        if blamed:
            recent = sum(at > max(self.windows - _RECENT, _FIRST) for at in self._misses)
            self._pause = max(self._pause, _PAUSES[min(recent, len(_PAUSES)) - 1] if recent else 1)

    def may_miss(self) -> bool:
        """Whether one miss would be no harm: at the beginning, and after a long time since then without any."""
        since = max(_FIRST, *self._misses) if self._misses else _FIRST
        return self.windows <= _FIRST or self.windows - since >= _RECENT // 2

    def paused(self) -> bool:
        """Let a window pass; whether it is one without trials."""
        self._pause -= (pausing := self._pause > 0)
        return pausing

    @property
    def resting(self) -> bool:
        """Whether there was nothing to try lately."""
        return self._rest > 0

    def rest(self) -> None:
        """There is nothing to try: no need to look for a while."""
        self._rest = _RECHECK

    def wake(self) -> None:
        """There may be something after all."""
        self._rest = 0

    def rested(self) -> bool:
        """Let a window pass; True while there is no need to look."""
        self._rest -= (resting := self._rest > 0)
        return resting
