"""Reads from BTF, the kernel's own description of its types, where the members of structs are.

Why not with libbpf: one that is older than the kernel refuses the whole description for a kind of type that it does not
know, and Ubuntu 22.04 has libbpf 0.5 beside kernels of 6.8. The format: include/uapi/linux/btf.h. Takes 0.1 s.
"""

import sys
from collections.abc import Iterable, Iterator


_MAGIC = 0xEB9F
_STRUCT = 4
_UNION = 5
_NESTING = 4  # of unnamed structs and unions
_TYPE_WORDS = 3  # struct btf_type: name, kind and count, size or type
_MEMBER_WORDS = 3  # struct btf_member: name, type, bit offset

# Words that follow a type, by kind from 0 (void) to 19 (ENUM64): once, and for each member, value or parameter.
_ONCE = (0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0)
_EACH = (0, 0, 0, 0, 3, 3, 2, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0, 3)


class Btf:
    """A description that was read; ``structs`` are the names that will be asked for."""

    def __init__(self, data: bytes, structs: Iterable[str]) -> None:
        """Find the types in ``data``, a whole BTF section. Raises ValueError when it cannot be read."""
        if len(data) < 24 or int.from_bytes(data[:2], sys.byteorder) != _MAGIC:
            raise ValueError("no BTF")
        words = memoryview(data)[4:24].cast("I")
        header, types, types_size, strings, strings_size = words
        self._strings = data[header + strings : header + strings + strings_size]
        self._words = memoryview(data)[header + types : header + types + types_size].cast("I")
        self._places = [0]  # of each type's first word; type 0 is void
        self._structs: dict[str, int] = {}
        names = {self._strings.find(f"\0{name}\0".encode()) + 1: name for name in structs}
        names.pop(0, None)  # those that are nowhere
        self._find(names)

    def _find(self, wanted: dict[int, str]) -> None:
        """Walk all types once; ``wanted``: structs by where their names are."""
        words, add = self._words, self._places.append
        place, end = 0, len(words)
        try:
            while place < end:
                add(place)
                info = words[place + 1]
                kind = info >> 24 & 0x1F
                if kind == _STRUCT and words[place] in wanted:
                    self._structs.setdefault(wanted[words[place]], place)
                place += _TYPE_WORDS + _ONCE[kind] + _EACH[kind] * (info & 0xFFFF)
        except IndexError as error:
            raise ValueError(f"BTF of an unknown kind, {kind}") from error

    def offset(self, struct: str, member: str) -> int | None:
        """Return the byte offset of ``member``, those of unnamed structs and unions included, or None."""
        place = self._structs.get(struct)
        bits = None if place is None else self._bits(place, member.encode(), _NESTING)
        return None if bits is None else bits // 8

    def _bits(self, place: int, name: bytes, depth: int) -> int | None:
        for own_name, type_, bits in self._members(place):
            if own_name == name:
                return bits
            inner = self._bits(self._places[type_], name, depth - 1) if not own_name and depth else None
            if inner is not None:
                return bits + inner
        return None

    def _members(self, place: int) -> Iterator[tuple[bytes, int, int]]:
        """Name, type and bit offset of each member; the highest byte of the offset is a bit field's width."""
        info = self._words[place + 1]
        if info >> 24 & 0x1F not in (_STRUCT, _UNION):
            return
        first = place + _TYPE_WORDS
        for member in range(first, first + _MEMBER_WORDS * (info & 0xFFFF), _MEMBER_WORDS):
            name, type_, bits = self._words[member : member + _MEMBER_WORDS]
            yield self._strings[name : self._strings.index(b"\0", name)], type_, bits & 0xFFFFFF if info >> 31 else bits
