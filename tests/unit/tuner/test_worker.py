"""The loop on a stand-in for the daemon: what it measures, tells and remembers; restarts and refusals."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpsched.adaptive.config import Config, Tuner
from gpsched.adaptive.errors import DaemonUnreachableError
from gpsched.adaptive.knobs import SettingsView, TuneParams
from gpsched.adaptive.measure import BeMeasure, Latencies, LcMeasure, Measurement
from gpsched.adaptive.settings import LiveSettings
from gpsched.tuner.history import History
from gpsched.tuner.history_file import path_in
from gpsched.tuner.history_reader import HistoryReader
from gpsched.tuner.meter import Meter
from gpsched.tuner.worker import Worker


TURN = "reservations.turn_us"


class Daemon:
    """Answers like the daemon, in windows instead of seconds. ``live`` is the real keeper of settings."""

    def __init__(self) -> None:
        self.live = LiveSettings(Config(tuner=Tuner(window_s=1.0)))
        self.now_us = 0.0
        self.told: list[TuneParams] = []
        self.bursts, self.latency_us, self.slo_us = 200, 400.0, 650.0
        self.launches, self.rate = 0, 900
        self.fails_at: int | None = None
        self.windows = 14

    def config(self) -> Config:
        return self.live.config

    def tune(self, params: TuneParams) -> SettingsView:
        if self.fails_at is not None and len(self.told) >= self.fails_at:
            raise DaemonUnreachableError("s", "gone")
        self.told.append(params)
        self.live.tune(params)
        return self.live.view([0])

    def measure(self, since_us: float) -> Measurement:
        bursts = self.bursts if since_us else 0
        latency = Latencies(
            count=bursts,
            mean_us=self.latency_us,
            p50_us=self.latency_us,
            p99_us=self.latency_us,
            max_us=self.latency_us,
        )
        lc = LcMeasure(
            pid=10,
            name="serve",
            command="serve --model m",
            tenant="a",
            gpus=[0],
            slo_us=self.slo_us,
            level="hold",
            levels=["timeslice", "reserve", "hold"],
            latency=latency,
            covered=latency,
            triggered=bursts,
            over=0,
            busy_us=bursts * 300.0,
            trigger="socket read",
            reservations=bursts,
            hidden_us=100.0,
            wasted_us=1.0,
        )
        be = BeMeasure(pid=20, name="train", command="train", tenant="b", gpus=[0], launches=self.launches)
        view = self.live.view([0])
        now = self.now_us
        return Measurement(
            since_us=since_us, now_us=now, lost_events=0, models={0: "H200"}, lc=[lc], be=[be], settings=view
        )

    def wait(self, seconds: float) -> bool:
        self.now_us += seconds * 1e6
        self.launches += round(self.rate * seconds)
        return len(self.told) >= self.windows


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(path_in(tmp_path)) as history:
        yield history


def run(daemon: Daemon, history: History, tmp_path: Path) -> Worker:
    worker = Worker(daemon, history, tmp_path, daemon.wait)  # type: ignore[arg-type]
    worker.run()
    return worker


def test_the_status_says_that_nothing_keeps_the_objectives(daemon: Daemon, history: History, tmp_path: Path) -> None:
    daemon.latency_us, daemon.windows = 900.0, 50
    run(daemon, history, tmp_path)
    assert any("(nothing tried keeps the objectives; next attempt in" in told.phase for told in daemon.told[-15:])


def test_it_tells_measures_and_remembers(daemon: Daemon, history: History, tmp_path: Path) -> None:
    run(daemon, history, tmp_path)
    assert daemon.told[0].proposals == []
    assert all(params.lease_s > 2.0 for params in daemon.told)
    assert any(params.proposals and params.proposals[0].values for params in daemon.told)
    with HistoryReader(path_in(tmp_path)) as reader:
        windows, changes = reader.windows(), reader.changes()
        (key,) = reader.keys()
    assert len(windows) > 8
    assert all(window.key == key for window in windows)
    assert "serve:" in key
    assert "train:" in key
    assert key.endswith("@ H200")
    assert windows[-1].lc[0].verdict == "kept"
    assert windows[-1].progress == pytest.approx(1.0)
    assert changes[0].kind == "start"
    assert changes[0].seen is not None
    assert daemon.live.note(0)


def test_a_restart_goes_on_from_the_history(daemon: Daemon, history: History, tmp_path: Path) -> None:
    run(daemon, history, tmp_path)
    daemon.told.clear()
    run(daemon, history, tmp_path)
    with HistoryReader(path_in(tmp_path)) as reader:
        starts = [change for change in reader.changes() if change.kind == "start"]
    assert "known of this work" in starts[-1].why
    assert not starts[-1].why.startswith("nothing")


@pytest.mark.parametrize("step", range(0, 13, 4))
def test_the_daemon_may_go_at_any_step(daemon: Daemon, history: History, tmp_path: Path, step: int) -> None:
    daemon.fails_at = step
    with pytest.raises(DaemonUnreachableError):
        run(daemon, history, tmp_path)
    daemon.fails_at = None
    daemon.told.clear()
    run(daemon, history, tmp_path)


def test_a_pin_is_left_alone(daemon: Daemon, history: History, tmp_path: Path) -> None:
    daemon.live.pin("be_us", 77)
    run(daemon, history, tmp_path)
    assert all("timeslice.be_us" not in proposal.values for params in daemon.told for proposal in params.proposals)
    assert daemon.live.of(0).timeslice.be_us == 77


def test_a_reset_forgets_the_present_work(daemon: Daemon, history: History, tmp_path: Path) -> None:
    worker = run(daemon, history, tmp_path)
    daemon.live.reset()
    daemon.told.clear()
    worker.run()
    with HistoryReader(path_in(tmp_path)) as reader:
        kinds = [change.kind for change in reader.changes()]
        starts = [change.why for change in reader.changes() if change.kind == "start"]
    assert "reset" in kinds
    assert starts[-1].startswith("nothing known")


def test_settings_that_change_within_a_window_teach_nothing(daemon: Daemon, history: History, tmp_path: Path) -> None:
    wait = daemon.wait

    def meddle(seconds: float) -> bool:
        if seconds > 0.5:
            daemon.live.admin_set({"reservations": {"turn_us": 60_000 + len(daemon.told)}})
        return wait(seconds)

    daemon.wait = meddle  # type: ignore[method-assign]
    run(daemon, history, tmp_path)
    with HistoryReader(path_in(tmp_path)) as reader:
        assert not any(window.learned for window in reader.windows())


def test_without_load_it_leaves_everything_alone(daemon: Daemon, history: History, tmp_path: Path) -> None:
    daemon.bursts = 0
    run(daemon, history, tmp_path)
    values = [proposal.values for params in daemon.told for proposal in params.proposals]
    assert all(value in ({}, {"reservations.level": "hold"}) for value in values)


def test_progress_is_of_the_own_speed_measured_without_contention(history: History) -> None:
    daemon = Daemon()
    daemon.bursts = 0
    meter = Meter(history)
    before = daemon.measure(0.0)
    daemon.wait(2.0)
    (alone,) = meter.windows(before, daemon.measure(1.0), daemon.config(), 0.0)
    assert alone.window.be[0].progress == pytest.approx(1.0)
    daemon.bursts, daemon.rate = 200, 450
    before = daemon.measure(0.0)
    daemon.wait(2.0)
    (shared,) = Meter(history).windows(before, daemon.measure(1.0), daemon.config(), 0.0)  # a restart knows it, too
    assert shared.window.progress == pytest.approx(0.5)


def test_alone_latency_comes_from_bursts_without_contention(history: History) -> None:
    daemon = Daemon()
    daemon.slo_us, daemon.rate, daemon.latency_us = None, 0, 365.0  # type: ignore[assignment]
    meter = Meter(history)
    for _ in range(3):
        before = daemon.measure(0.0)
        daemon.wait(1.0)
        (quiet,) = meter.windows(before, daemon.measure(1.0), daemon.config(), 0.0)
    daemon.rate, daemon.latency_us = 900, 380.0
    before = daemon.measure(0.0)
    daemon.wait(1.0)
    (shared,) = Meter(history).windows(before, daemon.measure(1.0), daemon.config(), 0.0)
    (lc,) = shared.window.lc
    assert quiet.window.lc[0].alone_us == lc.alone_us == pytest.approx(365.0)
    assert lc.objective.limit_us == pytest.approx(365.0 * 1.05)
    assert lc.verdict == "kept"
    assert msgspec.to_builtins(shared.window)


def test_a_lost_trigger_makes_no_latency_look_better(history: History) -> None:
    """100 µs of each latency are the lead; without its trigger a burst counts from the first launch, after that."""
    daemon = Daemon()
    meter = Meter(history)

    def measured(triggered: int, latency_us: float) -> float:
        found = daemon.measure(1.0)
        (lc,) = found.lc
        latency = msgspec.structs.replace(lc.latency, mean_us=latency_us, p99_us=latency_us)
        lc = msgspec.structs.replace(lc, latency=latency, triggered=triggered)
        now = msgspec.structs.replace(found, lc=[lc], now_us=found.now_us + 1e6)
        (observed,) = meter.windows(found, now, daemon.config(), 0.0)
        return observed.window.lc[0].p99_us

    assert measured(200, 400.0) == pytest.approx(400.0)  # of which 300 are the burst
    assert measured(0, 300.0) == pytest.approx(400.0)
    assert measured(100, 350.0) == pytest.approx(400.0)


@pytest.mark.parametrize(
    "module", ["gpsched.adaptive.daemon", "gpsched.cli.main", "gpsched.cli.tune", "gpsched.tuner.history"]
)
def test_scikit_learn_stays_in_the_tuners_process(module: str) -> None:
    program = f"import sys, {module}; sys.exit('sklearn' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
