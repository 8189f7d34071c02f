"""Which class a process gets from the configuration."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from gpsched.adaptive.config import Rule
from gpsched.adaptive.workloads import placement
from gpsched.adaptive.workloads.procinfo import ProcessInfo


def match(info: ProcessInfo, rules: Sequence[Rule]) -> Rule | None:
    """Return the first rule whose given patterns all match, or None."""
    return next((rule for rule in rules if _matches(info, rule)), None)


def _matches(info: ProcessInfo, rule: Rule) -> bool:
    return (
        (rule.exe is None or fnmatchcase(info.exe, rule.exe))
        and (rule.command is None or re.search(rule.command, info.command) is not None)
        and (rule.user is None or rule.user == info.user)
        and (rule.cgroup is None or fnmatchcase(info.cgroup, rule.cgroup))
        and (rule.slurm_qos is None or fnmatchcase(placement.slurm_qos(info.cgroup, info.env) or "", rule.slurm_qos))
        and (rule.pod is None or fnmatchcase(placement.pod(info.cgroup) or "", rule.pod))
        and (rule.container is None or _same_container(info.container, rule.container))
        and all(fnmatchcase(info.env.get(key, ""), pattern) for key, pattern in rule.env.items())
    )


def _same_container(found: str | None, wanted: str) -> bool:
    """Container ids are kept at 12 digits, as the engines' own tools show them."""
    return found is not None and found == wanted[:12]
