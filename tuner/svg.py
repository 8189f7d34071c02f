"""Figures as SVG text to be put into a page: one style for all reports. matplotlib is imported by the first figure."""

import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: Okabe and Ito's colours, which readers who see few colours can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6A3D9A", "#8C564B", "#999999")
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: smaller, and found by a search in the page
    "svg.hashsalt": "gpsched",
    "font.size": 9,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "axes.grid": True,
    "grid.alpha": 0.3,
    "path.simplify": True,
}
# Coordinates are points of a 72nd of an inch: a tenth of one is what anybody sees. With that and without the blanks a
# page is a third as large.
_COORDINATES = re.compile(r'\b(?:d|x|y|transform)="[^"]*"')
_DIGITS = re.compile(r"(\.\d)\d+")
_BLANKS = re.compile(r"\s*\n\s*")


def figure(rows: int, columns: int = 1, size: tuple[float, float] = (9.0, 2.2), **more: Any) -> tuple["Figure", Any]:
    """Return a figure of panels of ``size`` inches and their axes, an array of rows; ``more`` as for ``subplots``."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        made = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        return made, made.subplots(rows, columns, squeeze=False, **more)


def shared_legend(made: "Figure") -> None:
    """One legend beside the panels, with each label once."""
    handles = {
        label: handle for axes in made.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        made.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)


def text(made: "Figure") -> str:
    """The figure as an ``<svg>`` element, the same for the same data."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context(_STYLE):
        made.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    drawn = out.getvalue()[out.getvalue().index("<svg") :]
    return _BLANKS.sub("\n", _COORDINATES.sub(lambda found: _shortened(found[0]), drawn))


def _shortened(attribute: str) -> str:
    return _BLANKS.sub("", _DIGITS.sub(r"\1", attribute)).replace(" L ", "L")


def colour(names: Iterable[str], name: str) -> str:
    """The colour of one of several names; the same order gives the same colours."""
    return COLOURS[list(names).index(name) % len(COLOURS)]
