"""Errors of the cluster side; each message is one line that says what to do."""

from gpsched.adaptive.errors import GpschedError, UsageError


class TraceError(UsageError):
    """A trace file cannot be used.

    Fields: ``path`` (str), ``line`` (1-based, 0 for the whole file), ``reason`` (str).
    """

    def __init__(self, path: str, line: int, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")


class JobError(UsageError):
    """A job can never run on the cluster. Fields: ``job`` (str), ``reason`` (str)."""

    def __init__(self, job: str, reason: str) -> None:
        self.job, self.reason = job, reason
        super().__init__(f"job {job}: {reason}; remove it or pass --skip-bad")


class UnknownNameError(UsageError):
    """A name is not in a fixed list. Fields: ``what``, ``name``, ``known`` (list of str)."""

    def __init__(self, what: str, name: str, known: list[str]) -> None:
        self.what, self.name, self.known = what, name, sorted(known)
        super().__init__(f"unknown {what} {name!r}; known: {', '.join(self.known)}")


class HistoryError(UsageError):
    """There is too little demand history for what was asked. Fields: ``hours``, ``needed``."""

    def __init__(self, hours: int, needed: int) -> None:
        self.hours, self.needed = hours, needed
        super().__init__(f"{hours} hours of history, {needed} needed; give a longer trace or a smaller --train-hours")


class SlurmError(GpschedError):
    """A Slurm command failed. Fields: ``command`` (list of str), ``code`` (int), ``reason`` (str)."""

    def __init__(self, command: list[str], code: int, reason: str) -> None:
        self.command, self.code, self.reason = command, code, reason
        super().__init__(f"{' '.join(command)}: exit {code}: {reason}")


class AccountingMissingError(GpschedError):
    """Slurm runs without the accounting that quotas need. Field: ``found`` (str)."""

    exit_code = 77

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"Slurm has no usable accounting ({found}); set AccountingStorageType=accounting_storage/slurmdbd and "
            "AccountingStorageEnforce=associations,limits,qos"
        )


class LeaderError(GpschedError):
    """Another controller holds the leader lock. Fields: ``lock`` (str), ``pid`` (int, 0 if unknown)."""

    def __init__(self, lock: str, pid: int) -> None:
        self.lock, self.pid = lock, pid
        super().__init__(f"another controller (pid {pid or 'unknown'}) holds {lock}; stop it first")


class StarvedError(GpschedError):
    """A simulated policy never starts the jobs that wait. Fields: ``policy`` (str), ``jobs`` (int), ``day`` (float)."""

    def __init__(self, policy: str, jobs: int, day: float) -> None:
        self.policy, self.jobs, self.day = policy, jobs, day
        super().__init__(
            f"policy {policy} leaves {jobs} jobs waiting on an idle cluster since day {day:.0f}; raise its quota"
        )
