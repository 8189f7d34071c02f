"""``gpsched calibrate``: what controls and switches cost on this machine, measured with two programs of its own."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers, add_socket, add_state_dir


if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from gpsched.adaptive.calibration.model import Calibration
    from gpsched.adaptive.model import ProcessView
    from gpsched.bench.device import Device
    from gpsched.bench.workload import Job, Service

_LIMIT_S = 25.0  # of measuring; ending the programs comes on top


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "calibrate",
        help="measure what controls and switches cost on this machine",
        description="Measures what each control and a switch cost on this GPU, in at most 30 s, with two programs of "
        "its own, and saves the figures where the daemon finds them when it starts. Without a GPU it measures the "
        "embedded one.",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object; with --show a list")
    parser.add_argument("--show", action="store_true", help="print what was measured before; measure nothing")
    parser.add_argument("--force", action="store_true", help="measure although managed processes use the GPU")
    parser.add_argument("--gpu", metavar="N", type=_number, default=0, help="number of the GPU (%(default)s)")
    parser.add_argument(
        "--device", choices=("simulated", "real", "auto"), default="auto", help="which GPU (%(default)s)"
    )
    add_socket(parser)
    add_state_dir(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, save and print; or print what is saved."""
    import sys

    import msgspec

    from gpsched.adaptive.calibration.store import load_all

    if args.show:
        results = load_all(Path(args.state_dir))
        if args.json:
            sys.stdout.write(msgspec.json.encode(results).decode() + "\n")
            return 0
        for result in results:
            _print(result)
        if not results:
            print("nothing was measured yet: the daemon uses safe defaults; run: gpsched calibrate")
        return 0
    result = _measure(args)
    if args.json:
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    else:
        _print(result)
    return 0


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a GPU")
    return int(text)


def _measure(args: argparse.Namespace) -> "Calibration":
    import signal

    from gpsched.adaptive.calibration import measure, store
    from gpsched.adaptive.calibration.limit import time_limit
    from gpsched.bench.device import open_device

    state_dir = Path(args.state_dir)
    store.check_writable(state_dir)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unwind: enable everything, end the programs
    with time_limit(_LIMIT_S), open_device(args.device) as device:
        if not device.simulated and not args.force:
            _refuse_when_busy(args.socket, args.gpu)
        with _programs(device, args.gpu) as (service, job):
            _refuse_when_managed(args.socket, {service.pid, job.pid})
            assert service.ready  # it was waited for
            result = measure.calibrate(service, job, service.ready.gpu, device.scale, _tell)
            _check_state(service, job)
    store.save(state_dir, result)
    return result


def _refuse_when_busy(socket: str, gpu: int) -> None:
    """The embedded GPU was started for the occasion; on a real one the daemon knows who else is there."""
    from gpsched.adaptive.calibration.errors import GpuBusyError

    if pids := [process.pid for process in _managed(socket) if gpu in process.gpus]:
        raise GpuBusyError(gpu, pids)


def _refuse_when_managed(socket: str, own: set[int]) -> None:
    """The daemon would set slices while we measure with ours."""
    from gpsched.adaptive.calibration.errors import ProgramsManagedError

    if pids := sorted(own & {process.pid for process in _managed(socket)}):
        raise ProgramsManagedError(pids)


def _managed(socket: str) -> "list[ProcessView]":
    """What the daemon manages; nothing where none answers."""
    from gpsched.adaptive.client import Client
    from gpsched.adaptive.errors import DaemonUnreachableError

    try:
        with Client(socket) as client:
            return client.snapshot().processes
    except DaemonUnreachableError:
        return []


def _programs(device: "Device", gpu: int) -> "AbstractContextManager[tuple[Service, Job]]":
    """Start the service and the job; the job ends with this process, however that ends: it may be disabled then."""
    import os
    from contextlib import contextmanager

    from gpsched.bench.device import favour
    from gpsched.bench.workload import Job, Service, program

    environment = {**device.environment, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    options = ["--commands", "--gpu", str(gpu), *(("--blocks", "16") if device.simulated else ())]

    @contextmanager
    def start() -> "Iterator[tuple[Service, Job]]":
        lc = [program("gpsched-lc"), "--prep-us", "0", *options]
        be = ["setpriv", "--pdeathsig", "KILL", program("gpsched-be"), "--verify", *options]
        with Service(lc, environment) as service, Job(be, environment) as job:
            if device.simulated:
                favour(os.getpid())  # and both programs
            yield service, job

    return start()


def _check_state(service: "Service", job: "Job") -> None:
    """End the programs; what they computed must have survived every control."""
    from gpsched.adaptive.calibration.errors import CalibrationFailedError

    if not (job.finish().ok and service.finish().ok):
        raise CalibrationFailedError("a program's state on the GPU was corrupted")


def _tell(what: str, share: float) -> None:
    import sys

    if sys.stderr.isatty():
        print(f"\r{100 * share:3.0f} % {what:<36}", end="\n" if share == 1 else "", file=sys.stderr, flush=True)


def _print(result: "Calibration") -> None:
    from rich.console import Console
    from rich.table import Table

    from gpsched.adaptive.calibration.costs import to_costs

    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"{result.gpu}, driver {result.driver}; µs of the GPU's clock, median (90th percentile)")
    table = Table("control", "idle", "under load", box=None)
    for name, cost in result.controls.items():
        cells = (f"{each.median_us:.0f} ({each.p90_us:.0f})" if each else "-" for each in (cost.idle, cost.load))
        table.add_row(name, *cells)
    console.print(table)
    bursts, reserved = result.bursts, result.bursts.reserved
    figures = {"waits for a switch": bursts.timeslice}
    if reserved:
        figures |= {"beside disabled channels": reserved.early, "while they are being disabled": reserved.late}
    for name, figure in figures.items():
        console.print(f"a burst {name}: {bursts.alone.median_us:.0f} + {bursts.added_us(figure):.0f} µs")
    levels = Table("level", "switch", "residual", "need", "late", "control", box=None)
    for level, costs in to_costs(result).items():
        fields = (costs.switch_us, costs.residual_us, costs.need_us, costs.late_us, costs.control_us)
        levels.add_row(level, *(f"{us / result.scale:.0f}" for us in fields))
    console.print(levels)
