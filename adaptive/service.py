"""What makes the daemon a service: systemd's messages, checks of the machine, reloads, metrics, GPU sensors."""

import logging
from collections.abc import Callable

from gpsched.adaptive.config import Config
from gpsched.adaptive.doctor.examine import examine
from gpsched.adaptive.doctor.host import Host
from gpsched.adaptive.doctor.model import Report
from gpsched.adaptive.errors import ConfigError
from gpsched.adaptive.gpus import Gpus
from gpsched.adaptive.model import Snapshot
from gpsched.adaptive.publisher import Publisher
from gpsched.adaptive.sdnotify import Notifier


log = logging.getLogger(__name__)


class Service:
    """Owned by the daemon, called on its loop. ``config_error`` says why the last reload was refused."""

    def __init__(self, config: Config, host: Host, reader: Callable[[], Config] | None = None) -> None:
        self._config, self._reader = config, reader
        self._notifier = Notifier()
        self._notifier.starting("starting: compiling BPF programs takes seconds")
        self.gpus = Gpus()
        self.report = _examined(host)
        self.config_error: str | None = None
        self._reload = False
        self._publisher = Publisher()

    def ready(self) -> None:
        """Requests are answered from now on."""
        self._publisher.configure(self._config.metrics)
        self._notifier.ready(self._status())

    def request_reload(self) -> None:
        """From a signal handler: the next ``tick`` reads the configuration again."""
        self._reload = True

    def tick(self, snapshot: Callable[[], Snapshot], apply: Callable[[Config], None]) -> None:
        """Twice a second: watchdog, metrics; ``apply`` gets a new configuration when one was asked for and is right."""
        self._notifier.alive()
        self._publisher.tick(snapshot)
        if self._reload:
            self._reload = False
            self._read_again(apply)

    def stopping(self) -> None:
        """The daemon begins to end: settings are restored next, which may take a while."""
        self._notifier.stopping()

    def close(self) -> None:
        """The daemon has ended."""
        self._publisher.close()
        self.gpus.close()

    def _read_again(self, apply: Callable[[Config], None]) -> None:
        """The earlier configuration stays when the new one is wrong; the manager hears READY when all is in force."""
        if self._reader is None:
            return
        self._notifier.reloading()
        try:
            new = self._config = self._reader()
        except ConfigError as error:
            self.config_error = str(error)
            log.error("the earlier configuration stays: %s", error)
        else:
            self.config_error = None
            self._publisher.configure(new.metrics)
            apply(new)
            log.info("configuration read again: %d rules", len(new.rule))
        self._notifier.ready(self._status())

    def findings(self) -> list[str]:
        """What the checks at the start complained about, one line each."""
        return [f"{check.title}: {check.detail}" for check in self.report.checks if check.state != "ok"]

    def _status(self) -> str:
        """One line for ``systemctl status``."""
        best = [answer.level for answer in self.report.levels if answer.possible]
        status = f"levels up to {best[-1] if best else 'none'}; checks: {self.report.health} (gpsched doctor)"
        return f"wrong configuration, the earlier one stays: {self.config_error}" if self.config_error else status


def _examined(host: Host) -> Report:
    """What keeps the daemon from working is raised where it is needed; here it is only told."""
    report = examine(host)
    for check in report.checks:
        if check.state != "ok":
            log.info("%s: %s; %s; fix: %s", check.title, check.detail, check.reason, check.fix)
    return report
