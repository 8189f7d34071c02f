"""The JSON lines that workload programs print. Times are µs of program time."""

import msgspec


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The program can be used. ``port`` of a service; ``iters_per_us`` as calibrated (0: not applicable)."""

    pid: int
    gpu: str
    port: int = 0
    iters_per_us: float = 0


class Run(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="run"):
    """One run of the load generator, an element a request, in the order they were sent.

    ``latency_us`` counts from sending, ``scheduled_us`` from when the request was due, ``server_us`` inside the
    service, ``gpu_us`` on the GPU's clock (0 unless asked for).
    """

    requests: int
    rate: float
    arrival: str
    seed: int
    start_us: float
    end_us: float
    latency_us: list[float]
    scheduled_us: list[float]
    server_us: list[float]
    gpu_us: list[float]


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="stat"):
    """How far a best-effort job is. ``largest_gap_us``: longest time without a completed kernel since the last stat."""

    kernels: int
    time_us: float
    elapsed_us: float
    largest_gap_us: float


class Paused(Progress, frozen=True, kw_only=True, tag_field="event", tag="paused"):
    """The job has drained its queue."""


class Resumed(Progress, frozen=True, kw_only=True, tag_field="event", tag="resumed"):
    """The job launches again."""


class End(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="end"):
    """The program's last line: was its state on the GPU what its kernels make of it?"""

    kernels: int
    verified: bool
    bad_counters: int
    bad_states: int = 0
    elapsed_us: float = 0

    @property
    def ok(self) -> bool:
        """True when the state was checked and is right."""
        return self.verified and not self.bad_counters and not self.bad_states


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="error"):
    """The program did not understand a command."""

    message: str


Message = Ready | Run | Progress | Paused | Resumed | End | Refused
decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
