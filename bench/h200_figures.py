"""The few figures of a step for the screen and the index."""

from pathlib import Path

import msgspec

from gpsched.bench import outcome
from gpsched.bench.figures import mean_over_alone, overall_be, p99_over_alone
from gpsched.bench.h200_steps import DEMOS, RESULTS, STEPS
from gpsched.bench.outcome import Point, ScenarioResult
from gpsched.bench.result import DemoResult


def of_step(name: str, directory: Path) -> tuple[list[str], bool | None]:
    """Return lines, and whether the state of all programs was right (None: there was none to check)."""
    if STEPS[name].comparison is not None:
        return _of_demo(name, directory / DEMOS)
    if not STEPS[name].scenarios or not (directory / RESULTS).exists():
        return [], None
    found = [one for one in outcome.read(directory / RESULTS).scenarios if one.name in STEPS[name].scenarios]
    lines = [line for one in found for line in _of_scenario(one)]
    return lines, all(point.ok for one in found for point in one.points) if found else None


def _of_demo(name: str, path: Path) -> tuple[list[str], bool | None]:
    if not path.exists():
        return [], None
    demos = msgspec.json.decode(path.read_bytes(), type=dict[str, DemoResult])
    if name not in demos:
        return [], None
    demo = demos[name]
    return [f"LC mean x{demo.ratios.mean:.3f} BE x{demo.ratios.be:.3f} of the default"], demo.ok


def _of_scenario(one: ScenarioResult) -> list[str]:
    lines = [f"{one.name}: {one.error}"] if one.error else []
    for point in one.points:
        at = "" if point.value is None else f" at {point.value:g}"
        lines += [f"{one.name}{at}: {arm} {figures}" for arm, figures in _of_point(point).items()]
        lines += [f"{one.name}{at}: no {skipped.arm}: {skipped.reason}" for skipped in point.skipped]
    return lines


def _of_point(point: Point) -> dict[str, str]:
    """What each arm that shares the GPU costs whom."""
    found = {}
    for arm in point.arms:
        if not arm.be or not arm.lc:
            continue
        be = overall_be(arm, point.arm("default"))
        mean, p99 = mean_over_alone(arm), p99_over_alone(arm)
        found[arm.arm] = f"LC mean {_or_dash(mean)} p99 {_or_dash(p99)} over alone, BE {_or_dash(be)} of native"
    return found


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
