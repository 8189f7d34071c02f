"""All trigger candidates of one process: which wakes precede bursts, in which context, and how long before."""

from collections import deque

from msgspec.structs import replace

from gpsched.adaptive.hints.leads import NEVER, Bursts, LeadWindow
from gpsched.adaptive.hints.observations import PROBED, UNKNOWN, Matcher, WakeKind


Key = tuple[int, int, int, int]  # kind, tid, descriptor, size


_OWN_WINDOW = 32
_NO_KINDS: frozenset[int] = frozenset()
_NEVER_BUSY = {WakeKind.CLOCK, WakeKind.BURST_END, WakeKind.COPY_H2D}


class Candidate:
    """One matcher, the leads of all its occurrences, and of those that came first while the process was idle."""

    __slots__ = ("_idle_matcher", "first", "idle", "matcher", "window")

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self.window = LeadWindow()
        self.idle = LeadWindow()
        self._idle_matcher = replace(matcher, idle=True)
        self.first = 0  # number of the burst before which an idle occurrence was recorded last

    def windows(self, bound: bool) -> list[tuple[Matcher, LeadWindow]]:
        """Return what can be judged: all occurrences, and the idle ones, which say nothing of ``bound`` wakes."""
        found = [(self.matcher, self.window)]
        if not bound and self.matcher.kind not in _NEVER_BUSY:
            found.append((self._idle_matcher, self.idle))
        return found


class Group:
    """The candidates that one exact context belongs to, from the general to the special."""

    __slots__ = ("candidates", "key", "used")

    def __init__(self, key: Key, candidates: tuple[Candidate, ...]) -> None:
        self.key, self.candidates = key, candidates
        self.used = 0


