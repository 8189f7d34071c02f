"""The lines above and below the table: the daemon, the GPUs, the timeline of the last seconds."""

from gpsched.adaptive.histogram import latency_quantile
from gpsched.adaptive.model import GpuView, ProcessView, Snapshot
from gpsched.adaptive.units import format_duration
from gpsched.cli.text import printable
from gpsched.cli.top.history import History


_GIB = 1 << 30
_SECONDS = 10.0
_WIDE, _SIDE = 100, 21
_MARKS = {"turn": "░", "reservation": "▒", "burst": "█"}  # later ones cover earlier ones


def heading(snapshot: Snapshot, label: str, notes: list[str]) -> str:
    """One line about the daemon."""
    daemon = snapshot.daemon
    lc = sum(view.class_ == "lc" for view in snapshot.processes)
    be = sum(view.class_ == "be" for view in snapshot.processes)
    parts = [f"gpsched {daemon.version}", label, f"{lc} lc, {be} be", *notes]
    parts += [f"{daemon.lost_events} events lost"] if daemon.lost_events else []
    parts += [f"{daemon.failed_controls} controls failed"] if daemon.failed_controls else []
    parts += ["configuration is wrong"] if daemon.config_error else []
    return " · ".join(parts)


def gpu_lines(snapshot: Snapshot, history: History, width: int) -> list[str]:
    """One line a GPU, with what is known about it; what does not fit is cut."""
    known = {gpu.gpu: gpu for gpu in snapshot.gpus}
    numbers = sorted(set(known) | {gpu for view in snapshot.processes for gpu in view.gpus})
    lines = (_gpu(known.get(number) or GpuView(gpu=number), snapshot.processes, history) for number in numbers)
    return [line if len(line) <= width else line[: max(0, width - 1)] + "…" for line in lines]


def _gpu(gpu: GpuView, processes: list[ProcessView], history: History) -> str:
    lc, be = ([view for view in processes if gpu.gpu in view.gpus and view.class_ == c] for c in ("lc", "be"))
    engine = next((view for view in processes if view.pid == gpu.engine_pid), None)
    parts = [f"GPU {gpu.gpu}" + (f" {gpu.name}" if gpu.name else "")]
    parts += [f"engine: {printable(engine.name)} ({engine.pid})"] if engine else []
    parts += [f"{len(lc)} lc" + _objective(lc), f"{len(be)} be" + _progress(be, history)]
    return "  ".join([*parts, *_reservations(lc, history), *_sensors(gpu)])


def _objective(lc: list[ProcessView]) -> str:
    """The latencies of whoever has the thinnest margin to its objective."""
    known = [(p99 / view.slo_us, view) for view in lc if view.slo_us and (p99 := latency_quantile(view, 99))]
    if not known:
        return ""
    _, view = max(known, key=lambda each: each[0])
    median, high = (format_duration(latency_quantile(view, percent) or 0) for percent in (50, 99))
    return f" p50 {median}, p99 {high} of {format_duration(view.slo_us or 0)}"


def _progress(be: list[ProcessView], history: History) -> str:
    shares = [view.gpu_share for view in be if view.gpu_share is not None]
    rates = [rate for view in be if (rate := history.rate(view.pid, "launches")) is not None]
    return (f" {sum(shares):.0%}" if shares else "") + (f" {sum(rates):.0f} launches/s" if rates else "")


def _reservations(lc: list[ProcessView], history: History) -> list[str]:
    hints = [view.hints for view in lc if view.hints and view.hints.reservations]
    if not hints:
        return []
    rates = [rate for view in lc if (rate := history.rate(view.pid, "reservations")) is not None]
    known = [f"{sum(rates):.0f} reservations/s"] if rates else []
    hidden, wasted = (sum(getattr(each, name) for each in hints) for name in ("hidden_us", "wasted_us"))
    return [", ".join([*known, f"{format_duration(hidden)} hidden", f"{format_duration(wasted)} wasted"])]


def _sensors(gpu: GpuView) -> list[str]:
    """What NVML tells."""
    parts = [f"busy {gpu.busy_share:.0%}"] if gpu.busy_share is not None else []
    if gpu.power_w is not None:
        limit = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w is not None else ""
        parts.append(f"{gpu.power_w:.0f}{limit} W")
    if gpu.memory_used_bytes is not None and gpu.memory_total_bytes is not None:
        parts.append(f"{gpu.memory_used_bytes / _GIB:.1f}/{gpu.memory_total_bytes / _GIB:.0f} GiB")
    return parts


def timeline(snapshot: Snapshot, history: History, width: int) -> list[str]:
    """A line a process: its spans of the last seconds, and on a wide terminal how its launches went, as bars."""
    side = _SIDE if width >= _WIDE else 0
    room = max(8, width - 18 - side)
    lines = []
    for view in snapshot.processes:
        bar = bars(view, snapshot.time_s, room)
        course = history.course(view.pid, "launches", side - 1 if side else room)
        if view.spans or course:
            narrow = bar if view.spans else course
            shown = f"{bar} {course}" if side else narrow
            lines.append(f"{view.pid:>8} {printable(view.name[:8]):<8} {shown}".rstrip())
    return lines


def bars(view: ProcessView, now_s: float, width: int) -> str:
    """The last seconds before ``now_s`` from left to right; a span shorter than a character still takes one."""
    line = [" "] * width
    begin = now_s - _SECONDS
    for kind, mark in _MARKS.items():
        for span in view.spans:
            if span.kind == kind and span.end_s > begin and span.start_s < now_s:
                first = max(0, int((span.start_s - begin) / _SECONDS * width))
                last = min(width - 1, int((span.end_s - begin) / _SECONDS * width))
                line[first : last + 1] = [mark] * (last + 1 - first)
    return "".join(line)
