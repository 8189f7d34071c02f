"""How the terminal and the page put things: the same words and figures in both."""

import math
import time
from collections.abc import Mapping

from gpsched.adaptive.units import format_duration
from gpsched.tuner.model import KNOBS, Change, Expectation, Settings, Value
from gpsched.tuner.report.model import GpuReport, Report, ServiceReport


SERVICE_TITLES = ("service", "objective", "median", "worst", "alone", "kept", "missed", "level", "triggers", "hidden")
JOB_TITLES = ("job", "tenant", "weight", "launches/s", "alone", "progress")
CHANGE_TITLES = ("when", "kind", "what", "why", "expected", "seen")
LOSS_TITLES = ("best-effort work", "services", "reserved, idle", "closed by be_share", "switches and the rest")


def when(time_s: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A moment in the reader's own time."""
    return time.strftime(form, time.localtime(time_s))


def span(report: Report) -> str:
    """What the report is about."""
    return f"{when(report.from_s)} to {when(report.to_s)}, from {report.source}"


def length(seconds: float) -> str:
    """Seconds as people say them."""
    for unit, factor in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def summary(gpu: GpuReport) -> list[str]:
    """The GPU in a few lines."""
    lines = [f"{gpu.windows} windows over {length(gpu.seconds)}: {_kept(gpu)}"]
    if gpu.gain is not None:
        gain = gpu.gain
        ratio = "" if gain.ratio is None else f" ({gain.ratio:+.1%})"
        lines.append(
            f"best-effort progress {gain.tuned:.1%} as tuned against {gain.default:.1%} with the default settings"
            f"{ratio}; objectives missed in {gain.tuned_missed:.1%} against {gain.default_missed:.1%} of those windows"
        )
    elif any(job.progress is not None for job in gpu.jobs):
        lines.append("no window to compare with: the default settings were not in force at a like load")
    if gpu.losses is None and gpu.jobs:
        lines.append("how the GPU's time was shared cannot be told: no job was seen alone, so progress is an estimate")
    if gpu.phases:
        lines.append("the tuner: " + ", ".join(f"{phase} {length(s)}" for phase, s in _largest(gpu.phases)))
    if gpu.unlearned:
        lines.append("taught nothing: " + ", ".join(f"{count} ({why})" for why, count in _largest(gpu.unlearned)))
    if gpu.gaps:
        total = sum(gap.end_s - gap.start_s for gap in gpu.gaps)
        lines.append(f"no windows for {length(total)} in {len(gpu.gaps)} gaps: nothing ran, or the tuner did not")
    return lines


def _kept(gpu: GpuReport) -> str:
    if not gpu.judged:
        return "objectives could not be judged (too few bursts, or no limit known)"
    return f"objectives kept in {gpu.kept}, missed in {gpu.missed} ({gpu.missed / gpu.judged:.1%})"


def _largest(counts: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(counts.items(), key=lambda item: -item[1])


def service_row(service: ServiceReport) -> list[str]:
    """A row under SERVICE_TITLES."""
    objective, limit = service.objective, service.objective.limit_us
    per = service.hidden_us / service.reservations if service.reservations else None
    return [
        service.name,
        f"{objective.statistic} {duration(limit)}{' (alone +5 %)' if objective.kind == 'alone' else ''}",
        duration(service.value_us if service.bursts else None),
        duration(service.worst_us if service.bursts else None),
        duration(service.alone_us),
        str(service.kept),
        str(service.missed),
        _listed(service.levels),
        _listed(service.triggers) or "none",
        "-" if per is None else f"{duration(per)} in each of {service.reservations}",
    ]


def _listed(shares: Mapping[str, float], most: int = 3) -> str:
    named = list(shares.items())[:most]
    return ", ".join(value if share > 0.995 else f"{value} {share:.0%}" for value, share in named)


def duration(us: float | None) -> str:
    """A duration, or a dash."""
    return "-" if us is None else format_duration(us)


def job_rows(gpu: GpuReport) -> list[list[str]]:
    """Rows under JOB_TITLES."""
    return [
        [
            job.name,
            job.tenant,
            f"{job.weight:g}",
            f"{job.rate_hz:.4g}",
            "-" if job.solo_hz is None else f"{job.solo_hz:.4g}",
            "-" if job.progress is None else f"{job.progress:.1%}",
        ]
        for job in gpu.jobs
    ]


def loss_row(gpu: GpuReport) -> list[str] | None:
    """The row under LOSS_TITLES."""
    losses = gpu.losses
    if losses is None:
        return None
    shares = (losses.best_effort, losses.services, losses.idle_reserved, losses.closed, losses.rest)
    return [f"{share:.1%}" for share in shares]


def change_row(change: Change) -> list[str]:
    """A row under CHANGE_TITLES."""
    return [
        when(change.time_s, "%m-%d %H:%M:%S"),
        change.kind,
        change.words,
        change.why,
        expectation(change.expected),
        "-" if change.seen is None else expectation(change.seen),
    ]


def expectation(what: Expectation) -> str:
    """Progress, and latency as a share of its limit."""
    said = [] if what.progress is None else [f"progress {what.progress:.1%}"]
    if what.margin is not None:
        said.append(f"latency {of_limit(what.margin):.0%} of its limit")
    return ", ".join(said) or "-"


def of_limit(margin: float) -> float:
    """The worst latency over its limit, from a margin; bounded, since it is for the eye."""
    return math.exp(-max(-7.0, min(7.0, margin)))


def settings(values: Settings) -> str:
    """Settings on one line."""
    return ", ".join(_named(name, value) for name, value in values.items())


def _named(name: str, value: Value) -> str:
    knob = KNOBS.get(name)
    said = value if isinstance(value, str) else f"{value:.6g}"
    return f"{knob.key if knob else name} {said}{' ' + knob.unit if knob and knob.unit else ''}"
