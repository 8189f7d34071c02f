#!/usr/bin/env python3
"""Put gpsched into this machine's own NVIDIA driver (DKMS), or take it out again.

    dkms.py preflight   is everything right? Changes nothing, tells all that is not.
    dkms.py install     preflight, backup, patch, build, install; the running driver stays until it is loaded anew
    dkms.py rollback    put the backup back

Only the standard library. Exit status: 0 done, 1 refused (nothing was changed), 2 usage, 3 failed (it says how).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import check  # noqa: E402 beside this file


SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
BACKUP = "var/lib/gpsched/kmod"
TOOLS = ("dkms", "make", "patch", "gcc")


class RefusedError(Exception):
    """Something is not right; nothing was changed."""


class StockBuildError(Exception):
    """The stock driver's source is back, but it could not be built again. The message says what to do."""


@dataclass(frozen=True)
class Driver:
    """The installed driver: DKMS's name and version of it, and its source folder."""

    name: str
    version: str
    source: Path


@dataclass(frozen=True)
class Host:
    """A machine: its root folder, kernel, and how to run a command (both replaced in tests)."""

    root: Path = Path("/")
    kernel: str = os.uname().release
    run: Callable[..., "subprocess.CompletedProcess[str]"] = subprocess.run
    which: Callable[[str], str | None] = shutil.which
    uid: int = os.geteuid()

    def read(self, path: str) -> str:
        """Return a file's text, empty when it is not there."""
        try:
            return (self.root / path).read_text(errors="replace")
        except OSError:
            return ""


def loaded_version(host: Host) -> str:
    """Return the loaded driver's version, empty when none is. Raises RefusedError for the proprietary flavour."""
    text = host.read("proc/driver/nvidia/version")
    if text and "Open Kernel Module" not in text:
        raise RefusedError("the loaded driver is the proprietary flavour; install NVIDIA's open kernel modules first")
    found = re.search(r"Kernel Module.*?\s([0-9]{3}\.[0-9.]+)", text)
    return found.group(1) if found else ""


def read_conf(folder: Path) -> tuple[str, str] | None:
    """Return DKMS's name and version of a source folder; None when it is no driver's."""
    text = (folder / "dkms.conf").read_text(errors="replace")
    name = re.search(r'^PACKAGE_NAME="?([^"\n]+)', text, re.M)
    version = re.search(r'^PACKAGE_VERSION="?([^"\n]+)', text, re.M)
    if not name or not version or not (folder / "nvidia" / "nv.c").is_file():
        return None
    return name.group(1), version.group(1)


def drivers(host: Host) -> Iterator[Driver]:
    """Yield the driver sources that DKMS has."""
    for conf in sorted((host.root / "usr/src").glob("nvidia*/dkms.conf")):
        if found := read_conf(conf.parent):
            yield Driver(*found, conf.parent)


def saved(host: Host) -> Iterator[tuple[Driver, Path]]:
    """Yield each driver that was backed up, and its backup; also one whose source is gone."""
    for conf in sorted((host.root / BACKUP).glob("*/source/dkms.conf")):
        if found := read_conf(conf.parent):
            sources = {known.source for known in drivers(host) if (known.name, known.version) == found}
            source = min(sources, default=host.root / "usr/src" / "-".join(found))  # where DKMS wants it
            yield Driver(*found, source), conf.parents[1]


def find_driver(host: Host) -> Driver:
    """Return the driver to patch. Raises RefusedError when there is none, or none of the loaded version."""
    known = list(drivers(host))
    if not known:
        raise RefusedError(
            "no NVIDIA driver source under /usr/src; install the driver's DKMS package (open kernel modules)"
        )
    loaded = loaded_version(host)
    matching = [driver for driver in known if not loaded or driver.version == loaded]
    if not matching:
        have = ", ".join(driver.version for driver in known)
        raise RefusedError(
            f"wrong driver version: loaded is {loaded}, /usr/src has {have}; reboot into the installed driver or "
            "install the source of the loaded one"
        )
    return matching[-1]


