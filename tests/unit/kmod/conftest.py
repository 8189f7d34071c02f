"""Small driver trees of our own: the few lines that the hooks stand next to, at about the lines of the real ones."""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


sys.path.insert(0, str(Path(__file__).parent))  # kernel_side

ANCHORS = Path(__file__).parent / "anchors"
MARK = re.compile(r"/\* at line (\d+) \*/")


def expand(file: Path) -> None:
    """Replace each mark by as many lines as bring the next one to the line it names: patch looks near line numbers."""
    out: list[str] = []
    for line in file.read_text().splitlines():
        mark = MARK.fullmatch(line)
        out += [""] * (int(mark.group(1)) - 1 - len(out)) if mark else [line]
    file.write_text("\n".join(out) + "\n")


@pytest.fixture
def driver_tree() -> Callable[[str, Path], Path]:
    """Return a function that makes a tree like a release's in a new folder."""

    def make(release: str, folder: Path) -> Path:
        shutil.copytree(ANCHORS / release, folder)
        expand(folder / "nvidia" / "nv.c")
        return folder

    return make
