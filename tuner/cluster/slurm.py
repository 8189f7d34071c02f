"""Talks to Slurm through its commands: JSON in, rate-limited and journaled changes out. Times are Unix seconds."""

import json
import re
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpsched.tuner.cluster.errors import AccountingMissingError, SlurmError
from gpsched.tuner.cluster.journal import Journal


DEFAULT_MODEL = "gpu"  # the name of GPUs whose Gres has no type
UNUSABLE = ("down", "drain", "fail", "maint", "unknown", "error", "power", "reboot")


@dataclass(frozen=True)
class SlurmNode:
    """A node: GPUs by model, and whether jobs may start on it."""

    name: str
    gpus: dict[str, int]
    usable: bool


@dataclass(frozen=True)
class SlurmJob:
    """A job that asks for GPUs; ``gpus`` is per node, ``workers`` the number of nodes."""

    id: int
    qos: str
    account: str
    state: str
    reason: str
    gpu_model: str
    workers: int
    gpus: int
    nodes: tuple[str, ...]
    submit_s: float
    start_s: float
    eligible_s: float
    restarts: int
    comment: str
    priority: int


@dataclass(frozen=True)
class PastJob:
    """What the accounting knows of a job; ``end_s`` is 0 while it runs."""

    qos: str
    account: str
    gpu_model: str
    gpus: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Qos:
    """A quality of service as sacctmgr shows it; ``limits`` are GPUs by model, ``exempt_s`` 0 when unset."""

    name: str
    limits: dict[str, int]
    exempt_s: float
    preempt: str


class Slurm:
    """The commands. ``dry_run`` journals changes and makes none; at most ``per_minute`` changes are made in any
    minute."""

    def __init__(self, journal: Journal, dry_run: bool = False, per_minute: int = 120, timeout_s: float = 30.0) -> None:
        self.journal, self.dry_run, self.per_minute, self.timeout_s = journal, dry_run, per_minute, timeout_s
        self._recent: deque[float] = deque()

    def read(self, *words: str) -> str:
        """Output of a command that changes nothing; SlurmError when it fails."""
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=self.timeout_s, check=False)
        except FileNotFoundError as error:
            raise SlurmError(list(words), 127, "not found; is Slurm installed and in PATH?") from error
        except subprocess.TimeoutExpired as error:
            raise SlurmError(list(words), 124, f"no answer within {self.timeout_s:.0f} s") from error
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise SlurmError(list(words), done.returncode, lines[-1] if lines else "no message")
        return done.stdout

    def read_json(self, *words: str) -> dict[str, Any]:
        """The JSON object that a command prints."""
        text = self.read(*words)
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            raise SlurmError(
                list(words), 0, f"printed no JSON ({error.msg}); Slurm 21.08 or newer is needed"
            ) from error
        return found if isinstance(found, dict) else {}

    def change(self, why: str, *words: str) -> bool:
        """Run a command that changes something; False when it failed, was rate-limited or only a dry run."""
        if self.dry_run:
            self.journal.write("would", command=list(words), why=why)
            return False
        now = time.monotonic()
        while self._recent and self._recent[0] < now - 60.0:
            self._recent.popleft()
        if len(self._recent) >= self.per_minute:
            self.journal.write("limited", command=list(words), why=why, per_minute=self.per_minute)
            return False
        self._recent.append(now)
        self.journal.write("begin", command=list(words), why=why)
        try:
            self.read(*words)
        except SlurmError as error:
            self.journal.write("failed", command=list(words), code=error.code, reason=error.reason)
            return False
        self.journal.write("done", command=list(words))
        return True

    def check_accounting(self) -> None:
        """AccountingMissingError unless limits and QOS are enforced."""
        config = self.read("scontrol", "show", "config")
        kind = _setting(config, "AccountingStorageType")
        if not kind.endswith("slurmdbd"):
            raise AccountingMissingError(f"AccountingStorageType is {kind or 'unset'}")
        enforced = _setting(config, "AccountingStorageEnforce")
        if "limits" not in enforced or "qos" not in enforced:
            raise AccountingMissingError(f"AccountingStorageEnforce is {enforced or 'unset'}")

    def clock_offset_s(self) -> float:
        """slurmctld's clock less ours, to the second."""
        found = re.search(r"as of (\S+)", self.read("scontrol", "show", "config"))
        if not found:
            return 0.0
        return datetime.fromisoformat(found[1]).timestamp() - time.time()

    def jobs(self) -> list[SlurmJob]:
        """All jobs that slurmctld knows and that ask for GPUs."""
        found = (parse_job(one) for one in self.read_json("squeue", "--json").get("jobs", []))
        return [job for job in found if job]

    def nodes(self) -> list[SlurmNode]:
        """All nodes with GPUs: old Slurm lists them in sinfo's JSON, newer ones in scontrol's."""
        listed = self.read_json("sinfo", "--json").get("nodes")
        if listed is None:
            listed = self.read_json("scontrol", "show", "nodes", "--json").get("nodes", [])
        found = (parse_node(one) for one in listed)
        return [node for node in found if node.gpus]

    def past_jobs(self, days: int) -> list[PastJob]:
        """Jobs of the last ``days`` that held GPUs, from the accounting."""
        words = ("sacct", "--json", "--allusers", "--allocations", "-S", f"now-{days}days")
        found = (parse_past(one) for one in self.read_json(*words).get("jobs", []))
        return [job for job in found if job]

    def qos(self) -> dict[str, Qos]:
        """All QOS by name."""
        text = self.read("sacctmgr", "-nP", "show", "qos", "format=Name,GrpTRES,PreemptExemptTime,Preempt")
        rows = [line.split("|") for line in text.splitlines() if line.count("|") >= 3]
        return {row[0]: Qos(row[0], gpus_by_model(row[1]), seconds_of(row[2]), row[3]) for row in rows}


