"""The snapshot as Prometheus metrics: names begin with ``gpsched_``, base units, one definition for all outputs."""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from gpsched.adaptive.model import Histogram, ProcessView, Snapshot


_PROCESS = ("pid", "name", "class", "tenant")
_STATES = ("ok", "degraded", "missing")


class SnapshotCollector(Collector):
    """Yields the metrics of ``snapshot``; a scraper's thread may collect while the daemon puts a newer one."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """All families; nothing before the first snapshot."""
        snapshot = self.snapshot
        if snapshot is not None:
            yield from _daemon(snapshot)
            yield from _gpus(snapshot)
            yield from _processes(snapshot.processes)


def _daemon(snapshot: Snapshot) -> Iterator[Metric]:
    daemon = snapshot.daemon
    yield InfoMetricFamily("gpsched_build", "Version of the daemon", value={"version": daemon.version})
    yield GaugeMetricFamily("gpsched_uptime_seconds", "Time since the daemon started", value=daemon.uptime_s)
    yield CounterMetricFamily("gpsched_lost_events", "Events that did not fit", value=daemon.lost_events)
    yield CounterMetricFamily("gpsched_failed_controls", "Driver controls that failed", value=daemon.failed_controls)
    health = GaugeMetricFamily("gpsched_health", "1 for the worst answer of the doctor's checks", labels=["state"])
    for state in _STATES:
        health.add_metric([state], float(daemon.health == state))
    yield health
    stale = "1 while the configuration on disk is wrong and an earlier one is used"
    yield GaugeMetricFamily("gpsched_config_stale", stale, value=float(daemon.config_error is not None))


def _gpus(snapshot: Snapshot) -> Iterator[Metric]:
    for field, name, text in (
        ("power_w", "gpsched_gpu_power_watts", "Power drawn"),
        ("memory_used_bytes", "gpsched_gpu_memory_used_bytes", "Memory in use"),
        ("memory_total_bytes", "gpsched_gpu_memory_bytes", "Memory there is"),
        ("busy_share", "gpsched_gpu_busy_ratio", "Share of time in which some kernel ran"),
    ):
        family = GaugeMetricFamily(name, text, labels=["gpu"])
        for gpu in snapshot.gpus:
            if (value := getattr(gpu, field)) is not None:
                family.add_metric([str(gpu.gpu)], value)
        yield family


def _processes(views: Iterable[ProcessView]) -> Iterator[Metric]:
    views = list(views)
    info = InfoMetricFamily("gpsched_process", "Level of a managed process", labels=_PROCESS)
    for view in views:
        info.add_metric(_labels(view), {"level": view.level, "gpus": ",".join(map(str, view.gpus))})
    yield info
    yield _gauge("gpsched_process_objective_seconds", "Latency objective", views, lambda view: _seconds(view.slo_us))
    yield _gauge("gpsched_process_gpu_ratio", "Share of the GPU's time", views, lambda view: view.gpu_share)
    yield _timeslices(views)
    yield _calls(views)
    for name, text in (("bursts", "Bursts seen"), ("reservations", "Reservations made")):
        family = CounterMetricFamily(f"gpsched_process_{name}", text, labels=_PROCESS)
        for view in views:
            if view.hints is not None:
                family.add_metric(_labels(view), getattr(view.hints, name))
        yield family
    yield _wasted(views)
    yield _histogram("gpsched_process_latency_seconds", "Duration of bursts", views, "latency")
    yield _histogram("gpsched_process_hidden_seconds", "Switch time hidden in a burst", views, "hidden")


def _gauge(name: str, text: str, views: list[ProcessView], value: Callable[[ProcessView], float | None]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=_PROCESS)
    for view in views:
        if (found := value(view)) is not None:
            family.add_metric(_labels(view), found)
    return family


def _timeslices(views: list[ProcessView]) -> Metric:
    text = "Timeslice of a compute channel group"
    family = GaugeMetricFamily("gpsched_process_timeslice_seconds", text, labels=[*_PROCESS, "gpu", "group"])
    for view in views:
        for group in view.groups:
            if group.engine == "compute" and group.timeslice_us is not None:
                where = ["" if group.gpu is None else str(group.gpu), f"{group.client:x}:{group.handle:x}"]
                family.add_metric([*_labels(view), *where], group.timeslice_us / 1e6)
    return family


def _calls(views: list[ProcessView]) -> Metric:
    family = CounterMetricFamily("gpsched_process_calls", "CUDA calls since managed", labels=[*_PROCESS, "call"])
    for view in views:
        for call, count in view.calls.items():
            family.add_metric([*_labels(view), call], count)
    return family


def _wasted(views: list[ProcessView]) -> Metric:
    text = "GPU time kept free without need"
    family = CounterMetricFamily("gpsched_process_wasted_seconds", text, labels=_PROCESS)
    for view in views:
        if view.hints is not None:
            family.add_metric(_labels(view), view.hints.wasted_us / 1e6)
    return family


def _histogram(name: str, text: str, views: list[ProcessView], field: str) -> Metric:
    family = HistogramMetricFamily(name, text, labels=_PROCESS)
    for view in views:
        histogram: Histogram | None = getattr(view, field)
        if histogram is not None:
            bounds = [*(f"{bound / 1e6:g}" for bound in histogram.bounds_us), "+Inf"]
            buckets = list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
            family.add_metric(_labels(view), buckets, histogram.sum_us / 1e6)
    return family


def _labels(view: ProcessView) -> list[str]:
    return [str(view.pid), view.name, view.class_, view.tenant]


def _seconds(us: float | None) -> float | None:
    return None if us is None else us / 1e6
