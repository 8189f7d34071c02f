"""Cuts a process's GPU calls into bursts: from the first launch to the return of the last synchronisation.

Work is outstanding per (context, stream). A synchronisation covers what was launched before it was entered. When
nothing is outstanding the burst is over, unless the next launch follows within a learned quiet time (a decode loop that
synchronises for every token: one reservation across tokens where that is cheaper). What is never synchronised, because
another stream waits for it or because the program polls memory, is closed by a second learned quiet time. A program
that does synchronise may pause for long between two launches (its interpreter, a full queue), and is waited for.
"""

from collections import OrderedDict, deque
from typing import Literal

import msgspec

from gpsched.adaptive.hints.observations import Copy, EventRecord, Launch, SyncEnter, SyncReturn, SyncScope
from gpsched.adaptive.hints.quiet import QuietTime


ClosedBy = Literal["sync", "quiet", "limit", "reset"]
Work = tuple[int, int]  # context, stream


class Burst(msgspec.Struct, frozen=True, gc=False):
    """One finished burst. ``closed_by`` limit: longer than ``BurstSegmenter.LIMIT_US``; reset: events were lost.

    ``gaps``: how often the GPU was idle inside, after a synchronisation and before the next launch.
    """

    start_us: float
    end_us: float
    launches: int
    closed_by: ClosedBy
    gaps: int = 0


