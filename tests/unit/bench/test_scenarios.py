"""Scenario files: what comes with gpsched, what a user may write, and what is refused."""

from pathlib import Path

import pytest

from gpsched.adaptive.errors import ConfigError, UsageError
from gpsched.bench import arrivals, scenario
from gpsched.bench.models import Models


LEAST = "[[lc]]\nrate = 100\n[[be]]\nkernel_us = 400\n"


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text('title = "mine"\n' + text)
    return str(path)


def test_every_scenario_loads_and_names_known_models() -> None:
    assert {"A", "B", "C", "D", "E", "REAL", "Y", "Z", "R"} <= set(scenario.names())
    models = Models()
    for name in scenario.names():
        for _, point in scenario.load(name).points():
            for entry in point.entries():
                assert entry.model is None or models.get(entry.model).total_us > 100


@pytest.mark.parametrize(
    ("name", "services", "jobs", "rates"),
    [("A", 1, 1, {100}), ("C", 1, 5, {100}), ("D", 5, 5, {20, 100}), ("Z", 1, 4, {100}), ("B", 1, 1, {220})],
)
def test_papers_tables(name: str, services: int, jobs: int, rates: set[float]) -> None:
    loaded = scenario.load(name)
    assert (len(loaded.lc), len(loaded.be)) == (services, jobs)
    assert {entry.rate for entry in loaded.entries()} == rates


def test_recorded_arrivals_are_the_papers() -> None:
    loaded = scenario.load("REAL")
    assert loaded.trace is not None
    times = arrivals.read_trace(Path(loaded.trace))
    assert {name: len(found) for name, found in times.items()} == {
        "resnet152": 375,
        "densenet": 202,
        "vgg": 560,
        "inception": 374,
        "bert": 173,
    }


def test_ten_lines_suffice(tmp_path: Path) -> None:
    loaded = scenario.load(write(tmp_path, LEAST))
    assert loaded.lc[0].kernels == 20
    assert list(loaded.points()) == [(None, loaded)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LEAST + "rat = 3\n", "unknown key; did you mean 'rate'"),
        ("second = 3\n" + LEAST, "unknown key; did you mean 'seconds'"),
        ("[[lc]]\nrate = 100\nload = 0.5\n", "exactly one of rate, load and trace"),
        ("[[lc]]\nrate = -1\n", "lc"),
        ('[[lc]]\nrate = 1\nslo = "soon"\n', "not a duration"),
        ('[[lc]]\ntrace = "x"\n', "needs the scenario's trace"),
        ("", "nothing to run"),
        (LEAST + '[sweep]\nfield = "lc.rats"\nvalues = [1]\n', "did you mean 'lc.rate'"),
        (LEAST + '[sweep]\nfield = "lc.rate"\nvalues = []\n', "no values"),
        (LEAST + '[sweep]\nfield = "lc.rate"\nvalues = [-5]\n', "sweep.values"),
        ("[[lc]\n", "mine.toml"),
    ],
)
def test_wrong_file_is_one_line_that_says_where(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.toml") as failure:
        scenario.load(write(tmp_path, text))
    assert message in str(failure.value)
    assert "\n" not in str(failure.value)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'sweep-rate'"):
        scenario.load("sweep-rats")
    with pytest.raises(UsageError, match="did you mean 'vgg19'"):
        Models().get("vgg16")


def test_sweep_replaces_the_load_whatever_it_was(tmp_path: Path) -> None:
    text = '[[lc]]\nload = 0.5\n[[be]]\n[sweep]\nfield = "lc.rate"\nvalues = [10, 20]\n'
    points = list(scenario.load(write(tmp_path, text)).points())
    assert [(value, point.lc[0].rate, point.lc[0].load) for value, point in points] == [
        (10.0, 10, None),
        (20.0, 20, None),
    ]


def test_models_of_a_file_replace_those_that_come_with_gpsched(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text('[vgg19]\norigin = "recorded"\nkernels_us = [1.0, 2.0]\n')
    models = Models(path)
    assert models.get("vgg19").total_us == 3.0
    assert models.get("bert").kind == "torch"
    path.write_text("[vgg19]\nkernels_us = []\n")
    with pytest.raises(ConfigError, match=r"vgg19\.kernels_us"):
        Models(path)


@pytest.mark.parametrize("text", ["service,arrival_ms\na,soon\n", "service\na\n"])
def test_wrong_trace(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match="not a trace"):
        arrivals.read_trace(path)


class NotingService:
    """Stands for a service; notes what load it is put under."""

    def __init__(self) -> None:
        self.loads: list[tuple[object, ...]] = []

    def begin(self, *load: object) -> None:
        self.loads.append(load)

    def replay(self, path: Path, seconds: float) -> None:
        self.loads.append((path.read_text().split(), seconds))


def test_equal_rates_keep_their_distance_and_go_round_the_jobs_once_a_block(tmp_path: Path) -> None:
    loaded = scenario.load("D")
    load, service = arrivals.Load(loaded, loaded.lc, tmp_path, [0.0] * 5), NotingService()
    for index in range(5):
        load.begin(index, service, 10.0, seed=1)  # type: ignore[arg-type]
    assert [round(begun[4], 3) for begun in service.loads] == [0.0, 0.2, 0.4, 0.6, 0.8]  # type: ignore[arg-type,call-overload]
    requests, rate = service.loads[0][:2]
    assert requests == 200
    assert rate == pytest.approx(20 * 201 / 200)  # one period more in the block


def test_share_of_the_peak(tmp_path: Path) -> None:
    loaded = scenario.load("sweep-load")
    load = arrivals.Load(loaded, loaded.lc, tmp_path, [500.0])
    assert load.rate(0) == pytest.approx(50)


def test_replay_takes_the_stretch_of_each_block_and_starts_over(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("# credit\nservice,arrival_ms\n" + "".join(f"a,{ms}\n" for ms in (0, 400, 900, 1000)))
    text = f'trace = "{trace}"\n[[lc]]\ntrace = "a"\n[[be]]\n'
    loaded = scenario.load(write(tmp_path, text))
    load, service = arrivals.Load(loaded, loaded.lc, tmp_path, [0.0]), NotingService()
    assert load.rate(0) == pytest.approx(4)
    for seed in (1, 2):
        load.begin(0, service, 0.5, seed)  # type: ignore[arg-type]
    assert [begun[0] for begun in service.loads] == [["400000.0"], ["0.0", "0.0", "400000.0"]]
