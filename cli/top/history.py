"""What single snapshots do not tell: rates and recent courses, from the snapshots seen so far."""

from collections import deque

from gpsched.adaptive.model import ProcessView, Snapshot


LENGTH = 120
_BARS = "▁▂▃▄▅▆▇█"
_MIN_STEP_S = 0.05


class History:
    """Keeps the last LENGTH rates of every process that is still there."""

    def __init__(self) -> None:
        self._last: Snapshot | None = None
        self._before: dict[int, ProcessView] = {}
        self._rates: dict[tuple[int, str], deque[float]] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Take one more snapshot into account; one that is older, as when a replay goes back, starts anew."""
        elapsed = snapshot.time_s - self._last.time_s if self._last else 0.0
        if elapsed < 0:
            self._before, self._rates = {}, {}
        if self._last is not None and 0 <= elapsed < _MIN_STEP_S:
            return
        for view in snapshot.processes:
            before = self._before.get(view.pid)
            if before is not None and elapsed > 0:
                self._append(view, before, elapsed)
        self._before = {view.pid: view for view in snapshot.processes}
        self._rates = {key: rates for key, rates in self._rates.items() if key[0] in self._before}
        self._last = snapshot

    def _append(self, view: ProcessView, before: ProcessView, elapsed: float) -> None:
        for name, now, then in (
            ("launches", launches(view), launches(before)),
            ("reservations", _reservations(view), _reservations(before)),
        ):
            rates = self._rates.setdefault((view.pid, name), deque(maxlen=LENGTH))
            rates.append(max(0, now - then) / elapsed)

    def rate(self, pid: int, name: str) -> float | None:
        """The latest rate a second of ``launches`` or ``reservations``; None before the second snapshot."""
        rates = self._rates.get((pid, name))
        return rates[-1] if rates else None

    def course(self, pid: int, name: str, width: int) -> str:
        """The last ``width`` rates as bars."""
        return sparkline(list(self._rates.get((pid, name), ()))[-width:])


def launches(view: ProcessView) -> int:
    """Kernels and graphs launched since the process is managed."""
    return view.calls.get("launch", 0) + view.calls.get("graph_launch", 0)


def _reservations(view: ProcessView) -> int:
    return view.hints.reservations if view.hints else 0


def sparkline(values: list[float]) -> str:
    """One bar a value, the highest is full."""
    top = max(values, default=0.0)
    return "".join(_BARS[min(7, int(value / top * 7.999))] if top else _BARS[0] for value in values)
