"""The daemon has descriptors enough, whatever soft limit it was started with."""

import resource
import subprocess
import sys

import pytest


HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
MOST = 65_536 if HARD == resource.RLIM_INFINITY else min(HARD, 65_536)
LIMITS = """
import resource
from gpsched.adaptive.daemon import allow_descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
allow_descriptors()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard", "expected"), [(256, 900, 900), (256, 256, 256), (300, HARD, MOST)])
def test_the_soft_limit_is_raised_as_far_as_it_may(soft: int, hard: int, expected: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITS.format(soft=soft, hard=hard)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(expected), str(hard)]
