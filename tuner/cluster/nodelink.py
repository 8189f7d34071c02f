"""From a Slurm job to the node daemon's words: QOS to class, account to tenant. Pure; the node side calls it."""

from collections.abc import Iterable, Mapping


SPOT_PREFIX = "spot"
HP_QOS = ("hp",)


def class_of_qos(qos: str, hp: Iterable[str] = HP_QOS, spot_prefix: str = SPOT_PREFIX) -> str:
    """``be`` for a spot QOS, ``lc`` for a high-priority one, ``unmanaged`` for any other (and for none)."""
    if qos == spot_prefix or qos.startswith(spot_prefix + "-"):
        return "be"
    return "lc" if qos in set(hp) else "unmanaged"


def job_labels(environment: Mapping[str, str]) -> dict[str, str]:
    """Class and tenant of a process from its environment, as Slurm sets it (SLURM_JOB_QOS, SLURM_JOB_ACCOUNT).

    Empty when the process belongs to no Slurm job.
    """
    if "SLURM_JOB_ID" not in environment:
        return {}
    return {
        "class": class_of_qos(environment.get("SLURM_JOB_QOS", "")),
        "tenant": environment.get("SLURM_JOB_ACCOUNT", ""),
        "job": environment["SLURM_JOB_ID"],
    }
