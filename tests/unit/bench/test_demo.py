"""The demonstration's order and clean-up, on the fake driver and with a daemon that only notes its calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from gpsched.adaptive.calibration.errors import CalibrationFailedError, CalibrationTimeoutError
from gpsched.adaptive.model import DaemonView, Snapshot
from gpsched.bench import calibration, demo
from gpsched.bench.device import Device, open_device
from gpsched.bench.errors import NoRealGpuError, ProgramFailedError


class NotingClient:
    """Stands for the daemon's client."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def attach(self, pid: int, class_: str) -> None:
        self.calls.append(("attach", class_, pid))

    def detach(self, pid: int) -> None:
        self.calls.append(("detach", pid))

    def snapshot(self) -> Snapshot:
        daemon = DaemonView(
            pid=1, version="0", uptime_s=1, libraries=[], lost_events=3, failed_controls=0, last_failure=None
        )
        return Snapshot(time_s=0.0, daemon=daemon, processes=[])


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, fake_cuda: dict[str, str]) -> NotingClient:
    noting = NotingClient()

    @contextmanager
    def device(_kind: str, _scale: float) -> Iterator[Device]:
        yield Device(simulated=True, name="fake", driver="fake", scale=1.0, environment=fake_cuda)

    @contextmanager
    def daemon(calibration: object) -> Iterator[NotingClient]:
        assert calibration == "measured on fake"
        yield noting

    monkeypatch.setattr(demo, "open_device", device)
    monkeypatch.setattr(demo, "running_daemon", daemon)
    monkeypatch.setattr(demo, "calibrate", lambda gpu: f"measured on {gpu.name}")
    return noting


def test_arms_take_turns_and_both_processes_are_attached_and_detached(client: NotingClient) -> None:
    said: list[str] = []
    result = demo.run_demo("simulated", demo.Comparison(seconds=1), progress=lambda what, _share: said.append(what))
    measured = [what.removeprefix("measuring: ") for what in said if what.startswith("measuring: ")]
    assert measured == ["alone", "default", "gpsched"] * 3
    lc, be = client.calls[0][2], client.calls[1][2]
    assert client.calls == [("attach", "lc", lc), ("attach", "be", be), ("detach", be), ("detach", lc)] * 3
    assert result.ok
    assert result.managed.lost_events == 3
    assert [len(arm.blocks) for arm in result.arms] == [3, 3, 3]
    assert all(block.be_kernels == 0 for block in result.arms[0].blocks)  # paused
    assert all(block.be_kernels > 0 for arm in result.arms[1:] for block in arm.blocks)


def test_corrupted_job_is_reported(
    client: NotingClient, monkeypatch: pytest.MonkeyPatch, fake_cuda: dict[str, str]
) -> None:
    monkeypatch.setitem(fake_cuda, "FAKE_CUDA_DROP", "100")
    result = demo.run_demo("simulated", demo.Comparison(seconds=1))
    assert not result.ok
    assert result.be_verification.bad_counters == 16 * 256


def test_program_that_cannot_start_is_an_error_and_leaves_nothing(
    client: NotingClient, monkeypatch: pytest.MonkeyPatch, fake_cuda: dict[str, str]
) -> None:
    monkeypatch.setitem(fake_cuda, "FAKE_CUDA_DEVICES", "0")
    with pytest.raises(ProgramFailedError, match="no GPU") as failure:
        demo.run_demo("simulated", demo.Comparison(seconds=1))
    assert failure.value.exit_code == 77
    assert client.calls == []


def test_real_device_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    with pytest.raises(NoRealGpuError, match="--device simulated"), open_device("real"):
        pass


def test_a_calibration_that_fails_on_a_busy_machine_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[object] = []

    def once(_gpu: object) -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(calibration, "_calibrate_once", once)
    busy = CalibrationFailedError("busy")
    outcomes[:] = [busy, busy, "measured"]
    assert calibration.calibrate(SimpleNamespace()) == "measured"
    outcomes[:] = [busy, busy, busy, "too late"]
    with pytest.raises(CalibrationFailedError, match="busy"):
        calibration.calibrate(SimpleNamespace())
    outcomes[:] = [CalibrationTimeoutError(40), "not asked again"]
    with pytest.raises(CalibrationTimeoutError):
        calibration.calibrate(SimpleNamespace())
