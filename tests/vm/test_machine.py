"""The judge of the machine's log must not be blind."""

import sys
from pathlib import Path

import pytest
from machine import Result, depends


sys.path.insert(0, str(Path(__file__).parent / "guest"))
import catalogue
import checks


GOOD = (
    "[    0.0] Linux version 6.12\n[    1.0] clocksource: timekeeping watchdog: Marking clocksource 'tsc' as unstable\n"
)


@pytest.mark.parametrize(
    "line",
    [
        "[ 5.0] BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "[ 5.0] WARNING: CPU: 1 PID: 99 at kernel/foo.c:12 bar+0x1/0x2",
        "[ 5.0] refcount_t: underflow; use-after-free.",
        "[ 5.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "[ 5.0] gpsched: 3 records leaked",
        "[ 5.0] BUG: sleeping function called from invalid context at kernel/locking/mutex.c:283",
    ],
)
def test_complaints_are_seen(line: str) -> None:
    assert Result(0, "", GOOD + line).splats() == [line]


def test_clean_log_is_clean() -> None:
    assert Result(0, "", GOOD).splats() == []


@pytest.mark.parametrize("log", ["", "[ 9.0] only the end of a log"])
def test_cut_log_is_no_clean_log(log: str) -> None:
    assert Result(0, "", log).splats()


def test_module_dependencies() -> None:
    assert depends(b"\x7fELF\0license=GPL\0depends=netfs,9pnet\0name=9p\0") == ["netfs", "9pnet"]
    assert depends(b"\x7fELF\0depends=\0name=netfs\0") == []


def test_every_file_with_checks_is_in_the_catalogue() -> None:
    """Or the machine would not run them, and nobody would see it."""
    guest = Path(__file__).parent / "guest"
    declared = {file.stem for file in guest.glob("*.py") if "\n@check\n" in file.read_text()}
    assert set(catalogue.SUBJECTS) == declared
    assert len(checks.CHECKS) == sum((guest / f"{subject}.py").read_text().count("\n@check\n") for subject in declared)
