"""The settings that may change while work runs: what each does, its bounds, and which end is gentler.

A knob is a key of the configuration (``SECTION.KEY``), so that a static value goes into the configuration file and a
live one over it. Public: the daemon checks values by this table, the tuner searches in it, the command line shows it.
"""

from typing import Literal

import msgspec

from gpsched.adaptive.errors import UsageError


Value = int | float | str
Settings = dict[str, Value]  # knob -> value
Owner = Literal["default", "tuner", "pin", "admin"]
SCHEMA = "gpsched.settings/1"


class Knob(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. ``low`` and ``high`` bound a number; ``choices``, gentlest first, are the values of a word.

    ``scale`` log: equal ratios matter equally. ``gentle``: the value that interferes least with best-effort work.
    """

    name: str
    what: str
    unit: str = ""
    scale: Literal["log", "linear", "choice"] = "linear"
    integer: bool = True
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    gentle: Value = 0

    @property
    def section(self) -> str:
        """The configuration's section."""
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        """The key in its section."""
        return self.name.partition(".")[2]

    def checked(self, value: object) -> Value:
        """Return the value in the knob's type; raise ``KnobValueError`` when it is out of bounds."""
        if self.scale == "choice":
            if value not in self.choices:
                raise KnobValueError(self, value)
            return str(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            raise KnobValueError(self, value)
        if self.integer and value != int(value):
            raise KnobValueError(self, value)
        return int(value) if self.integer else float(value)

    @property
    def range_(self) -> str:
        """The bounds in words."""
        if self.scale == "choice":
            return ", ".join(self.choices)
        return f"{self.low:g} to {self.high:g}{' ' + self.unit if self.unit else ''}"


class KnobValueError(UsageError):
    """A value that a knob cannot have. Fields: ``knob``, ``value``."""

    def __init__(self, knob: Knob, value: object) -> None:
        self.knob, self.value = knob, value
        super().__init__(f"{knob.name} cannot be {value!r}; give {knob.range_}")


class UnknownKnobError(UsageError):
    """There is no such knob. Field: ``name``."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no knob {name!r}; known: {', '.join(KNOBS)}")


_ALL = (
    Knob(
        name="reservations.level",
        what="how strongly the GPU is kept for latency-critical bursts",
        scale="choice",
        choices=("timeslice", "reserve", "hold", "auto"),
        gentle="timeslice",
    ),
    Knob(
        name="timeslice.lc_us",
        what="slice of a latency-critical process",
        unit="µs",
        scale="log",
        low=500,
        high=1_000_000,
        gentle=2_000,
    ),
    Knob(
        name="timeslice.be_us",
        what="slice of a best-effort process beside a latency-critical one",
        unit="µs",
        scale="log",
        low=1,
        high=10_000,
        gentle=2_000,
    ),
    Knob(
        name="reservations.turn_us",
        what="how long each of several best-effort processes has the GPU in turn",
        unit="µs",
        scale="log",
        low=5_000,
        high=500_000,
        gentle=500_000,
    ),
    Knob(
        name="reservations.offset_shift_us",
        what="how much later than learned a reservation begins",
        unit="µs",
        low=-1_000,
        high=2_000,
        gentle=2_000,
    ),
    Knob(
        name="reservations.quiet_extra_us",
        what="how much longer than learned the GPU is kept after a burst, for the next",
        unit="µs",
        low=0,
        high=5_000,
        gentle=0,
    ),
    Knob(
        name="reservations.be_share",
        what="share of the time that is open to best-effort work",
        integer=False,
        low=0.05,
        high=1.0,
        gentle=1.0,
    ),
)
KNOBS: dict[str, Knob] = {knob.name: knob for knob in _ALL}


def knob(name: str) -> Knob:
    """Return the knob; its key alone will do where only one has it. Raises ``UnknownKnobError``."""
    found = [each for each in _ALL if name in (each.name, each.key)]
    if len(found) != 1:
        raise UnknownKnobError(name)
    return found[0]


class KnobView(msgspec.Struct, frozen=True, kw_only=True):
    """A knob on one GPU: the value in force, whose it is, and the value without tuner and pins."""

    name: str
    value: Value
    default: Value
    owner: Owner


class GpuSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All knobs of one GPU. ``note``: what the tuner says of its last change there."""

    gpu: int
    knobs: list[KnobView]
    note: str | None = None

    @property
    def values(self) -> Settings:
        """The values in force."""
        return {each.name: each.value for each in self.knobs}


class SettingsView(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon uses now. ``lease_s``: how long the tuner's values stay without another word of it.

    ``epoch`` grows with every reset: the tuner then forgets what it learned of the present work. ``enabled``: whether
    the daemon runs a tuner. ``tuner_pid``, ``phase``: who sends the values, and what it says it does.
    """

    schema: str = SCHEMA
    enabled: bool = False
    tuner_pid: int | None = None
    phase: str | None = None
    lease_s: float | None = None
    epoch: int = 0
    pins: Settings = {}
    gpus: list[GpuSettings] = []


class Proposal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the tuner wants on one GPU: all its values there (others go back to the default), and why."""

    gpu: int
    values: Settings
    note: str | None = None


class TuneParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tuner's heartbeat, parameters of the method ``tune``: replaces all that it asked for before.

    Without another one within ``lease_s`` seconds, all of its values go back to the defaults.
    """

    pid: int
    lease_s: float
    phase: str = ""
    proposals: list[Proposal] = []
