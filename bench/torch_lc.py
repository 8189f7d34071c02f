"""A latency-critical service in plain PyTorch: a vision model behind a TCP socket, one request at a time.

It knows nothing of gpsched and needs nothing of it; any interpreter with torch runs it (and torchvision, for models
that torch_models.py does not have).
Wire formats and JSON lines are those of gpsched-lc: load comes from ``gpsched-lc --connect PORT``. With ``--http`` it
is an asyncio server (torch_http.py), else a plain loop on sockets.
Ends on ``quit`` or at the end of standard input.
Exit codes: 0 success, 1 wrong results, 2 bad argument, 77 no torch or GPU.
"""

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


REQUEST = struct.Struct("=Q56s")
REPLY = struct.Struct("=Qdd")


def now_us() -> float:
    """The program clock."""
    return time.monotonic() * 1e6


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; exits with 2 when it is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="resnet50", help="here, of torchvision, or 'linear' (%(default)s)")
    parser.add_argument(
        "--mode", choices=("graph", "eager"), default="graph", help="one CUDA graph, or launches one by one"
    )
    parser.add_argument("--prep-us", type=float, default=200.0, help="host preparation a request (%(default)s)")
    parser.add_argument("--dtype", choices=("float16", "float32"), default="float16", help="on a GPU (%(default)s)")
    parser.add_argument("--switchboard", metavar="FILE", help="obey its switches: take turns with others, give hints")
    parser.add_argument("--http", action="store_true", help="speak HTTP/1.1: POST anything, JSON comes back")
    parser.add_argument("--port", type=int, default=0, help="0 = any free one, printed")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args(argv)
    if args.device == "cpu" and args.mode == "graph":
        parser.error("CUDA graphs need --device cuda; use --mode eager")
    return args


def build(args: argparse.Namespace, torch: Any) -> tuple[Any, Any]:
    """Return the model and one input on the host, both ready for the device."""
    half = args.device == "cuda" and args.dtype == "float16"
    model, host = find(args.model, torch)
    model = model.to(args.device).eval()
    if half:
        model, host = model.half(), host.half() if host.is_floating_point() else host
    return model, host.pin_memory() if args.device == "cuda" else host


def find(name: str, torch: Any) -> tuple[Any, Any]:
    """Return a model by its name, with random weights, and one input."""
    if name == "linear":
        return torch.nn.Linear(256, 256), torch.randn(1, 256)
    own = importlib.import_module("torch_models")
    if name in own.MODELS:
        return own.build(name)  # type: ignore[no-any-return]
    try:
        import torchvision
    except ImportError as error:
        sys.exit(fail(f"{name} needs torchvision ({error}); without it there are: {', '.join(own.MODELS)}"))
    model = torchvision.models.get_model(name, weights=None).to(memory_format=torch.channels_last)
    return model, torch.randn(1, 3, 224, 224)


class Switchboard:
    """The switches that programs share (switchboard.h); all off without a file."""

    def __init__(self, file: str | None) -> None:
        self.library: Any = None
        if file is not None:
            self.library = ctypes.CDLL(str(Path(__file__).parent / "build" / "libgpsched-switchboard.so"))
            if self.library.switchboard_open(file.encode()):
                raise SystemExit(f"--switchboard: cannot map {file}")

    def announce(self, us: float) -> None:
        """Give a hint of a burst in so many µs while hints are wanted."""
        if self.library:
            self.library.announce_if_wanted(ctypes.c_double(us))

    @contextlib.contextmanager
    def turn(self) -> Iterator[bool]:
        """Wait for the turn while programs use the GPU one after the other; tells whether they do."""
        taken = self.library.seq_take() if self.library else 0
        try:
            yield bool(taken)
        finally:
            if taken:
                self.library.seq_give(taken)


