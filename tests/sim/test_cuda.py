"""The simulated libcuda, used by child processes through ctypes; times are those of the GPU's own clock."""

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from gpsched.adaptive.simgpu import SimulatedGpu
from tests.sim import raw_rm as rm


pytestmark = [pytest.mark.sim, pytest.mark.root]

ROOT = Path(__file__).parents[2]
PRELUDE = "import ctypes, json, os, statistics, sys, time\nfrom tests.sim.cuda_client import Cuda, U32, U64, POINTER\n"


def start(gpu: SimulatedGpu, source: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(source)],
        env={**os.environ, **gpu.env, "PYTHONPATH": str(ROOT), **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(gpu: SimulatedGpu, source: str, **env: str) -> Any:
    """What the program prints as JSON on its last line."""
    child = start(gpu, source, **env)
    try:
        output, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 0
    return json.loads(output.splitlines()[-1])


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def finish(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def process(gpu: SimulatedGpu, pid: int) -> dict[str, Any] | None:
    return next((p for p in gpu.stats()["processes"] if p["pid"] == pid), None)


def gone(gpu: SimulatedGpu, pid: int) -> bool:
    deadline = time.monotonic() + 5
    while process(gpu, pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return process(gpu, pid) is None


def test_devices(two_gpus: SimulatedGpu) -> None:
    seen = run(
        two_gpus,
        """
        c = Cuda()
        name = ctypes.create_string_buffer(64)
        c.call("cuDeviceGetName", name, 64, 1)
        count = c.out(ctypes.c_int, "cuDeviceGetCount").value
        memory = c.out(ctypes.c_size_t, "cuDeviceTotalMem_v2", 0).value
        missing = c.status("cuDeviceGet", ctypes.byref(ctypes.c_int()), 2)
        print(json.dumps([name.value.decode(), count, memory, missing]))
        """,
    )
    assert seen == ["gpsched simulated GPU 1", 2, 139 << 30, 101]


def test_a_context_allocates_what_the_real_library_does(two_gpus: SimulatedGpu) -> None:
    child = start(two_gpus, "c = Cuda(); print(c.context.value, flush=True); sys.stdin.read()")
    try:
        line(child)
        numbers = [int(p.name) for p in Path(f"/proc/{child.pid}/fd").iterdir() if p.readlink().name == "nvidiactl"]
        assert len(numbers) == 1
        maps = Path(f"/proc/{child.pid}/maps").read_text()
        assert str(two_gpus.directory / "lib" / "libcuda.so.1") in maps
        found = scan(child.pid, numbers[0])
    finally:
        finish(child)
    assert sorted(len(channels) for channels in found.values()) == [4, 4, 4, 8]


def scan(pid: int, number: int) -> dict[int, list[int]]:
    """Channels by group of the only client, found by asking."""
    pidfd = os.pidfd_open(pid)
    fd = ctypes.CDLL(None).syscall(438, pidfd, number, 0)
    os.close(pidfd)
    try:
        groups: dict[int, list[int]] = {}
        for client in range(0xC1D00000, 0xC1D00020):
            for handle in range(0x5C000000, 0x5C000060):
                if rm.control(fd, client, handle, rm.GET_TIMESLICE, bytes(8))[0] == rm.OK:
                    groups[handle] = []
                elif groups and rm.control(fd, client, handle, 0xC36F0108, bytes(4))[0] == rm.OK:
                    groups[max(groups)].append(handle)
        return groups
    finally:
        os.close(fd)


@pytest.mark.parametrize("name", ["cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchCooperativeKernel"])
def test_work_counts_and_takes_its_time(two_gpus: SimulatedGpu, name: str) -> None:
    us, counters = run(
        two_gpus,
        f"""
        c = Cuda()
        d, s = c.alloc(1000), c.stream()
        begin = c.event(s)
        for _ in range(20):
            c.launch(d, 300, 1000, s, {name!r})
        end = c.event(s)
        print(json.dumps([c.elapsed_us(begin, end), sorted(set(c.read(d, 1000)))]))
        """,
    )
    assert us == pytest.approx(20 * 300, abs=200)
    assert counters == [20]


def test_launches_are_cheap(two_gpus: SimulatedGpu) -> None:
    us = run(
        two_gpus,
        """
        c = Cuda()
        d = c.alloc(1)
        best = 1e9
        for _ in range(50):
            t = time.monotonic_ns()
            for _ in range(10):
                c.launch(d, 1, 1)
            best = min(best, (time.monotonic_ns() - t) / 10e3)
            c.call("cuCtxSynchronize")
        print(best)
        """,
    )
    # ctypes itself takes several µs a call.
    assert us < 40


def test_copies_in_every_direction(two_gpus: SimulatedGpu) -> None:
    assert run(
        two_gpus,
        """
        c = Cuda()
        a, b, s = c.alloc(256), c.alloc(256), c.stream()
        size = ctypes.c_size_t(1024)
        host = (U32 * 256)(*range(256))
        c.call("cuMemcpyHtoDAsync_v2", a, host, size, s)
        ctypes.memset(host, 0, 1024)          # a pageable source may change once the call returned
        c.call("cuMemcpyDtoDAsync_v2", b, a, size, s)
        back = (U32 * 256)()
        c.call("cuMemcpyDtoHAsync_v2", back, b, size, s)
        c.call("cuStreamSynchronize", s)
        first = list(back) == list(range(256))
        c.call("cuMemcpyHtoD_v2", a, host, size)
        c.call("cuMemcpyPeer", b, c.context, a, c.context, size)
        print(json.dumps([first, c.read(b, 256) == [0] * 256]))
        """,
    ) == [True, True]


def test_streams_events_and_queries(two_gpus: SimulatedGpu) -> None:
    seen = run(
        two_gpus,
        """
        c = Cuda()
        d, s, t = c.alloc(1), c.stream(), c.stream()
        c.launch(d, 20000, 1, s)
        e = c.event(s)
        c.call("cuStreamWaitEvent", t, e, 0)
        late = c.event(t)
        busy = [c.status("cuStreamQuery", s), c.status("cuEventQuery", e), c.status("cuEventQuery", late)]
        c.call("cuStreamSynchronize", t)
        done = [c.status("cuStreamQuery", s), c.status("cuEventQuery", e), c.status("cuEventQuery", late)]
        print(json.dumps([busy, done, c.elapsed_us(e, late)]))
        """,
    )
    assert seen[:2] == [[600] * 3, [0] * 3]
    assert 0 <= seen[2] < 1


def test_the_legacy_stream_waits_for_blocking_streams(two_gpus: SimulatedGpu) -> None:
    us = run(
        two_gpus,
        """
        c = Cuda()
        d = c.alloc(1)
        s = c.out(POINTER, "cuStreamCreate", U32(0))
        begin = c.event(s)
        c.launch(d, 5000, 1, s)
        end = c.event()
        print(c.elapsed_us(begin, end))
        """,
    )
    assert us >= 5000


def test_graphs(two_gpus: SimulatedGpu) -> None:
    us, counters, host = run(
        two_gpus,
        """
        c = Cuda()
        d, s = c.alloc(64), c.stream()
        host = (U32 * 64)()
        c.call("cuStreamBeginCapture_v2", s, 0)
        for _ in range(10):
            c.launch(d, 100, 64, s)
        c.call("cuMemcpyDtoHAsync_v2", host, d, ctypes.c_size_t(256), s)
        graph = POINTER()
        c.call("cuStreamEndCapture", s, ctypes.byref(graph))
        assert c.read(d, 64) == [0] * 64
        exe = POINTER()
        c.call("cuGraphInstantiateWithFlags", ctypes.byref(exe), graph, U64(0))
        c.call("cuGraphDestroy", graph)
        begin = c.event(s)
        for _ in range(3):
            c.call("cuGraphLaunch", exe, s)
        end = c.event(s)
        us = c.elapsed_us(begin, end)
        c.call("cuGraphExecDestroy", exe)
        print(json.dumps([us, sorted(set(c.read(d, 64))), sorted(set(host))]))
        """,
    )
    assert us == pytest.approx(3000, abs=300)
    assert counters == host == [30]


def test_unknown_kernels_take_the_configured_time(two_gpus: SimulatedGpu) -> None:
    us = run(
        two_gpus,
        """
        c = Cuda()
        begin = c.event()
        c.launch_with(c.other, [])
        print(c.elapsed_us(begin, c.event()))
        """,
        GPSCHED_SIM_KERNEL_US="7000",
    )
    assert us == pytest.approx(7000, abs=150)


@pytest.mark.parametrize("by", ["host", "stream"])
def test_hold_runs_until_its_flag_is_set(two_gpus: SimulatedGpu, by: str) -> None:
    running, us = run(
        two_gpus,
        f"""
        c = Cuda()
        flag = c.out(POINTER, "cuMemAllocHost_v2", ctypes.c_size_t(64))
        word = U32.from_address(flag.value)
        word.value = 0
        s, t = c.stream(), c.stream()
        begin = c.event(s)
        c.launch_hold(flag.value, 1, s)
        end = c.event(s)
        time.sleep(0.05)
        running = c.status("cuEventQuery", end)
        if {by!r} == "host":
            word.value = 1
        else:
            c.call("cuStreamWriteValue32_v2", t, U64(flag.value), U32(1), 0)
        print(json.dumps([running, c.elapsed_us(begin, end)]))
        """,
    )
    assert running == 600
    assert us >= 50_000 / two_gpus.scale * 0.95


def test_a_hold_ends_by_itself_and_lets_the_next_go(two_gpus: SimulatedGpu) -> None:
    first, second, flag = run(
        two_gpus,
        """
        c = Cuda()
        text = b".version 7.0\\n.entry gpsched_hold(.param .u64 flag, .param .u32 seq, .param .u64 limit_ns) { ret; }"
        module = c.out(POINTER, "cuModuleLoadData", ctypes.c_char_p(text))
        hold = c.out(POINTER, "cuModuleGetFunction", module, ctypes.c_char_p(b"gpsched_hold"))
        page = ctypes.create_string_buffer(4096)
        address = ctypes.addressof(page)
        c.call("cuMemHostRegister_v2", page, ctypes.c_size_t(4096), 2)
        again = c.status("cuMemHostRegister_v2", page, ctypes.c_size_t(4096), 2)
        assert again == 712, again
        s = c.stream()
        events = [c.event(s)]
        for _ in range(2):
            c.launch_with(hold, [U64(address), U32(7), U64(3_000_000)], s)
            events.append(c.event(s))
        us = [c.elapsed_us(a, b) for a, b in zip(events, events[1:])]
        c.call("cuMemHostUnregister", page)
        print(json.dumps([*us, U32.from_address(address).value]))
        """,
    )
    assert first == pytest.approx(3000, abs=200)
    assert second < 50
    assert flag == 7


def test_a_destroyed_context_is_refused_not_followed(two_gpus: SimulatedGpu) -> None:
    assert run(
        two_gpus,
        """
        c = Cuda()
        s, d = c.stream(), c.alloc(1)
        c.call("cuCtxPushCurrent_v2", c.context)
        c.call("cuCtxDestroy_v2", c.context)
        again = Cuda()
        gone = [again.status("cuStreamSynchronize", s), again.status("cuCtxDestroy_v2", c.context)]
        again.call("cuCtxSetCurrent", c.context)
        print(json.dumps([*gone, again.status("cuCtxSynchronize")]))
        """,
    ) == [400, 201, 709]


def test_injection_and_lookup(two_gpus: SimulatedGpu, tmp_path: Path) -> None:
    source = tmp_path / "inject.c"
    source.write_text('#include <stdlib.h>\nint InitializeInjection(void) { return !setenv("INJECTED", "yes", 1); }\n')
    library = tmp_path / "inject.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    seen = run(
        two_gpus,
        """
        c = Cuda()
        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_char_p
        injected = libc.getenv(b"INJECTED").decode()
        address = POINTER()
        found = []
        for name, flags in ((b"cuMemcpyHtoDAsync", 0), (b"cuLaunchKernel", 2), (b"cuMemcpyHtoD", 2)):
            c.call("cuGetProcAddress_v2", name, ctypes.byref(address), 12000, U64(flags), None)
            found.append(address.value)
        direct = [ctypes.cast(getattr(c.lib, n), POINTER).value
                  for n in ("cuMemcpyHtoDAsync_v2", "cuLaunchKernel_ptsz", "cuMemcpyHtoD_v2_ptds")]
        missing = c.status("cuGetProcAddress_v2", b"cuNoSuchThing", ctypes.byref(address), 12000, U64(0), None)
        print(json.dumps([injected, found == direct, missing]))
        """,
        CUDA_INJECTION64_PATH=str(library),
    )
    assert seen == ["yes", True, 500]


def test_every_exported_call_has_its_own_address(two_gpus: SimulatedGpu) -> None:
    library = two_gpus.directory / "lib" / "libcuda.so.1"
    output = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    symbols = [text.split() for text in output.splitlines()]
    calls = {name: address for address, _, name in symbols if name.startswith("cu")}
    assert len(calls) > 120
    assert len(set(calls.values())) == len(calls)


def test_a_forked_child_starts_anew(two_gpus: SimulatedGpu) -> None:
    assert run(
        two_gpus,
        """
        c = Cuda()
        d = c.alloc(1)
        c.launch(d, 100, 1)
        child = os.fork()
        if child == 0:
            before = c.status("cuCtxSynchronize")
            again = Cuda()
            e = again.alloc(1)
            again.launch(e, 100, 1)
            os._exit(0 if before == 3 and again.read(e, 1) == [1] else 1)
        status = os.waitpid(child, 0)[1]
        print(json.dumps([status, c.read(d, 1)]))
        """,
    ) == [0, [1]]


def test_threads_and_contexts_on_both_gpus(two_gpus: SimulatedGpu) -> None:
    results = run(
        two_gpus,
        """
        import threading
        results = []
        def worker(gpu):
            c = Cuda(gpu)
            d = c.alloc(16)
            begin = c.event(POINTER(2))
            for _ in range(200):
                c.launch(d, 10, 16, None, "cuLaunchKernel_ptsz")
            us = c.elapsed_us(begin, c.event(POINTER(2)))
            c.call("cuCtxSynchronize")
            results.append([us, c.read(d, 16) == [200] * 16])
            c.call("cuCtxDestroy_v2", c.context)
        threads = [threading.Thread(target=worker, args=(i % 2,)) for i in range(6)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(json.dumps(results))
        """,
    )
    assert [right for _, right in results] == [True] * 6
    assert all(us >= 2000 for us, _ in results)


def test_work_of_a_context_whose_groups_were_freed_fails(two_gpus: SimulatedGpu) -> None:
    statuses = run(
        two_gpus,
        """
        import struct
        from tests.sim import raw_rm as rm
        c = Cuda()
        d = c.alloc(1)
        fd = next(int(n) for n in os.listdir("/proc/self/fd") if "nvidiactl" in os.path.realpath(f"/proc/self/fd/{n}"))
        for client in range(0xC1D00000, 0xC1D00020):
            for handle in range(0x5C000000, 0x5C000010):
                rm.free(fd, client, client, handle)
        try:
            c.launch(d, 10, 1)
        except AssertionError as error:  # the launch itself may learn of it already
            assert "719" in str(error)
        print(json.dumps([c.status("cuCtxSynchronize"), c.status("cuStreamSynchronize", None)]))
        """,
    )
    assert statuses == [719, 719]


BUSY = """
c = Cuda(int(os.environ["GPU"]))
d = c.alloc(32)
for _ in range(5): c.launch(d, 500, 32)
c.call("cuCtxSynchronize")
print("ready", flush=True)
sys.stdin.readline()
for _ in range(60): c.launch(d, 500, 32)
c.call("cuCtxSynchronize")
print(json.dumps(sorted(set(c.read(d, 32)))), flush=True)
sys.stdin.readline()
"""


def go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def test_eight_processes_on_two_gpus_share_fairly(two_gpus: SimulatedGpu) -> None:
    children = [start(two_gpus, BUSY, GPU=str(i % 2)) for i in range(8)]
    try:
        assert [line(child) for child in children] == ["ready"] * 8
        for child in children:
            go(child)
        assert [json.loads(line(child)) for child in children] == [[65]] * 8
        for child in children:
            stats = process(two_gpus, child.pid)
            assert stats is not None
            assert stats["kernels"] == 65
            assert stats["gpu_us"] == pytest.approx(65 * 500, rel=0.01)
            assert len(stats["launches"]) == 65
            assert all(submit <= begin < end for submit, begin, end in stats["launches"])
            assert stats["switches"] > 2
    finally:
        for child in children:
            finish(child)


def test_a_killed_process_frees_the_gpu(two_gpus: SimulatedGpu) -> None:
    hog = start(
        two_gpus,
        """
        c = Cuda()
        d = c.alloc(1)
        for _ in range(50):
            c.launch(d, 4e6, 1)
        print("ready", flush=True)
        sys.stdin.read()
        """,
    )
    try:
        line(hog)
        assert process(two_gpus, hog.pid)
    finally:
        finish(hog)
    assert gone(two_gpus, hog.pid)
    us = run(
        two_gpus,
        """
        c = Cuda()
        d = c.alloc(1)
        begin = c.event()
        c.launch(d, 100, 1)
        print(c.elapsed_us(begin, c.event()))
        """,
    )
    assert us < 400


def test_no_gpu_without_a_directory(two_gpus: SimulatedGpu) -> None:
    source = "l = ctypes.CDLL('libcuda.so.1'); print(json.dumps([l.cuInit(0), l.cuCtxSynchronize()]))"
    assert run(two_gpus, source, GPSCHED_SIM_DIR="/nonexistent") == [802, 3]


def test_a_program_learns_that_the_server_died() -> None:
    with SimulatedGpu(scale=5) as gpu:
        child = start(
            gpu,
            """
            c = Cuda()
            d = c.alloc(1)
            c.launch(d, 4e6, 1)
            print("ready", flush=True)
            print(c.status("cuCtxSynchronize"), flush=True)
            """,
        )
        try:
            line(child)
            os.kill(gpu.pid, signal.SIGKILL)
            assert line(child) == "719"
        finally:
            finish(child)


LC_LOOP = """
c = Cuda()
d, s = c.alloc(1), c.stream()
for text in sys.stdin:
    us = []
    for i in range(int(text)):
        time.sleep(0.0231)
        begin = c.event(s)
        c.launch(d, 100, 1, s)
        us.append(c.elapsed_us(begin, c.event(s)))
    print(statistics.median(us), flush=True)
"""

BE_LOOP = """
c = Cuda()
d, s = c.alloc(1), c.stream()
events = []
print("ready", flush=True)
while True:
    c.launch(d, 400, 1, s)
    events.append(c.event(s))
    if len(events) == 16:
        c.call("cuEventSynchronize", events[0])
        c.call("cuEventDestroy_v2", events.pop(0))
"""


def test_timeslices_set_from_outside_change_the_latency() -> None:
    def ask(child: subprocess.Popen[str], requests: int) -> float:
        assert child.stdin is not None
        child.stdin.write(f"{requests}\n")
        child.stdin.flush()
        return float(line(child))

    with SimulatedGpu(scale=5) as gpu:
        lc, be = start(gpu, LC_LOOP), start(gpu, BE_LOOP)
        try:
            line(be)
            default = ask(lc, 60)
            set_slice(be.pid, 1)
            short = ask(lc, 60)
        finally:
            finish(lc)
            finish(be)
    # Half a slice of 2048 us and the switch; then the switch alone. Real time enters both: a program that is kept
    # waiting between its two calls sees more, so only what no delay explains is bounded tightly.
    assert default - 100 >= 700
    assert short - 100 >= 180
    assert default / short > 2
    assert default - short < 2048


def set_slice(pid: int, us: int) -> None:
    number = next(int(p.name) for p in Path(f"/proc/{pid}/fd").iterdir() if p.readlink().name == "nvidiactl")
    found = scan(pid, number)
    group = next(handle for handle, channels in found.items() if len(channels) == 8)
    pidfd = os.pidfd_open(pid)
    fd = ctypes.CDLL(None).syscall(438, pidfd, number, 0)
    os.close(pidfd)
    statuses = [
        rm.control(fd, client, group, rm.SET_TIMESLICE, struct.pack("<Q", us))[0]
        for client in range(0xC1D00000, 0xC1D00010)
    ]
    os.close(fd)
    assert statuses.count(rm.OK) == 1


@pytest.mark.parametrize(("visible", "names"), [("1", [1]), ("1,0", [1, 0]), ("0,7,1", [0]), ("", [])])
def test_visible_devices(two_gpus: SimulatedGpu, visible: str, names: list[int]) -> None:
    seen = run(
        two_gpus,
        """
        lib = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        assert lib.cuInit(0) == (0 if os.environ["CUDA_VISIBLE_DEVICES"] else 100)
        lib.cuDeviceGetCount(ctypes.byref(count))
        names = []
        for i in range(count.value):
            name = ctypes.create_string_buffer(64)
            lib.cuDeviceGetName(name, 64, i)
            names.append(int(name.value.split()[-1]))
        print(json.dumps(names))
        """,
        CUDA_VISIBLE_DEVICES=visible,
    )
    assert seen == names
