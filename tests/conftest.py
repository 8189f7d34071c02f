"""What holds for all tests."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings


# An example's wall time says nothing on a shared machine.
settings.register_profile("gpsched", deadline=None)
settings.load_profile("gpsched")

# Started in the background of a shell, tests ignore SIGINT, and the programs they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SEVERAL_PROCESSES = ("sim", "slurm", "vm", "bpf")
_SEVERAL_HERE = ("cli", "faults", "limits", "tui", "unit/actuator", "unit/agent", "unit/bench", "unit/freezer")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of several real processes are tried three times: the machine may be busy. Retries are counted and shown."""
    here = [Path(__file__).parent / folder for folder in _SEVERAL_HERE]
    for item in items:
        marked = any(item.get_closest_marker(name) for name in _SEVERAL_PROCESSES)
        if marked or any(item.path.is_relative_to(folder) for folder in here):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=5))
