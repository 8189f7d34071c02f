"""``gpsched run``: start a command in a class; its exit code and signals pass through."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys

from gpsched.adaptive.errors import DaemonUnreachableError, GpschedError, UsageError
from gpsched.cli.arguments import Subparsers, add_class, add_socket, add_state_dir, terms


_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


class DaemonStartError(GpschedError):
    """The daemon that the command needs did not start. Field: ``exit_code``, the daemon's own."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__("the daemon did not start (its message is above); the command was not run")


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("run", help="start a command as latency-critical or best-effort")
    add_class(parser)
    parser.add_argument("--gpu", metavar="N", help="let the command see this GPU only (sets CUDA_VISIBLE_DEVICES)")
    add_socket(parser)
    add_state_dir(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Register the command before its first instruction, so that no allocation is missed."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("no command to run; write it after --: gpsched run --class lc -- python serve.py")
    pid, gate = _fork_stopped(command, _environment(args))
    try:
        _register(pid, args)
    except BaseException:
        os.close(gate)  # the child sees the end of the pipe and ends without running the command
        os.waitpid(pid, 0)
        raise
    os.write(gate, b"go")
    os.close(gate)
    return _wait(pid)


def _environment(args: argparse.Namespace) -> dict[str, str]:
    """The command's own, with the hold agent for CUDA to load; one that the user injects himself stays."""
    from gpsched.adaptive import agent

    hold = agent.environment() if args.class_ == "lc" else {}
    gpu = {"CUDA_VISIBLE_DEVICES": args.gpu} if args.gpu else {}
    return {**hold, **os.environ, **gpu}


def _register(pid: int, args: argparse.Namespace) -> None:
    """With the daemon that runs, else with one started here; one that is just ending counts as none."""
    with contextlib.suppress(DaemonUnreachableError):
        return _attach(pid, args)
    _start_daemon(args.socket, args.state_dir)
    return _attach(pid, args)


def _attach(pid: int, args: argparse.Namespace) -> None:
    from gpsched.adaptive.client import Client

    with Client(args.socket) as client:
        client.attach(pid, args.class_, **terms(args), starting=True)


def _start_daemon(socket: str, state_dir: str) -> None:
    """Start a daemon that ends with the last managed process, and wait until it answers."""
    ready, ready_child = os.pipe()
    command = [sys.executable, "-P", "-m", "gpsched.cli.main", "daemon", "--exit-when-idle", "--log-level", "warning"]
    command += ["--socket", socket, "--state-dir", state_dir, "--ready-fd", str(ready_child)]
    daemon = subprocess.Popen(command, pass_fds=[ready_child], stdin=subprocess.DEVNULL, start_new_session=True)
    os.close(ready_child)
    said = os.read(ready, 16)  # ends when the daemon is ready or has exited
    os.close(ready)
    if said != b"READY":
        raise DaemonStartError(daemon.wait(30))
    print(
        f"gpsched: no daemon was running; started one (pid {daemon.pid}) that ends with the last managed process",
        file=sys.stderr,
    )


def _fork_stopped(command: list[str], environment: dict[str, str]) -> tuple[int, int]:
    """Fork a child that waits for a word on the returned descriptor before it becomes the command."""
    child_end, gate = os.pipe()
    pid = os.fork()
    if pid:
        os.close(child_end)
        return pid, gate
    os.close(gate)
    if not os.read(child_end, 2):
        os._exit(125)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - the point is to become the command
    except OSError as error:
        print(f"gpsched: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _wait(pid: int) -> int:
    for number in _FORWARDED:
        # The terminal sends its signals to the child as well: passing them on would deliver them twice.
        own = number in _FROM_TERMINAL and sys.stdin is not None and sys.stdin.isatty()
        signal.signal(number, signal.SIG_IGN if own else lambda received, _frame: _forward(pid, received))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _forward(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
