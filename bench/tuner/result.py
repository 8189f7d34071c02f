"""What the proof found: every window of every arm, and how it compares with the oracle (gpsched.tuner-bench/1).

Progress is what jobs reach of their own speed alone; latencies are over the objective's limit.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpsched.adaptive.errors import ConfigError
from gpsched.adaptive.knobs import Settings
from gpsched.bench.result import Host
from gpsched.bench.tuner.oracle import Oracle


SCHEMA = "gpsched.tuner-bench/1"
ENOUGH = 0.97  # of the oracle's progress
ROLL = 5  # windows that are averaged to say that an arm is there
WARM_UP = 10  # windows whose misses are not counted
WITHIN = {"cold": 40, "warm": 5, "changed": 20}  # windows
MAY_MISS = 0.03


class Spot(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One window: progress, the worst latency over its limit (None: too few requests), whether that is a miss.

    ``told``: the latency over the limit as the daemon told the tuner, where it did.
    """

    progress: float
    latency: float | None
    missed: bool
    told: float | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One arm through all windows with one seed. ``settings``: in force from each window number on, where they changed.

    ``cpu_s``: processor time of the arm's own decisions; ``change_at``: the window before which the mix changed, where
    that is not the mix' own (arms that never change their settings may run for fewer windows).
    """

    arm: str
    seed: int
    spots: list[Spot]
    settings: dict[int, Settings] = {}
    cpu_s: float = 0.0
    change_at: int | None = None


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """One arm in one phase, the mean of its seeds.

    ``within``: windows until the mean of five reached 97 % of the oracle's (the worst seed; None: one never did);
    ``settled``: progress over the oracle's in the phase's last third; ``missed``: share of windows that missed an
    objective after the first ten.
    """

    arm: str
    within: int | None
    settled: float
    missed: float


class MixResult(msgspec.Struct, frozen=True, kw_only=True):
    """One mix. ``change_at``: the window before which it changed; warm runs stop there."""

    name: str
    title: str
    change: str
    limits_us: list[float]
    window_s: float
    change_at: int
    before: Oracle
    after: Oracle
    runs: list[Run]
    identity: str = ""

    def run_of(self, arm: str, seed: int, windows: int) -> Run | None:
        """The run of an arm with this seed and so many windows, if there is one."""
        alike = (run for run in self.runs if (run.arm, run.seed, len(run.spots)) == (arm, seed, windows))
        return next(alike, None)

    def judge(self, phase: str) -> list[Judgement]:
        """Every arm that ran in ``cold`` (before the change), ``changed`` (after it) or ``warm``."""
        arms = dict.fromkeys(run.arm for run in self.runs if run.arm != "oracle")
        wanted = [arm for arm in arms if (arm == "warm") is (phase == "warm")]
        pairs = {arm: self._pairs(arm, phase) for arm in wanted}
        return [_judge(arm, found) for arm, found in pairs.items() if found]

    def _pairs(self, arm: str, phase: str) -> list[tuple[list[Spot], list[Spot]]]:
        """The windows of each of the arm's runs beside the oracle's; a run that was cut short may have none."""
        runs = [run for run in self.runs if run.arm == arm]
        pairs = [(self._part(run, phase), self._oracle(run.seed, phase)) for run in runs]
        return [(own, best) for own, best in pairs if own and best]

    def _oracle(self, seed: int, phase: str) -> list[Spot]:
        found = (run for run in self.runs if run.arm == "oracle" and run.seed == seed)
        return next((self._part(run, phase) for run in found), [])

    def _part(self, run: Run, phase: str) -> list[Spot]:
        change_at = self.change_at if run.change_at is None else run.change_at
        return run.spots[change_at:] if phase == "changed" else run.spots[:change_at]


def _judge(arm: str, pairs: Sequence[tuple[list[Spot], list[Spot]]]) -> Judgement:
    reached = [_within(own, best) for own, best in pairs]
    known = [windows for windows in reached if windows is not None]
    settled, missed = [], []
    for own, best in pairs:
        tail = -(-len(own) // 3)
        settled.append(_mean(own[-tail:]) / max(_mean(_beside(best, len(own) - tail, len(own))), 1e-9))
        counted = own[WARM_UP:] or own
        missed.append(sum(spot.missed for spot in counted) / len(counted))
    return Judgement(
        arm=arm,
        within=max(known) if len(known) == len(reached) else None,
        settled=statistics.fmean(settled),
        missed=statistics.fmean(missed),
    )


def _beside(best: Sequence[Spot], start: int, end: int) -> Sequence[Spot]:
    """The oracle's windows with the same requests; where it ran for fewer, all of them."""
    return best[start:end] if end <= len(best) else best


def _mean(spots: Sequence[Spot]) -> float:
    return statistics.fmean(spot.progress for spot in spots)


def _within(own: Sequence[Spot], best: Sequence[Spot]) -> int | None:
    """The first window from which five reach enough on average, with at most one miss among them."""
    for start in range(len(own) - ROLL + 1):
        part = own[start : start + ROLL]
        reached = _mean(part) >= ENOUGH * _mean(_beside(best, start, start + ROLL))
        if reached and sum(spot.missed for spot in part) <= 1:
            return start
    return None


class TunerResult(msgspec.Struct, frozen=True, kw_only=True):
    """One run of ``gpsched bench tuner``. ``how``: what the windows ran on, in words."""

    schema: str = SCHEMA
    host: Host
    command: list[str]
    how: str
    mixes: list[MixResult]

    def by_identity(self) -> dict[str, MixResult]:
        """The mixes by what they are, so that what does not depend on the tuner need not be run twice."""
        return {mix.identity: mix for mix in self.mixes}

    def met(self) -> dict[str, tuple[int, int]]:
        """For each target, in how many mixes of how many it is met."""
        counts: dict[str, tuple[int, int]] = {}
        for mix in self.mixes:
            for phase, limit in WITHIN.items():
                for found in mix.judge(phase):
                    if found.arm not in ("tuner", "warm"):
                        continue
                    soon = found.within is not None and found.within <= limit
                    _count(counts, f"{phase}: {ENOUGH:.0%} of the oracle within {limit} windows", soon)
                    if phase != "warm":
                        what = f"{phase}: objectives missed in under {MAY_MISS:.0%} of the windows after the first ten"
                        _count(counts, what, found.missed < MAY_MISS)
        return counts

    @property
    def ok(self) -> bool:
        """True when every target is met in every mix."""
        return all(met == of for met, of in self.met().values())


def _count(counts: dict[str, tuple[int, int]], what: str, good: bool) -> None:
    met, of = counts.get(what, (0, 0))
    counts[what] = (met + good, of + 1)


def write(result: TunerResult, path: Path) -> None:
    """Write the JSON, replacing the file as a whole."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(msgspec.json.encode(result))
    fresh.replace(path)


def read(path: Path) -> TunerResult:
    """Read what ``write`` wrote; raises ``ConfigError`` for anything else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=TunerResult)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(str(path), "", f"is no result of gpsched bench tuner ({error})") from error
