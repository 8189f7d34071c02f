"""Which latency-critical services a GPU takes, when together they need more of it than there is.

The last in order is left out: the lowest priority, then the youngest. One at a time, after the need was too high for
some seconds, since a new process may only be starting. It is let in again once its need, as it was, fits with room to
spare and its time is over; that time doubles each time, so that two that do not fit do not take turns at failing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpsched.adaptive.config import Admission


_PATIENCE = 3  # seconds in a row
_ROOM = 0.05  # of the GPU: must be free beyond the need of who is let in
_LONGEST = 32  # times retry_s


@dataclass(frozen=True, slots=True)
class Claim:
    """A service on a GPU, with all of its processes. ``need``: share of GPU time, None while not known."""

    service: str
    need: float | None
    bursts: int = 0
    burst_us: float = 0.0
    priority: int = 0
    since: float = 0.0


@dataclass
class _Out:
    burst_us: float
    until: float
    waited_s: float
    reason: str


class Admissions:
    """Fed once a second with all claims by GPU; ``refused`` says who is out, and why. Times in seconds."""

    def __init__(self) -> None:
        self._out: dict[str, _Out] = {}
        self._waited: dict[str, float] = {}
        self._full: dict[object, int] = {}

    @property
    def refused(self) -> Mapping[str, str]:
        """The services that are out, and the reason for people."""
        return {service: out.reason for service, out in self._out.items()}

    def feed(self, now: float, gpus: Mapping[object, Sequence[Claim]], settings: Admission) -> None:
        """Judge anew."""
        if settings.action == "off":
            self._out.clear()
        for gpu, claims in gpus.items():
            inside = [claim for claim in claims if claim.service not in self._out]
            needed = sum(claim.need or 0.0 for claim in inside)
            # Leaving out less than that gains nothing.
            worth = [claim for claim in inside if (claim.need or 0.0) > _ROOM]
            if settings.action != "off" and needed > settings.capacity and len(worth) > 1:
                self._full[gpu] = self._full.get(gpu, 0) + 1
                if self._full[gpu] >= _PATIENCE:
                    self._refuse(now, worth, needed, settings)
                    self._full[gpu] = 0
            else:
                self._full[gpu] = 0
                self._readmit(now, claims, needed, settings)
        self._full = {gpu: count for gpu, count in self._full.items() if gpu in gpus}

    def keep_only(self, services: Collection[str]) -> None:
        """The others ended or are left alone."""
        for known in (self._out, self._waited):
            for service in known.keys() - services:
                del known[service]

    def _refuse(self, now: float, claims: Sequence[Claim], needed: float, settings: Admission) -> None:
        last = min(claims, key=lambda claim: (claim.priority, -claim.since))
        wait = min(2 * self._waited.get(last.service, settings.retry_s / 2), _LONGEST * settings.retry_s)
        self._waited[last.service] = wait
        others = needed - (last.need or 0.0)
        reason = (
            f"not admitted: needs {last.need:.0%} of the GPU, the other latency-critical {others:.0%}, "
            f"and admission.capacity is {settings.capacity:.0%}"
        )
        self._out[last.service] = _Out(last.burst_us, now + wait, wait, reason)

    def _readmit(self, now: float, claims: Sequence[Claim], needed: float, settings: Admission) -> None:
        """Let in the first in order that fits by the length that its bursts had, and the number that it has now."""
        for claim in sorted(claims, key=lambda claim: (-claim.priority, claim.since)):
            out = self._out.get(claim.service)
            if out is None or now < out.until:
                continue
            need = claim.bursts * out.burst_us / 1e6 if claim.bursts else claim.need or 0.0  # a burst may have no end
            if needed + need + _ROOM <= settings.capacity:
                del self._out[claim.service]
                return
