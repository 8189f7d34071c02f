"""What /proc says about one process. Source: proc(5)."""

import os
import pwd
import re
from pathlib import Path

import msgspec

from gpsched.adaptive.errors import ProcessGoneError


_CONTAINER = re.compile(r"(?:docker|libpod|cri-containerd|crio)[-/]([0-9a-f]{12,64})|/([0-9a-f]{64})(?:/|$)")
_PLACE = re.compile(rf"slurm.*/job_\d|[-/]pod[0-9a-f]{{8}}|{_CONTAINER.pattern}")
_DRIVER_FILE = "nvidiactl"


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A process at the moment it was read. ``start_ticks`` tells a reused pid apart (field 22 of stat)."""

    pid: int
    start_ticks: int
    parent: int
    name: str
    exe: str
    command: str
    user: str
    cgroup: str
    container: str | None
    env: dict[str, str]


def start_ticks(pid: int, root: Path = Path("/proc")) -> int:
    """Return when the process started, in clock ticks after boot; raise ``ProcessGoneError``."""
    return int(_stat(root / str(pid))[19])


def read(pid: int, root: Path = Path("/proc")) -> ProcessInfo:
    """Read everything a rule may ask for; raise ``ProcessGoneError`` when the process is gone or a zombie."""
    folder = root / str(pid)
    stat = _stat(folder)
    if stat[0] in "ZX":
        raise ProcessGoneError(pid)
    cgroup = _cgroup(folder)
    container = _CONTAINER.search(cgroup)
    return ProcessInfo(
        pid=pid,
        start_ticks=int(stat[19]),
        parent=int(stat[1]),
        name=_text(folder / "comm").strip(),
        exe=_link(folder / "exe"),
        command=_text(folder / "cmdline").replace("\0", " ").strip(),
        user=_user(folder),
        cgroup=cgroup,
        container=(container[1] or container[2])[:12] if container else None,
        env=_environment(folder),
    )


def has_driver_open(pid: int, root: Path = Path("/proc")) -> bool:
    """Whether the process holds a descriptor of the driver's control file."""
    try:
        return any(_link(link).endswith("/" + _DRIVER_FILE) for link in (root / str(pid) / "fd").iterdir())
    except OSError:
        return False


def driver_users(root: Path = Path("/proc")) -> list[int]:
    """The pids of all processes that have the driver open now, ours excepted: it holds copies of theirs."""
    pids = [int(folder.name) for folder in root.iterdir() if folder.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and has_driver_open(pid, root)]


def children(pid: int, root: Path = Path("/proc")) -> list[int]:
    """All descendants that live now, parents before their children."""
    parents: dict[int, list[int]] = {}
    for folder in root.iterdir():
        if folder.name.isdigit():
            try:
                parents.setdefault(int(_stat(folder)[1]), []).append(int(folder.name))
            except ProcessGoneError:
                continue
    found, queue = [], [pid]
    while queue:
        own = parents.get(queue.pop(), [])
        found += own
        queue += own
    return found


def _stat(folder: Path) -> list[str]:
    """The fields after the command name, which may itself hold spaces and brackets; [0] is the state."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError as error:
        raise ProcessGoneError(int(folder.name)) from error


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _cgroup(folder: Path) -> str:
    """The path that names a job or a container, else the unified (v2) one, else the first that is not the root.

    Where both versions are mounted, Slurm and docker use the controllers of v1, and the unified path is their daemon's.
    """
    lines = [line.split(":", 2) for line in _text(folder / "cgroup").splitlines()]
    paths = [path for _, _, path in sorted(lines, key=lambda line: line[1] != "") if path != "/"]
    return next(filter(_PLACE.search, paths), next(iter(paths), "/"))


def _user(folder: Path) -> str:
    try:
        uid = folder.stat().st_uid
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
    except OSError as error:
        raise ProcessGoneError(int(folder.name)) from error


def _environment(folder: Path) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in _text(folder / "environ").split("\0") if "=" in entry)
    return {key: value for key, _, value in pairs}
