"""The models that scenarios name: what they are made of, and as which program they run on which GPU."""

import difflib
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gpsched.adaptive.errors import UsageError
from gpsched.bench import toml


CATALOGUE = Path(__file__).with_name("models.toml")

Length = Annotated[float, msgspec.Meta(ge=0.1, le=1e6)]


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """``kernels_us``: one unit of work as a chain of kernels. ``kind``: the program that does it on a real GPU."""

    kind: Literal["torch", "cuda", "chain"] = "chain"
    origin: str = ""
    kernels_us: Annotated[list[Length], msgspec.Meta(min_length=1, max_length=10_000)]

    @property
    def total_us(self) -> float:
        """GPU time of one unit alone."""
        return sum(self.kernels_us)


class Models:
    """The catalogue, with the models of a user's file over those that come with gpsched."""

    def __init__(self, extra: Path | None = None) -> None:
        self._models = _read(CATALOGUE) | (_read(extra) if extra else {})

    def get(self, name: str) -> Model:
        """Return a model; raise ``UsageError`` naming the nearest one."""
        if name not in self._models:
            nearest = difflib.get_close_matches(name, self._models, n=1, cutoff=0.0)
            raise UsageError(f"no model {name!r}; did you mean {nearest[0]!r}? See bench/models.toml, or give --models")
        return self._models[name]

    def names(self) -> list[str]:
        """All of them."""
        return list(self._models)


def _read(path: Path) -> dict[str, Model]:
    """A file of tables ``[NAME]``; raises ``ConfigError``."""
    return {name: toml.convert(path, raw, Model, f"{name}.") for name, raw in toml.read(path).items()}
