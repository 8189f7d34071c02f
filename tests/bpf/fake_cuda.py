"""A libcuda.so.1 without a GPU: every entry point under every exported name, with its real parameter positions."""

import subprocess
from pathlib import Path

from gpsched.adaptive.probes.events import Call


STREAM, EVENT, SIZE = 0x5EA0, 0xE0E0, 0x123456789A

# Symbol -> call, asynchronous, arguments of a call as cuda.h orders them ("s" stream, "e" event, "n" bytes, "." others,
# "c" a launch configuration), and the suffixes under which the library exports it. Written down from cuda.h, not
# derived from the code under test.
TABLE: tuple[tuple[str, Call, bool, str, tuple[str, ...]], ...] = (
    ("cuLaunchKernel", Call.LAUNCH, True, "........s..", ("", "_ptsz")),
    ("cuLaunchKernelEx", Call.LAUNCH, True, "c...", ("", "_ptsz")),
    ("cuLaunchCooperativeKernel", Call.LAUNCH, True, "........s.", ("", "_ptsz")),
    ("cuLaunchCooperativeKernelMultiDevice", Call.LAUNCH, True, "...", ("",)),
    ("cuLaunch", Call.LAUNCH, True, ".", ("",)),
    ("cuLaunchGrid", Call.LAUNCH, True, "...", ("",)),
    ("cuLaunchGridAsync", Call.LAUNCH, True, "...s", ("",)),
    ("cuGraphLaunch", Call.GRAPH_LAUNCH, True, ".s", ("", "_ptsz")),
    ("cuMemcpy", Call.COPY_ANY, False, "..n", ("", "_ptds")),
    ("cuMemcpyAsync", Call.COPY_ANY, True, "..ns", ("", "_ptsz")),
    ("cuMemcpyHtoD", Call.COPY_H2D, False, "..n", ("", "_v2", "_v2_ptds")),
    ("cuMemcpyHtoDAsync", Call.COPY_H2D, True, "..ns", ("", "_v2", "_v2_ptsz")),
    ("cuMemcpyDtoH", Call.COPY_D2H, False, "..n", ("", "_v2", "_v2_ptds")),
    ("cuMemcpyDtoHAsync", Call.COPY_D2H, True, "..ns", ("", "_v2", "_v2_ptsz")),
    ("cuMemcpyDtoD", Call.COPY_D2D, False, "..n", ("", "_v2", "_v2_ptds")),
    ("cuMemcpyDtoDAsync", Call.COPY_D2D, True, "..ns", ("", "_v2", "_v2_ptsz")),
    ("cuMemcpyPeer", Call.COPY_PEER, False, "....n", ("", "_ptds")),
    ("cuMemcpyPeerAsync", Call.COPY_PEER, True, "....ns", ("", "_ptsz")),
    ("cuMemcpyHtoA", Call.COPY_H2D, False, "...n", ("", "_v2", "_v2_ptds")),
    ("cuMemcpyHtoAAsync", Call.COPY_H2D, True, "...ns", ("", "_v2", "_v2_ptsz")),
    ("cuMemcpyAtoH", Call.COPY_D2H, False, "...n", ("", "_v2", "_v2_ptds")),
    ("cuMemcpyAtoHAsync", Call.COPY_D2H, True, "...ns", ("", "_v2", "_v2_ptsz")),
    ("cuMemcpyDtoA", Call.COPY_D2D, False, "...n", ("", "_v2", "_v2_ptds")),
    ("cuMemcpyAtoD", Call.COPY_D2D, False, "...n", ("", "_v2", "_v2_ptds")),
    ("cuMemcpyAtoA", Call.COPY_D2D, False, "....n", ("", "_v2", "_v2_ptds")),
    ("cuMemcpy2D", Call.COPY_ANY, False, ".", ("", "_v2", "_v2_ptds")),
    ("cuMemcpy2DUnaligned", Call.COPY_ANY, False, ".", ("", "_v2", "_v2_ptds")),
    ("cuMemcpy2DAsync", Call.COPY_ANY, True, ".s", ("", "_v2", "_v2_ptsz")),
    ("cuMemcpy3D", Call.COPY_ANY, False, ".", ("", "_v2", "_v2_ptds")),
    ("cuMemcpy3DAsync", Call.COPY_ANY, True, ".s", ("", "_v2", "_v2_ptsz")),
    ("cuMemcpy3DPeer", Call.COPY_PEER, False, ".", ("", "_ptds")),
    ("cuMemcpy3DPeerAsync", Call.COPY_PEER, True, ".s", ("", "_ptsz")),
    ("cuMemcpyBatchAsync", Call.COPY_ANY, True, ".........", ("", "_ptsz", "_v2", "_v2_ptsz")),
    ("cuMemcpy3DBatchAsync", Call.COPY_ANY, True, ".....", ("", "_ptsz", "_v2", "_v2_ptsz")),
    ("cuStreamSynchronize", Call.STREAM_SYNC, False, "s", ("", "_ptsz")),
    ("cuEventSynchronize", Call.EVENT_SYNC, False, "e", ("",)),
    ("cuCtxSynchronize", Call.CTX_SYNC, False, "", ("", "_v2")),
    ("cuMemFree", Call.CTX_SYNC, False, ".", ("", "_v2")),
    ("cuMemFreeHost", Call.CTX_SYNC, False, ".", ("",)),
    ("cuMemHostUnregister", Call.CTX_SYNC, False, ".", ("",)),
    ("cuStreamQuery", Call.STREAM_QUERY, False, "s", ("", "_ptsz")),
    ("cuEventQuery", Call.EVENT_QUERY, False, "e", ("",)),
    ("cuEventRecord", Call.EVENT_RECORD, True, "es", ("", "_ptsz")),
    ("cuEventRecordWithFlags", Call.EVENT_RECORD, True, "es.", ("", "_ptsz")),
)
SYMBOLS = {
    base + suffix: (call, is_async, arguments)
    for base, call, is_async, arguments, suffixes in TABLE
    for suffix in suffixes
}

# Neighbours that are not probed: their names begin like those of probed entry points.
UNPROBED = ("cuLaunchHostFunc", "cuMemcpyHtoDAsyncX", "cuStreamCreate", "cuGraphLaunchCount", "cuStreamQueryEx")

_SOURCE = """
#include <stdint.h>
int gs_result; /* what every entry point returns */
int fake_set_result(int result) {{ gs_result = result; return 0; }}
uint64_t gs_config[8] = {{0, 0, 0, 0, {stream}, 0, 0, 0}};
{functions}
"""


def build(folder: Path, symbols: tuple[str, ...] | None = None, extra: str = "") -> Path:
    """Make a libcuda.so.1 in ``folder`` with the given entry points (all by default) and return its path."""
    names = (*SYMBOLS, *UNPROBED) if symbols is None else symbols
    functions = "\n".join(f"int {name}(void) {{ return gs_result; }}" for name in names)
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "libcuda.c", folder / "libcuda.so.1"
    source.write_text(_SOURCE.format(stream=STREAM, functions=functions) + extra)
    # No folding of identical functions: each name keeps an address of its own, as in the real library.
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-fno-ipa-icf", "-o", library, source], check=True)
    return library