class CandidateTable:
    """Counts per candidate; an occurrence waits until the next burst claims it or ``HORIZON_US`` has passed.

    Memory is bounded: at most GROUPS contexts, CANDIDATES matchers and PENDING waiting occurrences of each kind.
    """

    HORIZON_US = 200_000.0
    GROUPS = 512
    CANDIDATES = 256
    PENDING = 64

    def __init__(self) -> None:
        self.burst = 0  # number of the newest burst; 0 before the first
        self._groups: dict[Key, Group] = {}
        self._candidates: dict[Matcher, Candidate] = {}
        self._pending: dict[int, deque[tuple[float, Group, bool]]] = {}
        self._woken: dict[int, set[int]] = {}  # kinds of wakes of each thread since it last launched
        self._own: dict[int, deque[bool]] = {}  # whether bursts were preceded by such a wake of their own thread
        self.gaps = deque((0.0,), maxlen=Bursts.HISTORY)  # before each burst, since the end of the one before

    def __len__(self) -> int:
        return len(self._candidates)

    def windows(self, wanted: set[Matcher] | None = None) -> list[tuple[Matcher, LeadWindow]]:
        """Return all that differ (of equal ones the most general), or those wanted."""
        found: dict[int, tuple[Matcher, LeadWindow]] = {}
        for candidate in sorted(self._candidates.values(), key=lambda c: c.matcher.conditions):
            for matcher, window in candidate.windows(self.bound(candidate.matcher.kind)):
                if wanted is None:
                    found.setdefault(window.fingerprint(), (matcher, window))
                elif matcher in wanted:
                    found[id(window)] = matcher, window
        return list(found.values())

    def forget_idle(self) -> None:
        """What was taken for idle so far was not always."""
        for candidate in self._candidates.values():
            candidate.idle.truncate(0)

    def occur(
        self,
        time_us: float,
        kind: WakeKind,
        tid: int = UNKNOWN,
        descriptor: int = UNKNOWN,
        size: int = UNKNOWN,
        busy: bool = False,
    ) -> Group:
        """Record an occurrence, ``busy`` during a burst; the hot path."""
        key = (kind, tid, descriptor, size)
        group = self._groups.get(key) or self._add_group(key)
        group.used = self.burst
        if tid in self._woken:
            self._woken[tid].add(kind)
        else:
            self._wake_thread(tid, kind)
        pending = self._pending.get(kind)
        if pending is None:
            pending = self._pending[kind] = deque()
        if pending and (len(pending) >= self.PENDING or pending[0][0] < time_us - self.HORIZON_US):
            _, old, was_busy = pending.popleft()
            if self.burst:  # before: a program that has yet to launch loads its model, which teaches nothing
                _record(old, NEVER, self.burst, was_busy)
        pending.append((time_us, group, busy))
        return group

    def claim(self, time_us: float, gap_us: float, tid: int) -> None:
        """Thread ``tid`` begins a burst, ``gap_us`` after the last: what waits has announced it, or waits for too long.

        Wakes of a kind that announces the launches of its own thread are claimed by that thread alone.
        """
        self.burst += 1
        self.gaps.append(gap_us)
        woken = self._woken.pop(tid, _NO_KINDS)
        for kind, pending in self._pending.items():
            if kind in PROBED and (pending or kind in woken):
                self._own.setdefault(kind, deque(maxlen=_OWN_WINDOW)).append(kind in woken)
            self._claim(kind, pending, time_us, tid)

    def follow(self, time_us: float, tid: int) -> None:
        """Thread ``tid`` launches within a burst."""
        self._woken.pop(tid, None)
        for kind, pending in self._pending.items():
            if pending and self.bound(kind):
                self._claim(kind, pending, time_us, tid)

    def bound(self, kind: int) -> bool:
        """Whether wakes of this kind announce the launches of their own thread."""
        own = self._own.get(kind)
        return own is not None and len(own) >= _OWN_WINDOW // 2 and sum(own) >= 0.95 * len(own)

    def _wake_thread(self, tid: int, kind: int) -> None:
        if len(self._woken) >= self.GROUPS:
            self._woken.clear()
        self._woken[tid] = {kind}

    def _claim(self, kind: int, pending: deque[tuple[float, Group, bool]], time_us: float, tid: int) -> None:
        oldest, bound = time_us - self.HORIZON_US, self.bound(kind)
        for _ in range(len(pending)):
            occurred, group, busy = waiting = pending.popleft()
            if occurred < oldest:
                _record(group, NEVER, self.burst, busy)
            elif bound and group.key[1] != tid:
                pending.append(waiting)
            else:
                _record(group, time_us - occurred, self.burst, busy)

    def drop_pending(self) -> None:
        """Forget what waits: whether it announced something can no longer be known."""
        for pending in self._pending.values():
            pending.clear()

    def truncate(self, keep: int) -> None:
        """Keep only the newest ``keep`` occurrences of every candidate."""
        for candidate in self._candidates.values():
            candidate.window.truncate(keep)
            candidate.idle.truncate(keep)

    def retime(self, recent: int) -> None:
        """Go by the leads of the newest ``recent`` occurrences of every candidate.

        But for the clock, whose leads are what its predictions are off by: it sets its phase itself.
        """
        for candidate in self._candidates.values():
            if candidate.matcher.kind != WakeKind.CLOCK:
                candidate.window.retime(recent)
                candidate.idle.retime(recent)

    def _add_group(self, key: Key) -> Group:
        if len(self._groups) >= self.GROUPS:
            self._evict_groups()
        group = Group(key, tuple(self._candidate(matcher) for matcher in _matchers(key)))
        self._groups[key] = group
        return group

    def _candidate(self, matcher: Matcher) -> Candidate:
        candidate = self._candidates.get(matcher)
        if candidate is None:
            if len(self._candidates) >= self.CANDIDATES:
                self._evict_candidates()
            candidate = self._candidates[matcher] = Candidate(matcher)
        return candidate

    def _evict_groups(self) -> None:
        """Contexts come and go with connections and threads: drop the half not used for longest."""
        by_age = sorted(self._groups.values(), key=lambda group: group.used)
        for group in by_age[: len(by_age) // 2]:
            del self._groups[group.key]

    def _evict_candidates(self) -> None:
        """Drop the special half that saw nothing for longest; the general ones (no condition) stay."""
        special = [c for c in self._candidates.values() if c.matcher.conditions]
        special.sort(key=lambda candidate: candidate.window.last_burst)
        gone = {candidate.matcher for candidate in special[: self.CANDIDATES // 2]}
        for matcher in gone:
            del self._candidates[matcher]
        # A group that lost a candidate would feed one that nobody reads.
        self._groups = {
            key: group
            for key, group in self._groups.items()
            if not any(candidate.matcher in gone for candidate in group.candidates)
        }


def _record(group: Group, lead: float, burst: int, busy: bool) -> None:
    for candidate in group.candidates:
        candidate.window.add(lead, burst)
        if not busy and candidate.first != burst:
            candidate.first = burst
            candidate.idle.add(lead, burst)


def _matchers(key: Key) -> list[Matcher]:
    """All generalisations of a context that are worth counting, the most general first.

    Sizes vary a little: ranges of two buckets that overlap hold any that stay within a factor of two.
    """
    kind = WakeKind(key[0])
    tid, descriptor, size = key[1:]
    matchers = [Matcher(kind)]
    if size != UNKNOWN:
        even = size & ~1
        odd = ((size + 1) & ~1) - 1
        ranges = [(even, even + 1), (max(odd, 0), odd + 1), (size, size)]
        matchers += [Matcher(kind, sizes=sizes) for sizes in dict.fromkeys(ranges)]
    if tid != UNKNOWN:
        matchers.append(Matcher(kind, tid=tid))
    if descriptor != UNKNOWN:
        matchers.append(Matcher(kind, descriptor=descriptor))
    return matchers
