"""The cgroup v2 freezer. Source: Documentation/admin-guide/cgroup-v2.rst of Linux (cgroup.freeze, 5.2 and newer)."""

import os
from functools import cache
from pathlib import Path


def mount(mountinfo: Path = Path("/proc/self/mountinfo")) -> Path | None:
    """Return where the whole cgroup v2 hierarchy is mounted; None where it is not."""
    for line in mountinfo.read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        if after.split()[0] == "cgroup2" and root == "/":
            return Path(point.encode().decode("unicode_escape"))
    return None


class Cgroup:
    """One cgroup by its directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def of(cls, pid: int, hierarchy: Path | None) -> "Cgroup | None":
        """Return the cgroup of a process; None for the root's, and where none can be named (gone, other namespace)."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            return None
        path = next((line[3:] for line in lines if line.startswith("0::")), "/")
        if hierarchy is None or path == "/" or ".." in path.split("/") or path.endswith(" (deleted)"):
            return None
        return cls(hierarchy / path.lstrip("/"))

    @property
    def inode(self) -> int:
        """Tells a cgroup from another that has its name later. Raises ``OSError``."""
        return self.directory.stat().st_ino

    @property
    def writable(self) -> bool:
        """Whether it can be frozen and thawed: the hierarchy may be mounted read-only."""
        return os.access(self.directory / "cgroup.freeze", os.W_OK)

    @property
    def frozen(self) -> bool:
        """Whether someone asked for it to be frozen. Raises ``OSError``."""
        return (self.directory / "cgroup.freeze").read_text().strip() == "1"

    @property
    def settled(self) -> bool:
        """Whether all its processes have stopped. Raises ``OSError``."""
        return "frozen 1" in (self.directory / "cgroup.events").read_text().splitlines()

    def set_frozen(self, frozen: bool) -> None:
        """Ask for it; the kernel stops the processes one by one. Raises ``OSError``."""
        file = os.open(self.directory / "cgroup.freeze", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(file, b"1" if frozen else b"0")
        finally:
            os.close(file)

    def members(self) -> set[int]:
        """Return every process in it and below. Raises ``OSError``, also for threaded cgroups."""
        files = [self.directory / "cgroup.procs", *self.directory.glob("**/*/cgroup.procs")]
        return {int(pid) for file in files for pid in file.read_text().split()}

    def holds_us(self) -> bool:
        """Whether freezing it would freeze this process."""
        ours = Cgroup.of(os.getpid(), _hierarchy())
        return ours is not None and ours.directory.is_relative_to(self.directory)


@cache
def _hierarchy() -> Path | None:
    return mount()
