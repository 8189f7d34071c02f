"""``gpsched calibrate`` on the embedded GPU: its figures are what that models, and nothing stays behind."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpsched.adaptive.calibration import measure
from gpsched.adaptive.calibration.costs import to_costs
from gpsched.adaptive.calibration.model import Calibration
from gpsched.adaptive.calibration.store import load_all, load_costs
from gpsched.adaptive.driver import ControlError
from gpsched.adaptive.hints.costs import LEVELS
from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.bench.device import favour
from gpsched.bench.workload import Job, Service, cuda_job, cuda_service


pytestmark = [pytest.mark.sim, pytest.mark.root]

COMMAND = [sys.executable, "-m", "gpsched.cli.main", "calibrate", "--device", "simulated"]
_TRIES = 3
MODELLED = {"set_timeslice": (240, 440), "preempt": (125, 240), "restart_runlist": (115, 290), "disable": (540, 640)}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with one calibration, the first that the machine did not disturb."""
    for _ in range(_TRIES):
        state = tmp_path_factory.mktemp("calibration")
        result = subprocess.run([*COMMAND, "--state-dir", str(state)], capture_output=True, text=True, timeout=90)
        if result.returncode == 77:
            pytest.skip(result.stderr)
        if result.returncode == 0 and undisturbed(*load_all(state)):
            break
    assert result.returncode == 0, result.stderr
    assert "set_timeslice" in result.stdout
    return state


def undisturbed(found: Calibration) -> bool:
    """Whether the machine kept up: a burst alone and a control on an idle GPU took what they are modelled to take."""
    control = found.controls["set_timeslice"].idle
    return (
        found.bursts.alone.median_us < 430
        and control is not None
        and control.p10_us < MODELLED["set_timeslice"][0] + 60
    )


@pytest.fixture(scope="module")
def calibration(state: Path) -> Calibration:
    (found,) = load_all(state)
    return found


def test_a_switch_and_its_parts_are_as_modelled(calibration: Calibration) -> None:
    bursts = calibration.bursts
    assert bursts.reserved is not None
    switch, load = bursts.added_us(bursts.timeslice), bursts.added_us(bursts.reserved.early)
    assert switch == pytest.approx(190, rel=0.15)
    assert load / switch == pytest.approx(75 / 190, rel=0.2)
    # Disabling that takes effect inside the burst costs a second switch.
    assert bursts.added_us(bursts.reserved.late) / switch == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize("name", MODELLED)
def test_controls_cost_what_is_modelled(calibration: Calibration, name: str) -> None:
    """A control's time on the model's clock, and what FUSE and the host add to it: little in the quick cases."""
    idle, load = calibration.controls[name].idle, calibration.controls[name].load
    assert idle
    assert load
    assert MODELLED[name][0] * 0.95 <= idle.p10_us <= MODELLED[name][0] + 80
    assert MODELLED[name][1] * 0.95 <= load.p10_us <= MODELLED[name][1] + 100


def test_the_costs_are_near_the_defaults_which_the_model_follows(calibration: Calibration, state: Path) -> None:
    costs = to_costs(calibration)
    scale = calibration.scale
    for level in ("timeslice", "hold", "reserve"):
        assert costs[level].switch_us / scale == pytest.approx(LEVELS[level].switch_us, rel=0.15)
        assert costs[level].need_us / scale == pytest.approx(LEVELS[level].need_us, rel=0.3)
    assert load_costs(state, calibration.gpu, calibration.driver) == costs


def test_what_was_measured_is_shown(state: Path, calibration: Calibration) -> None:
    shown = subprocess.run(
        [*COMMAND, "--show", "--json", "--state-dir", str(state)], capture_output=True, text=True, timeout=60
    )
    (found,) = json.loads(shown.stdout)
    assert found["gpu"] == calibration.gpu
    assert found["schema"] == "gpsched.calibration/1"


# ---- every end is a clean one


def descendants(pid: int) -> set[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found = {int(word) for word in children.read_text().split()} if children.exists() else set()
    return found.union(*(descendants(child) for child in found))


def await_job(process: subprocess.Popen[str]) -> set[int]:
    """Wait until both programs run, and some more; return all descendants."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        family = descendants(process.pid)
        names = {comm.read_text().strip() for pid in family if (comm := Path(f"/proc/{pid}/comm")).exists()}
        if {"gpsched-lc", "gpsched-be"} <= names:
            return family
        time.sleep(0.02)
    raise AssertionError("the programs did not start")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("after_s", [0.0, 2.5, 4.0])
def test_nothing_stays_behind_however_it_ends(tmp_path: Path, number: signal.Signals, after_s: float) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--state-dir", str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        family = await_job(process)
        time.sleep(after_s)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == (-number if number == signal.SIGKILL else 130)
    assert "Traceback" not in errors
    deadline = time.monotonic() + 10
    while any(map(alive, family)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not {pid for pid in family if alive(pid)}
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


class Stubborn:
    """A service that fails once its ``fails_at``-th run was begun."""

    def __init__(self, service: Service, fails_at: int) -> None:
        self.pid, self._service, self._left = service.pid, service, fails_at

    def begin(self, requests: int, rate: float) -> None:
        self._service.begin(requests, rate)

    def result(self) -> Any:
        self._left -= 1
        result = self._service.result()
        if self._left == 0:
            raise RuntimeError("lost the service")
        return result


@pytest.fixture
def programs(two_gpus: SimulatedGpu) -> Iterator[tuple[Service, Job]]:
    speed = ("--iters-per-us", "1000")
    with cuda_service(two_gpus.env, "--prep-us", "0", *speed) as service, cuda_job(two_gpus.env, *speed) as job:
        for pid in (two_gpus.pid, service.pid, job.pid):
            favour(pid)
        yield service, job


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_BURST_SAMPLES", 7)
    monkeypatch.setattr(measure, "_CONTROL_SAMPLES", 3)
    monkeypatch.setattr(measure, "_LOAD_REQUESTS", 20)


def makes_progress(job: Job) -> bool:
    before = job.progress().kernels
    time.sleep(0.2)
    return job.progress().kernels > before


@pytest.mark.parametrize("fails_at", [17, 24])  # alone 1-7, load 8, timeslice 9-15, disabled 16-22, late 23-29
def test_a_failure_while_channels_are_disabled_enables_them(
    programs: tuple[Service, Job], two_gpus: SimulatedGpu, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    service, job = programs
    quick(monkeypatch)
    stubborn = Stubborn(service, fails_at)
    with pytest.raises(RuntimeError, match="lost the service"):
        measure.calibrate(stubborn, job, "GPU", two_gpus.scale, lambda _what, _share: None)
    assert makes_progress(job)
    assert job.finish().ok


def test_a_control_that_the_driver_refuses_has_no_figures(
    programs: tuple[Service, Job], two_gpus: SimulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, job = programs
    quick(monkeypatch)

    def refuse(self: Any, *_: Any, **__: Any) -> None:
        raise ControlError("FIFO_DISABLE_CHANNELS", job.pid, 0, 0, 0x56)

    monkeypatch.setattr(measure.StockControl, "disable", refuse)
    found = measure.calibrate(service, job, "GPU", two_gpus.scale, lambda _what, _share: None)
    assert found.controls["disable"].load is None
    assert "FIFO_DISABLE_CHANNELS" in (found.controls["disable"].refused or "")
    assert found.bursts.reserved is None
    assert to_costs(found)["reserve"].need_us == LEVELS["reserve"].need_us * two_gpus.scale
