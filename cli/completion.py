"""``gpsched completion``: the completion script of a shell, made from the parser."""

import argparse

from gpsched.cli.arguments import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("completion", help="print the completion script for a shell")
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print it; for bash: gpsched completion bash > /usr/share/bash-completion/completions/gpsched."""
    import shtab

    from gpsched.cli.main import build_parser

    print(shtab.complete(build_parser(), shell=args.shell))
    return 0
