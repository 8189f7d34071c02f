"""The entry points of the CUDA driver API that are probed, and the cookie that tells the BPF program what each is.

The numbers are argument positions of cuda.h, from 1. A base name stands for all its exported variants: later versions
(``_v2``) and the per-thread default stream (``_ptsz``, ``_ptds``) take the same arguments.
"""

import re
from typing import NamedTuple

from gpsched.adaptive.probes.events import Call, Flag


LAUNCH_CONFIG = 15  # GS_ARG_LAUNCH_CONFIG: the stream is a member of the struct that argument 1 points to

_VARIANT = re.compile(r"^(?P<base>cu[A-Za-z0-9]+?)(_v\d+)?(_ptsz|_ptds)?$")


class EntryPoint(NamedTuple):
    """What a call does, where its stream or event and its size are (0: nowhere), and whether it is asynchronous."""

    call: Call
    handle: int = 0
    size: int = 0
    is_async: bool = False

    @property
    def cookie(self) -> int:
        """The value of ``GS_COOKIE_*`` in events.h."""
        flags = Flag.ASYNC if self.is_async else 0
        return self.call | flags << 8 | self.handle << 16 | self.size << 20


def _copies() -> dict[str, EntryPoint]:
    """Each row: name, direction, position of the size; the asynchronous form adds the stream as its next argument."""
    rows = (
        ("cuMemcpy", Call.COPY_ANY, 3),
        ("cuMemcpyHtoD", Call.COPY_H2D, 3),
        ("cuMemcpyDtoH", Call.COPY_D2H, 3),
        ("cuMemcpyDtoD", Call.COPY_D2D, 3),
        ("cuMemcpyPeer", Call.COPY_PEER, 5),
        ("cuMemcpyHtoA", Call.COPY_H2D, 4),
        ("cuMemcpyAtoH", Call.COPY_D2H, 4),
    )
    copies = {name: EntryPoint(call, 0, size) for name, call, size in rows}
    copies |= {f"{name}Async": EntryPoint(call, size + 1, size, True) for name, call, size in rows}
    copies |= {f"cuMemcpy{name}": EntryPoint(Call.COPY_D2D, 0, 4) for name in ("DtoA", "AtoD")}
    copies["cuMemcpyAtoA"] = EntryPoint(Call.COPY_D2D, 0, 5)
    for name, call in (("2D", Call.COPY_ANY), ("3D", Call.COPY_ANY), ("3DPeer", Call.COPY_PEER)):
        copies[f"cuMemcpy{name}"] = EntryPoint(call)
        copies[f"cuMemcpy{name}Async"] = EntryPoint(call, 2, 0, True)
    copies["cuMemcpy2DUnaligned"] = EntryPoint(Call.COPY_ANY)
    # The position of their stream differs between versions.
    copies["cuMemcpyBatchAsync"] = copies["cuMemcpy3DBatchAsync"] = EntryPoint(Call.COPY_ANY, is_async=True)
    return copies


ENTRY_POINTS: dict[str, EntryPoint] = {
    "cuLaunch": EntryPoint(Call.LAUNCH, is_async=True),
    "cuLaunchGrid": EntryPoint(Call.LAUNCH, is_async=True),
    "cuLaunchGridAsync": EntryPoint(Call.LAUNCH, 4, is_async=True),
    "cuLaunchKernel": EntryPoint(Call.LAUNCH, 9, is_async=True),
    "cuLaunchKernelEx": EntryPoint(Call.LAUNCH, LAUNCH_CONFIG, is_async=True),
    "cuLaunchCooperativeKernel": EntryPoint(Call.LAUNCH, 9, is_async=True),
    "cuLaunchCooperativeKernelMultiDevice": EntryPoint(Call.LAUNCH, is_async=True),
    "cuGraphLaunch": EntryPoint(Call.GRAPH_LAUNCH, 2, is_async=True),
    **_copies(),
    "cuStreamSynchronize": EntryPoint(Call.STREAM_SYNC, 1),
    "cuEventSynchronize": EntryPoint(Call.EVENT_SYNC, 1),
    "cuCtxSynchronize": EntryPoint(Call.CTX_SYNC),
    # Giving memory back waits for all that runs, a hold included.
    **{name: EntryPoint(Call.CTX_SYNC) for name in ("cuMemFree", "cuMemFreeHost", "cuMemHostUnregister")},
    "cuStreamQuery": EntryPoint(Call.STREAM_QUERY, 1),
    "cuEventQuery": EntryPoint(Call.EVENT_QUERY, 1),
    "cuEventRecord": EntryPoint(Call.EVENT_RECORD, 1, 2, True),  # the stream takes the place of the size
    "cuEventRecordWithFlags": EntryPoint(Call.EVENT_RECORD, 1, 2, True),
}


def find_entry_point(symbol: str) -> EntryPoint | None:
    """Return what an exported symbol does, or None when it is not probed."""
    match = _VARIANT.match(symbol)
    return ENTRY_POINTS.get(match["base"]) if match else None
