"""Asks all rules and tells from the answers which level this machine, its GPUs and processes can have."""

from gpsched.adaptive.doctor import driver_rules, install_rules, kernel_rules
from gpsched.adaptive.doctor.host import Host
from gpsched.adaptive.doctor.model import SEVERITY, GpuAnswer, LevelAnswer, ProcessAnswer, Report, Result, Rule
from gpsched.adaptive.model import Health, Level, ProcessView, Snapshot


LADDER: tuple[Level, ...] = ("observe", "freeze", "timeslice", "reserve", "hold", "module")
RULES: tuple[Rule, ...] = kernel_rules.RULES + driver_rules.RULES + install_rules.RULES


def examine(host: Host, snapshot: Snapshot | None = None, rules: tuple[Rule, ...] = RULES) -> Report:
    """Ask every rule about ``host``; ``snapshot``, when a daemon runs, adds its GPUs and processes."""
    results = [rule.apply(host) for rule in rules]
    levels = [_level(level, results) for level in LADDER]
    report = Report(health=health(results, rules), checks=results, levels=levels)
    if snapshot is None:
        return report
    processes = [_process(view, levels) for view in snapshot.processes]
    return Report(
        health=report.health, checks=results, levels=levels, processes=processes, gpus=_gpus(snapshot, processes)
    )


def health(results: list[Result], rules: tuple[Rule, ...]) -> Health:
    """The worst of the answers to what is not optional."""
    states = [result.state for result, rule in zip(results, rules, strict=True) if not rule.optional]
    return max(states, key=lambda state: SEVERITY[state], default="ok")


def _level(level: Level, results: list[Result]) -> LevelAnswer:
    blocked = [result.name for result in results if result.state == "missing" and level in result.levels]
    if level == "module" and any(result.name == "module" and result.state != "ok" for result in results):
        blocked.append("module")
    return LevelAnswer(level, not blocked, blocked)


def _process(view: ProcessView, levels: list[LevelAnswer]) -> ProcessAnswer:
    rank = LADDER.index(view.level)
    above = levels[rank + 1] if rank + 1 < len(levels) else None
    lacks = ", ".join(above.blocked_by) if above else ""
    return ProcessAnswer(view.pid, view.name, view.gpus, view.level, view.reason, above.level if above else None, lacks)


def _gpus(snapshot: Snapshot, processes: list[ProcessAnswer]) -> list[GpuAnswer]:
    names = {gpu.gpu: gpu.name for gpu in snapshot.gpus}
    numbers = sorted(set(names) | {gpu for process in processes for gpu in process.gpus})
    answers = []
    for number in numbers:
        ranks = [LADDER.index(process.level) for process in processes if number in process.gpus]
        answers.append(GpuAnswer(number, names.get(number), LADDER[min(ranks, default=0)], len(ranks)))
    return answers
