"""Power, memory and load of the GPUs, from NVML where there is one."""

import logging
import threading
import time
from typing import Any

import msgspec

from gpsched.adaptive.model import GpuView, ProcessView


log = logging.getLogger(__name__)
_EVERY_S = 1.0
_PATIENCE_S = 2.0


class Gpus:
    """Asks NVML at most once a second, and only when somebody looks.

    On a thread: NVML takes milliseconds for each GPU, during which the daemon's loop must not stand still. GPUs are
    numbered by PCI address, as views.GpuNumbers does.
    """

    def __init__(self) -> None:
        self._nvml = _load()
        self._views: list[GpuView] = []
        self._asking: threading.Thread | None = None
        self._next = time.monotonic() + _EVERY_S
        if self._nvml is not None:
            self._ask(self._nvml)

    def views(self) -> list[GpuView]:
        """Return every GPU as of the last look, a second or more ago; empty without NVML."""
        now = time.monotonic()
        if self._nvml is not None and now >= self._next and (self._asking is None or not self._asking.is_alive()):
            self._next = now + _EVERY_S
            self._asking = threading.Thread(target=self._ask, args=(self._nvml,), name="nvml", daemon=True)
            self._asking.start()
        return self._views

    def _ask(self, nvml: Any) -> None:
        try:
            self._views = [_view(nvml, number) for number in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            log.warning("NVML: %s", error)
            self._views = []

    def close(self) -> None:
        """Let NVML go."""
        if self._asking is not None:
            self._asking.join(_PATIENCE_S)
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None


def with_engine(gpus: list[GpuView], processes: list[ProcessView], in_burst: frozenset[int]) -> list[GpuView]:
    """Add who has each GPU's compute engine, as far as that follows from what is known.

    That is a latency-critical process in a burst, else the only best-effort one. GPUs unknown to NVML are added.
    """
    known = {gpu.gpu: gpu for gpu in gpus}
    numbers = sorted(set(known) | {number for view in processes for number in view.gpus})
    return [
        msgspec.structs.replace(
            known.get(number) or GpuView(gpu=number), engine_pid=_holder(number, processes, in_burst)
        )
        for number in numbers
    ]


def _holder(gpu: int, processes: list[ProcessView], in_burst: frozenset[int]) -> int | None:
    here = [view for view in processes if gpu in view.gpus]
    for candidates in ([v for v in here if v.pid in in_burst], [v for v in here if v.class_ == "be"]):
        if len(candidates) == 1:
            return candidates[0].pid
        if candidates:
            return None
    return None


def _load() -> Any:
    """The initialised module pynvml; None where there is no NVML."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.info("no NVML (%s): power and memory of GPUs are not shown", error)
        return None
    return pynvml


def _view(nvml: Any, number: int) -> GpuView:
    """One GPU; what NVML does not support on it is None."""
    device = nvml.nvmlDeviceGetHandleByIndex(number)

    def ask(name: str) -> Any:
        try:
            return getattr(nvml, name)(device)
        except nvml.NVMLError:
            return None

    name, memory, load = ask("nvmlDeviceGetName"), ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetUtilizationRates")
    return GpuView(
        gpu=number,
        name=name.decode() if isinstance(name, bytes) else name,
        power_w=_thousandth(ask("nvmlDeviceGetPowerUsage")),
        power_limit_w=_thousandth(ask("nvmlDeviceGetEnforcedPowerLimit")),
        memory_used_bytes=memory.used if memory else None,
        memory_total_bytes=memory.total if memory else None,
        busy_share=load.gpu / 100 if load else None,
    )


def _thousandth(milli: int | None) -> float | None:
    return None if milli is None else milli / 1000
