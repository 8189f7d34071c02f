"""``python -m gpsched.tuner``: the tuner's process; the daemon starts it where ``tuner.enabled`` is set."""

import argparse
import sys
from pathlib import Path

from gpsched.adaptive import paths
from gpsched.adaptive.logs import setup


def main() -> int:
    """Run until the daemon ends it; what is heavy is imported after the arguments were read."""
    parser = argparse.ArgumentParser(prog="gpsched.tuner", description="Tunes a node's settings while work runs.")
    parser.add_argument("--socket", type=Path, default=paths.socket(), help="the daemon's control socket")
    parser.add_argument("--state-dir", type=Path, default=paths.state_dir(), help="where the history is")
    args = parser.parse_args()
    setup("info", "text")
    from gpsched.tuner.worker import serve

    return serve(args.socket, args.state_dir)


if __name__ == "__main__":
    sys.exit(main())
