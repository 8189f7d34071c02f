"""Which class a process gets from the configuration."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from gpsched.adaptive.config import Rule
from gpsched.adaptive.workloads import containers, placement
from gpsched.adaptive.workloads.procinfo import ProcessInfo


def match(info: ProcessInfo, rules: Sequence[Rule]) -> Rule | None:
    """Return the first rule whose given patterns all match, or None."""
    return next((rule for rule in rules if _matches(info, rule)), None)


def tenant(info: ProcessInfo, rule: Rule) -> str:
    """Whose the process is: the rule's word, else the account of the Slurm job that the rule found, else the user."""
    account = placement.slurm_account(info.cgroup, info.env) if rule.slurm_qos is not None else None
    return rule.tenant or account or info.user


def _matches(info: ProcessInfo, rule: Rule) -> bool:
    return (
        (rule.exe is None or fnmatchcase(info.exe, rule.exe))
        and (rule.command is None or re.search(rule.command, info.command) is not None)
        and (rule.user is None or rule.user == info.user)
        and (rule.cgroup is None or fnmatchcase(info.cgroup, rule.cgroup))
        and (rule.slurm_qos is None or fnmatchcase(placement.slurm_qos(info.cgroup, info.env) or "", rule.slurm_qos))
        and (rule.pod is None or fnmatchcase(placement.pod(info.cgroup) or "", rule.pod))
        and (not rule.pod_labels or _has_labels(info.cgroup, rule.pod_labels))
        and (rule.container is None or _same_container(info.container, rule.container))
        and all(fnmatchcase(info.env.get(key, ""), pattern) for key, pattern in rule.env.items())
    )


def _same_container(found: str | None, wanted: str) -> bool:
    """Container ids are kept at 12 digits, as the engines' own tools show them; a name may be a shell pattern."""
    if found is None:
        return False
    return found == wanted[:12] or fnmatchcase(containers.name(found) or "", wanted)


def _has_labels(cgroup: str, wanted: Mapping[str, str]) -> bool:
    uid = placement.pod_uid(cgroup)
    labels = containers.pod_labels(uid) if uid else {}
    return all(key in labels and fnmatchcase(labels[key], pattern) for key, pattern in wanted.items())
