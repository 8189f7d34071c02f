"""All keys of ``top`` in one table: the bindings and the help overlay are both made from it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    """``keys`` in textual's names, ``shown`` as people write them.

    An empty ``action`` is the table's own; what ``changes`` something is refused under --readonly.
    """

    keys: str
    shown: str
    action: str
    help: str
    changes: bool = False


KEYS: tuple[Key, ...] = (
    Key("q,f10", "q F10", "quit", "quit"),
    Key("h,question_mark,f1", "h ? F1", "help", "this help"),
    Key("j", "j down", "", "next row"),
    Key("k", "k up", "", "row before"),
    Key("pagedown,pageup", "PgDn PgUp", "", "page down, page up"),
    Key("home", "Home", "", "first row"),
    Key("end", "End", "", "last row"),
    Key("greater_than_sign", ">", "sort(1)", "sort by the next column"),
    Key("less_than_sign", "<", "sort(-1)", "sort by the column before"),
    Key("I", "I", "invert", "invert the order"),
    Key("slash,f4", "/ F4", "filter", "filter; Enter keeps, Esc clears"),
    Key("escape", "Esc", "clear", "clear the filter"),
    Key("t,f5", "t F5", "tree", "tree of GPU, tenant, process, channel group"),
    Key("enter", "Enter", "", "all about the process"),
    Key("space,Z", "Space Z", "pause", "pause"),
    Key("full_stop", ".", "step(1)", "one look on (also in a record)"),
    Key("comma", ",", "step(-1)", "one look back (in a record)"),
    Key("plus,equals_sign", "+", "faster(1)", "look more often"),
    Key("minus", "-", "faster(-1)", "look less often"),
    Key("r", "r", "redraw", "draw anew"),
    Key("c", "c", "change_class", "change the class: lc or be", changes=True),
    Key("a", "a", "attach", "attach a process by its pid", changes=True),
    Key("p", "p", "policy", "change a setting until the next reload", changes=True),
    Key("P", "P", "pin", "pin a knob: its value wins over the tuner's", changes=True),
    Key("U", "U", "unpin", "open a pinned knob to the tuner again", changes=True),
    Key("d", "d", "detach", "detach: leave the process alone", changes=True),
)


def help_lines(*, readonly: bool) -> list[str]:
    """The help overlay's text."""
    lines = [f"{key.shown:<9} {key.help}{' (refused: --readonly)' if readonly and key.changes else ''}" for key in KEYS]
    return [*lines, "", "P50, P99: green below 80 % of the objective, yellow up to it, red above",
            "timeline: █ burst  ▒ reservation  ░ turn; launches as bars"]  # fmt: skip
