"""What the nodes need so that their daemons see jobs as the controller does: rules from QOS to class.

A process of a job that such a rule finds belongs to the job's account (the node's tenant).
"""

from collections.abc import Iterable


_HEAD = """# Jobs of this cluster, for gpsched on its nodes. So that no user can claim another QOS or account,
# slurm.conf needs Prolog=/usr/share/gpsched/slurm-prolog.sh and the same as Epilog=.
"""


def node_rules(hp_qos: str, spot_qos: Iterable[str]) -> str:
    """Rules in the node's configuration language (TOML): jobs of ``hp_qos`` are ``lc``, those of a spot QOS ``be``.

    QOS names are letters, digits, ``_``, ``.`` and ``-``, so none is a pattern.
    """
    classes = {hp_qos: "lc"} | dict.fromkeys(spot_qos, "be")
    rules = (f'\n[[rule]]\nname = "{qos}"\nclass = "{found}"\nslurm_qos = "{qos}"\n' for qos, found in classes.items())
    return _HEAD + "".join(rules)
