"""What can go wrong between the daemon and the NVIDIA driver."""

import errno

from gpsched.adaptive.driver.status import status_name
from gpsched.adaptive.errors import GpschedError, UnsupportedHostError


class ControlError(GpschedError):
    """The driver refused an RM control.

    Fields: ``control`` (name), ``pid``, ``client`` and ``object`` (handles), ``status`` (NV_STATUS, or None when the
    ioctl itself failed), ``status_name`` (name of the NV_STATUS or of the errno).
    """

    remedy = "the driver refused it; see: gpsched list"

    def __init__(self, control: str, pid: int, client: int, object: int, status: int | None, reason: str = "") -> None:  # noqa: A002
        self.control, self.pid, self.client, self.object = control, pid, client, object
        self.status, self.status_name = status, reason or status_name(status or 0)
        super().__init__(
            f"{control} on object {object:#x} of client {client:#x} in process {pid} failed with {self.status_name}; "
            f"{self.remedy}"
        )


class HandleGoneError(ControlError):
    """The object, its client, its descriptor or its process is gone: the owner's doing, not a fault of the daemon."""

    remedy = "its process freed it or exited; forget it"


class PrivilegeError(ControlError):
    """The driver wants a privilege that the caller lacks (RS_ACCESS_NICE)."""

    remedy = "run the daemon as root or give it CAP_SYS_NICE"


class ControlAbsentError(ControlError):
    """This driver, or the object that now has the handle, does not offer the control."""

    remedy = "this driver does not offer it; use another level"


class NoSubdeviceError(GpschedError):
    """A group's GPU is not known, so its channels cannot be disabled or enabled. Fields: ``client``, ``handle``."""

    def __init__(self, client: int, handle: int) -> None:
        self.client, self.handle = client, handle
        super().__init__(f"group {handle:#x} of client {client:#x} has no known subdevice; scan its process again")


class DescriptorAccessError(GpschedError):
    """The target's descriptors may not be copied. Fields: ``pid``, ``reason``."""

    def __init__(self, pid: int, reason: str) -> None:
        self.pid, self.reason = pid, reason
        super().__init__(
            f"may not copy descriptors of process {pid} ({reason}); run the daemon as root or give it CAP_SYS_PTRACE, "
            "in the same or an outer PID namespace"
        )


class DescriptorGoneError(GpschedError):
    """The target has no such driver descriptor (any more). Fields: ``pid``, ``fd``."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid, self.fd = pid, fd
        super().__init__(f"descriptor {fd} of process {pid} is not /dev/nvidiactl any more; scan the process again")


class DescriptorLimitError(GpschedError):
    """The daemon has no descriptor left. Field: ``pid``, the process whose descriptor could not be copied."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(f"no descriptor left to control process {pid}; raise the limit (LimitNOFILE= or ulimit -n)")


class UnsupportedDriverError(UnsupportedHostError):
    """The NVIDIA driver lacks the RM ABI that gpsched speaks. Fields: ``version``, ``flavour`` (open, proprietary)."""

    def __init__(self, version: str, flavour: str, reason: str) -> None:
        self.version, self.flavour = version, flavour
        super().__init__(
            f"NVIDIA driver {version} ({flavour}) {reason}",
            "install driver branch 535 or newer, with the open kernel modules where the GPU has them",
        )


class ModuleAbsentError(UnsupportedHostError):
    """The running driver has no gpsched in it (any more), or one that is too old. Field: ``reason``."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"level module: {reason}", "use another level, or install the patched module (docs/kmod.md)")


_MODULE_HINTS = {
    errno.EPERM: "it needs CAP_SYS_ADMIN in the initial user namespace; run the daemon as root",
    errno.EBUSY: "too many requests at once; wait and try again",
    errno.ENOSPC: "a limit of the module is reached; drop plans or stop other controllers",
    errno.ENOENT: "there is no such plan any more; prepare it again",
}


class ModuleError(GpschedError):
    """The module refused a request. Fields: ``request`` (str), ``code`` (errno).

    ``transient``: the same request may pass later.
    """

    def __init__(self, request: str, code: int) -> None:
        self.request, self.code = request, code
        self.transient = code in (errno.EBUSY, errno.ENOMEM, errno.EAGAIN)
        reason = _MODULE_HINTS.get(code, "see the kernel log")
        super().__init__(f"the gpsched module refused {request} ({errno.errorcode.get(code, code)}): {reason}")
