"""The lines above and below the table: the daemon, the GPUs, the timeline of the last seconds."""

from gpsched.adaptive.model import GpuView, ProcessView, Snapshot
from gpsched.cli.top.history import History


_GIB = 1 << 30
_SECONDS = 10.0
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


def gpu_lines(snapshot: Snapshot) -> list[str]:
    """One line a GPU, with what is known about it."""
    known = {gpu.gpu: gpu for gpu in snapshot.gpus}
    numbers = sorted(set(known) | {gpu for view in snapshot.processes for gpu in view.gpus})
    return [_gpu(known.get(number) or GpuView(gpu=number), snapshot.processes) for number in numbers]


def _gpu(gpu: GpuView, processes: list[ProcessView]) -> str:
    here = [view for view in processes if gpu.gpu in view.gpus]
    engine = next((view for view in processes if view.pid == gpu.engine_pid), None)
    parts = [f"GPU {gpu.gpu}" + (f" {gpu.name}" if gpu.name else "")]
    parts += [f"engine: {engine.name} ({engine.pid})"] if engine else []
    parts.append(", ".join(f"{sum(v.class_ == c for v in here)} {c}" for c in ("lc", "be")))
    if gpu.busy_share is not None:
        parts.append(f"busy {gpu.busy_share:.0%}")
    if gpu.power_w is not None:
        limit = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w is not None else ""
        parts.append(f"{gpu.power_w:.0f}{limit} W")
    if gpu.memory_used_bytes is not None and gpu.memory_total_bytes is not None:
        parts.append(f"{gpu.memory_used_bytes / _GIB:.1f}/{gpu.memory_total_bytes / _GIB:.0f} GiB")
    return "  ".join(parts)


def timeline(snapshot: Snapshot, history: History, width: int) -> list[str]:
    """A line a process that told spans: bursts, reservations and turns of the last seconds; else launches as bars."""
    room = max(8, width - 18)
    lines = []
    for view in snapshot.processes:
        bar = bars(view, snapshot.time_s, room) if view.spans else history.course(view.pid, "launches", room)
        if bar.strip():
            lines.append(f"{view.pid:>8} {view.name[:8]:<8} {bar}")
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
