"""How long a job will run, guessed from what the same tenant's jobs of the same size took: nothing is known in
advance."""

from math import exp, log

from gpsched.tuner.cluster.model import Job


class DurationHistory:
    """Running means of log-durations (so the guess is a median), seconds; falls back from tenant and size to all
    jobs."""

    def __init__(self, first_guess_s: float = 1800.0, prior: float = 3.0) -> None:
        self._sums: dict[object, tuple[float, float]] = {}
        self._first = log(first_guess_s)
        self._prior = prior

    def add(self, job: Job, ran_s: float) -> None:
        """Learn from a completed job."""
        value = log(max(ran_s, 1.0))
        for key in self._keys(job):
            total, count = self._sums.get(key, (0.0, 0.0))
            self._sums[key] = (total + value, count + 1.0)

    def expect_s(self, job: Job, done_s: float = 0.0) -> float:
        """Expected run time still to come, for a job that has already done ``done_s``."""
        guess = self._first
        for key in reversed(self._keys(job)):  # the general first: each level is the next one's prior
            total, count = self._sums.get(key, (0.0, 0.0))
            guess = (total + self._prior * guess) / (count + self._prior)
        whole = exp(guess)
        # Heavy-tailed run times: what has run long will run long.
        return max(whole - done_s, 0.5 * done_s, 10.0)

    @staticmethod
    def _keys(job: Job) -> tuple[object, ...]:
        size = job.total_gpus.bit_length()
        return (job.gpu_model, job.tenant, size, job.cls), (job.tenant, job.cls), (job.cls,)
