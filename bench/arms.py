"""The settings under which a scenario is measured. They are data; ``entered`` puts one in force for a block."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from gpsched.adaptive import config
from gpsched.adaptive.client import Client
from gpsched.adaptive.errors import ConfigError
from gpsched.bench.errors import ArmUnavailableError
from gpsched.bench.fleet import Fleet, Switchboard


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One setting.

    ``jobs``: not started (``absent``), waiting (``paused``), running, or running one at a time. ``load``: whether the
    services get requests. ``seq``: programs use the GPU one after the other. ``hints``: services announce each request.
    ``daemon``: configuration (TOML) of the gpsched that manages all programs; None: none does. ``level``: what the
    services must reach for the arm to be what it claims. ``peer``: the other system that controls the programs.
    """

    name: str
    title: str
    jobs: Literal["absent", "paused", "running", "one at a time"] = "running"
    load: bool = True
    seq: bool = False
    hints: bool = False
    daemon: str | None = None
    level: str | None = None
    peer: str | None = None


AUTOMATIC = ""  # the defaults


def _level(level: str) -> str:
    return f'[reservations]\nlevel = "{level}"\n'


_ALL = (
    Arm(name="alone", title="LC alone, no BE on the GPU", jobs="absent"),
    Arm(name="resident", title="LC alone, BE resident but paused", jobs="paused"),
    Arm(name="be-alone", title="each BE alone", jobs="one at a time", load=False),
    Arm(name="default", title="driver's default"),
    Arm(name="seq", title="one after the other (SEQ)", seq=True),
    Arm(name="freeze", title="BE's host threads frozen for each burst", daemon=_level("freeze"), level="freeze"),
    Arm(name="static", title="static slices, no hints", daemon=_level("timeslice"), level="timeslice"),
    Arm(
        name="hold",
        title="static slices and a hold on a constant hint",
        daemon=_level("hold"),
        level="hold",
        hints=True,
    ),
    Arm(name="reserve", title="gpsched on programs without its agent", daemon=_level("reserve")),
    Arm(name="gpsched", title="gpsched, automatic", daemon=AUTOMATIC),
)
#: In the order in which they take turns.
ARMS: dict[str, Arm] = {arm.name: arm for arm in _ALL}
#: Latencies are compared with those of this arm, job rates with those of the other two.
REFERENCE, NATIVE, BE_ALONE = "resident", "default", "be-alone"


def unknown_setting(arm: Arm, folder: Path) -> str | None:
    """Say what this gpsched does not understand of an arm's configuration; None when it understands it."""
    path = folder / f"{arm.name}.toml"
    path.write_text(arm.daemon or "")
    try:
        config.load(path, required=True)
    except ConfigError as error:
        return f"this gpsched cannot do it ({error.key}: {error.reason})"
    return None


def fits(arm: Arm, services: int, jobs: int) -> str | None:
    """Say why an arm makes no sense for a scenario with so many programs; None when it does."""
    about_services = arm.daemon not in (None, AUTOMATIC)
    if not services and (arm.jobs in ("absent", "paused") or about_services or arm.seq):
        return "the scenario has no latency-critical service"
    if not jobs and arm.name != "alone":
        return "the scenario has no best-effort job"
    return None


@dataclass
class Stage:
    """What an arm acts on. ``levels``: what the daemon said of each program when the block ended."""

    fleet: Fleet
    board: Switchboard
    client: Client | None = None
    scale: float = 1.0
    levels: dict[str, str] = field(default_factory=dict)

    def attach_all(self) -> None:
        """Have the daemon manage all programs."""
        assert self.client is not None
        for lc, service in zip(self.fleet.lcs, self.fleet.services, strict=True):
            self.client.attach(service.pid, "lc", slo_us=lc.slo_us)
        for be, job in zip(self.fleet.bes, self.fleet.jobs, strict=True):
            self.client.attach(job.pid, "be", weight=be.share or 1.0)

    def detach_all(self) -> None:
        """Have the daemon leave all programs alone, after noting what it made of them."""
        assert self.client is not None
        names = self.pids()
        for view in self.client.snapshot().processes:
            if view.pid in names:
                self.levels[names[view.pid]] = f"{view.level}: {view.reason}"
        for pid in names:
            self.client.detach(pid)

    def check_level(self, arm: Arm) -> None:
        """Raise ``ArmUnavailableError``, with what the daemon says, unless a program has the level the arm is about."""
        assert self.client is not None
        own = {program.pid for program in (self.fleet.jobs if arm.level == "freeze" else self.fleet.services)}
        views = [view for view in self.client.snapshot().processes if view.pid in own]
        fit = {arm.level, "module"} if arm.level == "timeslice" else {arm.level}  # module: the same slices, another way
        if arm.level is not None and not any(view.level in fit for view in views):
            said = "; ".join(sorted({f"{view.level}: {view.reason}" for view in views}))
            raise ArmUnavailableError(arm.name, f"no program got level {arm.level} ({said or 'none is managed'})")

    def pids(self) -> dict[int, str]:
        """Name of each program by its process id."""
        lc = zip((service.pid for service in self.fleet.services), self.fleet.lc_names, strict=True)
        be = zip((job.pid for job in self.fleet.jobs), self.fleet.be_names, strict=False)
        return {**{pid: f"LC {name}" for pid, name in lc}, **{pid: f"BE {name}" for pid, name in be}}

    def measuring_time(self, seconds: float) -> None:
        """Let so much GPU time go by."""
        time.sleep(seconds * self.scale)


@contextmanager
def entered(arm: Arm, stage: Stage) -> Iterator[None]:
    """Put an arm in force, and leave everything as it was: jobs paused, nobody managed."""
    with ExitStack() as undo:
        if arm.seq:
            undo.enter_context(stage.board.seq())
        if arm.hints:
            undo.enter_context(stage.board.hints())
        if arm.daemon is not None:
            stage.attach_all()
            undo.callback(stage.detach_all)
        if arm.jobs == "running":
            for job in stage.fleet.jobs:
                job.resume()
                undo.callback(job.pause)
        yield
