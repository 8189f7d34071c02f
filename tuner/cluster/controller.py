"""Runs the decisions on a real Slurm: quotas, guarantees, victims, placement. One cycle every few seconds.

Each cycle starts from what Slurm says now, never from what the controller believes, so that a crash at any point
needs no repair: the next cycle sees what was done and does the rest. When slurmctld or the database does not answer,
what needs it waits.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpsched.adaptive.errors import UsageError
from gpsched.tuner.cluster.decide import evictions, placements, quota_limits
from gpsched.tuner.cluster.errors import SlurmError
from gpsched.tuner.cluster.journal import Journal, LeaderLock, load_state, save_state
from gpsched.tuner.cluster.learning import HISTORY_H, Learner, past_demand
from gpsched.tuner.cluster.model import HOUR_S
from gpsched.tuner.cluster.slurm import DEFAULT_MODEL, Qos, Slurm, SlurmJob
from gpsched.tuner.cluster.snapshot import Snapshot, take_snapshot
from gpsched.tuner.cluster.spot import SpotSettings
from gpsched.tuner.cluster.victims import CostModel


CLOCK_TOLERANCE_S = 2.0


@dataclass(frozen=True)
class ControllerSettings:
    """``spot``: QOS -> guarantee in seconds; ``stop_quota``: GPUs that safe stop leaves to each spot QOS (None: as
    they are).

    ``victims`` True takes preemption over from Slurm: it clears Preempt of ``hp_qos`` and puts it back at safe stop.
    """

    state_dir: Path
    lock: Path
    hp_qos: str = "hp"
    spot: dict[str, float] = field(
        default_factory=lambda: {"spot": 0.0, "spot-1h": HOUR_S, "spot-2h": 2 * HOUR_S, "spot-4h": 4 * HOUR_S}
    )
    interval_s: float = 10.0
    victims: bool = True
    stop_quota: int | None = None
    most_evictions: int = 64
    take_back: bool = False
    reserve: float = SpotSettings.reserve
    deviations: float = SpotSettings.deviations
    cost: CostModel = field(default_factory=CostModel)


class Controller:
    """Construct (takes the leader lock, checks accounting), then `cycle` or `run`, then `stop`."""

    def __init__(self, settings: ControllerSettings, dry_run: bool = False, per_minute: int = 120) -> None:
        self.settings = settings
        self.journal = Journal(settings.state_dir / "journal.jsonl")
        self.slurm = Slurm(self.journal, dry_run, per_minute)
        self.slurm.check_accounting()
        missing = [name for name in (settings.hp_qos, *settings.spot) if name not in self.slurm.qos()]
        if missing:
            raise UsageError(f"Slurm has no QOS {', '.join(missing)}; create it with: sacctmgr add qos {missing[0]}")
        self._lock = LeaderLock(settings.lock)
        self._path = settings.state_dir / "state.json"
        state = load_state(self._path)
        self.written: dict[str, dict[str, Any]] = state.get("written", {})
        self.old_preempt: str | None = state.get("old_preempt")
        self.requeued: set[int] = set(state.get("requeued", []))
        self.yielded: set[str] = set()
        epoch_s = float(state.get("epoch_s", time.time() // HOUR_S * HOUR_S))
        known = {_key(name): values for name, values in state["demand"].items()} if "demand" in state else None
        past = self._accounted(epoch_s) if known is None else known
        self.learner = Learner(past, epoch_s, state.get("eta", {}))
        self.journal.write("started", dry_run=dry_run, resumed=bool(state), requeued=sorted(self.requeued))

    def _accounted(self, epoch_s: float) -> dict[tuple[str, str], list[float]]:
        """HP demand of the weeks before the first start, from the accounting; empty when that does not answer."""
        try:
            jobs = self.slurm.past_jobs(HISTORY_H // 24)
        except SlurmError as error:
            self.journal.write("unanswered", command=error.command, reason=error.reason)
            return {}
        return past_demand([job for job in jobs if job.qos not in self.settings.spot], epoch_s, HISTORY_H)

    def run(self, until: Callable[[], bool]) -> None:
        """Cycle until ``until`` says so; a cycle that Slurm does not answer is journaled and tried again."""
        while not until():
            begun = time.monotonic()
            try:
                self.cycle()
            except SlurmError as error:
                self.journal.write("unanswered", command=error.command, reason=error.reason)
            while not until() and time.monotonic() - begun < self.settings.interval_s:
                time.sleep(min(0.2, self.settings.interval_s))

    def cycle(self) -> Snapshot:
        """Look once, decide, act. SlurmError when slurmctld does not answer."""
        offset_s = self.slurm.clock_offset_s()
        if abs(offset_s) > CLOCK_TOLERANCE_S:
            self.journal.write("clock", offset_s=round(offset_s, 1), using="slurmctld")
        now_s = time.time() + (offset_s if abs(offset_s) > CLOCK_TOLERANCE_S else 0.0)
        jobs = self.slurm.jobs()
        shot = take_snapshot(self.slurm.nodes(), jobs, self.settings.spot)
        for line in shot.strange:
            self.journal.write("strange", what=line)
        self.learner.see(shot, now_s, self.settings.spot, self.requeued)
        limits = quota_limits(shot, self.learner.forecast, self.learner.eta, self.settings.spot, self.settings.reserve)
        if self.settings.victims:
            self._evict(shot, now_s)
        for one in placements(shot, now_s, limits, self.learner.keep(now_s, self.settings.deviations)):
            if self.slurm.change(
                "place", "scontrol", "update", f"JobId={one.job}", f"ReqNodeList={','.join(one.nodes)}"
            ):
                self.slurm.change("place", "scontrol", "release", str(one.job))
        self._clear_delays(jobs, now_s)
        self._write_qos(limits)
        self._save()
        return shot

    def _evict(self, shot: Snapshot, now_s: float) -> None:
        for one in evictions(shot, now_s, self.settings.cost, self.settings.most_evictions):
            self.requeued |= set(one.victims)
            self._save()  # before the act: after a crash the delays of these jobs are still cleared
            for victim in one.victims:
                self.slurm.change(
                    f"evict for {one.preemptor}, {one.price:.0f} GPU-s", "scontrol", "requeue", str(victim)
                )

    def _clear_delays(self, jobs: list[SlurmJob], now_s: float) -> None:
        """Slurm delays a requeued job by two minutes; take that off once no HP job waits for its GPUs."""
        known = {one.id: one for one in jobs}
        self.requeued &= known.keys()
        if any(one.qos not in self.settings.spot and one.state == "PENDING" for one in jobs):
            return
        for number in sorted(self.requeued):
            one = known[number]
            if one.state != "PENDING":
                if one.state == "RUNNING":
                    self.requeued.discard(number)
                continue
            if one.reason == "BeginTime" or one.eligible_s > now_s:
                self.slurm.change("clear requeue delay", "scontrol", "update", f"JobId={number}", "StartTime=now")

    def _write_qos(self, limits: dict[str, dict[str, int]]) -> None:
        """Bring each spot QOS to its limits and guarantee, and HP's Preempt to ours; leaves what others edited
        alone."""
        try:
            seen = self.slurm.qos()
        except (
            SlurmError
        ) as error:  # the database is away: limits stay as they are, slurmctld enforces them from memory
            self.journal.write("unanswered", command=error.command, reason=error.reason)
            return
        for qos, by_model in limits.items():
            if qos in seen and not self._foreign(seen[qos]):
                self._write_one(seen[qos], by_model)
        hp = seen.get(self.settings.hp_qos)
        if hp and self.settings.victims and hp.preempt:
            self.old_preempt = hp.preempt
            self._save()  # before the act: a crash must not lose what to put back
            self.slurm.change("take preemption over", "sacctmgr", "-i", "modify", "qos", hp.name, "set", "Preempt=")

    def _foreign(self, qos: Qos) -> bool:
        mine = self.written.get(qos.name)
        if mine is None or self.settings.take_back or self.slurm.dry_run:
            return False
        foreign = mine != {"limits": qos.limits, "exempt_s": qos.exempt_s} and mine.get("tried") is None
        if foreign and qos.name not in self.yielded:
            self.journal.write(
                "yielded", qos=qos.name, mine=mine, found={"limits": qos.limits, "exempt_s": qos.exempt_s}
            )
        (self.yielded.add if foreign else self.yielded.discard)(qos.name)
        return foreign

    def _write_one(self, qos: Qos, by_model: dict[str, int]) -> None:
        exempt_s = self.settings.spot[qos.name]
        if qos.limits == by_model and qos.exempt_s == exempt_s:
            self.written[qos.name] = {"limits": by_model, "exempt_s": exempt_s}
            return
        self.written[qos.name] = {"limits": qos.limits, "exempt_s": qos.exempt_s, "tried": by_model}
        self._save()  # a crash between command and record must not look like another's edit
        sets = [f"GrpTRES={tres(by_model)}", f"PreemptExemptTime={_clock(exempt_s)}"]
        if self.slurm.change("quota", "sacctmgr", "-i", "modify", "qos", qos.name, "set", *sets):
            self.written[qos.name] = {"limits": by_model, "exempt_s": exempt_s}

    def stop(self) -> None:
        """Safe stop: leave the stated quotas, give preemption back to Slurm, let go of the lock."""
        if self.settings.stop_quota is not None:
            for qos in self.settings.spot:
                limits = dict.fromkeys(
                    self.written.get(qos, {}).get("limits", {DEFAULT_MODEL: 0}), self.settings.stop_quota
                )
                if self.slurm.change(
                    "safe stop", "sacctmgr", "-i", "modify", "qos", qos, "set", f"GrpTRES={tres(limits)}"
                ):
                    self.written[qos] = {"limits": limits, "exempt_s": self.settings.spot[qos]}
        if self.old_preempt:
            words = ("sacctmgr", "-i", "modify", "qos", self.settings.hp_qos, "set", f"Preempt={self.old_preempt}")
            if self.slurm.change("give preemption back", *words):
                self.old_preempt = None
        self._save()
        self.journal.write("stopped")
        self.journal.close()
        self._lock.release()

    def _save(self) -> None:
        state = {
            "written": self.written,
            "old_preempt": self.old_preempt,
            "requeued": sorted(self.requeued),
            **self.learner.state(),
        }
        save_state(self._path, state)


def _key(name: str) -> tuple[str, str]:
    model, _, tenant = name.partition("&&")
    return model, tenant


def tres(by_model: dict[str, int]) -> str:
    """GPUs by model as GrpTRES writes them."""
    return ",".join(
        f"gres/gpu={count}" if model == DEFAULT_MODEL else f"gres/gpu:{model}={count}"
        for model, count in sorted(by_model.items())
    )


def _clock(seconds: float) -> str:
    """Seconds as hours:minutes:seconds; -1 (unset) for 0."""
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}" if whole else "-1"
