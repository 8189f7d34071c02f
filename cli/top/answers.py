"""What people type into the questions of ``top``. All raise ``UsageError``."""

import tomllib

from gpsched.adaptive.errors import UsageError
from gpsched.adaptive.knobs import Value, knob
from gpsched.adaptive.model import Class


_CLASSES: dict[str, Class] = {"lc": "lc", "be": "be"}


def pid_and_class(text: str) -> tuple[int, Class]:
    """Like ``4242 be``."""
    words = text.split()
    if len(words) != 2 or not words[0].isdecimal() or words[1] not in _CLASSES:
        raise UsageError(f"{text!r} is not a pid and a class (lc or be)")
    return int(words[0]), _CLASSES[words[1]]


def knob_and_value(text: str) -> tuple[str, Value]:
    """Like ``timeslice.be_us=100``; the value is within the knob's bounds."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is not KNOB=VALUE")
    known = knob(name.strip())
    try:
        return known.name, known.checked(tomllib.loads(f"value = {value}")["value"])
    except tomllib.TOMLDecodeError:  # a word
        return known.name, known.checked(value.strip())
