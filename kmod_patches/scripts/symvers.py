#!/usr/bin/env python3
"""Print the Module.symvers line of nvidia_get_rm_ops for an installed nvidia.ko: symvers.py NVIDIA.ko

A kernel with CONFIG_MODVERSIONS loads the companion only with the checksum that the driver exports; a driver that was
not built here left no Module.symvers. It is read from the ELF file (.xz and .zst too).
"""

import lzma
import struct
import subprocess
import sys
from pathlib import Path


SYMBOL = "nvidia_get_rm_ops"


def elf_bytes(file: Path) -> bytes:
    """Return the module, decompressed."""
    data = file.read_bytes()
    if file.suffix == ".xz":
        return lzma.decompress(data)
    if file.suffix == ".zst":
        return subprocess.run(["zstd", "-dqc", file], capture_output=True, check=True).stdout
    return data


def sections(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """Return (name offset, type, file offset, size, link) of each section."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    rows = (struct.unpack_from("<IIQQQQII", data, table + index * size) for index in range(count))
    return [(row[0], row[1], row[4], row[5], row[6]) for row in rows]


def checksum(data: bytes) -> int:
    """Return the export's checksum. Raises SystemExit when the module does not export the symbol."""
    table = sections(data)
    for _, kind, offset, size, link in table:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = table[link][2]
        for at in range(offset, offset + size, 24):
            name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            end = data.index(b"\0", names + name)
            if data[names + name : end] == f"__crc_{SYMBOL}".encode():
                # Up to 5.18 the checksum is the symbol's value; later it lies where the symbol points.
                return value if section == 0xFFF1 else struct.unpack_from("<I", data, table[section][2] + value)[0]
    raise SystemExit(f"symvers: this nvidia.ko does not export {SYMBOL}; is it the open flavour, 535 or newer?")


def main() -> None:
    """Print the line."""
    print(f"{checksum(elf_bytes(Path(sys.argv[1]))):#010x}\t{SYMBOL}\tnvidia\tEXPORT_SYMBOL\t")


if __name__ == "__main__":
    main()
