"""The probes leave nothing behind: descriptors over loads, map entries over many processes."""

import contextlib
import gc
import os
from pathlib import Path

import pytest

from gpsched.adaptive.errors import ProcessGoneError
from gpsched.adaptive.probes.probes import Probes
from tests.bpf import fake_cuda


pytestmark = [pytest.mark.root, pytest.mark.bpf]
LOADS, ROUNDS = 6, 200


def descriptors() -> int:
    gc.collect()  # what earlier tests left is closed now, not somewhere in between
    return len(list(Path("/proc/self/fd").iterdir()))


def load_once(library: Path) -> None:
    probes = Probes()
    probes.load(lambda _event: None)
    probes.attach_file(library)
    assert probes.wait_attached(30)
    assert probes.attachments()[0].error is None
    probes.close()


def test_loading_leaves_no_descriptor(tmp_path: Path) -> None:
    library = fake_cuda.build(tmp_path, ("cuLaunchKernel",))
    load_once(library)
    before = descriptors()
    for _ in range(LOADS):
        load_once(library)
    assert descriptors() == before


def test_processes_leave_no_entry_and_no_descriptor() -> None:
    probes = Probes(max_processes=16)
    probes.load(lambda _event: None)
    try:
        before = descriptors()
        for _ in range(ROUNDS):
            child = os.posix_spawn("/bin/true", ["true"], {})
            with contextlib.suppress(ProcessGoneError):
                probes.manage(child, "be")
                probes.forget(child)
            os.waitpid(child, 0)
        assert probes.wait_attached(30)
        assert (probes.managed(), probes.lost_processes()) == ({}, 0)
        assert descriptors() == before
    finally:
        probes.close()
