"""Who is managed, and as what: named by a user or by a rule, or the child of one that is."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from gpsched.adaptive.config import Rule
from gpsched.adaptive.errors import NoGpuError, ProcessGoneError, UsageError
from gpsched.adaptive.model import ATTACHABLE, Class
from gpsched.adaptive.workloads import procinfo, rules
from gpsched.adaptive.workloads.registry import Process, Registry


class Watching(Protocol):
    """What membership needs of the probes."""

    def manage(self, pid: int, class_: Class) -> None: ...  # noqa: D102
    def forget(self, pid: int) -> None: ...  # noqa: D102


class Terms(NamedTuple):
    """How a process counts among others: the fields of the same names of ``Process``, in the same order."""

    tenant: str
    slo_us: float | None
    priority: int
    weight: float
    service: str


class Membership:
    """Puts processes into the registry and under the eyes of the probes; the node takes them out.

    ``rules`` gives those in force; ``ended`` is told of a pid that now belongs to another process.
    """

    def __init__(
        self,
        registry: Registry,
        probes: Watching,
        rules: Callable[[], Sequence[Rule]],
        ended: Callable[[int], None],
    ) -> None:
        self._registry, self._probes, self._rules, self._ended = registry, probes, rules, ended

    def classify(self, pid: int) -> Process | None:
        """A process that just opened the driver: the rules decide, and what no rule names is left alone."""
        try:
            info = procinfo.read(pid)
        except ProcessGoneError:
            return None
        known = self._rules()
        rule = rules.match(info, known)
        if rule is None or rule.class_ == "unmanaged":
            self._probes.forget(pid)
            return None
        source = f"rule {rule.name or known.index(rule)}"
        terms = Terms(rules.tenant(info, rule), rule.slo_us, rule.priority, rule.weight, source)
        return self._add(pid, rule.class_, source, terms)

    def follow(self, parent: int, child: int) -> None:
        """A process was forked: it is what its parent is."""
        process = self._registry.get(parent)
        if process is not None:
            terms = Terms(process.tenant, process.slo_us, process.priority, process.weight, process.family)
            self._add(child, process.class_, f"child of {parent}", terms)

    def attach(
        self,
        pid: int,
        name: str,
        slo_us: float | None,
        tenant: str | None,
        *,
        starting: bool,
        priority: int = 0,
        weight: float = 1.0,
    ) -> list[int]:
        """Take in ``pid`` and its descendants, as the class ``name``; return those that use the driver already.

        Raises ``UsageError``, ``ProcessGoneError``, and ``NoGpuError`` where none does but with ``starting`` ones.
        """
        class_ = next((known for known in ATTACHABLE if known == name), None)
        if class_ is None:
            raise UsageError(f"unknown class {name!r}; use one of {', '.join(ATTACHABLE)}")
        if class_ == "be" and slo_us is not None:
            raise UsageError("a best-effort process has no latency objective; leave out --slo or use --class lc")
        info = procinfo.read(pid)
        terms = Terms(tenant or info.user, slo_us, priority, weight, str(pid))
        family = [pid, *procinfo.children(pid)]
        users = [member for member in family if procinfo.has_driver_open(member)]
        if not starting and not users:
            raise NoGpuError(pid)
        added = []
        for member in family:
            source = "attach" if member == pid else f"child of {pid}"
            if self._add(member, class_, "run" if starting else source, terms):
                added.append(member)
        return [member for member in added if member in users]

    def _add(self, pid: int, class_: Class, source: str, terms: Terms) -> Process | None:
        """Register the process or change its class; None when it is gone already."""
        try:
            info = procinfo.read(pid)
            self._probes.manage(pid, class_)
        except ProcessGoneError:
            return None
        process = self._registry.get(pid)
        if process is not None and process.info.start_ticks != info.start_ticks:
            self._ended(pid)
            self._probes.manage(pid, class_)
            process = None
        if process is None:
            process = Process(info, class_, source, *terms)
            self._registry.put(process)
        else:
            process.class_, process.source = class_, source
            process.tenant, process.slo_us, process.priority, process.weight, process.service = terms
        return process


def lives(process: Process) -> bool:
    """Whether it runs, and not another one with its pid."""
    try:
        return procinfo.start_ticks(process.pid) == process.info.start_ticks
    except ProcessGoneError:
        return False
