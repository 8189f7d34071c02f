"""``gpsched daemon``: the node's daemon in the foreground."""

import argparse

from gpsched.adaptive import paths
from gpsched.cli.arguments import Subparsers, add_socket, add_state_dir


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("daemon", help="run the node's daemon in the foreground")
    parser.add_argument("--config", metavar="FILE", help=f"configuration (default: {paths.CONFIG}, if it exists)")
    parser.add_argument("--exit-when-idle", action="store_true", help="end once the last managed process has ended")
    parser.add_argument("--log-level", choices=("debug", "info", "warning"), default="info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    add_socket(parser)
    add_state_dir(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; every setting is restored before it returns."""
    from pathlib import Path

    from gpsched.adaptive import config, logs
    from gpsched.adaptive.daemon import Daemon

    def read() -> config.Config:
        if args.config:
            return config.load(Path(args.config), required=True)
        return config.load(paths.CONFIG, paths.CONFIG_DIR)

    logs.setup(args.log_level, args.log_format)
    daemon = Daemon(read(), Path(args.socket), Path(args.state_dir), read)
    daemon.serve(exit_when_idle=args.exit_when_idle, ready_fd=args.ready_fd)
    return 0
