"""Temporary folders. A process that is killed leaves its folder behind; the next one of that kind removes it."""

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path


_LOCK = ".owner"
_YOUNG_S = 3600.0  # programs that outlive the owner may still be putting things back


class Scratch:
    """A folder ``path`` of this process, whose name begins with ``prefix``; a context manager."""

    def __init__(self, prefix: str) -> None:
        sweep(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep(prefix: str, young_s: float = _YOUNG_S) -> None:
    """Remove our folders whose owner is dead, unless they are younger than ``young_s``."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # not ours, or gone meanwhile
            if _is_own(folder.lstat(), young_s) and _abandoned(folder):
                for mount in filter(os.path.ismount, map(str, folder.iterdir())):
                    subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
                shutil.rmtree(folder, ignore_errors=True)


def _is_own(found: os.stat_result, young_s: float) -> bool:
    """Anybody may put folders and links of such names into /tmp: root must not remove what they mean."""
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and time.time() - found.st_mtime >= young_s


def _abandoned(folder: Path) -> bool:
    """Whether it has an owner's lock that nobody holds."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
