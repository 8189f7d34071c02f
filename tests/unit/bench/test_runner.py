"""Order, skips and clean-up of the benchmark, on the fake driver and with a daemon that only notes its calls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gpsched.adaptive.client import RemoteError
from gpsched.adaptive.errors import UnsupportedHostError
from gpsched.adaptive.model import DaemonView, ProcessView, Snapshot
from gpsched.adaptive.protocol import Failure
from gpsched.bench import outcome, runner
from gpsched.bench.device import Device
from gpsched.bench.errors import NoRealGpuError, ProgramFailedError
from gpsched.bench.kit import Wrap
from gpsched.bench.peers import Peer, load
from gpsched.bench.table import remarks


TEXT = """title = "mine"
[[lc]]
kernels = 2
rate = 200
prep_us = 0
[[be]]
kernel_us = 100
count = 2
"""
SHARES = {"large": 0.75, "small": 0.25}
QUICK = {"seconds": 0.2, "rounds": 2, "warm_up": 0.01, "device": "simulated", "calibrate": False}


Run = Callable[..., tuple[outcome.BenchResult, list[str]]]


class NotingDaemon:
    """Stands for a daemon's client; gives every process the level its configuration names."""

    def __init__(self, config: str) -> None:
        self.level = next((level for level in ("hold", "timeslice") if level in config), "reserve")
        self.calls: list[tuple[str, int]] = []
        self.weights: list[float] = []
        self.managed: dict[int, str] = {}

    def attach(self, pid: int, class_: str, *, slo_us: float | None = None, weight: float = 1.0) -> None:
        self.weights.append(weight)
        self.calls.append((f"attach {class_}", pid))
        self.managed[pid] = class_

    def detach(self, pid: int) -> None:
        self.calls.append(("detach", pid))
        del self.managed[pid]

    def snapshot(self) -> Snapshot:
        daemon = DaemonView(
            pid=1, version="0", uptime_s=1, libraries=[], lost_events=0, failed_controls=0, last_failure=None
        )
        level = "timeslice" if self.level == "hold" else self.level  # hold is not to be had here
        return Snapshot(time_s=0.0, daemon=daemon, processes=[view(pid, level) for pid in self.managed])


def view(pid: int, level: str) -> ProcessView:
    texts = dict.fromkeys(("name", "command", "user", "cgroup", "source", "tenant"), "")
    raw = {**texts, "pid": pid, "class": "lc", "container": None, "slo_us": None, "level": level, "reason": "so"}
    return msgspec.convert({**raw, "gpus": [], "groups": [], "calls": {}}, ProcessView)


@pytest.fixture
def daemons(monkeypatch: pytest.MonkeyPatch, fake_cuda: dict[str, str]) -> dict[str, NotingDaemon]:
    started: dict[str, NotingDaemon] = {}

    @contextmanager
    def device(_kind: str, scale: float) -> Iterator[Device]:
        yield Device(simulated=True, name="fake", driver="fake", scale=scale, environment=fake_cuda)

    @contextmanager
    def daemon(config: str, _calibration: object, _log: object) -> Iterator[NotingDaemon]:
        yield started.setdefault(config, NotingDaemon(config))

    monkeypatch.setattr(runner, "open_device", device)
    monkeypatch.setattr(runner, "running_daemon", daemon)
    return started


@pytest.fixture
def run(tmp_path: Path, daemons: dict[str, NotingDaemon]) -> Run:
    def measure(*, text: str = TEXT, **options: object) -> tuple[outcome.BenchResult, list[str]]:
        said: list[str] = []
        path = tmp_path / "mine.toml"
        path.write_text(text)
        chosen = msgspec.convert({**QUICK, **options}, runner.Options)
        plan = runner.prepare([str(path)], chosen)
        result = runner.run(plan, told=lambda what, _share: said.append(what.removeprefix("mine: measuring: ")))
        return result, [what for what in said if not what.startswith("mine: ")]

    return measure


