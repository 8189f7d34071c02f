"""The rows of the table, flat or as a tree of GPU, tenant, process and channel group."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpsched.adaptive.model import GroupView, ProcessView, Snapshot
from gpsched.adaptive.units import format_duration
from gpsched.cli.top.columns import COLUMNS, Cell, Column
from gpsched.cli.top.history import History


@dataclass(frozen=True)
class Row:
    """``key`` is stable from one snapshot to the next; ``pid`` is None for headings."""

    key: str
    cells: dict[str, Cell]
    pid: int | None = None


@dataclass(frozen=True)
class View:
    """How the user wants to see it."""

    sort: Column | None = None
    descending: bool = False
    text: str = ""
    tree: bool = False


def rows(snapshot: Snapshot, history: History, view: View) -> list[Row]:
    """Filtered, sorted; by GPU, class and pid unless the user chose a column."""
    found = [process for process in snapshot.processes if matches(process, view.text)]
    found.sort(key=lambda process: (process.gpus, process.class_ != "lc", process.pid))
    if view.sort is not None:
        order = view.sort.order
        found.sort(key=lambda process: order(process, history), reverse=view.descending)
    if view.tree:
        return list(_tree(found, history))
    return [_process(process, history, str(process.pid)) for process in found]


def matches(process: ProcessView, text: str) -> bool:
    """Whether some field that a user may think of contains ``text``, in any case of letters."""
    fields = (str(process.pid), process.name, process.command, process.user, process.tenant, process.class_)
    more = (process.level, process.cgroup, process.container or "", process.place, process.source)
    return any(text.lower() in field.lower() for field in fields + more)


def _process(process: ProcessView, history: History, key: str, indent: str = "") -> Row:
    cells = {column.title: column.show(process, history) for column in COLUMNS}
    cells["PID"] = Cell(indent + cells["PID"].text, cells["PID"].style)
    return Row(key, cells, process.pid)


def _tree(found: list[ProcessView], history: History) -> Iterator[Row]:
    """A process on two GPUs is below both."""
    for gpu in sorted({gpu for process in found for gpu in process.gpus or [-1]}):
        title = f"GPU {gpu}" if gpu >= 0 else "no GPU"
        yield Row(f"g{gpu}", {"PID": Cell(title, "bold")})
        here = [process for process in found if gpu in (process.gpus or [-1])]
        for tenant in dict.fromkeys(process.tenant for process in here):
            yield Row(f"g{gpu}t{tenant}", {"PID": Cell(f" {tenant}", "italic")})
            for process in (process for process in here if process.tenant == tenant):
                yield _process(process, history, f"g{gpu}p{process.pid}", "  ")
                for group in (group for group in process.groups if group.gpu in (gpu, None)):
                    yield _group(f"g{gpu}p{process.pid}", group, process.pid)


def _group(parent: str, group: GroupView, pid: int) -> Row:
    slice_ = Cell(format_duration(group.timeslice_us)) if group.timeslice_us is not None else Cell("-", "dim")
    name = Cell(f"{group.engine}, {group.channels} ch", "dim")
    cells = {"PID": Cell(f"   {group.handle & 0xFFFF:04x}", "dim"), "SLICE": slice_, "NAME": name}
    return Row(f"{parent}c{group.client:x}:{group.handle:x}", cells, pid)
