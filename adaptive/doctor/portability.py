"""Writes docs/portability.md from the rules."""

from gpsched.adaptive.doctor.examine import LADDER, RULES
from gpsched.adaptive.doctor.model import Rule


_HEAD = """# Where gpsched runs

Made from the rules of `gpsched doctor` by `gpsched doctor --table`: edit those.
`gpsched doctor` answers each for your machine.
"Run with" is what was really run; everything else follows from sources and has to prove itself.
Debian 12, Ubuntu 22.04 and 24.04 were each set up from git, make and Python, and ran `gpsched demo` and a part of the
tests: Ubuntu in a chroot on Linux 6.18. Its own kernels 5.15 and 6.8 load the BPF programs in a virtual machine.

| what | without it | impossible then | fix | run with |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(_row(rule) for rule in RULES)


def _row(rule: Rule) -> str:
    levels = "all levels" if set(rule.levels) == set(LADDER) else ", ".join(rule.levels) or "-"
    cells = (rule.title, rule.otherwise, levels, rule.fix, rule.tried)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
