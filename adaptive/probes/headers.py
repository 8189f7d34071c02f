"""Finds kernel headers for bcc, of the running kernel or of any near version.

User-space probes and tracepoints depend on the headers only for macros and integer types, so a version that differs is
good enough; what depends on the kernel's structs comes from BTF (kernel.py).
"""

import os
import platform
from pathlib import Path

from gpsched.adaptive.probes.errors import KernelHeadersMissingError


SOURCES = Path("/usr/src")
CACHE = Path("/var/cache/gpsched/headers")
_ARCH = {"x86_64": "x86", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def kernel_source() -> Path | None:
    """Return the tree for BCC_KERNEL_SOURCE, or None when bcc finds the running kernel's headers by itself.

    Raises KernelHeadersMissingError.
    """
    chosen = os.environ.get("BCC_KERNEL_SOURCE")
    if chosen:
        return Path(chosen)
    release = os.uname().release
    own = (Path("/lib/modules", release, "build/include"), Path("/sys/kernel/kheaders.tar.xz"))
    if any(path.exists() for path in own):
        return None
    return _installed_tree(SOURCES, CACHE)


def _installed_tree(sources: Path, cache: Path) -> Path:
    """The newest installed tree that was configured for some kernel of this architecture."""
    configured = [path.parents[2] for path in sources.glob("linux-headers-*/include/generated/autoconf.h")]
    usable = [tree for tree in configured if (tree / "arch" / _ARCH).is_dir()]
    for tree in sorted(usable, key=lambda tree: tree.stat().st_mtime, reverse=True):
        if (tree / "include/linux/kconfig.h").exists():  # Ubuntu links the common part into each flavour
            return tree
        common = _common_part(tree)
        if common:
            return _merge(tree, common, cache / tree.name)
    raise KernelHeadersMissingError


def _common_part(tree: Path) -> Path | None:
    """Debian keeps what the flavours share in a folder of its own: linux-headers-VERSION-common."""
    common = tree.with_name(f"{tree.name.rpartition('-')[0]}-common")
    return common if (common / "include/linux/kconfig.h").exists() else None


def _merge(flavour: Path, common: Path, merged: Path) -> Path:
    """Lay the generated files of a flavour over the common ones, by links; done once, safe to repeat."""
    for part in ("include", f"arch/{_ARCH}/include"):
        folder = merged / part
        folder.mkdir(parents=True, exist_ok=True)
        for source in (*(common / part).iterdir(), *(flavour / part).iterdir()):
            link = folder / source.name
            if not link.is_symlink():
                link.symlink_to(source)
    return merged
