"""The ``gpsched`` command: finds the subcommand, turns errors into one line and an exit code.

Subcommand modules offer ``add_parser(subparsers)`` and ``run(args) -> int``; they import what is heavy inside ``run``,
so that ``--help`` is quick.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from gpsched.adaptive.errors import GpschedError


SUBCOMMANDS = (
    "run",
    "attach",
    "detach",
    "list",
    "hints",
    "explain",
    "daemon",
    "restore",
    "status",
    "verify",
    "policy",
    "config",
    "doctor",
    "calibrate",
    "tune",
    "top",
    "record",
    "replay",
    "dump",
    "report",
    "completion",
    "cluster",
    "demo",
    "bench",
)

_EPILOG = """examples:
  gpsched run --class lc --slo 5ms -- python serve.py     start a latency-critical service
  gpsched run --class be -- python train.py               start a best-effort job beside it
  gpsched attach 4242 --class be                          manage a job that already runs
  gpsched list                                            who has which class, level and slices, and why
  gpsched demo                                            see it work, with or without a GPU

exit codes: 0 done, 1 refused or failed check, 2 wrong usage or configuration, 3 internal error,
  4 no daemon answers, 77 this machine cannot do it; `run` passes on its command's code (128 + signal number)
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to look, and exit with 2."""
        self.exit(2, f"{self.prog}: {message}; see: {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line; also the source of man pages and completions."""
    parser = Parser(
        prog="gpsched",
        description="Lets latency-critical services and best-effort jobs share NVIDIA GPUs, unmodified.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for name in SUBCOMMANDS:
        module = importlib.import_module(f"gpsched.cli.{name}")
        module.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    args = build_parser().parse_args(argv)
    try:
        return int(args.run(args))
    except GpschedError as error:
        print(f"gpsched: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output left (`| head`): no error, and nothing more may be flushed into the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
