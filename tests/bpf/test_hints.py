"""From the kernel's events to a trigger: the unmodified sample service on the embedded GPU, heard by a learner.

Times are program time: the events' divided by the scale, so that a busy machine's noise is small beside the leads.
"""

import threading
from collections import Counter

import msgspec
import pytest

from gpsched.adaptive.errors import UnsupportedHostError
from gpsched.adaptive.hints.adapter import EventAdapter
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import Observation, Tick, Wake, WakeKind
from gpsched.adaptive.hints.outputs import BurstBegan, Output
from gpsched.adaptive.probes.events import Event
from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.bench.errors import ProgramMissingError
from gpsched.bench.workload import cuda_service
from tests.bpf.conftest import Recorder


pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.sim]

SCALE = 20.0
REQUESTS, RATE, PREPARE_US = 50, 100, 2000
TICK_US = 2000.0


@pytest.fixture(scope="module")
def observations(recorder: Recorder) -> list[Observation]:
    """What the service does for 50 requests, as a learner is told."""
    try:
        gpu = SimulatedGpu(scale=SCALE)
        gpu.start()
    except UnsupportedHostError as error:
        pytest.skip(str(error))
    try:
        return observe(record(recorder, gpu))
    except ProgramMissingError as error:
        pytest.skip(str(error))
    finally:
        gpu.stop()


def record(recorder: Recorder, gpu: SimulatedGpu) -> list[Event]:
    recorder.probes.attach_file(gpu.directory / "lib/libcuda.so.1")
    with cuda_service(gpu.env, "--prep-us", str(PREPARE_US), "--iters-per-us", "1000") as service:
        recorder.probes.manage(service.pid, "lc")
        assert recorder.probes.wait_attached(30)
        recorder.of(service.pid)
        recorder.events.clear()
        load = threading.Thread(target=service.run, args=(REQUESTS, RATE, "poisson"))
        load.start()
        while load.is_alive():
            recorder.probes.poll(20)
        recorder.of(service.pid)
        lost = recorder.probes.lost()
        events = [event for event in recorder.events if event.pid == service.pid]
    assert lost == 0
    return events


def observe(events: list[Event]) -> list[Observation]:
    """In order of time, with ticks in between."""
    adapter, observed = EventAdapter(), list[Observation]()
    for event in sorted(events, key=lambda event: event.time_ns):
        own = adapter.convert(msgspec.structs.replace(event, time_ns=round(event.time_ns / SCALE)))
        while own and observed and own[0].time_us - observed[-1].time_us > TICK_US:
            observed.append(Tick(observed[-1].time_us + TICK_US))
        observed += own
    return observed


def test_each_request_is_one_read_of_its_connection(observations: list[Observation]) -> None:
    reads = [event for event in observations if isinstance(event, Wake) and event.kind is WakeKind.SOCKET_READ]
    assert Counter((event.tid, event.descriptor, event.size) for event in reads).most_common(1)[0][1] == REQUESTS


def test_read_is_learned_within_fifty_requests(observations: list[Observation]) -> None:
    """The wait for the connection (poll) ends microseconds before the read: either says the same."""
    learner = HintLearner()
    outputs: list[Output] = [output for observation in observations for output in learner.observe(observation)]
    bursts = [output for output in outputs if isinstance(output, BurstBegan)]
    report = learner.report()
    assert len(bursts) == REQUESTS
    (read,) = [candidate for candidate in report.candidates if candidate.trigger == "socket_read"]
    assert (read.precision, read.recall) == (1.0, 1.0)
    assert PREPARE_US <= read.lead_us["p1"] < read.lead_us["p50"] < 2 * PREPARE_US
    assert report.state == "sure", report.why
    kinds = {trigger.matcher.kind for trigger in report.choice.triggers}
    assert kinds & {WakeKind.SOCKET_READ, WakeKind.EPOLL}, report.why
    late = bursts[-10:]
    assert sum(burst.reserved_us is not None for burst in late) >= 9, "what it learned reserves"
