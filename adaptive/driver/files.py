"""Copies of a process's /dev/nvidiactl descriptors, made with pidfd_getfd.

The RM decides who owns a client by the open file (rmclientValidate_IMPL, client.c), so a copy acts with the target's
own client while a descriptor that the daemon opened itself is refused, root or not. The price: a client lives until its
last descriptor closes, so a copy that outlives the process keeps its GPU memory allocated. Whoever holds a DriverFiles
must close it when its pidfd becomes readable.
"""

import ctypes
import errno
import os
import select

from gpsched.adaptive.driver.errors import DescriptorAccessError, DescriptorGoneError, DescriptorLimitError
from gpsched.adaptive.errors import ProcessGoneError, UnsupportedHostError


DRIVER_FILE = "nvidiactl"

_SYS_KCMP = 312  # x86-64; elsewhere the link's name has to do
_SYS_PIDFD_GETFD = 438  # the same number on every architecture
_KCMP_FILE = 0

_libc = ctypes.CDLL(None, use_errno=True)


def _pidfd_getfd(pidfd: int, fd: int) -> int:
    copy = int(_libc.syscall(_SYS_PIDFD_GETFD, pidfd, fd, 0))
    if copy < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return copy  # the kernel made it close-on-exec


def _same_file(pid: int, fd: int, own: int) -> bool:
    """Tell whether descriptor ``fd`` of ``pid`` is still the open file that our descriptor ``own`` is a copy of."""
    if os.uname().machine == "x86_64":
        answer = _libc.syscall(_SYS_KCMP, pid, os.getpid(), _KCMP_FILE, fd, own)
        if answer >= 0:
            return bool(answer == 0)
        if ctypes.get_errno() == errno.EBADF:
            return False
    return _is_driver_file(f"/proc/{pid}/fd/{fd}")


def _is_driver_file(link: str) -> bool:
    try:
        return os.path.basename(os.readlink(link)) == DRIVER_FILE  # noqa: PTH115, PTH119
    except OSError:
        return False


class DriverFiles:
    """The copies of one process's driver descriptors.

    Raises ProcessGoneError, DescriptorAccessError, DescriptorLimitError, or UnsupportedHostError before Linux 5.6.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._copies: dict[int, int] = {}
        self._pidfd = -1
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError as error:
            raise self._explain(error) from error

    def __enter__(self) -> "DriverFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def pidfd(self) -> int:
        """Becomes readable when the process exits: poll it, and then call close()."""
        return self._pidfd

    @property
    def closed(self) -> bool:
        """Tell whether close() was called."""
        return self._pidfd < 0

    def exited(self) -> bool:
        """Tell whether the process has exited; its copies are closed then."""
        if not self.closed:
            poller = select.poll()
            poller.register(self._pidfd, select.POLLIN)
            if poller.poll(0):
                self.close()
        return self.closed

    def find(self) -> tuple[int, ...]:
        """Return the numbers, in the target, of all its driver descriptors. Raises as the constructor does."""
        folder = f"/proc/{self.pid}/fd"
        try:
            numbers = sorted(int(name) for name in os.listdir(folder))  # noqa: PTH208
        except OSError as error:
            raise self._explain(error) from error
        return tuple(number for number in numbers if _is_driver_file(f"{folder}/{number}"))

    def get(self, fd: int) -> int:
        """Return our copy of the target's descriptor ``fd``, made on first use.

        Raises DescriptorGoneError when that number is not a driver descriptor, and as the constructor does.
        """
        copy = self._copies.get(fd)
        if copy is None:
            copy = self._copies[fd] = self._copy(fd)
        return copy

    def prune(self) -> None:
        """Close the copies whose original the process has closed, so that its GPU memory is freed."""
        for fd, copy in list(self._copies.items()):
            if not _same_file(self.pid, fd, copy):
                os.close(self._copies.pop(fd))

    def close(self) -> None:
        """Close every copy and the pidfd. May be called again."""
        copies, self._copies = getattr(self, "_copies", {}), {}
        pidfd, self._pidfd = getattr(self, "_pidfd", -1), -1
        for copy in copies.values():
            os.close(copy)
        if pidfd >= 0:
            os.close(pidfd)

    def _copy(self, fd: int) -> int:
        if self.exited():
            raise ProcessGoneError(self.pid)
        try:
            copy = _pidfd_getfd(self._pidfd, fd)
        except OSError as error:
            if error.errno == errno.EBADF:
                raise DescriptorGoneError(self.pid, fd) from error
            raise self._explain(error) from error
        # Looked at after copying: the number may have been reused for another file in between.
        if not _is_driver_file(f"/proc/self/fd/{copy}"):
            os.close(copy)
            raise DescriptorGoneError(self.pid, fd)
        return copy

    def _explain(self, error: OSError) -> Exception:
        if error.errno in (errno.ESRCH, errno.ENOENT, errno.EINVAL):
            return ProcessGoneError(self.pid)
        if error.errno in (errno.EPERM, errno.EACCES):
            return DescriptorAccessError(self.pid, str(error.strerror))
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return DescriptorLimitError(self.pid)
        if error.errno == errno.ENOSYS:
            return UnsupportedHostError("this kernel has no pidfd_getfd", "use Linux 5.6 or newer")
        return error
