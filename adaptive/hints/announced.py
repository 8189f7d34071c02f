"""Explicit hints: the program says when its next burst comes. They outrank inference for as long as they are given."""

from collections import deque

from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.leads import quantile
from gpsched.adaptive.hints.model import Trigger
from gpsched.adaptive.hints.observations import Explicit, Matcher, WakeKind


class Announcements:
    """The explicit hints of one process and how well they were kept. µs."""

    FADE = 16  # bursts without a hint after which inference takes over again
    PATIENCE_US = 10_000.0  # after the announced time, until the true delays are known

    def __init__(self) -> None:
        self._delays: deque[float] = deque(maxlen=64)
        self._open_us: float | None = None  # announced time that no burst followed yet
        self._bursts_since = self.FADE

    @property
    def active(self) -> bool:
        """Whether the program gives hints."""
        return self._bursts_since < self.FADE

    def hint(self, hint: Explicit) -> None:
        """Take a hint or its cancellation."""
        self._bursts_since = 0
        self._open_us = None if hint.cancel else hint.time_us + hint.in_us

    def launch(self, time_us: float) -> None:
        """A burst begins."""
        self._bursts_since += 1
        if self._open_us is not None:
            self._delays.append(time_us - self._open_us)
            self._open_us = None

    def trigger(self, costs: Costs) -> Trigger:
        """Return the trigger; its times count from the announced time, so that the offset is negative."""
        delays = sorted(self._delays)
        known = len(delays) >= 8
        late = quantile(delays, 99) * 1.5 + 500.0 if known else self.PATIENCE_US
        return Trigger(
            matcher=Matcher(WakeKind.EXPLICIT),
            offset_us=-costs.early_us,
            limit_us=min(max(late, 500.0), self.PATIENCE_US),
            margin_us=costs.need_us,
            precision=1.0,
            recall=1.0,
            lead_us={f"p{percent}": round(quantile(delays, percent), 1) for percent in (1, 50, 99)} if known else {},
        )
