"""Folders of processes that were killed go; those of living ones stay."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpsched.adaptive.scratch import Scratch, sweep


_HOLD = """import signal
from gpsched.adaptive.scratch import Scratch
held = Scratch("g-")
print(held.path, flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_it_goes_with_its_contents() -> None:
    with Scratch("g-") as folder:
        (folder / "x").mkdir()
        (folder / "x/y").write_text("z")
    assert not folder.exists()


def test_only_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / "g-somebody-elses").mkdir()
    with subprocess.Popen([sys.executable, "-c", _HOLD], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        with Scratch("g-") as mine:
            sweep("g-", young_s=0)
            assert left.exists()
            other.send_signal(signal.SIGKILL)
            other.wait()
            sweep("g-")
            assert left.exists()  # too young
            os.utime(left, (0, 0))
            sweep("g-")
            assert not left.exists()
            assert mine.exists()
    assert (tmp_path / "g-somebody-elses").exists()


def test_links_and_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    theirs = tmp_path / "g-theirs"
    theirs.mkdir()
    for folder in (elsewhere, theirs):
        (folder / ".owner").touch()
        (folder / "kept").touch()
    (tmp_path / "g-link").symlink_to(elsewhere)
    os.chown(theirs, 65534, 65534)
    sweep("g-", young_s=0)
    assert (elsewhere / "kept").exists()
    assert (theirs / "kept").exists()
