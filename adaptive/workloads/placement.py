"""Which Slurm job or Kubernetes pod a process belongs to, from this node's own files.

The cgroup's name tells the job and the pod, and cannot be chosen by the user. The pod's name is that of its log folder,
which the kubelet makes. The job's QOS and account are on no file of Slurm's: a prolog may write them
(packaging/slurm-prolog.sh), else the process's environment tells them, which its user can forge.
"""

import re
from pathlib import Path


_JOB = re.compile(r"/job_(\d+)(?:/|$)")
_POD = re.compile(r"[-/]pod([0-9a-f]{8}[-_][0-9a-f-_]{27})")
QOS_FOLDER = Path("/run/gpsched/slurm")
POD_LOGS = Path("/var/log/pods")


def slurm_job(cgroup: str) -> int | None:
    """The job's number (cgroup v1: /slurm/uid_0/job_7/step_0, v2: .../slurmstepd.scope/job_7/step_0)."""
    found = _JOB.search(cgroup)
    return int(found[1]) if found and "slurm" in cgroup else None


def slurm_qos(cgroup: str, env: dict[str, str], folder: Path = QOS_FOLDER) -> str | None:
    """The job's QOS: what the prolog wrote about the job, else what the process was started with."""
    written = _written(cgroup, folder)
    return (written[0] if written else env.get("SLURM_JOB_QOS")) or None


def slurm_account(cgroup: str, env: dict[str, str], folder: Path = QOS_FOLDER) -> str | None:
    """The job's account, from the same places; None when a prolog wrote the QOS alone."""
    written = _written(cgroup, folder)
    if written:
        return (written[1] if len(written) > 1 else "") or None
    return env.get("SLURM_JOB_ACCOUNT") or None


def _written(cgroup: str, folder: Path) -> list[str]:
    """QOS and account, one a line, as the prolog wrote them; empty when it did not."""
    job = slurm_job(cgroup)
    if job is None:
        return []
    try:
        return [line.strip() for line in (folder / str(job)).read_text(errors="replace").splitlines()] or [""]
    except OSError:
        return []


def pod_uid(cgroup: str) -> str | None:
    """The pod's uid."""
    found = _POD.search(cgroup)
    return found[1].replace("_", "-") if found else None


def pod(cgroup: str, logs: Path = POD_LOGS) -> str | None:
    """NAMESPACE/NAME of the pod; its uid when the kubelet keeps no logs of it here."""
    uid = pod_uid(cgroup)
    if uid is None:
        return None
    folder = next(iter(logs.glob(f"*_{uid}")), None)
    if folder is None:
        return uid
    namespace, name, _ = folder.name.split("_", 2)  # names of Kubernetes have no underscore
    return f"{namespace}/{name}"
