"""A service that is known well is left to the actuator: nothing is lost, nothing is missed, and it is said."""

import threading
from collections.abc import Iterator

import pytest

from gpsched.adaptive.client import Client
from gpsched.adaptive.hints.model import HintsReport
from gpsched.adaptive.model import HintsView
from gpsched.bench.calibration import assumed
from gpsched.bench.daemon import running_daemon
from gpsched.bench.device import favour, open_device
from gpsched.bench.workload import Service, cuda_job, cuda_service
from tests.sim.test_daemon import until


pytestmark = [pytest.mark.sim, pytest.mark.root, pytest.mark.bpf]

# A lead that no busy machine hides, and bursts so long that its noise does not tell against the level.
OPTIONS = ("--prep-us", "4000", "--kernels", "1", "--kernel-us", "3000")
REQUESTS, RATE = 600, 100.0


class Asked:
    """A service that is asked all the time, beside a job, and what the daemon says of it."""

    def __init__(self, service: Service, client: Client) -> None:
        self.pid, self.client = service.pid, client
        self.load = threading.Thread(target=service.run, args=(REQUESTS, RATE))
        self.load.start()

    def report(self) -> HintsReport:
        return self.client.hints(self.pid)

    def seen(self) -> HintsView:
        views = self.client.snapshot().processes
        hints = next(view for view in views if view.pid == self.pid).hints
        assert hints is not None
        return hints

    def rests(self) -> bool:
        assert self.load.is_alive(), self.report().why
        return self.report().resting


@pytest.fixture
def asked() -> Iterator[Asked]:
    with (
        open_device("simulated") as gpu,
        running_daemon(calibration=assumed(gpu)) as client,
        cuda_job(gpu.environment) as job,
        cuda_service(gpu.environment, *OPTIONS) as service,
    ):
        for each, class_ in ((job, "be"), (service, "lc")):
            favour(each.pid)
            client.attach(each.pid, class_)  # type: ignore[arg-type]
        asked = Asked(service, client)
        yield asked
        asked.load.join(120)


def test_bursts_are_reserved_for_and_counted_while_the_learner_is_told_of_none(asked: Asked) -> None:
    until(asked.rests)
    learned, before = asked.report().outcome.bursts, asked.seen()
    until(lambda: asked.seen().bursts >= before.bursts + 20)
    after, report = asked.seen(), asked.report()
    assert report.resting
    assert report.outcome.bursts <= learned + 1  # the one in which the rest began
    assert after.reservations >= before.reservations + 19
    until(lambda: asked.report().outcome.bursts > learned + 20)  # then it is looked at again
    daemon = asked.client.snapshot().daemon
    assert (daemon.lost_events, daemon.failed_controls) == (0, 0)
