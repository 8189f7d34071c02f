"""Why the probes cannot work on this machine, or cannot read what they got."""

from gpsched.adaptive.errors import GpschedError, UnsupportedHostError


class NotPrivilegedError(UnsupportedHostError):
    """Loading BPF programs needs root."""

    def __init__(self) -> None:
        super().__init__("no permission to load BPF programs", "run as root (sudo gpsched ...)")


class BpfRefusedError(UnsupportedHostError):
    """The kernel refused a program, a map or an attachment. Field: ``detail`` (what bcc or the kernel said)."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(
            f"the kernel refused a BPF program ({detail})",
            "use Linux 5.15 or later with CONFIG_BPF_SYSCALL, CONFIG_UPROBE_EVENTS and CONFIG_FTRACE_SYSCALLS, "
            "and no lockdown",
        )


class BccMissingError(UnsupportedHostError):
    """Python cannot import bcc, or the ``bcc`` it finds is another package. Field: ``found`` (its path or None)."""

    def __init__(self, found: str | None) -> None:
        self.found = found
        missing = f"the Python module bcc at {found} is not the BPF compiler" if found else "no Python module bcc"
        remedy = "run: apt install python3-bpfcc, and use a virtual environment with --system-site-packages"
        super().__init__(missing, f"run: pip uninstall bcc; then {remedy}" if found else remedy)


class KernelHeadersMissingError(UnsupportedHostError):
    """bcc finds no kernel headers."""

    def __init__(self) -> None:
        super().__init__(
            "no kernel headers",
            "install linux-headers-$(uname -r), or any near version (Debian: linux-headers-amd64, "
            "Ubuntu: linux-headers-generic), or set BCC_KERNEL_SOURCE to a tree that has them",
        )


class TracefsMissingError(UnsupportedHostError):
    """tracefs is neither mounted nor mountable. Field: ``reason``."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"no tracefs ({reason})", "run: mount -t tracefs tracefs /sys/kernel/tracing")


class KernelTypesMissingError(UnsupportedHostError):
    """The kernel's BTF lacks a field that the programs read. Field: ``field`` ("struct.member")."""

    def __init__(self, field: str) -> None:
        self.field = field
        super().__init__(
            f"the kernel describes no {field} in /sys/kernel/btf/vmlinux", "use a kernel with CONFIG_DEBUG_INFO_BTF"
        )


class PidNamespaceError(UnsupportedHostError):
    """The daemon runs in a pid namespace of its own: the kernel's pids are not the daemon's."""

    def __init__(self) -> None:
        super().__init__(
            "the daemon is in a pid namespace of its own, where the kernel's pids mean nothing",
            "run it in the host's (docker run --pid=host, hostPID: true)",
        )


class EventDecodeError(GpschedError):
    """A record of the ring buffer is not an event of this ABI. Fields: ``reason``, ``size`` (bytes)."""

    def __init__(self, reason: str, size: int) -> None:
        self.reason, self.size = reason, size
        super().__init__(f"event of {size} bytes: {reason}; programs and decoder are of different versions, reinstall")


class AttachError(GpschedError):
    """The probes could not be put in a CUDA library. Fields: ``path``, ``reason``."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: no probes ({reason}); its programs are controlled but their launches are not seen")
