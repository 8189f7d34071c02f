"""Hold kernels on the simulated libcuda; times are those of the GPU's own clock."""

import pytest

from gpsched.adaptive.simgpu import SimulatedGpu
from tests.sim.cuda_programs import run


pytestmark = [pytest.mark.sim, pytest.mark.root]


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
