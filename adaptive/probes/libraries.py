"""Finds the CUDA driver libraries that processes have mapped, in whatever mount namespace, and what they export."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from gpsched.adaptive.errors import ProcessGoneError
from gpsched.adaptive.probes.entry_points import find_entry_point
from gpsched.adaptive.probes.errors import AttachError


_LIBCUDA = re.compile(r"libcuda\.so(\.[\w.]+)?")


class FileId(NamedTuple):
    """What makes two paths the same file."""

    device: int
    inode: int


class Library(NamedTuple):
    """A libcuda file, open as ``descriptor`` (the caller closes it); ``shown`` is its name where it is used."""

    id: FileId
    descriptor: int
    shown: str

    @property
    def path(self) -> str:
        """A path that stays valid while the descriptor is open, whatever becomes of the process or the name."""
        return f"/proc/self/fd/{self.descriptor}"


def open_library(path: str, shown: str | None = None) -> Library:
    """Open a library by a path that is valid here; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    return Library(FileId(status.st_dev, status.st_ino), descriptor, shown or path)


def mapped_libraries(pid: int) -> list[Library]:
    """Open the libcuda files that the process has mapped, each once; raises ProcessGoneError."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessGoneError(pid) from None
    mappings = (line.split(maxsplit=5) for line in lines)
    files: dict[tuple[str, str], tuple[str, str]] = {}  # device and inode -> addresses and name of the first mapping
    for fields in mappings:
        if len(fields) == 6 and _LIBCUDA.fullmatch(fields[5].removesuffix(" (deleted)").rpartition("/")[2]):
            files.setdefault((fields[3], fields[4]), (fields[0], fields[5]))
    return [library for library in (_open_mapped(pid, *place) for place in files.values()) if library]


def _open_mapped(pid: int, addresses: str, name: str) -> Library | None:
    """Reach the file itself: map_files also finds one that was replaced or deleted.

    It wants CAP_SYS_ADMIN, and its names change while the loader still splits the mapping: hence the second way.
    """
    for path in (f"/proc/{pid}/map_files/{addresses}", f"/proc/{pid}/root{name}"):
        try:
            return open_library(path, name)
        except OSError:
            continue
    return None


def probe_places(library: Library) -> dict[int, int]:
    """Return file offset -> cookie of every entry point that the library exports.

    Names that are aliases of one address are one place. Raises AttachError when the file is not an ELF library.
    """
    try:
        with open(library.path, "rb") as file:
            return _places(ELFFile(file))
    except (OSError, ELFError) as error:
        raise AttachError(library.shown, str(error) or type(error).__name__) from error


def _places(elf: ELFFile) -> dict[int, int]:
    segments = [
        (segment["p_vaddr"], segment["p_vaddr"] + segment["p_filesz"], segment["p_offset"])
        for segment in elf.iter_segments("PT_LOAD")
    ]
    places: dict[int, int] = {}
    for name, address in _exported_functions(elf):
        entry = find_entry_point(name)
        inside = [offset + address - start for start, end, offset in segments if start <= address < end]
        if entry and inside:
            places.setdefault(inside[0], entry.cookie)
    return places


def _exported_functions(elf: ELFFile) -> list[tuple[str, int]]:
    table = elf.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        return []
    return [
        (symbol.name, symbol["st_value"])
        for symbol in table.iter_symbols()
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF"
    ]
