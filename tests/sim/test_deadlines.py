"""Two services with long bursts under one daemon on the embedded GPU: the burst that is due first ends first."""

from collections.abc import Iterator

import pytest

from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.bench.device import favour
from gpsched.bench.workload import Service, cuda_service
from tests.sim.test_several import Bed


pytestmark = [pytest.mark.sim, pytest.mark.root, pytest.mark.bpf]

KERNELS, BURSTS, RATE = 10, 20, 20.0
LONG_BURSTS = ("--kernels", str(KERNELS), "--kernel-us", "400", "--prep-us", "0")
LATER = 0.03  # of the period: 1.5 ms of the GPU's time, 7.5 ms of the machine's, by which objectives count
Kernel = tuple[float, float, float]  # submitted, started, finished; µs on the GPU's clock
Burst = list[Kernel]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, two_gpus: SimulatedGpu) -> Iterator[tuple[Bed, Service, Service]]:
    """A service whose requests come first, and one whose requests come while the first computes."""
    favour(two_gpus.pid)
    bed = Bed(tmp_path_factory.mktemp("node"), two_gpus)
    try:
        early, late = (bed.stack.enter_context(cuda_service(bed.environment, *LONG_BURSTS)) for _ in range(2))
        for service in (early, late):
            favour(service.pid)
        bed.begin('[admission]\naction = "off"\n')
        yield bed, early, late
    finally:
        bed.close()


def _run(early: Service, late: Service) -> None:
    early.begin(BURSTS, RATE, "constant", 1, 0.0)
    late.begin(BURSTS, RATE, "constant", 1, LATER)
    for service in (early, late):
        service.result()


def _bursts(bed: Bed, service: Service) -> list[Burst]:
    kernels = next(each["launches"] for each in bed.gpu.stats()["processes"] if each["pid"] == service.pid)
    kernels = kernels[-KERNELS * BURSTS :]
    return [kernels[start : start + KERNELS] for start in range(0, len(kernels), KERNELS)]


def _meetings(bed: Bed, early: Service, late: Service) -> list[tuple[Burst, Burst]]:
    """The bursts of the two that were there at the same time, the early one coming first."""
    others = _bursts(bed, late)
    return [(one, other) for one in _bursts(bed, early) for other in others if one[0][0] < other[0][0] < one[-1][2]]


def _orderly(bed: Bed, early: Service, late: Service, first: str) -> float:
    """The share of meetings in which the right burst ends first, without any of the other's kernels in between."""
    _run(early, late)
    meetings = _meetings(bed, early, late)
    assert len(meetings) >= BURSTS // 2
    right = 0
    for one, other in meetings:
        begun, end = other[0][0], (one if first == "early" else other)[-1][2]
        between = [kernel for kernel in (other if first == "early" else one) if begun < kernel[1] < end]
        right += len(between) <= 1  # the kernel that runs when the other one comes is not cut in two
    return right / len(meetings)


@pytest.mark.parametrize(
    ("order", "early_us", "late_us", "first"),
    [
        pytest.param("deadline", 30_000.0, 30_000.0, "early", id="equal objectives"),
        pytest.param("deadline", 31_000.0, 30_000.0, "early", id="a little longer, but due first"),
        pytest.param("deadline", 45_000.0, 30_000.0, "late", id="due after the later one"),
        pytest.param("laxity", 31_000.0, 30_000.0, "early", id="less to spare"),
        pytest.param("laxity", 45_000.0, 30_000.0, "late", id="more to spare than the later one"),
    ],
)
def test_the_burst_that_is_due_first_ends_first(
    pair: tuple[Bed, Service, Service], order: str, early_us: float, late_us: float, first: str
) -> None:
    bed, early, late = pair
    bed.policy(policy={"order": order})
    bed.put(early, "lc", slo_us=early_us)
    bed.put(late, "lc", slo_us=late_us)
    _run(early, late)  # how long its bursts are is learned
    for _ in range(5):
        if (share := _orderly(bed, early, late, first)) >= 0.9:
            break
    assert share >= 0.8


def test_by_default_neither_goes_first(two_gpus: SimulatedGpu, pair: tuple[Bed, Service, Service]) -> None:
    bed, early, late = pair
    for service in (early, late):
        bed.detach(service)
    assert _orderly(bed, early, late, "early") < 0.5
