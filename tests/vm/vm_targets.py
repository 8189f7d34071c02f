"""Which drivers on which kernels: by default one driver on each kernel; GPSCHED_VM_FULL=1 adds the other two pairs and
the companion module beside an unpatched driver.
"""

import os
from dataclasses import dataclass

import machine


@dataclass(frozen=True)
class Target:
    """A driver on a kernel; ``companion``: unpatched, with the companion module beside it."""

    driver: str
    kernel: str
    companion: bool = False

    def __str__(self) -> str:
        return f"{self.driver}-on-{self.kernel}" + ("-companion" if self.companion else "")


QUICK = (Target("535", "6.1"), Target("550", "6.12"))
FULL = (*QUICK, Target("550", "6.1"), Target("535", "6.12"), Target("550", "6.12", companion=True))
TARGETS = FULL if os.environ.get("GPSCHED_VM_FULL") == "1" else QUICK


@dataclass
class Outcome:
    """One machine's run."""

    checks: dict[str, dict]
    result: machine.Result
