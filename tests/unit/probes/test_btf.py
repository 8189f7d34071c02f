"""The reader of BTF, on descriptions made here with kinds that old libraries do not know, and on the kernel's own."""

import struct
from pathlib import Path

import pytest

from gpsched.adaptive.probes import kernel
from gpsched.adaptive.probes.btf import Btf
from gpsched.adaptive.probes.errors import KernelTypesMissingError


INT, STRUCT, UNION, ENUM, FUNC_PROTO, DECL_TAG, ENUM64 = 1, 4, 5, 6, 13, 17, 19
_BIT_FIELDS = 1 << 31


class _Description:
    """Types in the order in which they were added, the first is number 1."""

    def __init__(self) -> None:
        self._strings, self._types = b"\0", b""

    def add(self, kind: int, name: str, *words: int, count: int = 0, flags: int = 0) -> "_Description":
        self._types += struct.pack(f"={3 + len(words)}I", self._name(name), kind << 24 | count | flags, 0, *words)
        return self

    def struct(self, name: str, *members: tuple[str, int, int], kind: int = STRUCT, flags: int = 0) -> "_Description":
        words = [word for member, type_, bits in members for word in (self._name(member), type_, bits)]
        return self.add(kind, name, *words, count=len(members), flags=flags)

    def data(self) -> bytes:
        header = struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self._types), len(self._types), len(self._strings))
        return header + self._types + self._strings

    def _name(self, name: str) -> int:
        if not name:
            return 0
        self._strings += name.encode() + b"\0"
        return len(self._strings) - len(name) - 1


def test_members_also_of_unnamed_structs_and_unions() -> None:
    described = (
        _Description()
        .add(INT, "long", 64)
        .struct("", ("a", 1, 0), ("b", 1, 64), kind=UNION)
        .struct("", ("c", 1, 0), ("", 2, 128))
        .struct("file", ("f_mode", 1, 0), ("", 3, 256), ("f_path", 1, 640))
    )
    btf = Btf(described.data(), ["file"])
    assert [btf.offset("file", name) for name in ("f_mode", "c", "b", "f_path")] == [0, 32, 56, 80]
    assert btf.offset("file", "none") is btf.offset("path", "c") is None
    assert Btf(described.data(), ["path"]).offset("path", "c") is None  # nor is it one without a name


def test_kinds_with_words_of_their_own_are_passed() -> None:
    described = (
        _Description()
        .add(ENUM, "colour", 0, 0, 0, 1, count=2)
        .add(ENUM64, "large", 0, 0, 1, 0, 1, 1, count=2)
        .add(FUNC_PROTO, "", 0, 1, count=1)
        .add(DECL_TAG, "tag", 0)
        .struct("path", ("mnt", 1, 0), ("dentry", 1, 64))
    )
    assert Btf(described.data(), ["path"]).offset("path", "dentry") == 8


def test_the_width_of_a_bit_field_is_no_offset() -> None:
    described = _Description().add(INT, "int", 32).struct("s", ("bits", 1, 5 << 24 | 64), flags=_BIT_FIELDS)
    assert Btf(described.data(), ["s"]).offset("s", "bits") == 8


@pytest.mark.parametrize("data", [b"", b"\0" * 24, _Description().add(20, "newer").data()])
def test_what_cannot_be_read_is_said(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="BTF"):
        Btf(data, ["file"])
    types = tmp_path / "vmlinux"
    types.write_bytes(data)
    with pytest.raises(KernelTypesMissingError):
        kernel.field_offsets(types)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    types = tmp_path / "vmlinux"
    types.write_bytes(_Description().add(INT, "int", 32).struct("task_struct", ("signal", 1, 0)).data())
    with pytest.raises(KernelTypesMissingError, match=r"task_struct\.pid"):
        kernel.field_offsets(types)


@pytest.mark.skipif(not kernel.TYPES.exists(), reason="a kernel without BTF")
def test_this_kernel_has_all_fields() -> None:
    offsets = kernel.field_offsets()
    assert set(offsets) == set(kernel.FIELDS)
    assert offsets["GS_FDTABLE_MAX_FDS"] == 0
    assert offsets["GS_DENTRY_D_NAME"] > 0
