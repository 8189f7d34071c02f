"""A real systemd that runs packaging/systemd/gpsched.service, beside whatever manages this machine.

It is a user manager with root's rights: the unit's sandbox, messages and restarts are systemd's own, while pids, BPF
and cgroups stay the machine's. What only a system manager can do (PID 1, multi-user.target) is not tried here.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.test_daemon import until


SYSTEMD = Path("/lib/systemd/systemd")
UNIT = Path(__file__).parents[2] / "packaging/systemd/gpsched.service"
# systemd looks whether a system manager has started the machine; only this namespace may think so.
_START = """mount -t tmpfs tmpfs /run/systemd && mkdir /run/systemd/system
exec "$0" --user --unit=basic.target --log-level=warning"""
_NOTHING_ELSE = "[Unit]\nDescription=What a session would start is left out\n"


class Manager:
    """Runs the unit as it is but for paths; ``settings`` go into a drop-in's [Service]."""

    def __init__(self, directory: Path, settings: str = "") -> None:
        self.config, self.socket = directory / "config.toml", directory / "s.sock"
        self.state, self.log = directory / "state", directory / "log"
        self.log.touch()
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "XDG_RUNTIME_DIR": str(directory / "run"),
            "SYSTEMD_UNIT_PATH": f"{directory / 'units'}:/usr/lib/systemd/user",
        }
        self._write(directory, settings)
        self._errors = (directory / "errors").open("w+")
        self._process: subprocess.Popen[str] | None = None

    def _write(self, directory: Path, settings: str) -> None:
        units, drops = directory / "units", directory / "units/gpsched.service.d"
        drops.mkdir(parents=True)
        (directory / "run").mkdir(mode=0o700)
        self.config.touch()
        program = directory / "gpsched"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpsched.cli.main "$@"\n')
        program.chmod(0o755)
        text = UNIT.read_text().replace("gpsched daemon", f"gpsched daemon --config {self.config}")
        (units / UNIT.name).write_text(text.replace("/usr/bin/gpsched", str(program)))
        where = f"Environment=GPSCHED_SOCKET={self.socket} GPSCHED_STATE_DIR={self.state}\n"
        output = f"StandardOutput=append:{self.log}\nStandardError=append:{self.log}\n"
        end = "ExecStopPost=/bin/sh -c 'echo ended: $SERVICE_RESULT'\n"
        (drops / "test.conf").write_text(f"[Service]\n{where}{output}{end}{settings}")
        (units / "basic.target").write_text(_NOTHING_ELSE)

    def __enter__(self) -> "Manager":
        command = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", _START, str(SYSTEMD)]
        self._process = process = subprocess.Popen(command, env=self._environment, stderr=self._errors, text=True)
        try:
            until(lambda: process.poll() is not None or self._ctl("is-active", "basic.target").returncode == 0)
        except BaseException:
            process.kill()
            raise
        if process.poll() is not None:
            self._errors.seek(0)
            pytest.skip(f"no systemd runs here: {self._errors.read().strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._ctl("stop", "gpsched")
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def _ctl(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = ["systemctl", "--user", "--no-pager", *args]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120)

    def do(self, what: str) -> None:
        """start, stop, reload; returns when systemd says it is done."""
        result = self._ctl(what, "gpsched")
        assert result.returncode == 0, result.stderr + self.log.read_text()[-3000:]

    def ask(self, name: str) -> str:
        """A property of the unit."""
        return self._ctl("show", "--value", "-p", name, "gpsched").stdout.strip()

    @property
    def pid(self) -> int:
        """The daemon's; 0 when it does not run."""
        return int(self.ask("MainPID"))
