"""The columns of the table: one entry each says title, width, what is shown, how it sorts, and what gives way first."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpsched.adaptive.histogram import latency_quantile
from gpsched.adaptive.model import ProcessView
from gpsched.adaptive.units import format_duration
from gpsched.cli.top.history import History


class Cell(NamedTuple):
    """A text and its rich style."""

    text: str
    style: str = ""


Show = Callable[[ProcessView, History], Cell]
Order = Callable[[ProcessView, History], Any]
_NONE = Cell("-", "dim")
_CLASS_STYLE = {"lc": "cyan", "be": "magenta"}
_TIGHT = 0.8  # of the objective: from here on the margin is thin


@dataclass(frozen=True)
class Column:
    """``keep``: columns with small numbers stay longest on a narrow terminal."""

    title: str
    width: int
    keep: int
    show: Show
    order: Order
    right: bool = False


def _latency(view: ProcessView, percent: float) -> Cell:
    """Coloured by its margin to the objective."""
    us = latency_quantile(view, percent)
    if us is None:
        return _NONE
    used = us / view.slo_us if view.slo_us else None
    style = "" if used is None else "green" if used < _TIGHT else "yellow" if used <= 1 else "bold red"
    return Cell(format_duration(us), style)


def _slices(view: ProcessView) -> list[int]:
    return sorted({g.timeslice_us for g in view.groups if g.engine == "compute" and g.timeslice_us is not None})


def _duration(us: float | None) -> Cell:
    return _NONE if us is None else Cell(format_duration(us) if us else "0")


def _rate(value: float | None) -> Cell:
    return _NONE if value is None else Cell(f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}")


def _share(value: float | None) -> Cell:
    return _NONE if value is None else Cell(f"{value:.0%}")


def _hint(view: ProcessView, name: str) -> Any:
    return getattr(view.hints, name) if view.hints else None


def _text(text: str | None) -> Cell:
    return Cell(text) if text else _NONE


def _sum(title: str, keep: int, name: str) -> "Column":
    """A column of a duration that the hints tell."""
    return Column(title, 7, keep, lambda v, _: _duration(_hint(v, name)), lambda v, _: _low(_hint(v, name)), True)


def _low(value: float | None) -> float:
    """Sorts what is not known below everything."""
    return -1.0 if value is None else value


COLUMNS: tuple[Column, ...] = (
    Column("PID", 7, 0, lambda v, _: Cell(str(v.pid)), lambda v, _: v.pid),
    Column("CLASS", 5, 2, lambda v, _: Cell(v.class_, _CLASS_STYLE.get(v.class_, "")), lambda v, _: v.class_ != "lc"),
    Column("LEVEL", 9, 3, lambda v, _: Cell(v.level), lambda v, _: v.level),
    Column("GPU", 3, 5, lambda v, _: _text(",".join(map(str, v.gpus))), lambda v, _: v.gpus),
    Column(
        "SLICE", 7, 4, lambda v, _: _text(", ".join(map(format_duration, _slices(v)))), lambda v, _: _slices(v), True
    ),
    Column("SLO", 7, 6, lambda v, _: _duration(v.slo_us), lambda v, _: _low(v.slo_us), True),
    Column("P50", 7, 9, lambda v, _: _latency(v, 50), lambda v, _: _low(latency_quantile(v, 50)), True),
    Column("P99", 7, 7, lambda v, _: _latency(v, 99), lambda v, _: _low(latency_quantile(v, 99)), True),
    Column("SHARE", 5, 10, lambda v, _: _share(v.gpu_share), lambda v, _: _low(v.gpu_share), True),
    Column(
        "LNCH/S", 6, 8, lambda v, h: _rate(h.rate(v.pid, "launches")),
        lambda v, h: _low(h.rate(v.pid, "launches")), True,
    ),
    Column(
        "RESV/S", 6, 13, lambda v, h: _rate(h.rate(v.pid, "reservations")),
        lambda v, h: _low(h.rate(v.pid, "reservations")), True,
    ),
    _sum("HIDDEN", 14, "hidden_us"),
    _sum("WASTED", 15, "wasted_us"),
    _sum("LEAD", 16, "lead_us"),
    Column("TRIGGER", 14, 17, lambda v, _: _text(_hint(v, "trigger")), lambda v, _: _hint(v, "trigger") or ""),
    Column("TENANT", 10, 11, lambda v, _: Cell(v.tenant), lambda v, _: v.tenant),
    Column("NAME", 10, 1, lambda v, _: Cell(v.name), lambda v, _: v.name),
    Column("TUNER", 24, 19, lambda v, _: _text(v.last_tuning), lambda v, _: v.last_tuning or ""),
    Column("WHY", 40, 18, lambda v, _: Cell(v.reason, "dim"), lambda v, _: v.reason),
)  # fmt: skip


def fitting(width: int) -> list[Column]:
    """The columns that ``width`` characters hold, in the table's order; never fewer than PID."""
    left = width
    chosen: list[Column] = []
    for column in sorted(COLUMNS, key=lambda column: column.keep):
        left -= column.width + 2
        if left < 0 and chosen:
            break
        chosen.append(column)
    return [column for column in COLUMNS if column in chosen]
