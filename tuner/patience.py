"""How long a search that finds nothing waits until it tries again: ever longer, until something changes. Pure."""

from gpsched.tuner.memory import near


_FREE = 6  # attempts without a pause
_MOST = 512  # windows of a pause
_LOADS = 8  # that are told apart


class Patience:
    """Of one kind of work at one load. ``left``: windows until the next attempt."""

    def __init__(self, load: float) -> None:
        self.load, self.left = load, 0
        self._made = 0

    def spend(self) -> None:
        """An attempt was made: from the seventh on, each waits twice as long as the one before."""
        self._made += 1
        self.left = min(1 << max(self._made - _FREE, 0), _MOST) - 1

    def waits(self) -> bool:
        """Let a window pass; True while it is too early for an attempt."""
        self.left -= self.left > 0
        return self.left > 0

    @property
    def tired(self) -> bool:
        """Whether the attempts without a pause are used up."""
        return self._made > _FREE


class Patiences:
    """One for each load that was seen, so that a load which comes and goes does not begin anew each time."""

    def __init__(self) -> None:
        self._each: list[Patience] = []

    def at(self, load: float) -> Patience:
        """The one of this load."""
        found = next((each for each in self._each if near(each.load, load)), None)
        if found is None:
            found = Patience(load)
            self._each = [*self._each, found][-_LOADS:]
        return found

    def renew(self, load: float | None = None) -> None:
        """Something has changed (at this load): whatever failed may work now."""
        self._each = [] if load is None else [each for each in self._each if not near(each.load, load)]
