"""A CUDA program in a few lines of ctypes, for child processes of tests: ``from tests.sim.cuda_client import Cuda``."""

import ctypes


U32, U64, POINTER = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p


class Cuda:
    """The driver API of ``libcuda.so.1`` with one context on ``gpu``, its ``primary`` one or another; every call is
    checked.
    """

    def __init__(self, gpu: int = 0, *, primary: bool = False) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", U32(0))
        if primary:
            self.context = self.out(POINTER, "cuDevicePrimaryCtxRetain", ctypes.c_int(gpu))
            self.call("cuCtxSetCurrent", self.context)
        else:
            self.context = self.out(POINTER, "cuCtxCreate_v2", U32(0), ctypes.c_int(gpu))
        module = self.out(POINTER, "cuModuleLoadData", ctypes.c_char_p(b"ptx"))
        self.work = self.out(POINTER, "cuModuleGetFunction", module, ctypes.c_char_p(b"gpsched_work"))
        self.hold = self.out(POINTER, "cuModuleGetFunction", module, ctypes.c_char_p(b"gpsched_hold"))
        self.other = self.out(POINTER, "cuModuleGetFunction", module, ctypes.c_char_p(b"another"))

    def status(self, name: str, *arguments: object) -> int:
        return int(getattr(self.lib, name)(*arguments))

    def call(self, name: str, *arguments: object) -> None:
        status = self.status(name, *arguments)
        assert status == 0, f"{name} returned {status}"

    def out(self, kind: type, name: str, *arguments: object) -> object:
        """The value that ``name`` writes through its first argument."""
        result = kind()
        self.call(name, ctypes.byref(result), *arguments)
        return result

    def alloc(self, words: int) -> object:
        memory = self.out(U64, "cuMemAlloc_v2", ctypes.c_size_t(4 * words))
        self.call("cuMemsetD32_v2", memory, U32(0), ctypes.c_size_t(words))
        return memory

    def read(self, memory: object, words: int) -> list[int]:
        host = (U32 * words)()
        self.call("cuMemcpyDtoH_v2", host, memory, ctypes.c_size_t(4 * words))
        return list(host)

    def stream(self) -> object:
        return self.out(POINTER, "cuStreamCreate", U32(1))

    def launch(
        self, counters: object, us: float, words: int, stream: object = None, name: str = "cuLaunchKernel"
    ) -> None:
        values = [U64(0), counters, U32(round(us * 1000)), U32(words)]
        self.launch_with(self.work, values, stream, name)

    def launch_hold(self, flag: int, seq: int, stream: object = None) -> None:
        self.launch_with(self.hold, [U64(flag), U32(seq)], stream)

    def launch_with(self, function: object, values: list, stream: object = None, name: str = "cuLaunchKernel") -> None:
        params = (POINTER * len(values))(*[ctypes.addressof(value) for value in values])
        extra = [None] if name.startswith("cuLaunchKernel") else []
        self.call(name, function, *[U32(1)] * 6, U32(0), stream, params, *extra)

    def event(self, stream: object = None) -> object:
        event = self.out(POINTER, "cuEventCreate", U32(0))
        self.call("cuEventRecord", event, stream)
        return event

    def elapsed_us(self, begin: object, end: object) -> float:
        self.call("cuEventSynchronize", end)
        return self.out(ctypes.c_float, "cuEventElapsedTime", begin, end).value * 1000  # type: ignore[attr-defined]
