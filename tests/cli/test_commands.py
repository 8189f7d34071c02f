"""The command line as users meet it: messages, exit codes, and `run` with a daemon of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpsched.adaptive.undo import UndoLog


GPSCHED = [sys.executable, "-m", "gpsched.cli.main"]


class Shell:
    """Runs gpsched with a socket and state of its own."""

    def __init__(self, directory: Path) -> None:
        self.env = dict(
            os.environ,
            GPSCHED_SOCKET=str(directory / "s.sock"),
            GPSCHED_STATE_DIR=str(directory / "state"),
            COLUMNS="120",
            NO_COLOR="1",
        )

    def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*GPSCHED, *args], env=self.env, capture_output=True, text=True, timeout=60)

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*GPSCHED, *args], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def _one_line(result: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["run", "--class", "bee", "--", "ls"], 2, "invalid choice: 'bee'"),
        (["run", "--", "ls"], 2, "required: --class"),
        (["run", "--class", "lc"], 2, "no command to run"),
        (["run", "--class", "lc", "--"], 2, "no command to run"),
        (["run", "--class", "lc", "--slo", "5", "--", "ls"], 2, "300us, 5ms, 1.5s"),
        (["run", "--class", "lc", "--slo", "-5ms", "--", "ls"], 2, "expected one argument"),
        (["attach", "x", "--class", "lc"], 2, "'x' is not a process id"),
        (["attach", "0", "--class", "lc"], 2, "'0' is not a process id"),
        (["attach", "1"], 2, "required: --class"),
        (["list"], 4, "start one with: gpsched daemon"),
        (["detach", "1"], 4, "start one with: gpsched daemon"),
        (["attach", "1", "--class", "be"], 4, "start one with: gpsched daemon"),
        (["daemon", "--config", "/nonexistent.toml"], 2, "/nonexistent.toml: no such file"),
        (["fly"], 2, "invalid choice: 'fly'"),
        ([], 2, "COMMAND"),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(shell: Shell, args: list[str], code: int, message: str) -> None:
    result = shell(*args)
    assert message in _one_line(result)
    assert result.returncode == code


def test_a_misspelt_key_names_the_nearest(shell: Shell, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[timeslise]\n")
    result = shell("daemon", "--config", str(config))
    assert "did you mean 'timeslice'?" in _one_line(result)
    assert result.returncode == 2


def test_restore_waits_for_a_killed_daemon_to_be_gone(shell: Shell) -> None:
    """The kernel closes its probes first, which takes a second or more: it was refused, and jobs stayed off."""
    log = UndoLog(Path(shell.env["GPSCHED_STATE_DIR"]))
    restore = shell.start("restore")
    with pytest.raises(subprocess.TimeoutExpired):
        restore.wait(3)
    log.close()
    said, _ = restore.communicate(timeout=30)
    assert (restore.returncode, said) == (0, "0 settings restored\n")


def test_restore_without_a_daemon_and_without_state(shell: Shell) -> None:
    result = shell("restore")
    assert (result.returncode, result.stdout) == (0, "0 settings restored\n")


def test_help_names_every_subcommand(shell: Shell) -> None:
    help_text = shell("--help").stdout
    for name in ("run", "attach", "detach", "list", "daemon", "restore", "demo", "exit codes"):
        assert name in help_text


@pytest.mark.root
def test_without_root_the_daemon_says_so(shell: Shell) -> None:
    result = subprocess.run(
        [*GPSCHED, "daemon"], env=shell.env, capture_output=True, text=True, user=65534, group=65534, timeout=60
    )
    assert "sudo" in _one_line(result)
    assert result.returncode == 77


@pytest.mark.root
@pytest.mark.bpf
class TestRun:
    """`gpsched run`, which starts a daemon that ends with the last managed process."""

    @pytest.mark.parametrize(
        ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 128 + 9), ("kill -15 $$", 128 + 15)]
    )
    def test_the_exit_code_is_passed_on(self, shell: Shell, script: str, code: int) -> None:
        result = shell("run", "--class", "be", "--", "sh", "-c", script)
        assert result.returncode == code
        assert "started one" in _one_line(result)

    @pytest.mark.parametrize(("program", "code"), [("/nonexistent", 127), ("/etc/passwd", 126)])
    def test_what_cannot_be_run(self, shell: Shell, program: str, code: int) -> None:
        result = shell("run", "--class", "be", "--", program)
        assert result.returncode == code
        assert f"cannot run {program}" in result.stderr

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
    def test_signals_are_passed_on(self, shell: Shell, number: signal.Signals) -> None:
        script = "import signal, sys\ndef end(n, f): print('got', n); sys.exit(3)\n"
        script += f"signal.signal({int(number)}, end)\nprint('ready', flush=True)\nsignal.pause()"
        running = shell.start("run", "--class", "be", "--", sys.executable, "-c", script)
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(number)
        out, _ = running.communicate(timeout=30)
        assert out == f"got {int(number)}\n"
        assert running.returncode == 3

    def test_the_process_is_listed_and_the_daemon_ends_with_it(self, shell: Shell) -> None:
        running = shell.start(
            "run", "--class", "lc", "--slo", "5ms", "--tenant", "web", "--", "sh", "-c", "echo; exec sleep 60"
        )
        assert running.stdout is not None
        running.stdout.readline()
        listed = json.loads(shell("list", "--json").stdout)
        process = next(process for process in listed["processes"] if process["source"] == "run")
        assert (process["class"], process["slo_us"], process["tenant"]) == ("lc", 5000.0, "web")
        assert listed["daemon"]["lost_events"] == 0
        assert "no GPU context yet" in shell("list").stdout
        assert "has no GPU context" in _one_line(shell("attach", str(os.getpid()), "--class", "be"))
        assert "does not exist" in _one_line(shell("attach", "4194303", "--class", "be"))
        assert "is not managed" in _one_line(shell("detach", str(os.getpid())))
        running.terminate()
        running.communicate(timeout=30)
        _wait_until(lambda: shell("list").returncode == 4)
        assert (Path(shell.env["GPSCHED_STATE_DIR"]) / "undo.jsonl").read_bytes() == b""

    def test_a_daemon_that_runs_is_not_started_twice(self, shell: Shell) -> None:
        daemon = shell.start("daemon")
        try:
            _wait_until(lambda: shell("list").returncode == 0)
            result = shell("run", "--class", "be", "--", "true")
            assert (result.returncode, result.stderr) == (0, "")
            second = shell("daemon")
            assert "another gpsched daemon" in _one_line(second)
            assert second.returncode == 1
        finally:
            daemon.terminate()
            daemon.communicate(timeout=30)
        assert daemon.returncode == 0


def _wait_until(condition: object) -> None:
    """Wait for what other processes do; generous, since the machine may be busy."""
    assert callable(condition)
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
