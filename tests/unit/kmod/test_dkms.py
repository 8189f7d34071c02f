"""Install and rollback on a machine made of folders: every refusal comes before anything is changed."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


KMOD = Path(__file__).resolve().parents[3] / "kmod_patches"
_spec = importlib.util.spec_from_file_location("gpsched_kmod_dkms", KMOD / "dkms.py")
assert _spec is not None
assert _spec.loader is not None
dkms = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = dkms
_spec.loader.exec_module(dkms)

VERSION_FILE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (x@y)\nGCC version: 12\n"


class Commands:
    """Records commands; runs only the patch script; fails where told."""

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.fail = ""
        self.always = False
        self.error: BaseException | None = None

    def __call__(self, command: list[str], **options: bool) -> "subprocess.CompletedProcess[str]":
        self.ran.append(command)
        if self.fail and self.fail in command:
            self.fail = self.fail if self.always else ""
            if self.error is not None:
                raise self.error
            raise subprocess.CalledProcessError(10, command)
        if command[0].endswith("patch-tree.sh"):
            return subprocess.run(command, capture_output=True, text=True, check=True)
        return subprocess.CompletedProcess(command, 0)


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
def host(tmp_path: Path, commands: Commands, driver_tree):
    source = tmp_path / "usr/src/nvidia-current-open-550.163.01"
    driver_tree("550", source)
    (source / "dkms.conf").write_text('PACKAGE_NAME="nvidia-current-open"\nPACKAGE_VERSION="550.163.01"\n')
    headers = tmp_path / "lib/modules/6.12-test/build"
    headers.mkdir(parents=True)
    (headers / "Module.symvers").touch()
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(VERSION_FILE.format("550.163.01"))
    return dkms.Host(tmp_path, "6.12-test", commands, lambda tool: f"/usr/bin/{tool}", 0)


def everything(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def refused(host, capsys: pytest.CaptureFixture[str], command: str = "install") -> str:
    before = everything(host.root)
    assert dkms.main([command], host) == 1
    assert everything(host.root) == before
    assert host.run.ran == []
    message = capsys.readouterr().err
    assert message.endswith("nothing was changed\n")
    return message


def test_install_then_rollback(host, commands: Commands) -> None:
    before = everything(host.root / "usr")
    assert dkms.main(["preflight"], host) == 0
    assert dkms.main(["install"], host) == 0
    source = host.root / "usr/src/nvidia-current-open-550.163.01"
    assert "gpsched_ioctl" in (source / "nvidia/nv.c").read_text()
    assert [command[1] for command in commands.ran if command[0] == "dkms"] == ["build", "install"]
    assert dkms.main(["rollback"], host) == 0
    assert everything(host.root / "usr") == before
    assert not list((host.root / dkms.BACKUP).iterdir())


@pytest.mark.parametrize("step", ["build", "install"])
def test_failed_build_leaves_the_stock_driver(host, commands: Commands, step: str) -> None:
    before = everything(host.root / "usr")
    commands.fail = step
    assert dkms.main(["install"], host) == 3
    assert everything(host.root / "usr") == before
    assert [command[1] for command in commands.ran if command[0] == "dkms"][-2:] == ["build", "install"]
    assert dkms.main(["install"], host) == 0, "and a second try is possible"


def test_interrupted_build_leaves_the_stock_driver(
    host, commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(host.root / "usr")
    commands.fail, commands.error = "build", KeyboardInterrupt()
    assert dkms.main(["install"], host) == 3
    assert everything(host.root / "usr") == before
    assert "interrupted" in capsys.readouterr().err


def test_stock_driver_that_does_not_build_either_is_told(
    host, commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(host.root / "usr")
    commands.fail, commands.always = "build", True
    assert dkms.main(["install"], host) == 3
    message = capsys.readouterr().err
    assert "could not be built" in message
    assert "dkms.py rollback" in message
    assert everything(host.root / "usr") == before
    commands.fail = ""
    assert dkms.main(["rollback"], host) == 0, "the backup was kept for it"
    assert not list((host.root / dkms.BACKUP).iterdir())


def test_rollback_finds_the_backup_when_the_source_is_gone(host) -> None:
    before = everything(host.root / "usr")
    assert dkms.main(["install"], host) == 0
    shutil.rmtree(host.root / "usr/src/nvidia-current-open-550.163.01")
    assert dkms.main(["rollback"], host) == 0
    assert everything(host.root / "usr") == before


def test_second_install_is_refused(host, capsys: pytest.CaptureFixture[str]) -> None:
    assert dkms.main(["install"], host) == 0
    assert dkms.main(["install"], host) == 1
    assert "already patched" in capsys.readouterr().err


def test_wrong_version(host, capsys: pytest.CaptureFixture[str]) -> None:
    (host.root / "proc/driver/nvidia/version").write_text(VERSION_FILE.format("570.211.01"))
    message = refused(host, capsys)
    assert "wrong driver version: loaded is 570.211.01, /usr/src has 550.163.01" in message


def test_proprietary_flavour(host, capsys: pytest.CaptureFixture[str]) -> None:
    (host.root / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01\n"
    )
    assert "proprietary" in refused(host, capsys)


def test_no_source(host, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(host.root / "usr/src/nvidia-current-open-550.163.01")
    assert "no NVIDIA driver source" in refused(host, capsys)


def test_headers_missing(host, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(host.root / "lib/modules")
    assert "install linux-headers-6.12-test" in refused(host, capsys)


@pytest.mark.parametrize(("byte", "key", "accepted"), [(1, False, False), (1, True, True), (0, False, True)])
def test_secure_boot(host, byte: int, key: bool, accepted: bool, capsys: pytest.CaptureFixture[str]) -> None:
    variable = host.root / dkms.SECURE_BOOT
    variable.parent.mkdir(parents=True)
    variable.write_bytes(bytes([6, 0, 0, 0, byte]))
    if key:
        (host.root / "var/lib/dkms").mkdir(parents=True)
        (host.root / "var/lib/dkms/mok.pub").touch()
    if accepted:
        assert dkms.main(["preflight"], host) == 0
    else:
        assert "Secure Boot is on" in refused(host, capsys)


def test_running_x_and_cuda(host, capsys: pytest.CaptureFixture[str]) -> None:
    for pid, name, device in (
        ("77", "Xorg", "/dev/nvidia0"),
        ("9", "python3", "/dev/nvidiactl"),
        ("5", "sh", "/dev/null"),
    ):
        (host.root / "proc" / pid / "fd").mkdir(parents=True)
        (host.root / "proc" / pid / "comm").write_text(f"{name}\n")
        (host.root / "proc" / pid / "fd" / "3").symlink_to(device)
    assert dkms.main(["install"], host) == 1
    message = capsys.readouterr().err
    assert "in use by 9 python3, 77 Xorg (" in message


def test_anchors_moved(host, capsys: pytest.CaptureFixture[str]) -> None:
    file = host.root / "usr/src/nvidia-current-open-550.163.01/nvidia/nv.c"
    file.write_text(file.read_text().replace("rm_ioctl(", "rm_call("))
    assert "rm_ioctl(...) is 0 times in nvidia_ioctl" in refused(host, capsys)


def test_tool_missing(host, capsys: pytest.CaptureFixture[str]) -> None:
    poor = dkms.Host(host.root, host.kernel, host.run, lambda tool: None if tool == "dkms" else tool, 0)
    assert "dkms is not installed" in refused(poor, capsys)


def test_everything_wrong_is_told_at_once(host, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(host.root / "lib/modules")
    poor = dkms.Host(host.root, host.kernel, host.run, lambda tool: None, 0)
    message = refused(poor, capsys)
    assert "headers" in message
    assert message.count("is not installed") == len(dkms.TOOLS)


@pytest.mark.parametrize("command", ["install", "rollback"])
def test_not_root(host, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    user = dkms.Host(host.root, host.kernel, host.run, host.which, 1000)
    assert "run it as root" in refused(user, capsys, command)


def test_nothing_to_roll_back(host, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing to roll back" in refused(host, capsys, "rollback")
