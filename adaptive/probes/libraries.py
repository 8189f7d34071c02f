"""Finds the CUDA driver libraries that processes have mapped, in whatever mount namespace, and what they export.

And the files with the function of explicit hints, and the CUDA library of this host.
"""

import os
import re
import subprocess
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.hash import GNUHashSection
from elftools.elf.sections import SymbolTableSection

from gpsched.adaptive.errors import ProcessGoneError
from gpsched.adaptive.probes.entry_points import find_entry_point
from gpsched.adaptive.probes.errors import AttachError


HINT_SYMBOL = "gpsched_hint"  # adaptive/hints/include/gpsched_hint.h
OWN_HINT = Path(__file__).parents[1] / "hints/build/libgpsched_hint.so"  # what adaptive/hints/explicit.py loads

_LIBCUDA = re.compile(r"libcuda\.so(\.[\w.]+)?")
_MAX_NAMES = 16 << 20  # bytes of a .strtab that are searched: programs have less, debug builds of frameworks more


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


def host_libraries() -> list[str]:
    """Return the paths of the host's CUDA driver library as the dynamic linker knows them; none without a driver."""
    try:
        listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    lines = (line.strip().partition(" => ") for line in listed.splitlines())
    return list(dict.fromkeys(path for name, _, path in lines if _LIBCUDA.fullmatch(name.split()[0] if name else "")))


def mapped_libraries(pid: int) -> list[Library]:
    """Open the libcuda files that the process has mapped, each once; raises ProcessGoneError."""
    files = _mapped_files(pid)
    wanted = [mapping for mapping in files if _LIBCUDA.fullmatch(_base_name(mapping.name))]
    return [library for mapping in wanted if (library := _open_mapped(pid, mapping.addresses, mapping.name))]


def mapped_programs(pid: int, known: Container[FileId]) -> Iterator[Library]:
    """Open, one after the other, the files whose code the process has mapped; raises ProcessGoneError."""
    for mapping in _mapped_files(pid):
        if mapping.is_code and mapping.name.startswith("/") and mapping.id not in known:
            library = _open_mapped(pid, mapping.addresses, mapping.name)
            if library:
                yield library


class _Mapping(NamedTuple):
    """The first mapping of a file, or the first with code."""

    addresses: str
    is_code: bool
    id: FileId
    name: str


def _mapped_files(pid: int) -> list[_Mapping]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessGoneError(pid) from None
    files: dict[FileId, _Mapping] = {}
    for fields in (line.split(maxsplit=5) for line in lines):
        if len(fields) == 6 and fields[4] != "0":
            mapping = _Mapping(fields[0], "x" in fields[1], _file_id(fields[3], fields[4]), fields[5])
            if mapping.id not in files or (mapping.is_code and not files[mapping.id].is_code):
                files[mapping.id] = mapping
    return list(files.values())


def _file_id(device: str, inode: str) -> FileId:
    major, minor = (int(part, 16) for part in device.split(":"))
    return FileId(os.makedev(major, minor), int(inode))


def _base_name(path: str) -> str:
    return path.removesuffix(" (deleted)").rpartition("/")[2]


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


def hint_offset(library: Library) -> int | None:
    """Return the file offset of the function of explicit hints, or None when the file has none."""
    try:
        with open(library.path, "rb") as file:
            elf = ELFFile(file)
            address = _exported_address(elf, HINT_SYMBOL) or _own_address(elf, HINT_SYMBOL)
            return _file_offset(_segments(elf), address) if address else None
    except (OSError, ELFError):
        return None


def _exported_address(elf: ELFFile, name: str) -> int | None:
    """By the hash table, so that a library with a hundred thousand symbols costs no more than a small one."""
    table = elf.get_section_by_name(".gnu.hash")
    symbol = table.get_symbol(name) if isinstance(table, GNUHashSection) else None
    return symbol["st_value"] if symbol else None


def _own_address(elf: ELFFile, name: str) -> int | None:
    """Executables export nothing; their symbol table has the function unless it was stripped."""
    names, table = (elf.get_section_by_name(section) for section in (".strtab", ".symtab"))
    if not names or not isinstance(table, SymbolTableSection) or names["sh_size"] > _MAX_NAMES:
        return None
    if f"\0{name}\0".encode() not in names.data():
        return None
    found = table.get_symbol_by_name(name) or []
    return next((symbol["st_value"] for symbol in found if symbol["st_shndx"] != "SHN_UNDEF"), None)


def _segments(elf: ELFFile) -> list[tuple[int, int, int]]:
    """What is loaded from the file: begin and end of the addresses, and the file offset."""
    return [
        (segment["p_vaddr"], segment["p_vaddr"] + segment["p_filesz"], segment["p_offset"])
        for segment in elf.iter_segments("PT_LOAD")
    ]


def _file_offset(segments: list[tuple[int, int, int]], address: int) -> int | None:
    return next((offset + address - start for start, end, offset in segments if start <= address < end), None)


def _places(elf: ELFFile) -> dict[int, int]:
    places: dict[int, int] = {}
    segments = _segments(elf)
    for name, address in _exported_functions(elf):
        entry = find_entry_point(name)
        offset = _file_offset(segments, address) if entry else None
        if entry and offset is not None:
            places.setdefault(offset, entry.cookie)
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
