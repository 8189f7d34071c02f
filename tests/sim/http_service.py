"""torch_lc.py's asyncio HTTP server with kernels of the embedded GPU for a model; run by its path, as the original is.

Arguments: the folder of torch_lc.py, host preparation in real µs, kernels a request, µs of each.
"""

import argparse
import ctypes
import importlib
import sys
from pathlib import Path
from typing import Any


sys.path[:0] = [sys.argv[1], str(Path(__file__).parents[2])]
WORDS = 256


class Model:
    """Copies a number in, runs kernels that count, copies it out."""

    def __init__(self, kernels: int, kernel_us: float) -> None:
        self.cuda: Any = importlib.import_module("tests.sim.cuda_client").Cuda(primary=True)
        self.kernels, self.kernel_us = kernels, kernel_us
        self.counters, self.stream = self.cuda.alloc(WORDS), self.cuda.stream()
        self.input = self.cuda.alloc(1)
        self.host = (ctypes.c_uint32 * 1)(7)

    def infer(self) -> float:
        """Serve one request; the number comes back."""
        size = ctypes.c_size_t(4)
        self.cuda.call("cuMemcpyHtoDAsync_v2", self.input, self.host, size, self.stream)
        for _ in range(self.kernels):
            self.cuda.launch(self.counters, self.kernel_us, WORDS, self.stream)
        self.cuda.call("cuMemcpyDtoHAsync_v2", self.host, self.input, size, self.stream)
        self.cuda.call("cuStreamSynchronize", self.stream)
        return float(self.host[0])


torch_lc: Any = importlib.import_module("torch_lc")
prep_us, kernels, kernel_us = (float(text) for text in sys.argv[2:5])
model = Model(round(kernels), kernel_us)
requests = torch_lc.Requests(prep_us, model.infer, model.infer())
torch_lc.serve(argparse.Namespace(http=True, port=0), requests, "embedded")
counted = model.cuda.read(model.counters, WORDS)
lost = sum(count != (requests.served + 1) * model.kernels for count in counted)
torch_lc.say("end", kernels=requests.served, verified=True, bad_counters=lost + requests.wrong)
