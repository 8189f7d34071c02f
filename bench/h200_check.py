"""Whether a machine can run the measurements, in some twenty seconds: each thing they need is tried, one line each.

Only the standard library is imported here, so that a missing package is a line and no traceback.
"""

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple


HERE = Path(__file__).parent
ROOT = HERE.parent

#: What is imported on the way of the measurements, and what for; the others only make something nicer.
NEEDED = {
    "msgspec": "everywhere",
    "numpy": "figures",
    "elftools": "uprobes",
    "pynvml": "the GPU's name",
    "bcc": "BPF",
}
USEFUL = {"matplotlib": "pages", "jinja2": "pages", "rich": "tables", "pyroute2": "the driver module"}
_BUILT = {
    "bench/build/gpsched-lc": "--help",
    "bench/build/gpsched-be": "--help",
    "bench/build/libgpsched-switchboard.so": "",
    "adaptive/actuator/build/gpsched-actuator": "",
    "adaptive/agent/build/libgpsched_agent.so": "",
    "adaptive/hints/build/libgpsched_hint.so": "",
}
_MODELS = ("stencil", "bfs", "sssp", "pagerank", "components")

State = Literal["ok", "less", "MISSING"]


class Line(NamedTuple):
    """``less``: it works with less; ``MISSING``: nothing can be measured."""

    state: State
    what: str
    detail: str

    def __str__(self) -> str:
        return f"{self.state:8}{self.what:28}{self.detail}"


def check(python: str, device: str) -> Iterator[Line]:
    """Yield a line for each thing that the measurements need; ``python``: the interpreter for PyTorch's models."""
    questions: list[Callable[[], Iterator[Line]]] = [
        _interpreter,
        lambda: _packages(NEEDED, "MISSING"),
        lambda: _packages(USEFUL, "less"),
        _host,
        _programs,
        _cuda_programs,
        *([_gpu, functools.partial(_torch, python)] if device == "real" else [_fuse]),
        _doctor,
        _daemon,
    ]
    for question in questions:
        try:
            yield from question()
        except Exception as error:
            yield Line("MISSING", getattr(question, "__name__", "check").strip("_"), f"{type(error).__name__}: {error}")


def _interpreter() -> Iterator[Line]:
    fits = sys.version_info >= (3, 11)
    yield Line("ok" if fits else "MISSING", "Python", f"{platform.python_version()} at {sys.executable}")
    where = importlib.util.find_spec("gpsched.cli.main")
    yield Line("ok" if where else "MISSING", "gpsched", str(where.origin) if where else "set PYTHONPATH: docs/bench.md")


def _packages(names: dict[str, str], without: State) -> Iterator[Line]:
    for name, use in names.items():
        try:
            module = importlib.import_module(name)
        except Exception as error:
            yield Line(without, f"package {name}", f"{error} (for: {use})")
        else:
            yield Line("ok", f"package {name}", str(getattr(module, "__version__", "")))


def _host() -> Iterator[Line]:
    root = os.geteuid() == 0
    yield Line("ok" if root else "MISSING", "root", "yes" if root else "BPF and the driver's controls need it")
    version = Path("/proc/version").read_text().strip()
    sandbox = "gVisor" in version or platform.release() == "4.4.0"
    yield Line(
        "MISSING" if sandbox else "ok", "kernel", f"{version[:60]}{': a sandbox without BPF' if sandbox else ''}"
    )
    for name, use in (("setpriv", "daemons end with us"), ("cc", "building programs")):
        path = shutil.which(name)
        missing: State = "MISSING" if name == "setpriv" else "less"
        yield Line("ok" if path else missing, name, path or f"not there (for: {use})")
    with tempfile.NamedTemporaryFile() as file:
        free = shutil.disk_usage(file.name).free / 2**30
        yield Line(
            "ok" if free > 1 else "MISSING", "temporary folder", f"{Path(file.name).parent}, {free:.0f} GiB free"
        )
    headers = os.environ.get("BCC_KERNEL_SOURCE") or f"/lib/modules/{platform.release()}/build"
    fits = Path(headers, "include").is_dir()
    yield Line(
        "ok" if fits else "less", "kernel headers", headers if fits else f"not at {headers}; see the daemon's line"
    )


def _programs() -> Iterator[Line]:
    for name, option in _BUILT.items():
        path = ROOT / name
        if not path.exists():
            yield Line("MISSING", path.name, f"{name} is not built: make native")
            continue
        said = _run([str(path), option]) if option else _run(["ldd", str(path)])
        broken = "not found" in said.stdout + said.stderr or (bool(option) and said.returncode != 0)
        text = next((line.strip() for line in (said.stdout + said.stderr).splitlines() if "not found" in line), "")
        yield Line("MISSING" if broken else "ok", path.name, text or f"{name} loads here" if not broken else text)


def _cuda_programs() -> Iterator[Line]:
    missing = [name for name in _MODELS if not (HERE / "build/cuda" / f"gpsched-{name}").exists()]
    nvcc = shutil.which("nvcc") or next(iter(map(str, Path("/usr/local").glob("cuda*/bin/nvcc"))), None)
    built = f"{nvcc or 'no nvcc'}; " + (f"not built: {', '.join(missing)} (chains instead)" if missing else "all built")
    yield Line("less" if missing else "ok", "CUDA programs", built)


def _gpu() -> Iterator[Line]:
    import pynvml

    pynvml.nvmlInit()
    names = [pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]
    yield Line("ok", "GPU", f"{', '.join(map(str, names))}; driver {pynvml.nvmlSystemGetDriverVersion()}")
    pynvml.nvmlShutdown()
    seen = os.access("/dev/nvidiactl", os.R_OK | os.W_OK)
    yield Line("ok" if seen else "MISSING", "/dev/nvidiactl", "can be opened" if seen else "cannot be opened")
    loaded = _run([sys.executable, "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"])
    fits = loaded.stdout.strip() == "0"
    yield Line("ok" if fits else "MISSING", "libcuda.so.1", "cuInit: 0" if fits else _last(loaded))


def _torch(python: str) -> Iterator[Line]:
    look = "import torch; print(torch.__version__, torch.cuda.get_device_name())"
    said = _run([python, "-c", look], limit_s=120.0)
    yield Line("ok" if said.returncode == 0 else "less", "PyTorch", _last(said) or "no answer")


def _fuse() -> Iterator[Line]:
    fits = os.access("/dev/fuse", os.R_OK | os.W_OK)
    yield Line("ok" if fits else "MISSING", "/dev/fuse", "the embedded GPU" + ("" if fits else " needs it"))


def _doctor() -> Iterator[Line]:
    """What the product itself says of this machine."""
    from gpsched.adaptive.doctor.examine import examine
    from gpsched.adaptive.doctor.host import Host

    report = examine(Host())
    for result in report.checks:
        if result.state != "ok":
            yield Line("less", "doctor", f"{result.title}: {result.detail}")
    yield Line("ok", "levels", ", ".join(answer.level for answer in report.levels if answer.possible) or "none")


def _daemon() -> Iterator[Line]:
    """The proof: one starts, which loads all BPF programs, and answers."""
    from gpsched.bench.daemon import running_daemon

    started = time.monotonic()
    with running_daemon() as client:
        daemon = client.snapshot().daemon
        yield Line(
            "ok", "daemon", f"answers after {time.monotonic() - started:.1f} s, lost {daemon.lost_events} events"
        )


def _run(command: list[str], limit_s: float = 20.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)


def _last(said: subprocess.CompletedProcess[str]) -> str:
    lines = (said.stdout + said.stderr).strip().splitlines()
    return lines[-1] if lines else ""