def test_arms_take_turns_and_the_one_without_jobs_brackets_them(run: Run) -> None:
    result, said = run(arms=["alone", "resident", "default", "gpsched"])
    assert said == ["alone", *["resident", "default", "gpsched"] * 2, "alone"]
    (point,) = result.scenarios[0].points
    assert result.ok
    assert {arm.arm: len(arm.blocks) for arm in point.arms} == dict.fromkeys(
        ("alone", "resident", "default", "gpsched"), 2
    )
    assert point.rates == [200]
    by_name = {arm.arm: arm for arm in point.arms}
    assert [be.name for be in by_name["default"].be] == ["job 1", "job 2"]
    assert all(be.per_s > 0 for be in by_name["gpsched"].be)
    assert all(be.units == 0 for block in by_name["resident"].blocks for be in block.be)
    assert by_name["resident"].be == []
    assert set(point.checks) == {"LC service", "BE job 1", "BE job 2"}


def test_daemon_manages_all_programs_in_its_arm_and_none_afterwards(run: Run, daemons: dict[str, NotingDaemon]) -> None:
    run(arms=["default", "gpsched"])
    daemon = daemons[""]
    assert daemon.managed == {}
    assert [what for what, _ in daemon.calls] == ["attach lc", "attach be", "attach be", *["detach"] * 3] * 2


def test_arms_that_cannot_run_are_said_and_skipped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "unknown_setting", lambda arm, _folder: "no such key" if arm.name == "freeze" else None)
    result, _ = run(arms=["default", "freeze", "static", "hold"])
    (point,) = result.scenarios[0].points
    assert [arm.arm for arm in point.arms] == ["default", "static"]
    reasons = {skipped.arm: skipped.reason for skipped in point.skipped}
    assert reasons["freeze"] == "no such key"
    assert "no program got level hold (timeslice: so)" in reasons["hold"]
    assert result.ok


def test_jobs_alone_are_given_the_shares_that_they_should_get(run: Run, daemons: dict[str, NotingDaemon]) -> None:
    text = 'title = "s"\n' + "".join(f'[[be]]\nname = "{name}"\nshare = {share}\n' for name, share in SHARES.items())
    result, _ = run(text=text, arms=["resident", "be-alone", "default", "static", "gpsched"])
    (point,) = result.scenarios[0].points
    assert [arm.arm for arm in point.arms] == ["be-alone", "default", "gpsched"]
    assert daemons[""].weights == [0.75, 0.25] * 2
    (said,) = [line for line in remarks(point) if line.startswith("gpsched: of its rate alone got large")]
    assert "(wanted 0.75), small" in said
    assert "together" in said


