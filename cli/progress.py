"""What long measurements share: a progress bar, and a look at the output file before, not after."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

Told = Callable[[str, float], None]


def check_writable(path: Path | None) -> None:
    """Raise ``UsageError`` for a path that cannot be written: minutes of measuring must not end there."""
    from gpsched.adaptive.errors import UsageError

    if path is None:
        return
    try:
        path.open("ab").close()
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another file") from error


def progress(console: "Console") -> AbstractContextManager[Told]:
    """Show a bar while the context lasts; yields what is to be called with what happens and the share done."""
    from contextlib import contextmanager

    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:32}"), BarColumn(), TimeElapsedColumn())

    @contextmanager
    def show() -> "Iterator[Told]":
        with Progress(*columns, console=console, transient=True) as bars:
            task = bars.add_task("starting", total=1.0)

            def told(what: str, share: float) -> None:
                bars.update(task, description=what, completed=share)

            yield told

    return show()
