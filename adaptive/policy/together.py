"""Whether several best-effort processes of a GPU take turns, or run together, and in slices of what length.

Turns give each the GPU as a whole: right for those that always have work. One that works at a rhythm of its own, or
waits for others, leaves its turn idle, and cannot use those of the others. Short slices let latency-critical work wait
less, and cost a switch each where several have work at a time. Nobody tells what they are, so all ways are tried, a few
seconds each, and one in which they launched most is kept until their launches change.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field


TURNS = 0
WAYS = (TURNS, 200, 1000)  # slices in µs: in shorter ones several starve each other, longer ones are the driver's own

_SETTLE_S = 0.5  # from one way to the other
_ABSENT_S = 3.0  # without being judged
_KEEP_S = 120.0
_LEAST_S = 10.0  # between two trials, whatever changes
_BETTER = 1.1  # what running together must gain over turns, and longer slices over shorter: others wait longer
_CHANGE = 2.0  # times more or fewer launches than when it was chosen
_KNOWN = 32  # sets of processes

Pids = frozenset[int]
Launches = Mapping[int, int]


@dataclass
class _Trial:
    """``rates`` (launches a second) of each way that was measured; a window begins once the way has settled."""

    since_s: float
    seen_s: float
    way: int = TURNS
    begun_s: float | None = None
    launches: Launches = field(default_factory=dict)
    rates: dict[int, dict[int, float]] = field(default_factory=dict)
    chosen_s: float | None = None

    def begin(self, now_s: float, way: int) -> None:
        self.since_s, self.way, self.begun_s = now_s, way, None

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

    def judge(self, now_s: float, launches: Launches, window_s: float) -> int:
        """Return how these processes run now: ``TURNS``, or the slice in µs in which they run together.

        ``window_s``: what tells turns from luck.
        """
        trial = self._trial(frozenset(launches), now_s)
        if now_s - trial.seen_s > _ABSENT_S:  # what was launched meanwhile tells nothing
            trial.begin(now_s, trial.way)
        trial.seen_s = now_s
        rates = trial.window(now_s, launches, window_s)
        if rates is None:
            return trial.way
        if trial.chosen_s is not None:
            self._watch(trial, rates, now_s)
            return trial.way
        trial.rates[trial.way] = rates
        untried = [way for way in WAYS if way not in trial.rates]
        if not untried:
            trial.chosen_s = now_s
        trial.begin(now_s, untried[0] if untried else _best(trial.rates))
        return trial.way

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
        if age_s > _KEEP_S or (age_s > _LEAST_S and _differs(trial.rates[trial.way], rates)):
            trial.rates, trial.chosen_s = {}, None
            trial.begin(now_s, TURNS)


def _best(rates: Mapping[int, Mapping[int, float]]) -> int:
    """The first in order than which no later one gains enough."""
    best = WAYS[0]
    for way in WAYS[1:]:
        if _gain(rates[way], rates[best]) >= _BETTER:
            best = way
    return best


def _gain(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """The mean over the processes that launch at all, so that a fast one does not hide a starved one."""
    ratios = [min(rate / max(other[pid], 1e-9), 10.0) for pid, rate in one.items() if rate or other[pid]]
    return sum(ratios) / len(ratios) if ratios else 0.0


def _differs(before: Mapping[int, float], now: Mapping[int, float]) -> bool:
    pairs = [(before.get(pid, 0.0), rate) for pid, rate in now.items()]
    return any(max(pair) > _CHANGE * min(pair) and max(pair) >= 1.0 for pair in pairs)
