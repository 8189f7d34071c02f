"""The recent leads of one trigger candidate, and what there is to know of the bursts that they led to."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec


NEVER = float("inf")  # no burst followed within the horizon
PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
Occurrence = tuple[float, int]  # lead in µs, number of the burst


class LeadWindow:
    """The last ``SIZE`` occurrences: each with its lead in µs (NEVER: none followed) and the number of its burst."""

    SIZE = 128
    _MOVED = 0.25
    _RECENT = 12  # occurrences that must agree before older ones are forgotten

    __slots__ = ("_bursts", "_leads", "_own", "last_burst")

    def __init__(self) -> None:
        self._own = 0  # of the newest: the older ones have leads that are lent
        self._leads: deque[float] = deque(maxlen=self.SIZE)
        self._bursts: deque[int] = deque(maxlen=self.SIZE)
        self.last_burst = 0

    def __len__(self) -> int:
        return len(self._leads)

    def add(self, lead_us: float, burst: int) -> None:
        """Record one occurrence."""
        self._leads.append(lead_us)
        self._bursts.append(burst)
        self._own += 1
        self.last_burst = burst

    def fingerprint(self) -> int:
        """Windows with equal leads have equal fingerprints."""
        return hash(tuple(self._leads))

    def truncate(self, keep: int) -> None:
        """Forget all but the last ``keep`` occurrences."""
        while len(self._leads) > keep:
            self._leads.popleft()
            self._bursts.popleft()

    def occurrences(self) -> Iterable[Occurrence]:
        """Return leads and burst numbers, oldest first."""
        return zip(self._leads, self._bursts, strict=True)

    def follow_drift(self) -> bool:
        """Go by the recent leads alone when they are others than all that was usual; True when it did.

        Leads that moved by less, as those of all wakes do when a service runs on another CPU, are no other ones.
        """
        if self._own < len(self):
            self._lend()
        if len(self) < 4 * self._RECENT:
            return False
        leads = list(self._leads)
        recent = sorted(leads[-self._RECENT :])
        before = sorted(lead for lead in leads[: -self._RECENT] if lead < NEVER)
        if len(before) < self._RECENT:
            return False
        usual, median = quantile(before, 50), quantile(recent, 50)
        if quantile(before, 5) <= median <= quantile(before, 95) or abs(median - usual) <= self._MOVED * usual:
            return False
        self.retime(self._RECENT)
        return True

    def retime(self, recent: int) -> None:
        """Go by the last ``recent`` leads, and those to come: of older occurrences it is known what they announced."""
        self._own = min(recent, len(self))
        self._lend()

    def _lend(self) -> None:
        """Older occurrences have the leads of the newer ones, in turn; they are forgotten if those are mostly false."""
        leads = list(self._leads)
        own = [lead for lead in leads[len(leads) - self._own :] if lead < NEVER]
        if 2 * len(own) <= self._own:
            self.truncate(self._own)
            return
        for i, lead in enumerate(leads[: len(leads) - self._own]):
            if lead < NEVER:
                self._leads[i] = own[i % len(own)]


def quantile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted values, linear between neighbours."""
    place = (len(ordered) - 1) * percent / 100.0
    below = int(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return low if place == below or low == high else low + (high - low) * (place - below)


def quantiles(ordered: Sequence[float]) -> dict[str, float]:
    """Return P1 to P99 of sorted leads in µs; empty when there are none."""
    return {f"p{percent}": round(quantile(ordered, percent), 1) for percent in PERCENTILES} if len(ordered) else {}


class Bursts(msgspec.Struct, frozen=True):
    """What is known of the last ``Bursts.HISTORY`` bursts.

    ``newest`` is the number of the last; ``gaps_us`` the time since the end of the burst before, of each, oldest first;
    ``interval_us`` the mean time between bursts.
    """

    HISTORY: ClassVar[int] = 1024

    newest: int
    gaps_us: Sequence[float]
    interval_us: float

    def gap_of(self, number: int) -> float:
        """Return the gap before the burst with this number."""
        return self.gaps_us[number - self.newest - 1]
