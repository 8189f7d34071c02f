"""A best-effort job in plain PyTorch: endless matrix products whose accumulated result is checked at the end.

It knows nothing of gpsched and needs nothing of it; any interpreter with torch runs it. Commands and JSON lines are
those of gpsched-be: stat, pause, resume, quit on standard input.
Exit codes: 0 success, 1 wrong results, 2 bad argument, 77 no torch or GPU.
"""

import argparse
import json
import os
import select
import signal
import sys
import time
from collections import deque
from typing import Any


QUEUE = 4


def now_us() -> float:
    """The program clock."""
    return time.monotonic() * 1e6


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; exits with 2 when it is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=8192, help="rows and columns of the matrices (%(default)s)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args(argv)
    if args.size < 16:
        parser.error("--size must be at least 16")
    return args


class Products:
    """step(): one product, and one addition to a counter on the device, which makes a lost or repeated step visible.

    The product is checked too: the same operands must give the same bits as the first time.
    """

    def __init__(self, args: argparse.Namespace, torch: Any) -> None:
        self.torch, self.cuda = torch, args.device == "cuda"
        kind = {"device": args.device, "dtype": torch.bfloat16 if self.cuda else torch.float32}
        self.left, self.right = torch.randn(args.size, args.size, **kind), torch.randn(args.size, args.size, **kind)
        self.product = torch.empty_like(self.left)
        for _ in range(3):  # the library chooses its kernel in the first calls
            torch.mm(self.left, self.right, out=self.product)
        self.reference = self.product.clone()
        self.counter = torch.zeros(1 << 16, dtype=torch.int64, device=args.device)
        self.launched = self.completed = 0
        self.in_flight: deque[Any] = deque()
        self.largest_gap_us, self.last_us = 0.0, now_us()

    def step(self) -> None:
        """Queue one product; wait for the oldest when the queue is full."""
        if len(self.in_flight) == QUEUE:
            self.retire()
        self.torch.mm(self.left, self.right, out=self.product)
        self.counter += 1
        self.launched += 1
        event = self.torch.cuda.Event() if self.cuda else None
        if event:
            event.record()
        self.in_flight.append(event)

    def retire(self) -> None:
        """Wait for the oldest product in flight."""
        event = self.in_flight.popleft()
        if event:
            event.synchronize()
        now = now_us()
        self.largest_gap_us, self.last_us = max(self.largest_gap_us, now - self.last_us), now
        self.completed += 1

    def drain(self) -> None:
        """Wait for all products in flight."""
        while self.in_flight:
            self.retire()

    def bad_counters(self) -> int:
        """Count the counters that differ from the number of steps."""
        return int((self.counter != self.launched).sum())

    def bad_states(self) -> int:
        """Count the elements that differ from the first product."""
        return int((self.product != self.reference).sum())


class Job:
    """Runs the products and obeys commands."""

    def __init__(self, products: Products) -> None:
        self.products, self.start_us = products, now_us()
        self.paused = self.stopping = False
        self.pending = b""

    def stop(self, *_signal: object) -> None:
        """End after the product at hand; also a signal handler."""
        self.stopping = True

    def say_state(self, event: str) -> None:
        """Print how far the job is."""
        products, now = self.products, now_us()
        say(
            event,
            kernels=products.completed,
            time_us=now,
            elapsed_us=now - self.start_us,
            largest_gap_us=products.largest_gap_us,
        )

    def obey(self, command: bytes) -> None:
        """Carry out one command."""
        if command == b"stat":
            self.say_state("stat")
            self.products.largest_gap_us = 0.0
        elif command == b"pause":
            self.products.drain()
            self.paused = True
            self.say_state("paused")
        elif command == b"resume":
            self.paused, self.products.last_us = False, now_us()
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

    def run(self) -> None:
        """Launch products until told to stop; returns when none is in flight."""
        while not self.stopping:
            self.read_commands()
            if not self.paused and not self.stopping:
                self.products.step()
        self.products.drain()


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
    return torch


def fail(message: str) -> int:
    """Print why the program cannot run and return the exit code."""
    print(message, file=sys.stderr)
    return 77


def main() -> int:
    """Run until told to stop, then check the results."""
    args = parse()
    torch = import_torch(args.device)
    with torch.inference_mode():
        products = Products(args, torch)
        job = Job(products)
        signal.signal(signal.SIGTERM, job.stop)
        signal.signal(signal.SIGINT, job.stop)
        say("ready", pid=os.getpid(), gpu=torch.cuda.get_device_name() if products.cuda else "cpu")
        job.run()
        bad_counters, bad_states = products.bad_counters(), products.bad_states()
    say(
        "end",
        kernels=products.completed,
        elapsed_us=now_us() - job.start_us,
        verified=True,
        bad_counters=bad_counters,
        bad_states=bad_states,
    )
    return 1 if bad_counters or bad_states else 0


if __name__ == "__main__":
    sys.exit(main())
