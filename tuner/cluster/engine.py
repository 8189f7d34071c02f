"""Event-driven simulator of a GPU cluster: gangs, spot evictions with checkpoints, GPU models. No ticks but the
policy's own.

An event costs O(log n) in the number of jobs; a scheduling pass costs O(shapes) where a shape is (workers, GPUs each).
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from gpsched.tuner.cluster.demand import DemandRecorder
from gpsched.tuner.cluster.errors import StarvedError
from gpsched.tuner.cluster.metrics import Collector, Usage
from gpsched.tuner.cluster.model import DAY_S, HOUR_S, JobClass, Workload
from gpsched.tuner.cluster.policy import Policy
from gpsched.tuner.cluster.pool import Pool, Run
from gpsched.tuner.cluster.queueing import ShapeQueue


FINISH, SUBMIT, WAKE, TICK = range(4)  # the order of events at one time
MAX_IDLE_TICKS = 1000  # ticks on an idle cluster with jobs waiting, after which the policy is at fault
Event = tuple[float, int, int, object, int]


@dataclass(frozen=True)
class Sample:
    """The state of one pool at the end of an hour; GPUs and seconds."""

    hour: int
    model: str
    hp_demand: int
    hp_used: int
    spot_used: int
    quota: int
    oldest_wait_s: float
    evictions: int


@dataclass
class Result:
    """Figures and timeline of one simulation."""

    workload: str
    policy: str
    figures: dict[str, float]
    timeline: list[Sample] = field(default_factory=list)


class Simulation:
    """Runs one workload under one policy. ``audit`` checks every invariant after every event (slow; for tests)."""

    def __init__(self, workload: Workload, policy: Policy, audit: bool = False, timeline: bool = False) -> None:
        self.workload, self.policy, self.audit, self._keep_timeline = workload, policy, audit, timeline
        self.now_s = 0.0
        self.pools = {model: Pool(model, sizes) for model, sizes in workload.cluster.nodes.items()}
        self.queues = {model: (ShapeQueue(), ShapeQueue()) for model in self.pools}
        self.usage = {model: Usage(workload.horizon_s) for model in self.pools}
        self.demand = DemandRecorder(workload.history)
        self.collector = Collector()
        self.timeline: list[Sample] = []
        self._evictions_by_model = dict.fromkeys(self.pools, 0)
        self._heap: list[Event] = []
        self._sequence = 0
        self._next_job = 0
        self._unfinished = len(workload.jobs)
        self._idle_ticks = 0
        self._wake_s: dict[str, float] = {}

    def run(self, progress: Callable[[float], None] | None = None) -> Result:
        """Simulate until every job has finished; ``progress`` gets the share of jobs done, about a hundred times."""
        jobs = self.workload.jobs
        step = max(1, len(jobs) // 100)
        shown = len(jobs)
        self.policy.begin(self)
        self._push(0.0, TICK, None)
        while self._unfinished:
            submit_s = jobs[self._next_job].submit_s if self._next_job < len(jobs) else float("inf")
            if self._heap and (self._heap[0][0], self._heap[0][1]) <= (submit_s, SUBMIT):
                self._handle(heapq.heappop(self._heap))
            else:
                self._advance(submit_s)
                self._submit()
            if self.audit:
                self._check()
            if progress and shown - self._unfinished >= step:
                shown = self._unfinished
                progress(1.0 - self._unfinished / max(1, len(jobs)))
        for model, pool in self.pools.items():
            self.usage[model].move(self.workload.horizon_s, pool.used)
        capacity = {model: pool.capacity for model, pool in self.pools.items()}
        return Result(self.workload.name, self.policy.name, self.collector.figures(self.usage, capacity), self.timeline)

    def _push(self, time_s: float, kind: int, subject: object, version: int = 0) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (time_s, kind, self._sequence, subject, version))

    def _advance(self, now_s: float) -> None:
        self.now_s = now_s
        if self.demand.roll(now_s) and self._keep_timeline and now_s <= self.workload.horizon_s:
            self._sample()

    def _handle(self, event: Event) -> None:
        time_s, kind, _, subject, version = event
        if kind == FINISH:
            assert isinstance(subject, Run)
            if subject.starts == version and subject.nodes:
                self._advance(time_s)
                self._finish(subject)
            return
        self._advance(time_s)
        if kind == TICK:
            self._tick()
        elif kind == WAKE:
            assert isinstance(subject, str)
            self._wake_s.pop(subject, None)
            self._schedule(subject)

    def _tick(self) -> None:
        self.policy.tick(self)
        for model, queues in self.queues.items():
            if queues[0] or queues[1]:
                self._schedule(model)
        self._push(self.now_s + self.policy.tick_s, TICK, None)
        idle = self._next_job == len(self.workload.jobs) and not any(sum(pool.used) for pool in self.pools.values())
        self._idle_ticks = self._idle_ticks + 1 if idle and self._unfinished else 0
        if self._idle_ticks > MAX_IDLE_TICKS:
            raise StarvedError(self.policy.name, self._unfinished, self.now_s / DAY_S)

    def _submit(self) -> None:
        run = Run(self.workload.jobs[self._next_job])
        self._next_job += 1
        model = run.job.gpu_model
        self.policy.submitted(run.job, self.now_s)
        if run.job.cls is JobClass.HP:
            self.demand.add(model, run.job.tenant, run.job.total_gpus)
        self._enqueue(run)
        if run.job.cls is JobClass.HP:
            self._schedule(model, spot=False)
        else:
            self._schedule_spot(model)

    def _enqueue(self, run: Run) -> None:
        run.queued_since_s = self.now_s
        rank = self.policy.hp_rank(run) if run.job.cls is JobClass.HP else self.policy.spot_rank(run)
        self.queues[run.job.gpu_model][run.job.cls].push(run, rank)

    def _finish(self, run: Run) -> None:
        model = run.job.gpu_model
        self._release(run)
        self._unfinished -= 1
        self.collector.finish(run, self.now_s)
        self.policy.finished(run, self.now_s)
        if run.job.cls is JobClass.HP:
            self.demand.add(model, run.job.tenant, -run.job.total_gpus)
        self._schedule(model)

    def _schedule(self, model: str, spot: bool = True) -> None:
        evictions = self.collector.evictions
        hp = self.queues[model][JobClass.HP]
        if hp and self.policy.hp_gate(self.now_s):
            hp.offer(self._start_hp, self.policy.strict)
        if hp:
            self._wake_at_guarantee_end(model)
        # Spot jobs may start while HP gangs wait (for other HP jobs): they can be evicted at once.
        if spot or self.collector.evictions > evictions:
            self._schedule_spot(model)

    def _schedule_spot(self, model: str) -> None:
        queue = self.queues[model][JobClass.SPOT]
        if queue and self.pools[model].free_gpus and self.policy.spot_gate(self.now_s):
            queue.offer(self._start_spot, self.policy.strict)

    def _start_hp(self, run: Run) -> bool:
        pool = self.pools[run.job.gpu_model]
        nodes = self.policy.place(pool, run.job, self.now_s)
        if nodes is None and pool.potential_slots(run.job) < run.job.workers:
            return False
        if nodes is None:
            victims = self.policy.victims(pool, run.job, self.now_s)
            if not victims:
                return False
            for victim in victims:
                self._evict(victim)
            nodes = self.policy.place(pool, run.job, self.now_s)
            assert nodes is not None, "victims did not make the room they promised"
        self._start(run, nodes)
        return True

    def _start_spot(self, run: Run) -> bool:
        pool = self.pools[run.job.gpu_model]
        if pool.slots(run.job) < run.job.workers:
            return False
        nodes = self.policy.place(pool, run.job, self.now_s)
        if nodes is None:
            return False
        guarantee_s = self.policy.admit(pool, run, nodes, self.now_s)
        if guarantee_s is None:
            return False
        self._start(run, nodes)
        run.guarantee_until_s = self.now_s + guarantee_s
        self.collector.starts += 1
        self.collector.guarantees_given += guarantee_s > 0
        return True

    def _start(self, run: Run, nodes: tuple[int, ...]) -> None:
        pool = self.pools[run.job.gpu_model]
        self.usage[pool.model].move(self.now_s, pool.used)
        pool.take(run, nodes)
        run.start_s = self.now_s
        run.starts += 1
        run.waited_s += self.now_s - run.queued_since_s
        if run.first_wait_s < 0:
            run.first_wait_s = run.waited_s
        self._push(self.now_s + run.remaining_s, FINISH, run, run.starts)

    def _release(self, run: Run) -> None:
        pool = self.pools[run.job.gpu_model]
        self.usage[pool.model].move(self.now_s, pool.used)
        pool.release(run)

    def _evict(self, run: Run) -> None:
        pool = self.pools[run.job.gpu_model]
        ran_s = self.now_s - run.start_s
        lost_s = min(self.policy.lost_s(run, self.now_s), ran_s)
        restart_s = self.policy.restart_s
        self.collector.guarantees_broken += run.guarantee_until_s > self.now_s
        run.remaining_s += lost_s + restart_s - ran_s
        run.lost_s += lost_s + restart_s
        run.evictions += 1
        self.collector.evictions += 1
        self._evictions_by_model[pool.model] += 1
        self.collector.lost_gpu_s += lost_s * run.job.total_gpus
        self.collector.restart_gpu_s += restart_s * run.job.total_gpus
        if self.now_s <= self.workload.horizon_s:
            self.collector.lost_in_horizon_gpu_s += (lost_s + restart_s) * run.job.total_gpus
        for node in set(run.nodes):
            pool.note_eviction(node, self.now_s)
        self._release(run)
        self.policy.evicted(run, ran_s, self.now_s)
        self._enqueue(run)

    def _wake_at_guarantee_end(self, model: str) -> None:
        ends = [run.guarantee_until_s for run in self.pools[model].spot_runs if run.guarantee_until_s > self.now_s]
        if ends and min(ends) < self._wake_s.get(model, float("inf")):
            self._wake_s[model] = min(ends)
            self._push(min(ends), WAKE, model)

    def _sample(self) -> None:
        hour = int(self.now_s // HOUR_S)
        for model, pool in self.pools.items():
            wait = self.queues[model][JobClass.SPOT].oldest_wait_s(self.now_s)
            quota = self.policy.quota_of(model, pool)
            used = (pool.used[JobClass.HP], pool.used[JobClass.SPOT])
            demand, evictions = self.demand.now(model), self._evictions_by_model[model]
            self.timeline.append(Sample(hour, model, demand, *used, quota, wait, evictions))

    def _check(self) -> None:
        running = 0
        for pool in self.pools.values():
            pool.check()
            for run in pool.spot_runs:
                assert len(run.nodes) == run.job.workers, "a gang runs in part"
                running += 1
        queued = sum(len(queue) for queues in self.queues.values() for queue in queues)
        assert queued + running <= self._unfinished, "more jobs than there are"
        assert self.collector.guarantees_broken == 0, "a guarantee was broken"
