"""When requests arrive: at a rate, at a share of the peak, or as recorded."""

import csv
from pathlib import Path

from gpsched.adaptive.errors import ConfigError
from gpsched.bench.scenario import Lc, Scenario
from gpsched.bench.workload import Service


_LEAST = 5  # requests a block


def read_trace(path: Path) -> dict[str, list[float]]:
    """Arrival times in seconds of each service, from a CSV of service,arrival_ms with ``#`` comments.

    Raises ``ConfigError``.
    """
    times: dict[str, list[float]] = {}
    try:
        lines = (line for line in path.read_text().splitlines() if not line.startswith("#"))
        for row in csv.DictReader(lines):
            times.setdefault(row["service"], []).append(float(row["arrival_ms"]) / 1e3)
    except (OSError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(str(path), "", f"not a trace of service,arrival_ms: {error}") from error
    return {service: sorted(arrivals) for service, arrivals in times.items()}


class Load:
    """Starts the load of each service. ``peaks``: requests a second of each, 0 where its load is no share of it."""

    def __init__(self, scenario: Scenario, lcs: list[Lc], folder: Path, peaks: list[float]) -> None:
        self._lcs, self._folder, self._peaks = lcs, folder, peaks
        self._trace = read_trace(Path(scenario.trace)) if scenario.trace else {}
        for lc in lcs:
            if lc.trace is not None and lc.trace not in self._trace:
                raise ConfigError(str(scenario.trace), lc.trace, f"no such service; known: {', '.join(self._trace)}")
        self._end_s = max((times[-1] for times in self._trace.values()), default=0.0)

    def rate(self, index: int) -> float:
        """Requests a second of one service; of a recorded one, its mean."""
        lc = self._lcs[index]
        if lc.trace is not None:
            return len(self._trace[lc.trace]) / self._end_s
        return lc.rate or (lc.load or 0.0) * self._peaks[index]

    def begin(self, index: int, service: Service, seconds: float, seed: int) -> None:
        """Start a stretch of load on one service."""
        lc = self._lcs[index]
        if lc.trace is not None:
            self._replay(index, service, self._trace[lc.trace], seconds, seed)
            return
        rate = self.rate(index)
        requests = max(_LEAST, round(rate * seconds))
        # Against jobs of the same rate, the phase goes round once a block: a fixed one would measure that one alone.
        drifting = rate * (1 + 1 / requests) if lc.arrival == "constant" else rate
        service.begin(requests, drifting, lc.arrival, seed * 64 + index, self._phase(index))

    def _phase(self, index: int) -> float:
        """Services of equal rate keep their distance, as the papers' load generators have it."""
        equal = [place for place, other in enumerate(self._lcs) if other.rate == self._lcs[index].rate]
        return equal.index(index) / len(equal)

    def _replay(self, index: int, service: Service, times: list[float], seconds: float, seed: int) -> None:
        """The stretch of the recording that belongs to a seed; it starts over at its end."""
        start = seed * seconds % self._end_s
        shifted = sorted((time - start) % self._end_s for time in times)
        chosen = [time for time in shifted if time < seconds] or shifted[:1]
        path = self._folder / f"arrivals-{index}"
        path.write_text("".join(f"{time * 1e6:.1f}\n" for time in chosen))
        service.replay(path, max(seconds, chosen[-1]))
