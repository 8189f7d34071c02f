"""A QEMU machine without KVM that boots a Debian kernel on this machine's own root file system.

The root comes read-only over 9p with a tmpfs overlay, so the Python, libbpf and virtual environment inside are the
host's. Files go in and out through one writable share, /share inside (/run is fresh there). What the guest's
script prints and the whole kernel log come back; the machine powers itself off, or is ended after a limit.
"""

import gzip
import lzma
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


BUSYBOX = Path("/bin/busybox")
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
# On a busy machine the emulated timer and TSC are late. The kernel's check of the timer would end the boot, hence
# no_timer_check. A TSC that is found to be unstable later makes it patch its code while both processors run it, which
# the emulator does not always survive, hence tsc=unstable from the start.
APPEND = (
    "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic nokaslr mitigations=off audit=0 log_buf_len=4M "
    "no_timer_check tsc=unstable"
)
# Slow, not wrong: emulation on a loaded machine trips these and they say nothing about a driver.
HARMLESS = re.compile(
    r"clocksource|TSC|Marking.*unstable|sched: DL replenish|perf: interrupt took too long|hrtimer: interrupt took"
)
SPLAT = re.compile(
    r"BUG:|WARNING:|Oops|general protection|Call Trace|kernel BUG|INFO: task|possible recursive|circular locking|"
    r"refcount_t|use-after-free|UBSAN|KASAN|list_(?:add|del) corruption|scheduling while atomic|"
    r"sleeping function called|rcu_sched self-detected|rcu: INFO|soft lockup|records leaked"
)

INIT = """#!/bin/busybox sh
busybox mkdir -p /proc /sys /dev /lower /upper /root
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
for module in $(busybox cat /modules/order); do busybox insmod /modules/$module || echo "insmod $module failed"; done
busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose rootfs /lower
busybox mount -t tmpfs tmpfs /upper
busybox mkdir -p /upper/files /upper/work
busybox mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root
busybox mkdir -p /root/share
busybox mount -t 9p -o rw,trans=virtio,version=9p2000.L,msize=512000 share /root/share
for folder in proc sys dev; do busybox mount --move /$folder /root/$folder; done
busybox mount -t tmpfs tmpfs /root/run
busybox mount -t debugfs debugfs /root/sys/kernel/debug
busybox mount -t bpf bpf /root/sys/fs/bpf
busybox mount -t cgroup2 cgroup /root/sys/fs/cgroup
busybox ip link set lo up
exec busybox switch_root /root /bin/sh /share/start
"""

START = """export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
cd /share
{command} >/share/out 2>&1
echo $? >/share/status
dmesg >/share/dmesg 2>/dev/null || /bin/busybox dmesg >/share/dmesg
sync
/bin/busybox poweroff -f
"""


class MachineError(Exception):
    """The machine did not come to an end by itself; the message has the console's last lines."""


@dataclass(frozen=True)
class Result:
    """What came out: ``status`` of the guest's command, its output, the kernel's log."""

    status: int
    output: str
    log: str

    def splats(self) -> list[str]:
        """Return the kernel's complaints. A log that is empty or cut is one as well."""
        lines = self.log.splitlines()
        if not any("Linux version" in line for line in lines[:5]):
            return ["the kernel log has no beginning: the scan would prove nothing"]
        return [line for line in lines if SPLAT.search(line) and not HARMLESS.search(line)]


@dataclass(frozen=True)
class Kernel:
    """A kernel's files as kmod_patches/scripts/debian-fetch.sh leaves them."""

    folder: Path

    @property
    def modules(self) -> Path:
        """The folder with its modules."""
        return next((self.folder / "lib" / "modules").iterdir())

    def module(self, name: str) -> Path | None:
        """Return a module's file; None when it is built into the kernel."""
        for found in self.modules.rglob(f"{name.replace('_', '?')}.ko*"):
            return found
        return None


def read_module(file: Path) -> bytes:
    """Return a module's bytes, decompressed."""
    data = file.read_bytes()
    if file.suffix == ".xz":
        return lzma.decompress(data)
    return gzip.decompress(data) if file.suffix == ".gz" else data


def with_dependencies(kernel: Kernel, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return modules by name in the order in which to load them."""
    ordered: dict[str, bytes] = {}

    def add(name: str) -> None:
        file = kernel.module(name)
        if name in ordered or file is None:
            return
        data = read_module(file)
        for needed in depends(data):
            add(needed)
        ordered[name] = data

    for name in names:
        add(name)
    return ordered


def depends(module: bytes) -> list[str]:
    """Return the names in a module's own list of what it needs."""
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    return [name for name in found.group(1).decode().split(",") if name] if found else []


def initramfs(kernel: Kernel, folder: Path) -> Path:
    """Build the 1.5 MB that bring up 9p."""
    tree = folder / "initramfs"
    for part in ("bin", "modules"):
        (tree / part).mkdir(parents=True)
    shutil.copy(BUSYBOX, tree / "bin" / "busybox")
    modules = with_dependencies(kernel, BOOT_MODULES)
    for name, data in modules.items():
        (tree / "modules" / f"{name}.ko").write_bytes(data)
    (tree / "modules" / "order").write_text("\n".join(f"{name}.ko" for name in modules))
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    image = folder / "initramfs.cpio"
    with image.open("wb") as out:
        subprocess.run([BUSYBOX, "cpio", "-o", "-H", "newc"], input=names.encode(), stdout=out, cwd=tree, check=True,
                       stderr=subprocess.DEVNULL)  # fmt: skip
    return image


def command_line(kernel: Kernel, image: Path, share: Path, memory_mb: int) -> list[str]:
    """Return QEMU's arguments."""
    root = "local,path=/,mount_tag=rootfs,security_model=none,readonly=on,multidevs=remap"
    return [
        "qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "qemu64", "-smp", "2",
        "-m", str(memory_mb), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
        "-kernel", str(kernel.folder / "vmlinux"), "-initrd", str(image),
        "-append", APPEND,
        "-virtfs", root,
        "-virtfs", f"local,path={share},mount_tag=share,security_model=none",
    ]  # fmt: skip


def run(kernel: Kernel, command: str, share: Path, limit_s: float = 900, memory_mb: int = 1024) -> Result:
    """Boot, run ``command`` by the shell as root, power off.

    ``share`` is a folder of the caller's with what the command needs; it is /share inside. Raises MachineError when the
    machine panics, hangs or runs longer than ``limit_s``.
    """
    (share / "start").write_text(START.format(command=command))
    work = share.parent / f"{share.name}-boot"
    work.mkdir()
    image = initramfs(kernel, work)
    console = work / "console"
    with console.open("wb") as out:
        try:
            subprocess.run(command_line(kernel, image, share, memory_mb), stdin=subprocess.DEVNULL, stdout=out,
                           stderr=subprocess.STDOUT, timeout=limit_s, check=False,
                           preexec_fn=lambda: os.nice(5))  # fmt: skip
        except subprocess.TimeoutExpired:
            raise MachineError(f"no end after {limit_s:.0f} s\n{tail(share, console)}") from None
    if not (share / "status").exists():
        raise MachineError(f"the machine died\n{tail(share, console)}")
    return Result(int((share / "status").read_text()), (share / "out").read_text(errors="replace"),
                  (share / "dmesg").read_text(errors="replace"))  # fmt: skip


def tail(share: Path, console: Path) -> str:
    """Return the ends of the console and of the guest's output."""
    out = (share / "out").read_text(errors="replace")[-3000:] if (share / "out").exists() else ""
    return f"console: {console.read_text(errors='replace')[-4000:]}\noutput: {out}"
