"""What the actuator did: reservations and counters, read from the memory that it writes."""

from collections.abc import Iterator
from enum import IntEnum

import msgspec

from gpsched.adaptive.actuator import abi


class Reason(IntEnum):
    """``enum ga_reason``: why a reservation ended."""

    SYNC = 1
    QUIET = 2
    LIMIT = 3
    NO_LAUNCH = 4
    MISSED = 5
    BUDGET = 6
    EXIT = 7
    WITHDRAWN = 8


class Record(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One reservation. Times are CLOCK_MONOTONIC ns, 0 for what did not happen; see ``struct ga_record``."""

    sequence: int
    trigger_ns: int
    begin_ns: int
    ready_ns: int
    launch_ns: int
    end_ns: int
    undone_ns: int
    pid: int
    gpu: int
    trigger: int
    reason: Reason
    merged: int
    controls: int
    failures: int
    last_status: int

    @property
    def lead_us(self) -> float | None:
        """Time from the trigger to the first launch; None without one."""
        return (self.launch_ns - self.trigger_ns) / 1000 if self.launch_ns else None

    @property
    def unhidden_us(self) -> float | None:
        """How long after the first launch the GPU became free of best-effort work; 0 when it was before."""
        if not self.launch_ns or not self.ready_ns:
            return None
        return max(0.0, (self.ready_ns - self.launch_ns) / 1000)

    @property
    def hidden_us(self) -> float | None:
        """How much of what freeing the GPU took was over before the first launch."""
        if not self.launch_ns or not self.ready_ns:
            return None
        return max(0.0, (min(self.ready_ns, self.launch_ns) - self.begin_ns) / 1000)

    @property
    def waste_us(self) -> float:
        """How long the GPU was kept free before it was needed, or for nothing."""
        if not self.ready_ns:
            return 0.0
        return max(0.0, ((self.launch_ns or self.end_ns) - self.ready_ns) / 1000)


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """``struct ga_counters``: totals since the actuator's start; ``descriptors`` and ``disabled`` are current."""

    events: int
    triggers: int
    throttled: int
    reservations: int
    controls: int
    failures: int
    turns: int
    descriptors: int
    disabled: int
    beside: int


class RecordReader:
    """Reads each record once. ``lost`` counts those that were overwritten before they were read."""

    def __init__(self, shared: abi.Shared) -> None:
        self._shared = shared
        self._next = 1
        self.lost = 0

    def read(self) -> list[Record]:
        """All records since the last call, oldest first."""
        return list(self._records())

    def _records(self) -> Iterator[Record]:
        last = int(self._shared.record_count)
        oldest = max(1, last - abi.MAX_RECORDS + 1)
        self.lost += max(0, oldest - self._next)
        for sequence in range(max(self._next, oldest), last + 1):
            record = self._take(sequence)
            if record is None:
                self.lost += 1
            else:
                yield record
        self._next = last + 1

    def _take(self, sequence: int) -> Record | None:
        """The record, or None when the actuator has begun to overwrite it."""
        place = self._shared.records[(sequence - 1) % abi.MAX_RECORDS]
        copy = abi.Record.from_buffer_copy(place)
        if copy.sequence != sequence or place.sequence != sequence:
            return None
        return msgspec.convert({name: getattr(copy, name) for name in Record.__struct_fields__}, Record)


def read_counters(shared: abi.Shared) -> Counters:
    """The counters now."""
    return Counters(**{name: int(getattr(shared.counters, name)) for name in Counters.__struct_fields__})
