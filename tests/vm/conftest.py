"""Builds the modules, boots one machine for each driver and kernel, and hands the outcome of every check to its test.

What is missing is installed and fetched by ``make -C kmod_patches vm-deps``; when that
fails the tests are skipped with its message, or fail with GPSCHED_REQUIRE_VM=1.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


sys.path.insert(0, str(Path(__file__).parent))
import machine
from vm_targets import Outcome, Target


TOP = Path(__file__).resolve().parents[2]
KMOD = TOP / "kmod_patches"
GUEST = Path(__file__).parent / "guest"
CACHE = Path(
    os.environ.get("GPSCHED_KMOD_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpsched-kmod"
)


def unavailable(reason: str) -> None:
    if os.environ.get("GPSCHED_REQUIRE_VM") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def prepared() -> None:
    """Install and fetch; once."""
    if os.uname().machine != "x86_64":
        unavailable(f"the virtual machine is x86_64, this machine {os.uname().machine}")
    done = subprocess.run(["make", "-s", "-C", KMOD, "vm-deps"], capture_output=True, text=True, check=False)
    if done.returncode:
        unavailable(f"make -C kmod_patches vm-deps: {done.stderr.strip().splitlines()[-1:]}")


def build(*command: object, **environment: str) -> None:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    if done.returncode:
        pytest.fail(f"{command[0]}: {done.stdout}{done.stderr}"[-4000:])


def modules(target: Target) -> list[Path]:
    """Build and return the modules to load, in order."""
    out = CACHE / "out" / str(target)
    plain = {"GPSCHED_PLAIN": "1"} if target.companion else {}
    build(KMOD / "scripts" / "build.sh", target.driver, target.kernel, out, GPSCHED_TEST="1", **plain)
    built = [out / "nvidia.ko"]
    if target.companion:
        build(KMOD / "scripts" / "build-companion.sh", target.kernel, built[0], out, GPSCHED_TEST="1")
        built.append(out / "gpsched_companion.ko")
    return built


def script(names: list[str], target: Target) -> str:
    """Load, check, unload; and load and unload once more."""
    loads = "\n".join(f"busybox insmod /share/{name}.ko" for name in names)
    ours = ["gpsched_companion", "nvidia"] if target.companion else ["nvidia"]
    # A BPF program's reference to the module goes with a grace period.
    unload = "\n".join(
        f"for i in $(seq 30); do busybox rmmod {name} 2>/dev/null && break; sleep 1; done\n"
        f"[ ! -e /sys/module/{name} ] || {{ echo cannot unload {name}; exit 9; }}"
        for name in ours
    )
    reload = "\n".join(f"busybox insmod /share/{name}.ko" for name in reversed(ours))
    # A last time, with the control plane switched off: the driver works and says so.
    parameter = "/sys/module/nvidia/parameters/gpsched"
    off = f"busybox insmod /share/nvidia.ko gpsched=0\n[ $(cat {parameter}) = N ]\nbusybox rmmod nvidia\n"
    switched_off = "" if target.companion else off
    python = f"{sys.executable} /share/main.py"
    kind = "export GPSCHED_COMPANION=1\n" if target.companion else ""
    return (
        f"set -e\nexport GPSCHED_DRIVER={target.driver}\n{kind}"
        f"{loads}\nmknod -m 666 /dev/nvidiactl c 195 255\n{python}\n{unload}\n{reload}\n{unload}\n{switched_off}"
    )


def boot(target: Target, share: Path) -> Outcome:
    kernel = machine.Kernel(CACHE / "kernel" / target.kernel)
    ours = modules(target)
    share.mkdir()
    loaded = machine.with_dependencies(kernel, tuple(machine.depends(ours[0].read_bytes())))
    for name, data in loaded.items():
        (share / f"{name}.ko").write_bytes(data)
    multiarch = subprocess.run(["cc", "-dumpmachine"], capture_output=True, text=True, check=True).stdout.strip()
    build("clang", "-O2", "-g", "-target", "bpf", f"-I/usr/include/{multiarch}", "-D__TARGET_ARCH_x86",
          "-c", GUEST / "lookup.bpf.c", "-o", share / "lookup.bpf.o")  # fmt: skip
    for file in (*ours, *GUEST.glob("*.py"), TOP / "build" / "kmod" / "module_react.bpf.o"):
        shutil.copy(file, share)
    (share / "go").write_text(script([*loaded, *(file.stem for file in ours)], target))
    result = machine.run(kernel, "sh /share/go", share)
    checks: dict[str, dict] = {}
    for line in result.output.splitlines():
        if line.startswith("{"):
            outcome = json.loads(line)
            checks[outcome["check"]] = outcome
    return Outcome(checks, result)


@pytest.fixture(scope="session")
def outcomes(prepared: None, tmp_path_factory: pytest.TempPathFactory):
    """Return a function that gives a target's outcome, running its machine at the first call.

    A machine that died gets a second boot when its test is tried again, and no third: an emulator on a busy host may be
    at fault, but not twice.
    """
    known: dict[Target, Outcome] = {}
    died: dict[Target, list[str]] = {}

    def get(target: Target) -> Outcome:
        if target not in known:
            deaths = died.setdefault(target, [])
            if len(deaths) == 2:
                pytest.fail(f"{target}: the machine died twice; the first failures tell how")
            try:
                known[target] = boot(target, tmp_path_factory.mktemp("vm") / str(target))
            except machine.MachineError as error:
                deaths.append(str(error))
                pytest.fail(deaths[-1])
        return known[target]

    return get
