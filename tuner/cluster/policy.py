"""What a scheduling policy decides; the simulator calls it, the arms (arms.py) implement it."""

from typing import TYPE_CHECKING, ClassVar

from gpsched.tuner.cluster.model import HOUR_S, Job
from gpsched.tuner.cluster.placement import first_fit
from gpsched.tuner.cluster.pool import Pool, Run
from gpsched.tuner.cluster.victims import youngest_first


if TYPE_CHECKING:
    from gpsched.tuner.cluster.engine import Simulation


class Policy:
    """First come, first served in each class; HP preempts the youngest spot jobs. Arms override what they do
    differently.

    ``strict``: the head of a queue holds up all behind it. ``tick_s``: how often `tick` is called, seconds.
    """

    name: ClassVar[str] = "fifo-skip"
    strict: ClassVar[bool] = False
    tick_s: ClassVar[float] = 300.0
    checkpoint_s: ClassVar[float] = HOUR_S
    restart_s: ClassVar[float] = 60.0

    def begin(self, sim: "Simulation") -> None:
        """Called once, before the first event."""

    def tick(self, sim: "Simulation") -> None:
        """Called every ``tick_s``."""

    def hp_rank(self, run: Run) -> float:
        """Order of the HP queue, lower first."""
        return run.job.submit_s

    def spot_rank(self, run: Run) -> float:
        """Order of the spot queue, lower first."""
        return run.job.submit_s

    def hp_gate(self, now_s: float) -> bool:  # noqa: ARG002 - an arm may look at the time
        """Whether HP jobs may start now."""
        return True

    def spot_gate(self, now_s: float) -> bool:  # noqa: ARG002
        """Whether spot jobs may start now."""
        return True

    def admit(self, pool: Pool, run: Run, nodes: tuple[int, ...], now_s: float) -> float | None:  # noqa: ARG002
        """Guarantee in seconds for a spot job that fits on ``nodes`` (0 for none), or None to keep it waiting."""
        return 0.0

    def place(self, pool: Pool, job: Job, now_s: float) -> tuple[int, ...] | None:
        """Nodes for a gang, or None."""
        return first_fit(pool, job, now_s)

    def victims(self, pool: Pool, job: Job, now_s: float) -> list[Run] | None:
        """Spot runs to evict for an HP gang that does not fit, or None."""
        return youngest_first(pool, job, now_s)

    def lost_s(self, run: Run, now_s: float) -> float:
        """Run time that an eviction now would lose."""
        return (now_s - run.start_s) % self.checkpoint_s

    def submitted(self, job: Job, now_s: float) -> None:
        """A job was submitted."""

    def evicted(self, run: Run, ran_s: float, now_s: float) -> None:
        """A spot run was evicted after ``ran_s``."""

    def finished(self, run: Run, now_s: float) -> None:
        """A job completed."""

    def quota_of(self, model: str, pool: Pool) -> int:  # noqa: ARG002
        """Spot quota to show on the timeline, GPUs."""
        return pool.capacity
