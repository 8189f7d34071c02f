"""What goes into the tuner of a GPU and what comes out: a window with its work, and what follows from it. Pure."""

import math
from dataclasses import dataclass, field

import msgspec

from gpsched.adaptive.knobs import KNOBS, Settings, Value
from gpsched.tuner.model import Change, Expectation, Phase, Window
from gpsched.tuner.prior import Demand
from gpsched.tuner.search import Idea
from gpsched.tuner.space import Work


@dataclass(frozen=True)
class Observed:
    """A measured window with what the search must know of the work in it."""

    window: Window
    work: Work
    demand: Demand


@dataclass
class Step:
    """What follows from a window: ``settings`` for the next one (none: the defaults), and what to remember.

    ``seen``: an earlier change, with what it came to. ``note``: what people should know of the phase.
    """

    window: Window
    settings: Settings
    phase: Phase
    note: str = ""
    changes: list[Change] = field(default_factory=list)
    seen: list[Change] = field(default_factory=list)

    def move(self, before: Settings, idea: Idea, kind: str, why: str) -> Change | None:
        """Remember the change to this idea's settings; None when nothing differs."""
        what = _difference(before, idea.settings)
        if not what:
            return None
        change = Change(
            time_s=self.window.time_s,
            gpu=self.window.gpu,
            key=self.window.key,
            kind=kind,  # type: ignore[arg-type]
            what=what,
            why=why,
            expected=idea.expected,
        )
        self.changes.append(change)
        return change

    def tell(self, change: Change) -> None:
        """The window shows what an earlier change came to."""
        seen = Expectation(progress=self.window.progress, margin=self.window.margin)
        self.seen.append(msgspec.structs.replace(change, seen=seen))


def promise(idea: Idea, what: str) -> str:
    """Why these settings: what they should gain (else ``what``), and how much room they leave."""
    margin = idea.expected.margin
    room = "" if margin is None else f", the tightest objective with {math.expm1(margin):+.0%} to spare"
    if idea.kind == "protect":
        return f"nothing known keeps the objectives for sure; this comes nearest{room}"
    gain = f"{idea.gain:+.1%} expected for best-effort work" if idea.gain else what
    return gain + room


def left_to_others(work: Work, before: Work | None) -> str:
    """Which knobs an administrator has taken since; empty when none."""
    known = before.closed if before else {}
    names = [KNOBS[name].key for name in work.closed if known.get(name) != work.closed[name]]
    return f"{', '.join(names)}: set by an administrator, so left alone" if names else ""


def auto_level(window: Window) -> str | None:
    """The level that ``auto`` came to; None while nothing is reserved yet, for hints are still learned."""
    found = {each.level for each in window.lc if each.level in ("reserve", "hold")}
    return found.pop() if len(found) == 1 else None


def _difference(before: Settings, after: Settings) -> dict[str, tuple[Value | None, Value | None]]:
    return {name: (before.get(name), after.get(name)) for name in KNOBS if before.get(name) != after.get(name)}
