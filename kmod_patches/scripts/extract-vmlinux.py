#!/usr/bin/env python3
"""Take the ELF kernel out of a Debian vmlinuz: extract-vmlinux.py VMLINUZ VMLINUX.

QEMU boots the ELF file by its PVH entry without the minutes that decompression takes under emulation, and pahole needs
its BTF. The payload is found by the magic of its compression (boot protocol: payload_offset and _length in the header).
"""

import lzma
import struct
import subprocess
import sys
import zlib
from pathlib import Path


def payload(image: bytes) -> bytes:
    """Return the compressed kernel in a bzImage."""
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    return image[start : start + length]


def decompress(data: bytes) -> bytes:
    """Decompress by magic: xz, zstd or gzip. The trailing 4 bytes are the size, not data."""
    if data[:6] == b"\xfd7zXZ\0":
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return subprocess.run(["zstd", "-dqc"], input=data[:-4], capture_output=True, check=True).stdout
    if data[:2] == b"\x1f\x8b":
        return zlib.decompressobj(31).decompress(data)
    raise SystemExit(f"extract-vmlinux: unknown compression {data[:6].hex()}")


def main() -> None:
    """Write the ELF file."""
    source, target = map(Path, sys.argv[1:3])
    kernel = decompress(payload(source.read_bytes()))
    if kernel[:4] != b"\x7fELF":
        raise SystemExit(f"extract-vmlinux: {source} holds no ELF kernel")
    target.write_bytes(kernel)


if __name__ == "__main__":
    main()