def users(host: Host) -> list[str]:
    """Return who has the GPU open: "pid name", for the message."""
    found = []
    for process in sorted((host.root / "proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            targets = [str(link.readlink()) for link in (process / "fd").iterdir()]
        except OSError:
            continue
        if any(target.startswith("/dev/nvidia") for target in targets):
            found.append(f"{process.name} {host.read(f'proc/{process.name}/comm').strip() or '?'}")
    return found


def secure_boot(host: Host) -> bool:
    """Tell whether the firmware lets only signed modules in."""
    try:
        return (host.root / SECURE_BOOT).read_bytes()[-1:] == b"\1"
    except OSError:
        return False


def signing_key(host: Host) -> bool:
    """Tell whether DKMS has a key to sign with."""
    return any((host.root / key).exists() for key in ("var/lib/dkms/mok.pub", "var/lib/shim-signed/mok/MOK.der"))


def problems(host: Host, driver: Driver) -> list[str]:
    """Return all that speaks against an install, one line each."""
    found = [f"{tool} is not installed" for tool in TOOLS if host.which(tool) is None]
    headers = host.root / "lib/modules" / host.kernel / "build"
    if not (headers / "Module.symvers").exists():
        found.append(f"headers of kernel {host.kernel} are missing; install linux-headers-{host.kernel}")
    found += [f"driver {driver.version}: {problem}" for problem in check.problems(driver.source, patched=False)]
    if secure_boot(host) and not signing_key(host):
        found.append(
            "Secure Boot is on and DKMS has no signing key, so the kernel would refuse the module; enrol one "
            "(dkms generate_mok; mokutil --import /var/lib/dkms/mok.pub; reboot) or keep the stock driver"
        )
    busy = users(host)
    if busy:
        more = "" if len(busy) <= 5 else f" and {len(busy) - 5} more"
        found.append(
            f"the GPU is in use by {', '.join(busy[:5])}{more} (X, a CUDA program, nvidia-persistenced); stop them"
        )
    return found


def preflight(host: Host) -> Driver:
    """Return the driver that can be patched now. Raises RefusedError with all problems."""
    driver = find_driver(host)
    found = problems(host, driver)
    if found:
        raise RefusedError("\n".join(found))
    return driver


def backup_folder(host: Host, driver: Driver) -> Path:
    """Return where a driver's backup lies."""
    return host.root / BACKUP / f"{driver.name}-{driver.version}"


def dkms(host: Host, driver: Driver) -> None:
    """Build and install a driver for the running kernel. Raises CalledProcessError."""
    for step in ("build", "install"):
        host.run(["dkms", step, "--force", "-m", driver.name, "-v", driver.version, "-k", host.kernel], check=True)


def need_root(host: Host) -> None:
    """Raise RefusedError for anyone else."""
    if host.uid != 0:
        raise RefusedError("run it as root")


def restore(driver: Driver, folder: Path) -> None:
    """Put the source back as it was; it is missing for no longer than between two renames."""
    fresh, old = (driver.source.with_name(f".gpsched-{driver.source.name}-{what}") for what in ("new", "old"))
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.copytree(folder / "source", fresh, symlinks=True)
    if driver.source.exists():
        driver.source.rename(old)
    fresh.rename(driver.source)
    shutil.rmtree(old, ignore_errors=True)


def put_back(host: Host, driver: Driver, folder: Path) -> None:
    """Restore the source and build the stock driver again. Raises StockBuildError; the backup stays then."""
    restore(driver, folder)
    try:
        dkms(host, driver)
    except (subprocess.CalledProcessError, OSError) as error:
        raise StockBuildError(
            f"the stock driver's source is back in {driver.source}, but it could not be built ({error}); mend what is "
            "wrong, then: dkms.py rollback"
        ) from error
    shutil.rmtree(folder)


def install(host: Host) -> str:
    """Patch, build, install; whatever fails, the driver is as before. Returns what to do next."""
    need_root(host)
    driver = preflight(host)
    folder = backup_folder(host, driver)
    if folder.exists():
        raise RefusedError(f"{folder} exists: a former install was not rolled back; run: dkms.py rollback")
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(driver.source, partial / "source", symlinks=True)
    partial.rename(folder)
    try:
        host.run([str(HERE / "scripts" / "patch-tree.sh"), str(driver.source)], check=True)
        dkms(host, driver)
    except BaseException:  # Ctrl-C as well
        put_back(host, driver, folder)
        raise
    return (
        f"driver {driver.version} with gpsched is installed for kernel {host.kernel}. Load it: reboot, or, with "
        "nothing using the GPU, modprobe -r nvidia-drm nvidia-modeset nvidia-uvm nvidia && modprobe nvidia. "
        "To go back: dkms.py rollback"
    )


def rollback(host: Host) -> str:
    """Put back what install() saved. Returns what to do next."""
    need_root(host)
    known = list(saved(host))
    if not known:
        raise RefusedError("nothing to roll back: no backup of an installed driver under /var/lib/gpsched/kmod")
    for driver, folder in known:
        put_back(host, driver, folder)
    return "the stock driver is installed again; load it: reboot, or unload and load the nvidia modules"


def main(arguments: list[str] | None = None, host: Host | None = None) -> int:
    """Run one command and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("preflight", "install", "rollback"))
    command = parser.parse_args(arguments).command
    host = host or Host()
    try:
        if command == "preflight":
            driver = preflight(host)
            print(f"driver {driver.version} in {driver.source} can be patched for kernel {host.kernel}")
        else:
            print(install(host) if command == "install" else rollback(host))
    except (RefusedError, check.TreeError) as refusal:
        for line in str(refusal).splitlines():
            print(f"{command}: {line}", file=sys.stderr)
        print(f"{command}: nothing was changed", file=sys.stderr)
        return 1
    except StockBuildError as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 3
    except subprocess.CalledProcessError as error:
        print(f"{command}: {' '.join(map(str, error.cmd))} failed; the driver is as it was before", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        state = "the driver is as it was before" if command == "install" else "run it again"
        print(f"{command}: interrupted; {state}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
