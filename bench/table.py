"""A result as tables for the terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from gpsched.bench.arms import BE_ALONE, NATIVE
from gpsched.bench.figures import overall_be
from gpsched.bench.outcome import ArmResult, BenchResult, Hints, LcFigures, Point, ScenarioResult
from gpsched.bench.stats import Ratio


#: Fewer requests do not carry a 99th percentile, let alone a 99.9th.
ENOUGH_REQUESTS = 1000
_KEPT_UP = 0.9

_JOB_TITLES = ("BE", "gap ms", "CPU")
_LEGEND = (
    "alone: mean over the arm resident; SLO: share over it; BE: rate over native co-run; gap: longest without\n"
    "progress; CPU: gpsched's, of one core"
)
_FORESEEN_LEGEND = (
    "foreseen: time from the trigger to the first launch (p1/p50/p99); bursts reserved 200 µs ahead of it;\n"
    "reservations without a launch; GPU time reserved and idle; from due to first control (p50/p99, real time)"
)


def print_result(result: BenchResult, console: Console) -> None:
    """Print everything but the raw latencies."""
    host = result.host
    kind = "simulated" if host.simulated else f"driver {host.driver}"
    console.print(f"{host.gpu} ({kind}), {host.date}; latencies in µs of the GPU's time", highlight=False)
    for scenario in result.scenarios:
        _print_scenario(scenario, console)
    console.print(_LEGEND, style="dim", highlight=False)
    if any(foreseen(point) for scenario in result.scenarios for point in scenario.points):
        console.print(_FORESEEN_LEGEND, style="dim", highlight=False)


def _print_scenario(scenario: ScenarioResult, console: Console) -> None:
    console.print(f"\n{scenario.name}: {scenario.scenario.title}", style="bold", markup=False, highlight=False)
    for point in scenario.points:
        if point.value is not None and scenario.scenario.sweep is not None:
            console.print(f"{scenario.scenario.sweep.field} = {point.value:g}", highlight=False)
        _print_point(point, console)
    for note in scenario.notes:
        console.print(f"note: {note}", style="dim", markup=False, highlight=False)
    if scenario.error:
        console.print(f"FAILED: {scenario.error}", style="bold red", markup=False, highlight=False)


def _print_point(point: Point, console: Console) -> None:
    services = [lc.name for lc in max((arm.lc for arm in point.arms), key=len, default=[])]
    for index, service in enumerate(services or [""]):
        if len(services) > 1:
            console.print(f"service {service}", highlight=False, markup=False)
        console.print(_table(point, index))
    for skipped in point.skipped:
        console.print(f"skipped {skipped.arm}: {skipped.reason}", style="yellow", markup=False, highlight=False)
    for line in foreseen(point):
        console.print(line, markup=False, highlight=False)
    for line in remarks(point):
        console.print(line, style="yellow", markup=False, highlight=False)


def _table(point: Point, index: int) -> Table:
    """One service in all arms; what concerns the jobs stands in the first service's table."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("arm", no_wrap=True)
    for title in ("mean", "alone", "p50", "p99", "p99.9", "SLO", *(_JOB_TITLES if index == 0 else ())):
        table.add_column(title, justify="right", no_wrap=True)
    for arm in point.arms:
        lc = arm.lc[index] if index < len(arm.lc) else None
        table.add_row(arm.arm, *_latencies(lc), *(_jobs(arm, point) if index == 0 else ()))
    return table


def foreseen(point: Point) -> list[str]:
    """How well the bursts of each service were foreseen, a line for each and arm."""
    pairs = [(arm.arm, lc.name, lc.hints) for arm in point.arms for lc in arm.lc]
    return [f"{arm}: {name} {_foreseen(hints)}" for arm, name, hints in pairs if hints is not None]


def _foreseen(hints: Hints) -> str:
    if hints.trigger is None:
        said = ["is not foreseen: nothing announces its bursts"]
    else:
        leads = "/".join(f"{us:.0f}" for us in hints.lead_us.values())
        said = [f"foreseen by {hints.trigger}, lead {leads} µs", f"learned after {hints.learned_after} bursts"]
    ahead = "200 µs ahead"
    if hints.allowed_early_share is not None:
        ahead += f" ({hints.allowed_early_share:.1%} of the {hints.allowed_share:.1%} whose lead allows it)"
    shares = ((hints.early_share, ahead), (hints.in_vain_share, "in vain"), (hints.wasted_share, "idle"))
    said += [f"{share:.1%} {what}" for share, what in shares if share is not None]
    if hints.reacted_us:
        said.append(f"control after {'/'.join(f'{us:.0f}' for us in hints.reacted_us.values())} µs")
    return "; ".join(said)


def remarks(point: Point) -> list[str]:
    """What a reader must know before trusting the figures of a point."""
    few = min((lc.latency.count for arm in point.arms for lc in arm.lc), default=ENOUGH_REQUESTS)
    said = [f"only {few} requests an arm: no p99.9, and a weak p99"] if few < ENOUGH_REQUESTS else []
    for arm in point.arms:
        said += [_overloaded(arm.arm, lc) for lc in arm.lc if lc.kept_up < _KEPT_UP]
        if len(arm.be) > 1 and any(be.share and be.over_alone for be in arm.be) and arm.arm != BE_ALONE:
            said.append(_shares(arm))
        if arm.lost_events:
            said.append(f"{arm.arm}: {arm.lost_events} events were lost")
        if arm.failed_controls:
            said.append(f"{arm.arm}: {arm.failed_controls} controls failed")
    wrong = [name for name, check in point.checks.items() if not check.ok]
    return said + [f"STATE CORRUPTED: {name}" for name in wrong]


def _overloaded(arm: str, lc: LcFigures) -> str:
    return (
        f"{arm}: {lc.name} answered at {lc.kept_up:.0%} of the rate that it was asked, and so left more to the jobs"
        " than a service that keeps up"
    )


def _shares(arm: ArmResult) -> str:
    """What each job got of what it does alone, and all together: 1 but for what sharing costs."""
    got = [be.over_alone or 0.0 for be in arm.be]
    each = ", ".join(f"{be.name} {one:.3f} (wanted {be.share or 0:g})" for be, one in zip(arm.be, got, strict=True))
    return f"{arm.arm}: of its rate alone got {each}; together {sum(got):.3f}"


def percent(ratio: Ratio | None) -> str:
    """A ratio over 1 as a percentage with its interval."""
    if ratio is None:
        return "-"
    low, high = ((bound - 1) * 100 for bound in (ratio.interval.low, ratio.interval.high))
    return f"{(ratio.value - 1) * 100:+.1f} % [{low:+.1f} {high:+.1f}]"


def _jobs(arm: ArmResult, point: Point) -> list[str]:
    be = overall_be(arm, point.arm(NATIVE))
    gap = max((job.largest_gap_us for job in arm.be), default=None)
    return [
        "-" if be is None else f"{be:.3f}",
        "-" if gap is None else f"{gap / 1e3:.1f}",
        "-" if arm.daemon_cpu is None else f"{arm.daemon_cpu:.0%}",
    ]


def _latencies(lc: LcFigures | None) -> list[str]:
    if lc is None:
        return ["-"] * 6
    latency, over = lc.latency, lc.mean_over_alone
    return [
        f"{latency.mean:.0f}",
        "-" if over is None else f"{over.value:.3f}",
        f"{latency.p50:.0f}",
        f"{latency.p99:.0f}",
        f"{latency.p999:.0f}" if latency.count >= ENOUGH_REQUESTS else "-",
        "-" if lc.slo_misses is None else f"{lc.slo_misses / latency.count:.1%}",
    ]
