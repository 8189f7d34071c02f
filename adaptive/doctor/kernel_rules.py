"""What gpsched needs of the kernel and of its own privileges. Features are tried, versions only shown."""

import ctypes
import errno
import importlib.machinery
import importlib.util
import os
import re
from pathlib import Path

from gpsched.adaptive.doctor.host import Host
from gpsched.adaptive.doctor.model import Finding, Rule, degraded, missing, ok
from gpsched.adaptive.model import Level
from gpsched.adaptive.probes.errors import KernelHeadersMissingError, PidNamespaceError
from gpsched.adaptive.probes.headers import kernel_source
from gpsched.adaptive.probes.kernel import require_host_pids


_PIDFD_GETFD = 438  # x86-64 and arm64 alike
_HERE = "Linux 6.1 and 6.18, Debian 12"
_WATCHED: tuple[Level, ...] = ("observe", "freeze", "timeslice", "reserve", "hold", "module")
_CONTROLLED: tuple[Level, ...] = ("timeslice", "reserve", "hold")
_NEEDED = ("CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_SYS_NICE")


def _privileges(host: Host) -> Finding:
    lacking = [name for name in _NEEDED if not host.has_capability(name)]
    if host.has_capability("CAP_BPF") and host.has_capability("CAP_PERFMON"):
        lacking = [name for name in lacking if name != "CAP_SYS_ADMIN"]
    return missing(f"lacks {', '.join(lacking)}") if lacking else ok("may load BPF programs and copy descriptors")


def _real_time(host: Host) -> Finding:
    """Control groups may refuse it to who has the capability."""
    refused = not host.has_capability("CAP_SYS_NICE")
    if host.real and not refused:
        policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            os.sched_setscheduler(0, policy, priority)
        except PermissionError:
            refused = True
    return degraded("refused: the actuator has a nice value instead") if refused else ok("the actuator runs first")


def _pids(host: Host) -> Finding:
    try:
        if host.real:
            require_host_pids()
    except PidNamespaceError as error:
        return missing(error.missing, error.remedy)
    return ok("the host's")


def _container(host: Host) -> Finding:
    marks = [mark for mark in ("/.dockerenv", "/run/.containerenv") if host.exists(mark)]
    return degraded(f"gpsched itself runs in a container ({marks[0]})") if marks else ok("on the host")


def _pidfd(host: Host) -> Finding:
    release = host.text("/proc/sys/kernel/osrelease").strip()
    if not host.real:
        return ok(f"Linux {release}")
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(os.getpid())
    try:
        copy = libc.syscall(_PIDFD_GETFD, pidfd, pidfd, 0)
        if copy < 0:
            reason = errno.errorcode.get(ctypes.get_errno(), "?")
            return missing(f"Linux {release}: pidfd_getfd fails with {reason}")
        os.close(copy)
    finally:
        os.close(pidfd)
    return ok(f"Linux {release}: pidfd_getfd works")


def _ptrace(host: Host) -> Finding:
    scope = host.text("/proc/sys/kernel/yama/ptrace_scope").strip() or "0"
    if scope == "3":
        return missing(
            "kernel.yama.ptrace_scope is 3: nobody may trace", "reboot with another kernel.yama.ptrace_scope"
        )
    return ok("Yama absent or passable for root")


def _btf(host: Host) -> Finding:
    there = host.exists("/sys/kernel/btf/vmlinux")
    return ok("/sys/kernel/btf/vmlinux") if there else missing("no /sys/kernel/btf/vmlinux")


def _lockdown(host: Host) -> Finding:
    mode = re.search(r"\[(\w+)\]", host.text("/sys/kernel/security/lockdown"))
    if mode and mode[1] == "confidentiality":
        return missing("kernel lockdown: confidentiality")
    return ok(f"kernel lockdown: {mode[1] if mode else 'not built in'}")


def _tracefs(host: Host) -> Finding:
    for folder in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing"):
        if host.exists(f"{folder}/events/syscalls/sys_enter_ioctl"):
            return ok(folder)
    if not host.exists("/sys/kernel/tracing/events"):
        return degraded("not mounted; the daemon mounts it", "mount -t tracefs tracefs /sys/kernel/tracing")
    return missing("has no system call events", "use a kernel with CONFIG_FTRACE_SYSCALLS")


def _uprobes(host: Host) -> Finding:
    if host.exists("/sys/bus/event_source/devices/uprobe"):
        return ok("uprobe events")
    return missing("no uprobe events")


