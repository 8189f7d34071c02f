"""The hold agent inside a program, on a fake libcuda: what it launches, and that the program never notices it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpsched.adaptive.agent import library_path


HERE = Path(__file__).parent
SETUP_CALLS = (
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuMemHostRegister_v2",
    "cuMemHostGetDevicePointer_v2",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuStreamCreateWithPriority",
    "cuLaunchKernel",
)


@pytest.fixture(scope="session")
def fake_libcuda(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libcuda")
    build(folder, HERE / "fake_libcuda.c")
    return folder


def build(folder, source):
    flags = ("-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    subprocess.run(["cc", *flags, "-o", folder / "libcuda.so.1", source], check=True)


def run(folder, *arguments):
    """Run one program of host.py; it must succeed and say nothing."""
    if not library_path().exists():
        pytest.skip(f"{library_path()} is not built; run: make native")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "AGENT": str(library_path())}
    command = [sys.executable, "-m", "tests.unit.agent.host", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stderr, done.stdout, done.returncode) == ("", "", 0)


@pytest.mark.parametrize(
    "program",
    [
        "holds_until_released",
        "ends_a_hold_at_its_limit",
        "skips_a_hold_that_is_over",
        "bounds_what_it_is_told",
        "waits_for_the_context",
        "follows_a_context_that_goes_and_comes",
        "gives_up_when_launches_fail",
        "survives_fork_and_exec",
        "leaves_signals_alone",
        "runs_as_others_do_once_it_was_hurried",
        "stays_hurried_while_it_works",
    ],
)
def test_program(fake_libcuda, program):
    run(fake_libcuda, program)


@pytest.mark.parametrize("times", ["1", "1000"], ids=["once", "always"])
@pytest.mark.parametrize("call", SETUP_CALLS)
def test_a_call_that_fails(fake_libcuda, call, times):
    run(fake_libcuda, "gives_up_when", call, times)


def test_a_driver_that_lacks_a_call(fake_libcuda, tmp_path):
    source = (HERE / "fake_libcuda.c").read_text().replace("cuStreamCreateWithPriority", "cuSomethingElse")
    (tmp_path / "old.c").write_text(source)
    build(tmp_path, tmp_path / "old.c")
    run(tmp_path, "has_no_agent")
