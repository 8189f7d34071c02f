"""Which drivers on which kernels: by default one driver on each of Debian's kernels.

GPSCHED_VM_FULL=1 adds the other two pairs and the companion module beside an unpatched driver. GPSCHED_VM_DEBUG=1 takes
one driver on a kernel with KASAN, lockdep and kmemleak instead; kmod_patches/scripts/debug-kernel.sh builds it first.
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

    @property
    def debug(self) -> bool:
        """Whether the kernel looks for faults by itself; everything takes several times longer there."""
        return self.kernel == "debug"


QUICK = (Target("535", "6.1"), Target("550", "6.12"))
FULL = (*QUICK, Target("550", "6.1"), Target("535", "6.12"), Target("550", "6.12", companion=True))
DEBUG = (Target("550", "debug"),)


def _chosen() -> tuple[Target, ...]:
    if os.environ.get("GPSCHED_VM_DEBUG") == "1":
        return DEBUG
    return FULL if os.environ.get("GPSCHED_VM_FULL") == "1" else QUICK


TARGETS = _chosen()


@dataclass
class Outcome:
    """One machine's run; ``leaks`` is what kmemleak found at the end, empty where the kernel does not have it."""

    checks: dict[str, dict]
    result: machine.Result
    leaks: str = ""
