"""The simulated libcuda: kernels, copies, streams, graphs; times are those of the GPU's own clock."""

import pytest

from gpsched.adaptive.simgpu import SimulatedGpu
from tests.sim.cuda_programs import run


pytestmark = [pytest.mark.sim, pytest.mark.root]


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
