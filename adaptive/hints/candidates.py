"""All trigger candidates of one process: which wakes precede bursts, in which context, and how long before."""

from collections import deque

from gpsched.adaptive.hints.leads import NEVER, LeadWindow
from gpsched.adaptive.hints.observations import UNKNOWN, Matcher, WakeKind


Key = tuple[int, int, int, int]  # kind, tid, descriptor, size


class Candidate:
    """One matcher and the leads of its occurrences."""

    __slots__ = ("matcher", "window")

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self.window = LeadWindow()


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
        self._pending: dict[int, deque[tuple[float, Group]]] = {}

    def __len__(self) -> int:
        return len(self._candidates)

    def candidates(self) -> list[Candidate]:
        """Return them all."""
        return list(self._candidates.values())

    def occur(self, time_us: float, kind: WakeKind, tid: int, descriptor: int, size: int) -> Group:
        """Record an occurrence; the hot path."""
        key = (kind, tid, descriptor, size)
        group = self._groups.get(key) or self._add_group(key)
        group.used = self.burst
        pending = self._pending.get(kind)
        if pending is None:
            pending = self._pending[kind] = deque()
        if pending and (len(pending) >= self.PENDING or pending[0][0] < time_us - self.HORIZON_US):
            self._never(pending.popleft()[1])
        pending.append((time_us, group))
        return group

    def claim(self, time_us: float) -> None:
        """A burst begins: all that waits has announced it, or has been waiting for too long."""
        self.burst += 1
        burst, oldest = self.burst, time_us - self.HORIZON_US
        for pending in self._pending.values():
            for occurred, group in pending:
                lead = time_us - occurred if occurred >= oldest else NEVER
                for candidate in group.candidates:
                    candidate.window.add(lead, burst)
            pending.clear()

    def drop_pending(self) -> None:
        """Forget what waits: whether it announced something can no longer be known."""
        for pending in self._pending.values():
            pending.clear()

    def truncate(self, keep: int) -> None:
        """Keep only the newest ``keep`` occurrences of every candidate."""
        for candidate in self._candidates.values():
            candidate.window.truncate(keep)

    def _never(self, group: Group) -> None:
        if self.burst:  # a program that has yet to launch reads its model from somewhere: that teaches nothing
            for candidate in group.candidates:
                candidate.window.add(NEVER, self.burst)

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


def _matchers(key: Key) -> list[Matcher]:
    """All generalisations of a context that are worth counting, the most general first."""
    kind = WakeKind(key[0])
    tid, descriptor, size = (None if value == UNKNOWN else value for value in key[1:])
    wanted = [
        (None, None, None),
        (None, None, size),
        (tid, None, None),
        (None, descriptor, None),
        (tid, None, size),
        (None, descriptor, size),
    ]
    return [Matcher(kind, *fields) for fields in dict.fromkeys(wanted)]