def test_refused_attach_skips_the_arm(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise RemoteError(Failure("NotPermittedError", "not allowed", 1))

    monkeypatch.setattr(NotingDaemon, "attach", refuse)
    result, _ = run(arms=["default", "gpsched"])
    assert [(one.arm, one.reason) for one in result.scenarios[0].points[0].skipped] == [("gpsched", "not allowed")]


def test_jobs_alone_run_one_at_a_time(run: Run) -> None:
    result, _ = run(arms=["be-alone", "seq", "default"])
    alone = result.scenarios[0].points[0].arm("be-alone")
    assert alone is not None
    assert alone.lc == []
    assert all(be.time_us < 0.18e6 for block in alone.blocks for be in block.be)  # half of a block of 0.1 s, and slack


def test_scenario_without_services_or_jobs(run: Run) -> None:
    result, _ = run(text='title = "x"\n[[be]]\nkernel_us = 100\n', arms=["resident", "default", "static", "gpsched"])
    (point,) = result.scenarios[0].points
    assert [arm.arm for arm in point.arms] == ["default", "gpsched"]
    assert {skipped.reason for skipped in point.skipped} == {"the scenario has no latency-critical service"}
    result, _ = run(text='title = "x"\n[[lc]]\nrate = 100\n', arms=["alone", "default"])
    assert [arm.arm for arm in result.scenarios[0].points[0].arms] == ["alone"]


def test_share_of_the_peak_is_measured_first(run: Run) -> None:
    result, _ = run(text=TEXT.replace("rate = 200\nprep_us = 0", "load = 0.01\nprep_us = 1000"), arms=["resident"])
    assert 1 < result.scenarios[0].points[0].rates[0] < 10  # a request takes at least 1 ms


def test_program_that_dies_is_noted_and_the_next_scenario_runs(
    daemons: dict[str, NotingDaemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_cuda: dict[str, str]
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(TEXT)
    so_far: list[int] = []

    def heal(result: outcome.BenchResult) -> None:
        so_far.append(len(result.scenarios))
        fake_cuda.pop("FAKE_CUDA_FAIL", None)

    names = [str(tmp_path / "one.toml"), str(tmp_path / "two.toml")]
    plan = runner.prepare(names, msgspec.convert({**QUICK, "arms": ["default"]}, runner.Options))
    monkeypatch.setitem(fake_cuda, "FAKE_CUDA_FAIL", "300")
    result = runner.run(plan, finished=heal)
    assert so_far == [1, 2]
    first, second = result.scenarios
    assert first.error is not None
    assert "ended with code 3" in first.error
    assert second.error is None
    assert len(second.points) == 1
    assert not result.ok


def test_peer_runs_its_own_programs_behind_its_prefix(run: Run) -> None:
    peer = Peer(
        title="other", server=["sleep", "30"], lc=Wrap(prefix=["env", "PEER=1"]), be=Wrap(environment={"PEER": "2"})
    )
    result, said = run(arms=["resident", "default"], peers={"other": msgspec.to_builtins(peer)})
    assert said == ["resident", "default", "other"] * 2
    (point,) = result.scenarios[0].points
    other = point.arm("other")
    assert other is not None
    assert other.lc[0].mean_over_alone is not None
    assert "LC service under other" in point.checks


def test_calibration_is_measured_once_and_given_to_all_daemons(
    run: Run, daemons: dict[str, NotingDaemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    @contextmanager
    def daemon(config: str, calibration: object, _log: object) -> Iterator[NotingDaemon]:
        given.append(calibration)
        yield NotingDaemon(config)

    monkeypatch.setattr(runner, "running_daemon", daemon)
    measured = object()
    calls: list[str] = []
    monkeypatch.setattr(runner, "calibrate", lambda gpu: calls.append(gpu.name) or measured)
    run(arms=["default", "static", "gpsched"], calibrate=True)
    assert given == [measured, measured]
    assert calls == ["fake"]


def test_calibration_that_fails_is_noted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_gpu: Device) -> None:
        raise ProgramFailedError("gpsched-lc", "no luck")

    monkeypatch.setattr(runner, "calibrate", fail)
    result, _ = run(arms=["default", "gpsched"], calibrate=True)
    assert result.scenarios[0].notes == [
        "not calibrated, the daemons reckon with the costs of an H200: gpsched-lc: no luck"
    ]
    assert result.ok


def test_peers_file(tmp_path: Path) -> None:
    path = tmp_path / "shim.toml"
    path.write_text('title = "shim"\n[lc]\nprefix = ["run"]\n[be]\nenvironment = { A = "1" }\n')
    name, peer = load(path)
    assert (name, peer.lc.prefix, peer.be.environment) == ("shim", ["run"], {"A": "1"})


def test_no_gpu_at_all_is_an_error(daemons: dict[str, NotingDaemon], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise NoRealGpuError("none")

    monkeypatch.setattr(runner, "open_device", refuse)
    with pytest.raises(UnsupportedHostError):
        runner.run(runner.prepare(["A"], runner.Options(device="real")))
