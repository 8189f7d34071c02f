"""Reads a TOML file into a struct; a key that is not known is named with the nearest one that is."""

import difflib
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from gpsched.adaptive.errors import ConfigError


T = TypeVar("T", bound=msgspec.Struct)


def load(path: Path, type_: type[T]) -> T:
    """Return the file's content; raises ``ConfigError`` with the file, the key and what is wrong with it."""
    return convert(path, read(path), type_)


def read(path: Path) -> dict[str, Any]:
    """Return the file's tables as they are; raises ``ConfigError``."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(str(path), "", str(error)) from error


def convert(path: Path, raw: Any, type_: type[T], prefix: str = "") -> T:
    """Return ``raw``, read from ``path`` under ``prefix``, as a struct; raises ``ConfigError``."""
    _check_keys(path, raw, type_, prefix)
    try:
        return msgspec.convert(raw, type_)
    except (msgspec.ValidationError, ValueError) as error:
        reason, _, where = str(error).partition(" - at ")
        raise ConfigError(str(path), prefix + where.strip("`$."), reason) from error


def _check_keys(path: Path, raw: Any, type_: Any, where: str) -> None:
    struct = _struct_in(type_)
    if struct is None:
        return
    if isinstance(raw, list):
        for number, item in enumerate(raw):
            _check_keys(path, item, struct, f"{where.removesuffix('.')}[{number}].")
    elif isinstance(raw, dict):
        hints = get_type_hints(struct)
        known = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}
        for key, value in raw.items():
            if key not in known:
                nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
                raise ConfigError(str(path), where + key, f"unknown key; did you mean {nearest[0]!r}?")
            _check_keys(path, value, known[key], f"{where}{key}.")


def _struct_in(type_: Any) -> type[msgspec.Struct] | None:
    """The struct that a type is, or is a list or an optional of."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_
    return next((struct for argument in get_args(type_) if (struct := _struct_in(argument))), None)
