"""Turns a scenario's entries into programs: command lines for the GPU at hand, and what had to be replaced."""

import functools
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gpsched.adaptive import agent
from gpsched.bench.models import Models
from gpsched.bench.scenario import Be, Lc
from gpsched.bench.workload import BUILD, HERE, Job, Service, program


_LOOK_S = 120.0  # importing PyTorch for the first time reads gigabytes


class Wrap(msgspec.Struct, frozen=True, kw_only=True):
    """What to put before a program's command and into its environment, so that another system controls it."""

    prefix: list[str] = []
    environment: dict[str, str] = {}


@dataclass
class Kit:
    """Everything that programs are made from.

    ``folder`` holds files that they read; ``notes`` collects what could not be run as the scenario says. ``python``
    is an interpreter that may have PyTorch, None to do without.
    """

    simulated: bool
    environment: Mapping[str, str]
    models: Models
    folder: Path
    board: Path
    python: str | None
    notes: list[str] = field(default_factory=list)

    def service(self, lc: Lc, wrap: Wrap) -> Service:
        """Start the service of an entry; one in PyTorch, which takes long, is to be waited for by the caller."""
        options = ["--prep-us", f"{lc.prep_us:g}", "--mode", lc.mode]
        http = ["--http"] if lc.protocol == "http" else []
        load = ["--connections", f"{lc.connections}"]
        environment = {**self.environment, **agent.environment(), **wrap.environment}
        if lc.model and self._program(lc.model) == "torch":
            self._only_chains_do(lc)
            command = [str(self.python), str(HERE / "torch_lc.py"), "--model", lc.model, "--dtype", "float32"]
            command += ["--switchboard", str(self.board), *http]
            return Service([*wrap.prefix, *command, *options], environment, generator=[*http, *load], wait=False)
        options += ["--gap-us", f"{lc.gap_us:g}", "--steps", f"{lc.steps}", "--step-gap-us", f"{lc.step_gap_us:g}"]
        options += [*http, *load]
        options += (
            self._chain(lc.model) if lc.model else ["--kernels", f"{lc.kernels}", "--kernel-us", f"{lc.kernel_us:g}"]
        )
        return Service([*wrap.prefix, program("gpsched-lc"), "--commands", *self._common(), *options], environment)

    def job(self, be: Be, phase: float, wrap: Wrap) -> Job:
        """Start the job of an entry, to be waited for by the caller. ``phase``: where in its period units start."""
        environment = {**self.environment, **wrap.environment}
        options = ["--rate", f"{be.rate or 0:g}", "--phase", f"{phase:.6f}", "--switchboard", str(self.board)]
        kind = self._program(be.model) if be.model else "chain"
        if kind == "torch":
            command = [str(self.python), str(HERE / "torch_be.py"), "--model", str(be.model)]
        elif kind == "cuda":
            command = [str(BUILD / "cuda" / f"gpsched-{be.model}")]
        else:
            command = [program("gpsched-be"), "--commands", "--verify", *self._size()]
            options += ["--queue", f"{be.queue}"]
            options += self._chain(be.model) if be.model else ["--kernel-us", f"{be.kernel_us:g}"]
        return Job([*wrap.prefix, *command, *options], environment, wait=kind == "chain")

    def _program(self, model: str) -> str:
        """Which program does a model's work here: ``torch``, ``cuda`` or ``chain``."""
        wanted = self.models.get(model).kind
        if self.simulated or wanted == "chain":
            return "chain"
        missing = _missing_torch(self.python) if wanted == "torch" else _missing_cuda(model)
        if missing is None:
            return wanted
        self._note(f"{model} runs as a chain of FMA kernels ({self.models.get(model).origin}): {missing}")
        return "chain"

    def _chain(self, model: str) -> list[str]:
        known = self.models.get(model)
        if self.simulated:
            self._note(f"{model}: kernel durations {known.origin}")
        path = self.folder / f"{model}.chain"
        path.write_text("".join(f"{us:g}\n" for us in known.kernels_us))
        return ["--chain", str(path)]

    def _common(self) -> list[str]:
        return ["--switchboard", str(self.board), *self._size()]

    def _size(self) -> list[str]:
        return ["--blocks", "16"] if self.simulated else []  # its kernels last as long whatever their grid

    def _only_chains_do(self, lc: Lc) -> None:
        if lc.steps > 1 or lc.gap_us:
            self._note(f"{lc.model} in PyTorch: steps and gap_us of the scenario are not supported there")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


@functools.cache
def _missing_torch(python: str | None) -> str | None:
    """Why an interpreter cannot run PyTorch on a GPU; None when it can."""
    if python is None:
        return "without PyTorch, as asked"
    look = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 'its PyTorch finds no GPU')"
    try:
        done = subprocess.run([python, "-c", look], capture_output=True, text=True, timeout=_LOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{python} does not run ({error})"
    lines = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else f"{python}: {lines[-1] if lines else 'no PyTorch'}"


def _missing_cuda(model: str) -> str | None:
    path = BUILD / "cuda" / f"gpsched-{model}"
    return None if path.exists() else f"{path.name} is not built (make -C bench/cuda, needs nvcc)"
