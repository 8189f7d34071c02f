"""A best-effort job in plain PyTorch: endless matrix products or inferences, whose results are checked at the end.

It knows nothing of gpsched and needs nothing of it; any interpreter with torch runs it. Commands and JSON lines are
those of gpsched-be: stat, pause, resume, quit on standard input.
Exit codes: 0 success, 1 wrong results, 2 bad argument, 77 no torch or GPU.
"""

import argparse
import importlib
import json
import os
import select
import signal
import sys
import time
from collections import deque
from typing import Any


QUEUE = 4
COMMANDS_EVERY_US = 1000


def now_us() -> float:
    """The program clock."""
    return time.monotonic() * 1e6


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; exits with 2 when it is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=8192, help="rows and columns of the matrices (%(default)s)")
    parser.add_argument("--model", help="inferences of this model of torch_models.py (FP32, batch 1, as a CUDA graph)")
    parser.add_argument("--rate", type=float, default=0.0, help="units a second; late ones are left out (0: no limit)")
    parser.add_argument("--phase", type=float, default=0.0, help="where in the period, from 0 to 1 (%(default)s)")
    parser.add_argument("--switchboard", metavar="FILE", help="obey its switches: take turns with others")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args(argv)
    if not 0 <= args.phase < 1 or args.rate < 0:
        parser.error("--phase must be from 0 to 1, --rate not negative")
    if args.size < 16:
        parser.error("--size must be at least 16")
    return args


class Units:
    """step(): one unit of work, and one addition to a counter on the device, which shows a lost or repeated unit."""

    def __init__(self, args: argparse.Namespace, torch: Any) -> None:
        self.torch, self.cuda = torch, args.device == "cuda"
        self.board = importlib.import_module("torch_lc").Switchboard(args.switchboard)
        self.rated = args.rate > 0
        self.counter = torch.zeros(1 << 16, dtype=torch.int64, device=args.device)
        self.launched = self.completed = 0
        self.in_flight: deque[Any] = deque()
        self.largest_gap_us, self.last_us = 0.0, now_us()

    def launch(self) -> None:
        """Queue one unit of work."""
        raise NotImplementedError

    def bad_states(self) -> int:
        """Count the elements of the result that are not what the first unit made."""
        raise NotImplementedError

    def step(self) -> None:
        """Queue one unit; wait for the oldest when the queue is full, for all in turns or with a rate."""
        with self.board.turn() as taken:
            if taken:
                self.drain()
            if len(self.in_flight) == QUEUE:
                self.retire()
            self.launch()
            self.counter += 1
            self.launched += 1
            event = self.torch.cuda.Event() if self.cuda else None
            if event:
                event.record()
            self.in_flight.append(event)
            if taken or self.rated:
                self.drain()

    def retire(self) -> None:
        """Wait for the oldest unit in flight."""
        event = self.in_flight.popleft()
        if event:
            event.synchronize()
        now = now_us()
        self.largest_gap_us, self.last_us = max(self.largest_gap_us, now - self.last_us), now
        self.completed += 1

    def drain(self) -> None:
        """Wait for all units in flight."""
        while self.in_flight:
            self.retire()

    def bad_counters(self) -> int:
        """Count the counters that differ from the number of steps."""
        return int((self.counter != self.launched).sum())


class Products(Units):
    """Matrix products: the same operands must give the same bits as the first time."""

    def __init__(self, args: argparse.Namespace, torch: Any) -> None:
        super().__init__(args, torch)
        kind = {"device": args.device, "dtype": torch.bfloat16 if self.cuda else torch.float32}
        self.left, self.right = torch.randn(args.size, args.size, **kind), torch.randn(args.size, args.size, **kind)
        self.product = torch.empty_like(self.left)
        for _ in range(3):  # the library chooses its kernel in the first calls
            torch.mm(self.left, self.right, out=self.product)
        self.reference = self.product.clone()

    def launch(self) -> None:
        """Queue one product."""
        self.torch.mm(self.left, self.right, out=self.product)

    def bad_states(self) -> int:
        """Count the elements that differ from the first product."""
        return int((self.product != self.reference).sum())


class Inferences(Units):
    """Inferences of a model, as a CUDA graph on a GPU: the same input must give the same output, but for rounding."""

    def __init__(self, args: argparse.Namespace, torch: Any) -> None:
        super().__init__(args, torch)
        known = importlib.import_module("torch_models")
        if args.model not in known.MODELS:
            sys.exit(fail(f"no model {args.model!r}; known: {', '.join(known.MODELS)}", 2))
        self.model, host = known.build(args.model)
        self.model, self.input = self.model.to(args.device), host.to(args.device)
        for _ in range(20 if self.cuda else 1):  # the library chooses its kernels in the first calls
            self.output = self.model(self.input)
        self.graph: Any = None
        if self.cuda:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.output = self.model(self.input)
            self.graph = graph
        self.launch()
        self.reference = self.output.clone()

    def launch(self) -> None:
        """Queue one inference."""
        if self.graph is None:
            self.output = self.model(self.input)
        else:
            self.graph.replay()

    def bad_states(self) -> int:
        """Count the outputs that differ from the first by more than rounding."""
        return int((~self.torch.isclose(self.output, self.reference, rtol=1e-3, atol=1e-3)).sum())


