"""What gpsched needs of the NVIDIA driver and what is known of its modes. Asks /proc, never the GPU."""

import re

from gpsched.adaptive.doctor.host import Host
from gpsched.adaptive.doctor.model import Finding, Rule, degraded, missing, ok
from gpsched.adaptive.driver import module_level
from gpsched.adaptive.driver.errors import ModuleAbsentError, UnsupportedDriverError
from gpsched.adaptive.driver.module_abi import Feature
from gpsched.adaptive.driver.probe import OLDEST_BRANCH, driver_version, require_known_abi
from gpsched.adaptive.model import Level


_CONTROLLED: tuple[Level, ...] = ("timeslice", "reserve", "hold", "module")
_H200 = "H200, open 580.159.04"
_MODULE_SILENT = "run gpsched in the host's network namespace; if it is older than gpsched, install it anew"
_VERSION = "/proc/driver/nvidia/version"


def _driver(host: Host) -> Finding:
    driver = driver_version(host.path(_VERSION))
    if driver is None:
        return missing("no NVIDIA driver is loaded")
    try:
        require_known_abi(driver)
    except UnsupportedDriverError as error:
        return missing(str(error))
    return ok(f"{driver.version}, {driver.flavour} kernel modules")


def _flavour(host: Host) -> Finding:
    driver = driver_version(host.path(_VERSION))
    if driver is None:
        return ok("no driver")
    if driver.open_modules:
        return ok("open")
    return degraded("proprietary: the same ABI, which was never run on it")


def _gsp(host: Host) -> Finding:
    files = host.glob("/proc/driver/nvidia/gpus/*/information")
    lines = [re.search(r"GPU Firmware:\s*(\S+)", file.read_text(errors="replace")) for file in files]
    if not files:
        return ok("no GPU")
    without = sum(line is None or line[1] == "N/A" for line in lines)
    if without:
        return degraded(f"{without} of {len(files)} GPUs run without GSP firmware, on which nothing was measured")
    return ok(f"on {len(files)} GPUs")


def _libcuda(host: Host) -> Finding:
    files = host.libcuda_files()
    return ok(", ".join(files)) if files else degraded("none found; containers bring their own")


def _mig(host: Host) -> Finding:
    instances = host.glob("/proc/driver/nvidia/capabilities/gpu*/mig/gi*")
    if instances:
        return degraded(f"{len(instances)} GPU instances: processes of different instances count as sharers")
    return ok("off")


def _mps(host: Host) -> Finding:
    servers = host.processes("nvidia-cuda-mps-server")
    if servers:
        return degraded(f"server {servers[0]}: its clients share one channel group and one class")
    return ok("no server runs")


def _vgpu(host: Host) -> Finding:
    found = [name for name in ("nvidia-gridd", "nvidia-vgpu-mgr") if host.processes(name)]
    return degraded(f"{found[0]} runs: the hypervisor slices the GPU too") if found else ok("none")


def _module(host: Host) -> Finding:
    companion = host.exists("/sys/module/gpsched_companion")
    parameter = host.text("/sys/module/nvidia/parameters/gpsched").strip()
    if parameter == "N" and not companion:
        return degraded(
            "nvidia.ko has it, switched off or not started", "load it without gpsched=0; see the kernel log"
        )
    if not companion and not parameter:
        return degraded("the stock driver: levels up to hold")
    if not host.real:
        return ok("the companion module is loaded" if companion else "nvidia.ko has it")
    return _module_answer()


def _module_answer() -> Finding:
    """What the module itself says."""
    try:
        info = module_level.loaded()
    except ModuleAbsentError as error:
        return degraded(f"loaded, but {error.reason}", _MODULE_SILENT)
    if Feature.TEST in info.features:
        return degraded(module_level.describe(info), "build and install it without GPSCHED_TEST")
    return ok(f"{module_level.describe(info)}: it undoes what gpsched changed should gpsched die")


RULES = (
    Rule(
        "driver",
        "NVIDIA driver",
        _CONTROLLED,
        "no GPU can be controlled",
        f"install a driver of branch {OLDEST_BRANCH} or newer; without a GPU, gpsched demo runs on the embedded one",
        _H200,
        _driver,
    ),
    Rule(
        "flavour",
        "Kernel modules",
        (),
        "works as far as the driver's answers are the same",
        "nvidia-driver-*-open",
        _H200,
        _flavour,
    ),
    Rule("gsp", "GSP firmware", (), "costs of controls may differ", "remove NVreg_EnableGpuFirmware=0", _H200, _gsp),
    Rule(
        "libcuda",
        "CUDA driver library",
        (),
        "launches are seen only in libraries met later",
        "install the driver's user-space part",
        _H200,
        _libcuda,
    ),
    Rule(
        "mig",
        "MIG",
        (),
        "slices are set as if instances shared an engine",
        "nvidia-smi -mig 0, or one class per GPU",
        "off: H200; on: not run",
        _mig,
    ),
    Rule(
        "mps",
        "MPS",
        (),
        "MPS clients cannot be told apart",
        "stop the server: echo quit | nvidia-cuda-mps-control",
        "off: H200; on: not run",
        _mps,
    ),
    Rule(
        "vgpu",
        "vGPU",
        (),
        "slices hold within the virtual GPU only",
        "use the whole GPU (passthrough)",
        "none: H200; with: not run",
        _vgpu,
    ),
    Rule(
        "module",
        "gpsched's driver patch",
        (),
        "no level module",
        "docs/kmod.md says how to install it, and the risks",
        "QEMU, 535 and 550 on Linux 6.1 and 6.12; on no GPU",
        _module,
        optional=True,
    ),
)