class Inference:
    """One request: copy the input in, run the model, copy a result out."""

    def __init__(self, args: argparse.Namespace, torch: Any) -> None:
        self.torch = torch
        self.model, self.host = build(args, torch)
        self.device_input = self.host.to(args.device)
        self.stream = torch.cuda.Stream() if args.device == "cuda" else None
        self.board = Switchboard(args.switchboard)
        self.graph: Any = None
        for _ in range(20):
            self.expected = self.run()
        if args.mode == "graph":
            self.capture()
            self.expected = self.run()

    def capture(self) -> None:
        """Record the model as a CUDA graph."""
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.stream):
            self.output = self.model(self.device_input)
        self.torch.cuda.synchronize()
        self.graph = graph

    def run(self) -> float:
        """Serve one request; return the sum of the outputs."""
        with self.board.turn(), self.torch.cuda.stream(self.stream):
            self.device_input.copy_(self.host, non_blocking=True)
            if self.graph is None:
                self.output = self.model(self.device_input)
            else:
                self.graph.replay()
            return float(self.output.float().sum().cpu())


class Requests:
    """What is done for a request, whatever language it came in: hint, preparation, inference, check."""

    def __init__(
        self,
        prep_us: float,
        infer: Callable[[], float],
        expected: float,
        announce: Callable[[float], None] = lambda _us: None,
    ) -> None:
        self.prep_us, self.infer, self.expected, self.announce = prep_us, infer, expected, announce
        self.served = self.wrong = 0

    def serve(self, data: bytes) -> tuple[int, float]:
        """Return the sequence number in the request (0 without one) and the µs it took."""
        received = now_us()
        self.announce(self.prep_us)
        sequence = REQUEST.unpack(data)[0] if len(data) == REQUEST.size else 0
        while now_us() < received + self.prep_us:
            pass
        answer = self.infer()
        self.served += 1
        self.wrong += abs(answer - self.expected) > 1e-2 * max(1.0, abs(self.expected))
        return sequence, now_us() - received

    def serve_http(self, body: bytes) -> dict[str, float]:
        """Return the fields of the answer in JSON."""
        sequence, server_us = self.serve(body)
        return {"sequence": sequence, "server_us": round(server_us, 1), "gpu_us": 0.0}


class Server:
    """Serves the connections one request at a time; the messages are structures of fixed size."""

    def __init__(self, port: int, requests: Requests) -> None:
        self.requests = requests
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", port))
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        self.selector.register(sys.stdin, selectors.EVENT_READ, self.command)
        self.running = True

    def accept(self) -> None:
        """Take a new connection."""
        client, _ = self.listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(1.0)
        self.selector.register(client, selectors.EVENT_READ, lambda: self.serve_or_drop(client))

    def command(self) -> None:
        """Stop on ``quit`` and at the end of input."""
        if os.read(sys.stdin.fileno(), 4096).strip() in (b"", b"quit"):
            self.running = False

    def serve_or_drop(self, client: socket.socket) -> None:
        """Serve one request; drop a client that is gone."""
        try:
            self.serve(client)
        except OSError:
            self.selector.unregister(client)
            client.close()

    def serve(self, client: socket.socket) -> None:
        """Receive, serve, reply."""
        data = client.recv(REQUEST.size, socket.MSG_WAITALL)
        if len(data) < REQUEST.size:
            raise ConnectionResetError
        sequence, server_us = self.requests.serve(data)
        client.sendall(REPLY.pack(sequence, server_us, 0.0))

    def run(self) -> None:
        """Serve until told to stop."""
        while self.running:
            for key, _ in self.selector.select():
                key.data()


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
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False  # float32 means float32, as for matrix products already
    return torch


def fail(message: str) -> int:
    """Print why the program cannot run and return the exit code."""
    print(message, file=sys.stderr)
    return 77


def serve(args: argparse.Namespace, requests: Requests, gpu: str) -> None:
    """Say that the service is ready, and serve until told to stop."""

    def ready(port: int) -> None:
        say("ready", pid=os.getpid(), gpu=gpu, port=port)

    if args.http:
        importlib.import_module("torch_http").run(args.port, requests.serve_http, ready)
        return
    server = Server(args.port, requests)
    ready(server.listener.getsockname()[1])
    server.run()


def main() -> int:
    """Serve until told to stop, then tell whether all results were right."""
    args = parse()
    torch = import_torch(args.device)
    with torch.inference_mode():
        inference = Inference(args, torch)
        requests = Requests(args.prep_us, inference.run, inference.expected, inference.board.announce)
        serve(args, requests, torch.cuda.get_device_name() if args.device == "cuda" else "cpu")
    say("end", kernels=requests.served, verified=True, bad_counters=requests.wrong)
    return 1 if requests.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
