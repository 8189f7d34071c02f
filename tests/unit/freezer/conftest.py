"""Victims, an undo log and a freezer."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.freezer import Freezer
from gpsched.adaptive.undo import UndoLog
from tests.unit.freezer.victims import Victim, cgroup


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Victim]]:
    victims: list[Victim] = []

    def start() -> Victim:
        victims.append(Victim(tmp_path))
        return victims[-1]

    yield start
    for victim in victims:
        victim.end()


@pytest.fixture
def group() -> Iterator[Path]:
    with cgroup() as directory:
        yield directory


@pytest.fixture
def undo(tmp_path: Path) -> Iterator[UndoLog]:
    undo = UndoLog(tmp_path / "state")
    yield undo
    undo.close()


@pytest.fixture
def freezer(undo: UndoLog) -> Iterator[Freezer]:
    freezer = Freezer(undo)
    yield freezer
    freezer.thaw_all()