class Job:
    """Runs the units and obeys commands."""

    def __init__(self, units: Units, rate: float, phase: float) -> None:
        self.units, self.start_us = units, now_us()
        self.period_us, self.phase, self.due_us = 1e6 / rate if rate else 0.0, phase, 0.0
        self.paused = self.stopping = False
        self.pending = b""

    def stop(self, *_signal: object) -> None:
        """End after the unit at hand; also a signal handler."""
        self.stopping = True

    def say_state(self, event: str) -> None:
        """Print how far the job is."""
        units, now = self.units, now_us()
        say(
            event,
            kernels=units.completed,
            time_us=now,
            elapsed_us=now - self.start_us,
            largest_gap_us=units.largest_gap_us,
        )

    def obey(self, command: bytes) -> None:
        """Carry out one command."""
        if command == b"stat":
            self.say_state("stat")
            self.units.largest_gap_us = 0.0
        elif command == b"pause":
            self.units.drain()
            self.paused = True
            self.say_state("paused")
        elif command == b"resume":
            self.paused, self.units.last_us, self.due_us = False, now_us(), 0.0
            self.say_state("resumed")
        elif command == b"quit":
            self.stopping = True
        else:
            say("error", message="unknown command; known: stat, pause, resume, quit")

    def read_commands(self) -> None:
        """Obey what has arrived; wait a little only while paused."""
        if not select.select([sys.stdin], [], [], 0.1 if self.paused else 0.0)[0]:
            return
        chunk = os.read(sys.stdin.fileno(), 4096)
        self.stopping = self.stopping or not chunk
        *lines, self.pending = (self.pending + chunk).split(b"\n")
        for line in lines:
            self.obey(line)

    def next_tick_us(self) -> float:
        """Return the next tick after now, on a grid that all programs share."""
        return ((now_us() / self.period_us - self.phase) // 1 + 1 + self.phase) * self.period_us

    def is_due(self) -> bool:
        """Whether a unit is to start now; waits a little for the next tick, so that commands are heard."""
        if not self.period_us:
            return True
        self.due_us = self.due_us or self.next_tick_us()
        time.sleep(max(0.0, min(self.due_us - now_us(), COMMANDS_EVERY_US)) / 1e6)
        if now_us() < self.due_us:
            return False
        self.due_us = self.next_tick_us()
        return True

    def run(self) -> None:
        """Launch units until told to stop; returns when none is in flight."""
        self.units.last_us = now_us()
        while not self.stopping:
            self.read_commands()
            if not self.paused and not self.stopping and self.is_due():
                self.units.step()
        self.units.drain()


def say(event: str, **fields: object) -> None:
    """Print one JSON line."""
    print(json.dumps({"event": event, **fields}), flush=True)


def import_torch(device: str) -> Any:
    """Return the module, or end the program with 77 when it or its GPU is missing."""
    try:
        import torch
    except ImportError as error:
        sys.exit(fail(f"no PyTorch in this interpreter ({error}); install torch"))
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit(fail("PyTorch finds no CUDA device; see nvidia-smi"))
    torch.backends.cudnn.allow_tf32 = False  # float32 means float32, as in the services
    return torch


def fail(message: str, code: int = 77) -> int:
    """Print why the program cannot run and return the exit code."""
    print(message, file=sys.stderr)
    return code


def main() -> int:
    """Run until told to stop, then check the results."""
    args = parse()
    torch = import_torch(args.device)
    with torch.inference_mode():
        units = Inferences(args, torch) if args.model else Products(args, torch)
        job = Job(units, args.rate, args.phase)
        signal.signal(signal.SIGTERM, job.stop)
        signal.signal(signal.SIGINT, job.stop)
        say("ready", pid=os.getpid(), gpu=torch.cuda.get_device_name() if units.cuda else "cpu")
        job.run()
        bad_counters, bad_states = units.bad_counters(), units.bad_states()
    say(
        "end",
        kernels=units.completed,
        elapsed_us=now_us() - job.start_us,
        verified=True,
        bad_counters=bad_counters,
        bad_states=bad_states,
    )
    return 1 if bad_counters or bad_states else 0


if __name__ == "__main__":
    sys.exit(main())