class BurstSegmenter:
    """Feed it GPU calls in order of time; it tells when a burst begins (``launch`` returns True) and ends."""

    LIMIT_US = 1e6
    TAIL_US = 100_000.0  # longest wait for a query's success
    STREAMS = 256  # outstanding streams and recorded events kept, so that leaks of handles cost no memory
    _IMPLICIT_AFTER = 3  # bursts that a stream outlived unsynchronised until it is taken to be joined by another
    _PATIENT_US, _PATIENCE = 20_000.0, 4  # how long a synchronisation is waited for, and how many in a row that fail

    def __init__(self, gap_us: float) -> None:
        self.start_us: float | None = None
        self._launches = self._gaps = 0
        self._sequence = 0
        self._last_us = 0.0
        self._synced_us: float | None = None
        self._outstanding: OrderedDict[Work, tuple[int, int]] = OrderedDict()  # last sequence and thread
        self._records: OrderedDict[int, tuple[Work, int]] = OrderedDict()
        self._entered: dict[int, int] = {}  # thread in a synchronisation -> last sequence before it
        self._closed_by: ClosedBy = "sync"
        self._tails: deque[float] = deque(maxlen=64)
        self._tail_us = 0.0
        self._unsynced: OrderedDict[Work, int] = OrderedDict()
        self.between = QuietTime(gap_us, default=0.0)
        self.open = QuietTime(gap_us, default=self._PATIENT_US, least=500.0, most=50_000.0)
        self._unsynchronised = self._PATIENCE  # bursts since the last that a synchronisation ended

    @property
    def active(self) -> bool:
        """Whether a burst is going on (or waits for its quiet time to pass)."""
        return self.start_us is not None

    def launch(self, call: Launch) -> bool:
        """Take a launch; True when it is the first of a burst. Call ``advance`` to the same time before."""
        self._sequence += 1
        first = self.start_us is None
        self._learn_gap(call.time_us)
        if first:
            self.start_us, self._launches, self._gaps = call.time_us, 0, 0
        self._launches += 1
        self._gaps += self._synced_us is not None
        self._put((call.context, call.stream), call.tid)
        self._last_us, self._synced_us = call.time_us, None
        return first

    def copy(self, call: Copy) -> None:
        """Take a copy: within a burst it is work like any other, outside it is none of a burst's."""
        if self.start_us is not None:
            if self._synced_us is not None:  # the gap ends here: counted to the launch, it would seem to be none
                self._learn_gap(call.time_us)
                self._gaps, self._synced_us = self._gaps + 1, None
            self._sequence += 1
            self._put((call.context, call.stream), call.tid)
            self._last_us = call.time_us

    def record(self, call: EventRecord) -> None:
        """Remember up to where an event reaches in its stream."""
        self._records[call.event] = ((call.context, call.stream), self._sequence)
        self._records.move_to_end(call.event)
        if len(self._records) > self.STREAMS:
            self._records.popitem(last=False)

    def sync_enter(self, call: SyncEnter) -> None:
        """Remember what the synchronisation of this thread can cover."""
        if len(self._entered) >= self.STREAMS:
            self._entered.clear()
        self._entered[call.tid] = self._sequence

    def sync_return(self, call: SyncReturn) -> Burst | None:
        """Take a synchronisation's return; return the burst when it ended now."""
        covered = self._entered.pop(call.tid, None)
        if covered is None:
            covered = self._sequence
            self._learn_tail(call.time_us)
        if self.start_us is None:
            return None
        for work in self._covered(call, covered):
            self._outstanding.pop(work)
            self._unsynced.pop(work, None)
        self._last_us = call.time_us
        if self._waits():
            self._synced_us = None
            return None
        self._synced_us = call.time_us
        return self._close(call.time_us, "sync") if self.between.us <= 0.0 else None

    def resume(self, tid: int) -> Burst | None:
        """A thread that waits in a synchronisation does something else: its return was lost. Call before that."""
        covered = self._entered.pop(tid, None) if self._entered else None
        if covered is None or self.start_us is None:
            return None
        for work in [work for work, (sequence, _) in self._outstanding.items() if sequence <= covered]:
            del self._outstanding[work]
        return None if self._waits() else self._close(self._last_us, "reset")

    def advance(self, now_us: float) -> Burst | None:
        """Close the burst whose quiet time or limit has passed at ``now_us``."""
        if self.start_us is None:
            return None
        if self._synced_us is not None and not self._waits():
            return self._close(self._synced_us, "sync") if now_us > self._synced_us + self.between.us else None
        if not self._entered and now_us > self._last_us + self._open_us():
            self._note_unsynced()
            return self._close(self._last_us, "quiet")
        if now_us > self.start_us + self.LIMIT_US:
            return self._close(self._last_us, "limit")
        return None

    def reset(self) -> Burst | None:
        """Forget what is outstanding: events were lost or the clock stepped."""
        burst = self._close(self._last_us, "reset") if self.start_us is not None else None
        self._records.clear()
        self._last_us = 0.0
        return burst

    def _put(self, work: Work, tid: int) -> None:
        self._outstanding[work] = (self._sequence, tid)
        if len(self._outstanding) > self.STREAMS:
            self._outstanding.popitem(last=False)

    def _open_us(self) -> float:
        least = self._PATIENT_US if self._unsynchronised < self._PATIENCE else 0.0
        return max(self.open.us, self._tail_us, least)

    def _waits(self) -> bool:
        return bool(self._outstanding) and not self._only_implicit()

    def _only_implicit(self) -> bool:
        return all(self._unsynced.get(work, 0) >= self._IMPLICIT_AFTER for work in self._outstanding)

    def _covered(self, call: SyncReturn, sequence: int) -> list[Work]:
        """The streams whose work, launched up to ``sequence``, this synchronisation proves done."""
        if call.scope == SyncScope.STREAM:
            works = [(call.context, call.handle)]
        elif call.scope == SyncScope.EVENT:
            works, sequence = self._recorded(call, sequence)
        else:
            works = [work for work in self._outstanding if call.context in (0, work[0])]
        return [work for work in works if work in self._outstanding and self._outstanding[work][0] <= sequence]

    def _recorded(self, call: SyncReturn, sequence: int) -> tuple[list[Work], int]:
        """An event covers its stream up to the record; unseen records are taken to end the thread's own work."""
        if call.handle in self._records:
            work, recorded = self._records[call.handle]
            return [work], recorded
        return [work for work, (_, tid) in self._outstanding.items() if tid == call.tid], sequence

    def _note_unsynced(self) -> None:
        """Streams that outlive bursts in which others were synchronised are joined by those (StreamWaitEvent)."""
        for work in self._outstanding:
            self._unsynced[work] = self._unsynced.get(work, 0) + 1
            self._unsynced.move_to_end(work)
        while len(self._unsynced) > self.STREAMS:
            self._unsynced.popitem(last=False)

    def _learn_gap(self, time_us: float) -> None:
        if not self._last_us:
            return
        gap = max(0.0, time_us - self._last_us)
        if self._synced_us is not None or (self.start_us is None and self._closed_by == "sync"):
            self.between.add(gap)
        else:
            self.open.add(gap)

    def _learn_tail(self, time_us: float) -> None:
        """A query found work done that nobody waited for in a call: the open time must cover such work."""
        if self._outstanding or self._closed_by == "quiet":
            self._tails.append(time_us - self._last_us)
            self._tail_us = min(max(self._tails) * 1.25, self.TAIL_US)

    def _close(self, end_us: float, by: ClosedBy) -> Burst:
        assert self.start_us is not None
        burst = Burst(self.start_us, max(end_us, self.start_us), self._launches, by, self._gaps)
        self.start_us = self._synced_us = None
        self._closed_by = by
        self._unsynchronised = 0 if by == "sync" else self._PATIENCE if by == "limit" else self._unsynchronised + 1
        self._outstanding.clear()
        self._entered.clear()
        return burst