def _bcc(_host: Host) -> Finding:
    spec = importlib.util.find_spec("bcc")
    where = _folder(spec)
    if where is None:
        return missing("no Python module bcc")
    if not (where / "libbcc.py").exists():
        return missing(f"{where} is another package of that name", "pip uninstall bcc; apt install python3-bpfcc")
    return ok(str(where))


def _folder(spec: importlib.machinery.ModuleSpec | None) -> Path | None:
    return Path(spec.origin).parent if spec and spec.origin else None


def _headers(_host: Host) -> Finding:
    try:
        tree = kernel_source()
    except KernelHeadersMissingError as error:
        return missing(error.missing, error.remedy)
    return ok(f"{tree}, near enough" if tree else "the running kernel's")


def _freezer(host: Host) -> Finding:
    if any(line.split()[2] == "cgroup2" for line in host.text("/proc/mounts").splitlines() if len(line.split()) > 2):
        return ok("cgroup v2")
    return degraded("no cgroup v2: jobs are stopped by signal, which their parents can see")


RULES = (
    Rule(
        "privileges",
        "Privileges",
        _WATCHED,
        "nothing works but --help",
        "run as root: sudo gpsched ...",
        _HERE,
        _privileges,
    ),
    Rule(
        "pids",
        "PID namespace",
        _WATCHED,
        "the kernel's pids mean nothing here",
        "use the host's: docker run --pid=host, hostPID: true",
        _HERE,
        _pids,
    ),
    Rule(
        "container",
        "Container",
        (),
        "processes of other containers are reached, but their users are not named",
        "run the daemon on the host, or with --pid=host --privileged, /sys/kernel/tracing and /sys/kernel/btf mounted",
        "the host: Linux 6.18; in one: not run",
        _container,
    ),
    Rule(
        "pidfd_getfd",
        "Descriptor copies",
        _CONTROLLED,
        "no control over other processes",
        "use Linux 5.6 or later; in a container, allow pidfd_getfd in the seccomp profile",
        _HERE,
        _pidfd,
    ),
    Rule(
        "ptrace",
        "Ptrace rights",
        _CONTROLLED,
        "no descriptor can be copied",
        "set kernel.yama.ptrace_scope to 0, 1 or 2",
        "Linux 6.18 without Yama",
        _ptrace,
    ),
    Rule(
        "btf",
        "Kernel types (BTF)",
        _WATCHED,
        "BPF programs do not load",
        "use a kernel with CONFIG_DEBUG_INFO_BTF",
        _HERE,
        _btf,
    ),
    Rule(
        "lockdown",
        "Kernel lockdown",
        _WATCHED,
        "BPF programs may not read memory",
        "boot with lockdown=integrity or none",
        "Linux 6.18 without lockdown",
        _lockdown,
    ),
    Rule(
        "tracefs",
        "Tracepoints",
        _WATCHED,
        "the driver's clients are not seen",
        "mount -t tracefs tracefs /sys/kernel/tracing (Ubuntu 22.04: mount -t debugfs debugfs /sys/kernel/debug)",
        _HERE,
        _tracefs,
    ),
    Rule(
        "uprobes",
        "Uprobes",
        ("reserve", "hold", "module"),
        "CUDA calls are not seen: no bursts, no hints",
        "use a kernel with CONFIG_UPROBE_EVENTS",
        _HERE,
        _uprobes,
    ),
    Rule(
        "bcc",
        "BPF compiler",
        _WATCHED,
        "BPF programs are not compiled",
        "apt install python3-bpfcc, and a virtual environment with --system-site-packages",
        "bcc 0.18 of Ubuntu 22.04, 0.26 of Debian 12, 0.29 of Ubuntu 24.04",
        _bcc,
    ),
    Rule(
        "headers",
        "Kernel headers",
        _WATCHED,
        "BPF programs are not compiled",
        "apt install linux-headers-amd64 (Ubuntu: linux-headers-generic)",
        "those of 5.15, 6.1 and 6.8 on Linux 6.18",
        _headers,
    ),
    Rule(
        "realtime",
        "Real-time priorities",
        (),
        "on busy CPUs reservations may begin later",
        "boot with rt_group_sched=0, or give its control group cpu.rt_runtime_us; in a container, CAP_SYS_NICE",
        "refused: Linux 6.18, an H200 in a container",
        _real_time,
        optional=True,
    ),
    Rule(
        "freezer",
        "Freezer",
        (),
        "level freeze uses SIGSTOP",
        "boot with systemd.unified_cgroup_hierarchy=1",
        "SIGSTOP and cgroup v2: Linux 6.18",
        _freezer,
    ),
)