def _setting(config: str, name: str) -> str:
    found = re.search(rf"^{name}\s*=\s*(.*)$", config, re.MULTILINE)
    return found[1].strip() if found else ""


def plain(value: Any) -> Any:
    """A JSON number as old and new Slurm print it: bare, or as {"set", "infinite", "number"}."""
    if isinstance(value, dict):
        return value.get("number", 0) if value.get("set", True) else 0
    return value or 0


def first_word(value: Any) -> str:
    """A state as old and new Slurm print it: a word, or a list of words."""
    return str(value[0] if isinstance(value, list) and value else value or "")


def gpus_by_model(tres: str) -> dict[str, int]:
    """``gres/gpu=8`` or ``gres/gpu:a100=8`` -> GPUs by model; the untyped sum is left out when types are given."""
    found = {model or DEFAULT_MODEL: int(count) for model, count in re.findall(r"gres/gpu(?::([\w.-]+))?=(\d+)", tres)}
    if len(found) > 1:
        found.pop(DEFAULT_MODEL, None)
    return found


def seconds_of(text: str) -> float:
    """``[days-]hours:minutes:seconds`` -> seconds; 0 for an empty text."""
    if not text:
        return 0.0
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    return int(days or 0) * 86400.0 + sum(part * 60.0**power for power, part in enumerate(reversed(parts)))


def expand(hosts: str) -> Iterator[str]:
    """``n[1-3,07],m2`` -> n1 n2 n3 n07 m2."""
    for prefix, inside, suffix in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?([^,\[\]]*)", hosts):
        if not inside:
            yield prefix + suffix
            continue
        for part in inside.split(","):
            low, _, high = part.partition("-")
            for number in range(int(low), int(high or low) + 1):
                yield f"{prefix}{number:0{len(low)}d}{suffix}"


def parse_job(one: dict[str, Any]) -> SlurmJob | None:
    """A job of ``squeue --json``; None when it asks for no GPU."""
    wanted = gpus_by_model(str(one.get("tres_alloc_str") or one.get("tres_req_str") or ""))
    total = sum(wanted.values())
    if not total:
        return None
    workers = max(1, int(plain(one.get("node_count"))))
    return SlurmJob(
        id=int(one["job_id"]),
        qos=str(one.get("qos", "")),
        account=str(one.get("account", "")),
        state=first_word(one.get("job_state")),
        reason=str(one.get("state_reason", "")),
        gpu_model=next(iter(wanted)),
        workers=workers,
        gpus=-(-total // workers),
        nodes=tuple(expand(str(one.get("nodes") or ""))),
        submit_s=float(plain(one.get("submit_time"))),
        start_s=float(plain(one.get("start_time"))),
        eligible_s=float(plain(one.get("eligible_time"))),
        restarts=int(plain(one.get("restart_cnt"))),
        comment=str(one.get("comment") or ""),
        priority=int(plain(one.get("priority"))),
    )


def parse_node(one: dict[str, Any]) -> SlurmNode:
    """A node of ``sinfo --json`` or ``scontrol show nodes --json``."""
    words = one.get("state", "")
    flags = [*(words if isinstance(words, list) else [words]), *(one.get("state_flags") or [])]
    usable = not any(str(flag).lower().startswith(UNUSABLE) for flag in flags)
    gres = re.findall(r"gpu(?::([A-Za-z][\w.-]*))?:(\d+)", str(one.get("gres") or ""))
    gpus: dict[str, int] = {}
    for model, count in gres:
        gpus[model or DEFAULT_MODEL] = gpus.get(model or DEFAULT_MODEL, 0) + int(count)
    return SlurmNode(str(one["name"]), gpus, usable)


def parse_past(one: dict[str, Any]) -> PastJob | None:
    """A job of ``sacct --json``; None when it never started or held no GPU."""
    gres = [tres for tres in one.get("tres", {}).get("allocated", []) if tres.get("type") == "gres"]
    counts = {str(tres.get("name")): int(plain(tres.get("count"))) for tres in gres}
    typed = {name.partition(":")[2]: count for name, count in counts.items() if name.startswith("gpu:")}
    wanted = typed or {DEFAULT_MODEL: counts.get("gpu", 0)}
    times = one.get("time", {})
    start_s, end_s = float(plain(times.get("start"))), float(plain(times.get("end")))
    if not start_s or not sum(wanted.values()):
        return None
    return PastJob(
        str(one.get("qos")), str(one.get("account")), next(iter(wanted)), sum(wanted.values()), start_s, end_s
    )
