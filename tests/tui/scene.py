"""A made-up node for the tests of what people see."""

from typing import Any

from gpsched.adaptive.histogram import DurationHistogram
from gpsched.adaptive.model import (
    Class,
    DaemonView,
    GpuView,
    GroupView,
    HintsView,
    Histogram,
    Level,
    ProcessView,
    Snapshot,
    Span,
)


NOW = 1_700_000_000.0


def latency(*us: float) -> Histogram:
    histogram = DurationHistogram()
    for duration in us:
        histogram.observe(duration)
    return histogram.view()


def group(handle: int, gpu: int, us: int) -> GroupView:
    return GroupView(
        client=0xC1D00001, handle=handle, engine="compute", gpu=gpu, channels=8, timeslice_us=us, intended_us=us,
        original_us=2048,
    )  # fmt: skip


def process(pid: int, name: str, class_: Class, *, gpu: int = 0, launches: int = 0, **more: Any) -> ProcessView:
    level: Level = "timeslice"
    plain: dict[str, Any] = {
        "pid": pid, "name": name, "command": f"/usr/bin/{name} --port 80", "user": "root", "cgroup": "/system.slice",
        "container": None, "class_": class_, "source": "attach", "tenant": "web", "slo_us": None, "level": level,
        "reason": "gives way to latency-critical work at once", "gpus": [gpu],
        "groups": [group(0x5C000010 + pid, gpu, 1 if class_ == "be" else 1_000_000)], "calls": {"launch": launches},
    }  # fmt: skip
    return ProcessView(**(plain | more))


def daemon(**more: Any) -> DaemonView:
    plain: dict[str, Any] = {
        "pid": 1, "version": "0.1.0", "uptime_s": 5.0, "libraries": ["/lib/libcuda.so.1"], "lost_events": 0,
        "failed_controls": 0, "last_failure": None,
    }  # fmt: skip
    return DaemonView(**(plain | more))


def snapshot(second: int = 0, **more: Any) -> Snapshot:
    """A service that keeps its objective, one that misses it, a job on each of two GPUs."""
    now = NOW + second
    spans = [
        Span(kind="reservation", start_s=now - 5, end_s=now - 3),
        Span(kind="burst", start_s=now - 4, end_s=now - 3),
    ]
    hints = HintsView(
        state="sure", trigger="read socket", lead_us=700.0, bursts=10, reservations=10 * second, hidden_us=1900.0,
        wasted_us=120.0,
    )  # fmt: skip
    plain: dict[str, Any] = {
        "time_s": now,
        "daemon": daemon(),
        "processes": [
            process(
                100, "serve", "lc", launches=100 * second, slo_us=5000.0, latency=latency(*[500.0] * 99, 900.0),
                recent_us={"p50": 500.0, "p90": 500.0, "p99": 900.0},
                hints=hints, spans=spans,
            ),
            process(200, "train", "be", launches=2000 * second, tenant="batch", gpu_share=0.62),
            process(300, "triton", "lc", gpu=1, slo_us=1000.0, latency=latency(*[1500.0] * 10)),
            process(400, "finetune", "be", gpu=1, launches=5, tenant="batch", last_tuning="slice 1 µs to 50 µs"),
        ],
        "gpus": [
            GpuView(
                gpu=0, name="H200", power_w=412.0, power_limit_w=700.0, memory_used_bytes=30 << 30,
                memory_total_bytes=140 << 30, busy_share=0.93, engine_pid=200,
            )
        ],
    }  # fmt: skip
    return Snapshot(**(plain | more))
