"""The simulated libcuda: devices, contexts, threads, and how it is loaded."""

import subprocess
from pathlib import Path

import pytest

from gpsched.adaptive.simgpu import SimulatedGpu
from tests.sim.cuda_programs import finish, line, run, scan, start


pytestmark = [pytest.mark.sim, pytest.mark.root]


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


def test_no_gpu_without_a_directory(two_gpus: SimulatedGpu) -> None:
    source = "l = ctypes.CDLL('libcuda.so.1'); print(json.dumps([l.cuInit(0), l.cuCtxSynchronize()]))"
    assert run(two_gpus, source, GPSCHED_SIM_DIR="/nonexistent") == [802, 3]


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
