"""Which program an entry becomes on which GPU, and that a replacement is said."""

from pathlib import Path

import pytest

from gpsched.bench import kit
from gpsched.bench.kit import Kit, Wrap
from gpsched.bench.models import Models
from gpsched.bench.scenario import Be, Lc


class Started:
    """Stands for a program; keeps how it was started."""

    def __init__(self, command: list[str], environment: dict[str, str], **options: object) -> None:
        self.command, self.environment, self.options = command, environment, options

    def after(self, option: str) -> str:
        return self.command[self.command.index(option) + 1]


@pytest.fixture(autouse=True)
def no_program_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "Service", Started)
    monkeypatch.setattr(kit, "Job", Started)
    monkeypatch.setattr(kit, "program", lambda name: name)


def make(folder: Path, *, simulated: bool, python: str | None = "python-with-torch") -> Kit:
    return Kit(
        simulated=simulated,
        environment={"GPU": "this"},
        models=Models(),
        folder=folder,
        board=folder / "board",
        python=python,
    )


def test_embedded_gpu_runs_every_model_as_its_chain(tmp_path: Path) -> None:
    one = make(tmp_path, simulated=True)
    service = one.service(Lc(model="vgg19", rate=1, mode="eager", steps=3, protocol="http"), Wrap())
    assert isinstance(service, Started)
    assert service.command[0] == "gpsched-lc"
    lengths = [float(line) for line in Path(service.after("--chain")).read_text().split()]
    assert lengths == Models().get("vgg19").kernels_us
    assert (service.after("--mode"), service.after("--steps"), "--http" in service.command) == ("eager", "3", True)
    job = one.job(Be(model="bfs", rate=50), 0.25, Wrap())
    assert isinstance(job, Started)
    assert (job.command[0], job.after("--rate"), job.after("--phase")) == ("gpsched-be", "50", "0.250000")
    assert any("vgg19: kernel durations recorded" in note for note in one.notes)


def test_real_gpu_runs_the_true_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "_missing_torch", lambda _python: None)
    monkeypatch.setattr(kit, "_missing_cuda", lambda _model: None)
    one = make(tmp_path, simulated=False)
    service, job, stencil = (
        one.service(Lc(model="bert", rate=1), Wrap()),
        one.job(Be(model="bert"), 0, Wrap()),
        one.job(Be(model="stencil", rate=150), 0, Wrap()),
    )
    assert isinstance(service, Started)
    assert isinstance(job, Started)
    assert isinstance(stencil, Started)
    assert service.command[:2] == ["python-with-torch", str(kit.HERE / "torch_lc.py")]
    assert (service.after("--model"), service.after("--dtype")) == ("bert", "float32")
    assert service.options == {"generator": ["--connections", "1"], "wait": False}
    assert job.command[1].endswith("torch_be.py")
    assert stencil.command[0].endswith("build/cuda/gpsched-stencil")
    assert one.notes == []


def test_models_in_pytorch_speak_http_but_do_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "_missing_torch", lambda _python: None)
    one = make(tmp_path, simulated=False)
    service = one.service(Lc(model="bert", rate=1, protocol="http", connections=4), Wrap())
    assert isinstance(service, Started)
    assert "--http" in service.command
    assert service.options["generator"] == ["--http", "--connections", "4"]
    assert one.notes == []
    one.service(Lc(model="bert", rate=1, steps=2), Wrap())
    assert one.notes == ["bert in PyTorch: steps and gap_us of the scenario are not supported there"]


@pytest.mark.parametrize(
    ("model", "reason"),
    [("bert", "without PyTorch, as asked"), ("stencil", "gpsched-stencil is not built")],
)
def test_what_is_missing_is_replaced_and_said(
    model: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit, "BUILD", tmp_path)
    one = make(tmp_path, simulated=False, python=None)
    job = one.job(Be(model=model), 0, Wrap())
    assert isinstance(job, Started)
    assert job.command[0] == "gpsched-be"
    (note,) = one.notes
    assert note.startswith(f"{model} runs as a chain of FMA kernels")
    assert reason in note


def test_interpreter_without_torch_says_why() -> None:
    assert "does not run" in str(kit._missing_torch("/nonexistent/python"))


def test_peer_stands_before_the_command_and_in_the_environment(tmp_path: Path) -> None:
    wrap = Wrap(prefix=["shim", "--on"], environment={"SHIM": "1"})
    service = make(tmp_path, simulated=True).service(Lc(rate=1), wrap)
    assert isinstance(service, Started)
    assert service.command[:3] == ["shim", "--on", "gpsched-lc"]
    assert service.environment["SHIM"] == "1"
    assert service.environment["GPU"] == "this"
