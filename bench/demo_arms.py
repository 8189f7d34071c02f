"""The settings under which a service and a job are compared. An arm is entered, measured and left again."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from gpsched.adaptive.client import Client
from gpsched.bench.result import Block
from gpsched.bench.workload import Job, Service


_SETTLE_S = 0.3  # real time from entering an arm to measuring it
_WARM_UP_REQUESTS = 3
_LEARN_REQUESTS = 60  # what announces a burst is learned from these; a service has that behind it in its first second


@dataclass
class Stage:
    """What the arms act on. ``levels`` collects what the daemon says of each process while it manages them."""

    client: Client
    service: Service
    job: Job
    rate: float
    levels: dict[str, str] = field(default_factory=dict)


@contextmanager
def alone(stage: Stage) -> Iterator[None]:
    """The job is there, but launches nothing."""
    stage.job.pause()
    yield
    stage.job.resume()


@contextmanager
def default(_stage: Stage) -> Iterator[None]:
    """The driver's default."""
    yield


@contextmanager
def managed(stage: Stage) -> Iterator[None]:
    """Both processes are attached to gpsched, as they run, and it has learned what announces the service's bursts."""
    stage.client.attach(stage.service.pid, "lc")
    stage.client.attach(stage.job.pid, "be")
    stage.service.run(_LEARN_REQUESTS, stage.rate)
    yield
    stage.levels.update(_levels(stage))
    stage.client.detach(stage.job.pid)
    stage.client.detach(stage.service.pid)


Arm = Callable[[Stage], AbstractContextManager[None]]
#: In the order in which they take turns. The job runs in all but ``alone``.
ARMS: dict[str, Arm] = {"alone": alone, "default": default, "gpsched": managed}


def measure(stage: Stage, arm: str, requests: int, rate: float, arrival: str, seed: int) -> Block:
    """Run one block of ``arm`` and return what was measured in it."""
    with ARMS[arm](stage):
        time.sleep(_SETTLE_S)
        stage.service.run(_WARM_UP_REQUESTS, rate)
        before = stage.job.progress()
        run = stage.service.run(requests, rate, arrival, seed)
        after = stage.job.progress()
    return Block(
        start_us=run.start_us,
        end_us=run.end_us,
        latency_us=run.latency_us,
        scheduled_us=run.scheduled_us,
        server_us=run.server_us,
        be_kernels=after.kernels - before.kernels,
        be_us=after.time_us - before.time_us,
        be_largest_gap_us=after.largest_gap_us,
    )


def _levels(stage: Stage) -> dict[str, str]:
    names = {stage.service.pid: "lc", stage.job.pid: "be"}
    processes = stage.client.snapshot().processes
    return {names[view.pid]: f"{view.level}: {view.reason}" for view in processes if view.pid in names}
