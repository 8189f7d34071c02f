"""What the learner asks for while it observes. Times in µs of the observations' clock."""

import msgspec

from gpsched.adaptive.hints.bursts import Burst
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.hints.observations import Matcher


class Reserve(msgspec.Struct, frozen=True, gc=False):
    """Keep the GPU free from ``start_us`` until a burst that begins before ``until_us`` ends; else until then.

    A later Reserve that overlaps extends the former.
    """

    start_us: float
    until_us: float
    trigger: Matcher


class Release(msgspec.Struct, frozen=True, gc=False):
    """Drop what is reserved: no burst came in time, the program took its hint back, or events were lost."""

    time_us: float
    why: str


class BurstBegan(msgspec.Struct, frozen=True, gc=False):
    """The first launch. ``reserved_us`` ago the reservation began (None: nothing was reserved).

    ``allowed``: what announced it came early enough for the level, were its reservation one of the slowest to begin.

    It claims all reservations asked for so far; those that are for a later burst are asked for again right behind.
    """

    time_us: float
    reserved_us: float | None
    allowed: bool = False


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A launch within a burst served reservations; those that are still wanted are asked for again right behind."""

    time_us: float


class BurstEnded(msgspec.Struct, frozen=True, gc=False):
    """The GPU can go back to BE, but for what was asked for since the burst began."""

    burst: Burst


class ChoiceChanged(msgspec.Struct, frozen=True, gc=False):
    """From now on reserve by this choice."""

    choice: Choice


Output = Reserve | Release | BurstBegan | Claimed | BurstEnded | ChoiceChanged
