"""Everything about one process, as lines."""

from gpsched.adaptive.histogram import latency_quantile
from gpsched.adaptive.model import GroupView, ProcessView
from gpsched.adaptive.units import format_duration
from gpsched.cli.top.history import History


def lines(view: ProcessView, history: History, width: int) -> list[str]:
    """What the model holds; what it does not know is left out."""
    text = [
        f"{view.pid}  {view.name}  {view.class_}, level {view.level}",
        f"why        {view.reason}",
        f"by         {view.source}; tenant {view.tenant}, user {view.user}{_rank(view)}",
        f"command    {view.command}",
        f"cgroup     {view.cgroup}" + (f" ({view.place})" if view.place else ""),
    ]
    text += _latency(view) + _hints(view)
    text += [f"GPU        {view.gpu_share:.1%} of the last 10 s"] if view.gpu_share is not None else []
    text += [f"tuner      {view.last_tuning}"] if view.last_tuning else []
    text += [_group(group) for group in view.groups]
    text.append("calls      " + (", ".join(f"{count} {call}" for call, count in view.calls.items()) or "none yet"))
    for name in ("launches", "reservations"):
        rate, course = history.rate(view.pid, name), history.course(view.pid, name, max(1, width - 30))
        if rate:
            text.append(f"{name:<13} {rate:8.1f}/s {course}")
    return text


def _rank(view: ProcessView) -> str:
    """Only what differs from everyone's."""
    parts = [f"priority {view.priority}"] if view.priority else []
    return "".join(f", {part}" for part in [*parts, *([f"weight {view.weight:g}"] if view.weight != 1 else [])])


def _latency(view: ProcessView) -> list[str]:
    objective = f"objective {format_duration(view.slo_us)}" if view.slo_us else "no objective"
    found = [(percent, latency_quantile(view, percent)) for percent in (50, 90, 99)]
    shown = [f"p{percent} {format_duration(us)}" for percent, us in found if us is not None]
    return [f"latency    {', '.join([objective, *shown])}"] if shown or view.class_ == "lc" else []


def _hints(view: ProcessView) -> list[str]:
    hints = view.hints
    if hints is None:
        return []
    lead = f", lead {format_duration(hints.lead_us)}" if hints.lead_us else ""
    sums = f"{format_duration(hints.hidden_us)} hidden, {format_duration(hints.wasted_us)} wasted"
    return [
        f"hints      {hints.state}: {hints.trigger or 'no trigger yet'}{lead}",
        f"bursts     {hints.bursts}, {hints.reservations} reservations, {sums}",
    ]


def _group(group: GroupView) -> str:
    def slice_(us: int | None) -> str:
        return "-" if us is None else format_duration(us)

    where = "GPU ?" if group.gpu is None else f"GPU {group.gpu}"
    slices = f"slice {slice_(group.timeslice_us)}, wanted {slice_(group.intended_us)}, own {slice_(group.original_us)}"
    return f"group      {group.client:x}:{group.handle:x} {where}, {group.engine}, {group.channels} channels, {slices}"
