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
from gpsched.tuner.cluster.decide import evictions, hp_demand, placements, quota_limits
from gpsched.tuner.cluster.demand import TOTAL, DemandRecorder, hourly_peaks
from gpsched.tuner.cluster.errors import SlurmError
from gpsched.tuner.cluster.forecast import ForecastSettings, QuantileForecaster
from gpsched.tuner.cluster.journal import Journal, LeaderLock, load_state, save_state
from gpsched.tuner.cluster.model import HOUR_S, Job, JobClass
from gpsched.tuner.cluster.quota import QuotaSettings, adjust_eta
from gpsched.tuner.cluster.slurm import DEFAULT_MODEL, PastJob, Qos, Slurm, SlurmJob
from gpsched.tuner.cluster.snapshot import Snapshot, take_snapshot
from gpsched.tuner.cluster.victims import CostModel


HISTORY_H = 1344
CLOCK_TOLERANCE_S = 2.0
FEEDBACK_EVERY_S = 300.0


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
    reserve: float = 0.03
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
        self.eta: dict[str, float] = state.get("eta", {})
        self.yielded: set[str] = set()
        self._epoch_s = float(state.get("epoch_s", time.time() // HOUR_S * HOUR_S))
        past = (
            {_key(name): values for name, values in state["demand"].items()} if "demand" in state else self._accounted()
        )
        self._demand = DemandRecorder(past)
        self._last_hour = self._demand.hours
        self._levels: dict[tuple[str, str], int] = {}
        self._forecaster = QuantileForecaster(ForecastSettings(level=0.95))
        self._forecast: dict[str, dict[int, float]] = {}
        self._events: list[tuple[float, bool]] = []
        self._running: set[int] = set()
        self._feedback_s = 0.0
        self.journal.write("started", dry_run=dry_run, resumed=bool(state), requeued=sorted(self.requeued))

    def _accounted(self) -> dict[tuple[str, str], list[float]]:
        """HP demand of the weeks before the first start, from the accounting; empty when that does not answer."""
        try:
            jobs = self.slurm.past_jobs(HISTORY_H // 24)
        except SlurmError as error:
            self.journal.write("unanswered", command=error.command, reason=error.reason)
            return {}
        return past_demand([job for job in jobs if job.qos not in self.settings.spot], self._epoch_s, HISTORY_H)

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
        self._learn(shot, now_s)
        limits = quota_limits(shot, self._forecast, self.eta, self.settings.spot, self.settings.reserve)
        if self.settings.victims:
            self._evict(shot, now_s)
        for one in placements(shot, now_s, limits):
            if self.slurm.change(
                "place", "scontrol", "update", f"JobId={one.job}", f"ReqNodeList={','.join(one.nodes)}"
            ):
                self.slurm.change("place", "scontrol", "release", str(one.job))
        self._clear_delays(jobs, now_s)
        self._write_qos(limits)
        self._save()
        return shot

    def _learn(self, shot: Snapshot, now_s: float) -> None:
        """Record HP demand, forecast once an hour, and move eta by what happened to spot jobs."""
        closed = self._demand.roll(now_s - self._epoch_s)
        for model in shot.pools:
            seen = hp_demand(model, shot)
            for key in {key for key in self._levels if key[0] == model} | {(model, account) for account in seen}:
                level = seen.get(key[1], 0)
                self._demand.add(model, key[1], level - self._levels.get(key, 0))
                self._levels[key] = level
        keys = [(model, TOTAL) for model in shot.pools]
        if closed or not self._forecast:
            rows = self._forecaster.step(keys, self._demand.matrix(keys, HISTORY_H), self._demand.hours - 1)
            self._forecast = {
                model: dict(zip(self._forecaster.settings.horizons, row.tolist(), strict=True))
                for (model, _), row in zip(keys, rows, strict=True)
            }
        running = {
            number for number, run in shot.runs.items() if run.nodes and shot.jobs[number].qos in self.settings.spot
        }
        for gone in self._running - running:
            self._events.append((now_s, gone in self.requeued))
        self._running = running
        if now_s - self._feedback_s >= FEEDBACK_EVERY_S:
            self._feedback_s = now_s
            self._events = [event for event in self._events if event[0] > now_s - 4 * HOUR_S]
            failed = sum(bad for _, bad in self._events)
            waiting = [
                one.submit_s for one in shot.jobs.values() if one.state == "PENDING" and one.qos in self.settings.spot
            ]
            wait_s = now_s - min(waiting, default=now_s)
            for model in shot.pools:
                kept = len(self._events) - failed
                self.eta[model] = adjust_eta(self.eta.get(model, 1.0), failed, kept, wait_s, QuotaSettings())

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
            "eta": self.eta,
            "epoch_s": self._epoch_s + self._demand.hours_closed * HOUR_S,
            "demand": {"&&".join(key): values[-HISTORY_H:] for key, values in self._demand.series.items()},
        }
        save_state(self._path, state)


def past_demand(jobs: list[PastJob], until_s: float, hours: int) -> dict[tuple[str, str], list[float]]:
    """Hourly maxima by model and account, and in total, of the ``hours`` before ``until_s``, from the first job on."""
    first_s = min((job.start_s for job in jobs), default=until_s)
    hours = min(hours, max(0, int((until_s - first_s) // HOUR_S)))
    start_s = until_s - hours * HOUR_S
    spans: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        end_s = job.end_s or until_s + HOUR_S
        if hours and end_s > start_s and job.start_s < until_s:
            one = Job("", job.account, job.gpu_model, JobClass.HP, 1, job.gpus, job.start_s, end_s - job.start_s)
            for tenant in (job.account, TOTAL):
                spans.setdefault((job.gpu_model, tenant), []).append(one)
    return {key: hourly_peaks(some, start_s, hours) for key, some in spans.items()}


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
