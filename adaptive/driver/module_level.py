"""The level `module` on this machine: finds the patched driver module, keeps its lease alive, and notices its end.

The module may be there from the start, come later (the companion can be loaded at any time), be too old, or go away in
the middle. It undoes what was changed through it in every case, so whoever used it only has to set things anew, by the
stock control if need be.
"""

import logging
import time
from collections.abc import Callable

from gpsched.adaptive.driver import module_abi as abi
from gpsched.adaptive.driver.errors import ModuleAbsentError, ModuleError
from gpsched.adaptive.driver.module_abi import Feature, ModuleInfo
from gpsched.adaptive.driver.module_control import Link, ModuleControl
from gpsched.adaptive.errors import GpschedError


log = logging.getLogger(__name__)

_RETRY_S = 5.0  # a module that cannot be used is asked again no sooner


def connect() -> Link:
    """Return a link to the module. Raises ModuleAbsentError, without the price of pyroute2 where there is none."""
    if not abi.available():
        raise ModuleAbsentError(abi.ABSENT)
    from gpsched.adaptive.driver.module_link import ModuleLink

    return ModuleLink()


class ModuleLevel:
    """Use of the module for as long as there is one. ``reason`` says what there is, or why it is not used.

    ``link`` opens a ModuleLink or raises GpschedError; ``clock`` is in seconds.
    """

    def __init__(self, link: Callable[[], Link] = connect, clock: Callable[[], float] = time.monotonic) -> None:
        self._open, self._clock = link, clock
        self._link: Link | None = None
        self._controls: dict[int, ModuleControl] = {}
        self._not_before = float("-inf")
        self._renewed = 0.0
        self.reason = "not looked for yet"
        self.renew()

    @property
    def present(self) -> bool:
        """Whether there is a module to use now."""
        return self._link is not None

    def control(self, pid: int) -> ModuleControl | None:
        """Return the controls of a process; None without a module. They may raise ModuleAbsentError: then ``lose``."""
        if self._link is None:
            return None
        if pid not in self._controls:
            self._controls[pid] = ModuleControl(self._link, pid)
        return self._controls[pid]

    def forget(self, pid: int) -> None:
        """The process ended."""
        self._controls.pop(pid, None)

    def renew(self) -> bool:
        """Let everything live on, or look for a module. False when what was changed through it is undone.

        To be called several times in a lease.
        """
        if self._link is None:
            self._connect()
            return True
        now = self._clock()
        if (now - self._renewed) * 1000 > self._link.lease_ms:
            self.lose("its lease ran out")
            self._not_before = now
            self._connect()
            return False
        try:
            self._link.renew()
        except GpschedError as error:
            if isinstance(error, ModuleError) and error.transient:
                return True
            self.lose(str(error))
            return False
        self._renewed = now
        return True

    def lose(self, why: str) -> None:
        """Stop using the module: it undoes what was changed through it."""
        log.warning("the driver module is lost (%s): what was set through it is undone, and is set anew", why)
        self.reason, self._not_before = why, self._clock() + _RETRY_S
        self.close()

    def close(self) -> None:
        """Give everything up."""
        link, self._link = self._link, None
        self._controls.clear()
        if link is not None:
            link.close()

    def _connect(self) -> None:
        if self._clock() < self._not_before:
            return
        try:
            self._link = self._open()
        except GpschedError as error:
            if str(error) != self.reason:
                log.info("%s", error)
            self.reason, self._not_before = str(error), self._clock() + _RETRY_S
            return
        self._renewed = self._clock()
        self.reason = describe(self._link.info)
        log.info("using %s", self.reason)


def loaded() -> ModuleInfo:
    """Ask what is loaded; needs no privilege. Raises ModuleAbsentError."""
    link = connect()
    try:
        return link.info
    finally:
        link.close()


def describe(info: ModuleInfo) -> str:
    """Say in a line what a module is and gives."""
    kind = "the companion module (for experiments only) beside" if Feature.COMPANION in info.features else "gpsched in"
    bpf = "with" if Feature.KFUNCS in info.features else "without"
    test = "; a TEST BUILD, which believes any process" if Feature.TEST in info.features else ""
    return f"{kind} driver {info.driver or 'of unknown version'}, family version {info.version}, {bpf} BPF calls{test}"
