"""Mixes as data: services with objectives and jobs, and what changes once the tuner has settled."""

import difflib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from gpsched.adaptive.errors import UsageError
from gpsched.bench import toml
from gpsched.bench.scenario import Be, Lc, Positive, Scenario


FOLDER = Path(__file__).parent / "mixes"


class After(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The change: requests ``load`` times as often, and so many more ``jobs`` like the last one."""

    what: str
    load: Positive = 1.0
    jobs: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0


class Mix(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file. Times as in a scenario; ``window_s`` on the GPU's clock. ``agent``: whether services can be held."""

    title: str
    lc: list[Lc]
    be: list[Be]
    after: After
    window_s: Annotated[float, msgspec.Meta(ge=0.5, le=10.0)] = 2.0
    agent: bool = True

    def __post_init__(self) -> None:
        if any(lc.slo is None or lc.rate is None or lc.model for lc in self.lc) or not self.lc or not self.be:
            raise ValueError("needs [[lc]] with rate, slo and kernels (no model), and [[be]]")

    @property
    def services(self) -> list[Lc]:
        """An entry for each service."""
        return [lc for lc in self.lc for _ in range(lc.count)]

    @property
    def identity(self) -> str:
        """A digest of everything that is measured under this name."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]

    def limits_us(self) -> list[float]:
        """The objective of each service."""
        return [lc.slo_us or 0.0 for lc in self.services]

    def rates(self, changed: bool) -> list[float]:
        """Requests a second of each service, before or after the change."""
        factor = self.after.load if changed else 1.0
        return [(lc.rate or 0.0) * factor for lc in self.services]

    def jobs(self, changed: bool) -> int:
        """How many jobs run, before or after the change."""
        return sum(be.count for be in self.be) + (self.after.jobs if changed else 0)

    def scenario(self) -> Scenario:
        """All programs that ever run, for a GPU on which they are real ones."""
        last = msgspec.structs.replace(self.be[-1], count=self.be[-1].count + self.after.jobs)
        return Scenario(title=self.title, lc=self.lc, be=[*self.be[:-1], last])


def names() -> list[str]:
    """Return the mixes that come with gpsched."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(chosen: Sequence[str]) -> dict[str, Mix]:
    """Read mixes, by name or file; raises ``UsageError`` (no such one) and ``ConfigError`` (a wrong key or value)."""
    return {Path(name).stem: toml.load(_find(name), Mix) for name in chosen}


def _find(name: str) -> Path:
    if name.endswith(".toml"):
        return Path(name)
    if name not in names():
        nearest = difflib.get_close_matches(name, names(), n=1, cutoff=0.0)[0]
        raise UsageError(f"no mix {name!r}; did you mean {nearest!r}? Known: {', '.join(names())}")
    return FOLDER / f"{name}.toml"
