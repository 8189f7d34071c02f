"""The hold agents in latency-critical programs: their threads, and whether they can launch."""

import contextlib
import os
from dataclasses import dataclass

from gpsched.adaptive.actuator.slots import find_agent
from gpsched.adaptive.agent.page import Page


@dataclass(frozen=True)
class _Agent:
    tid: int
    page: Page


class Agents:
    """By process. An agent is looked for as long as there is none: it appears while CUDA is initialised."""

    def __init__(self) -> None:
        self._found: dict[int, _Agent] = {}

    def look(self, pid: int) -> bool:
        """Return whether this program has an agent; looks into /proc where none is known."""
        if pid not in self._found and (agent := _find(pid)):
            self._found[pid] = agent
        return pid in self._found

    def inability(self, pid: int) -> str:
        """Why the agent that was found cannot launch holds now; empty when it can, or where there is none."""
        agent = self._found.get(pid)
        return agent.page.inability if agent else ""

    def thread(self, pid: int) -> int | None:
        """Return the agent's thread, whose calls are not the program's own; None where there is none."""
        agent = self._found.get(pid)
        return agent.tid if agent else None

    def threads(self) -> list[int]:
        """Return the threads of all agents."""
        return [agent.tid for agent in self._found.values()]

    def forget(self, pid: int) -> None:
        """The process ended, is left alone, or became another program."""
        self._found.pop(pid, None)


def _find(pid: int) -> _Agent | None:
    found = find_agent(pid)
    if found is None:
        return None
    tid, descriptor = found
    try:
        with contextlib.suppress(OSError, ValueError):  # it is no agent of ours
            return _Agent(tid, Page(descriptor))
    finally:
        os.close(descriptor)
    return None
