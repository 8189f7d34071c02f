"""Descriptor copies of a real process: a file named nvidiactl stands for the driver's, since only the name is asked."""

import errno
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpsched.adaptive.driver import DescriptorAccessError, DescriptorGoneError, DescriptorLimitError, DriverFiles, files
from gpsched.adaptive.errors import ProcessGoneError, UnsupportedHostError


HOLDER = """
import os, sys
fds = [os.open(sys.argv[1], os.O_RDWR) for _ in range(2)] + [os.open("/dev/null", os.O_RDONLY)]
print(*fds, flush=True)
for line in sys.stdin:
    for fd in map(int, line.split()):
        os.close(fd)
    print("closed", flush=True)
"""


class Holder:
    def __init__(self, path):
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.fds = [int(word) for word in self.process.stdout.readline().split()]
        self.pid = self.process.pid

    def close(self, fd):
        self.process.stdin.write(f"{fd}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "closed\n"

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "nvidiactl"
    path.write_text("hello")
    return path


@pytest.fixture
def holder(path):
    holder = Holder(path)
    try:
        copy = DriverFiles(holder.pid)
        copy.get(holder.fds[0])
    except DescriptorAccessError as error:
        holder.end()
        pytest.skip(f"this host forbids copying descriptors: {error}")
    copy.close()
    yield holder
    if holder.process.poll() is None:
        holder.end()


def test_finds_and_copies_only_driver_files(holder, path):
    with DriverFiles(holder.pid) as copies:
        assert copies.find() == tuple(holder.fds[:2])
        copy = copies.get(holder.fds[0])
        assert Path(f"/proc/self/fd/{copy}").readlink() == path
        assert not os.get_inheritable(copy)
        assert copies.get(holder.fds[0]) == copy
        with pytest.raises(DescriptorGoneError):
            copies.get(holder.fds[2])
        with pytest.raises(DescriptorGoneError, match="999"):
            copies.get(999)


def test_closed_at_exit_and_announced_by_the_pidfd(holder):
    before = descriptors()
    copies = DriverFiles(holder.pid)
    copies.get(holder.fds[0])
    assert not copies.exited()
    poller = select.poll()
    poller.register(copies.pidfd, select.POLLIN)
    assert poller.poll(0) == []
    holder.end()
    assert poller.poll(5000)
    assert copies.exited()
    assert copies.closed
    assert descriptors() == before - 2  # the holder's pipes closed too
    with pytest.raises(ProcessGoneError):
        copies.get(holder.fds[1])


def test_a_copy_whose_original_closed_is_given_up(holder):
    with DriverFiles(holder.pid) as copies:
        first, second = (copies.get(fd) for fd in holder.fds[:2])
        copies.prune()
        os.fstat(first)
        holder.close(holder.fds[0])
        copies.prune()
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(first)
        os.fstat(second)
        with pytest.raises(DescriptorGoneError):
            copies.get(holder.fds[0])


def test_descriptors_do_not_grow(holder):
    before = descriptors()
    for _ in range(200):
        with DriverFiles(holder.pid) as copies:
            for fd in copies.find():
                copies.get(fd)
            with pytest.raises(DescriptorGoneError):
                copies.get(holder.fds[2])
    assert descriptors() == before


def test_a_process_that_does_not_exist():
    with pytest.raises(ProcessGoneError):
        DriverFiles(2**22 - 3)


def test_a_dropped_object_leaves_no_descriptor(holder):
    before = descriptors()
    copies = DriverFiles(holder.pid)
    copies.get(holder.fds[0])
    del copies
    deadline = time.monotonic() + 5
    while descriptors() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert descriptors() == before


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EPERM, DescriptorAccessError),
        (errno.EMFILE, DescriptorLimitError),
        (errno.ENOSYS, UnsupportedHostError),
        (errno.ESRCH, ProcessGoneError),
        (errno.EBADF, DescriptorGoneError),
        (errno.EIO, OSError),
    ],
)
def test_each_refusal_has_its_error(holder, monkeypatch, number, kind):
    def refuse(pidfd, fd):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "_pidfd_getfd", refuse)
    with DriverFiles(holder.pid) as copies, pytest.raises(kind) as caught:
        copies.get(holder.fds[0])
    assert "\n" not in str(caught.value)


def test_without_kcmp_the_name_has_to_do(holder, monkeypatch):
    monkeypatch.setattr(files.os, "uname", lambda: type("U", (), {"machine": "riscv64"}))
    with DriverFiles(holder.pid) as copies:
        copies.get(holder.fds[0])
        copies.prune()
        assert copies._copies
        holder.close(holder.fds[0])
        copies.prune()
        assert not copies._copies
