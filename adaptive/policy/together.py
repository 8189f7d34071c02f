"""Whether several best-effort processes of a GPU take turns, or run together in slices.

Turns give each the GPU as a whole: right for those that always have work. One that works at a rhythm of its own, or
waits for others, leaves its turn idle, and cannot use those of the others. Nobody tells what they are, so both ways
are tried, a few seconds each, and the one in which they launched more is kept until their launches change.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field


SLICE_US = 200  # beside latency-critical work: several in shorter ones starve each other, longer ones let that wait

_SETTLE_S = 0.5  # from one way to the other
_ABSENT_S = 3.0  # without being judged
_KEEP_S = 120.0
_LEAST_S = 10.0  # between two trials, whatever changes
_BETTER = 1.1  # what running together must gain: it costs latency-critical work more
_CHANGE = 2.0  # times more or fewer launches than when it was chosen
_KNOWN = 32  # sets of processes

Pids = frozenset[int]
Launches = Mapping[int, int]


@dataclass
class _Trial:
    """``rates`` (launches a second) of each way that was measured; a window begins once the way has settled."""

    since_s: float
    seen_s: float
    together: bool = False
    begun_s: float | None = None
    launches: Launches = field(default_factory=dict)
    rates: dict[bool, dict[int, float]] = field(default_factory=dict)
    chosen_s: float | None = None

    def begin(self, now_s: float, *, together: bool) -> None:
        self.since_s, self.together, self.begun_s = now_s, together, None

    def window(self, now_s: float, launches: Launches, window_s: float) -> dict[int, float] | None:
        """The rates of a window that ends now; None while none does."""
        if self.begun_s is None:
            if now_s - self.since_s >= _SETTLE_S:
                self.begun_s, self.launches = now_s, dict(launches)
            return None
        elapsed_s = now_s - self.begun_s
        if elapsed_s < window_s:
            return None
        rates = {pid: (count - self.launches.get(pid, count)) / elapsed_s for pid, count in launches.items()}
        self.begun_s, self.launches = now_s, dict(launches)
        return rates


class Together:
    """Feed it about every second with what each process has launched so far; times in seconds."""

    def __init__(self) -> None:
        self._trials: OrderedDict[Pids, _Trial] = OrderedDict()

    def judge(self, now_s: float, launches: Launches, window_s: float) -> bool:
        """Return whether these processes run together now. ``window_s``: what tells turns from luck."""
        trial = self._trial(frozenset(launches), now_s)
        if now_s - trial.seen_s > _ABSENT_S:  # what was launched meanwhile tells nothing
            trial.begin(now_s, together=trial.together)
        trial.seen_s = now_s
        rates = trial.window(now_s, launches, window_s)
        if rates is None:
            return trial.together
        if trial.chosen_s is not None:
            self._watch(trial, rates, now_s)
        elif trial.together:
            trial.rates[True] = rates
            trial.chosen_s = now_s
            trial.begin(now_s, together=_gain(rates, trial.rates[False]) >= _BETTER)
        else:
            trial.rates[False] = rates
            trial.begin(now_s, together=True)
        return trial.together

    def _trial(self, pids: Pids, now_s: float) -> _Trial:
        """Known processes that come back are not tried anew."""
        trial = self._trials.setdefault(pids, _Trial(now_s, now_s))
        self._trials.move_to_end(pids)
        while len(self._trials) > _KNOWN:
            self._trials.popitem(last=False)
        return trial

    def _watch(self, trial: _Trial, rates: Mapping[int, float], now_s: float) -> None:
        assert trial.chosen_s is not None
        age_s = now_s - trial.chosen_s
        if age_s > _KEEP_S or (age_s > _LEAST_S and _differs(trial.rates[trial.together], rates)):
            trial.rates, trial.chosen_s = {}, None
            trial.begin(now_s, together=False)


def _gain(together: Mapping[int, float], turns: Mapping[int, float]) -> float:
    """The mean over the processes that launch at all, so that a fast one does not hide a starved one."""
    ratios = [min(rate / max(turns[pid], 1e-9), 10.0) for pid, rate in together.items() if rate or turns[pid]]
    return sum(ratios) / len(ratios) if ratios else 0.0


def _differs(before: Mapping[int, float], now: Mapping[int, float]) -> bool:
    pairs = [(before.get(pid, 0.0), rate) for pid, rate in now.items()]
    return any(max(pair) > _CHANGE * min(pair) and max(pair) >= 1.0 for pair in pairs)
