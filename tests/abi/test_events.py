"""bpf/events.h, as gcc and the BPF compiler see it, against the Python decoder."""

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.errors import GpschedError
from gpsched.adaptive.hints.observations import WakeKind
from gpsched.adaptive.probes import entry_points, events
from gpsched.adaptive.probes.errors import EventDecodeError


HEADER = Path(__file__).parents[2] / "bpf/events.h"
HEAD = ("time_ns", "pid", "tid", "kind", "call", "result", "flags", "pad")
CUDA = ("cuda.handle", "cuda.bytes")
RM = ("rm.client", "rm.parent", "rm.object", "rm.code", "rm.value", "rm.fd", "rm.pad")
WAKE = ("wake.handle", "wake.bytes")
HINT = ("hint.in_us", "hint.every_ns", "hint.lead_ns")
PROC = ("proc.parent", "proc.pad", "proc.comm")
ENUMS = {
    "GS_CLASS_": events.ProcessClass,
    "GS_CALL_": events.Call,
    "GS_LOST_": events.Lost,
    "GS_FLAG_": events.Flag,
    "GS_MANAGED_": events.ManagedFlag,
    "GS_WAKE_": events.Wake,
    "GS_HINT_": events.Hint,
    "GS_PAUSE_": events.Pause,
    "GS_": events.Kind,
}


def evaluate(folder: Path, expressions: list[str]) -> list[int]:
    """The values of C expressions, by a program that includes the header."""
    prints = "".join(f'printf("%ld\\n", (long)({expression}));' for expression in expressions)
    source = folder / "values.c"
    source.write_text(f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{ {prints} }}\n')
    subprocess.run(["gcc", "-Wall", "-Werror", "-o", folder / "values", source], check=True)
    output = subprocess.run([folder / "values"], check=True, capture_output=True, text=True).stdout
    return [int(line) for line in output.split()]


def offsets(layout: str) -> list[int]:
    """Where each field of a struct module format begins."""
    codes = re.findall(r"\d*[a-zA-Z]", layout.lstrip("="))
    fields: list[int] = []
    position = 0
    for code in codes:
        repeat = int(code[:-1] or 1) if code[-1] not in "sx" else 1
        width = int(code[:-1] or 1) if code[-1] in "sx" else {"Q": 8, "q": 8, "I": 4, "i": 4, "H": 2}[code[-1]]
        for _ in range(repeat):
            if code[-1] != "x":
                fields.append(position)
            position += width
    return fields


@pytest.mark.parametrize(
    ("names", "layout", "base"),
    [
        (HEAD, events.HEAD.format, 0),
        (CUDA, events.CUDA.format, events.HEAD.size),
        (RM, events.RM.format, events.HEAD.size),
        (PROC, events.PROC.format, events.HEAD.size),
        (WAKE, events.WAKE.format, events.HEAD.size),
        (HINT, events.HINT.format, events.HEAD.size),
    ],
)
def test_offsets(tmp_path: Path, names: tuple[str, ...], layout: str, base: int) -> None:
    compiled = evaluate(tmp_path, [f"offsetof(struct gs_event, {name})" for name in names])
    assert compiled == [base + offset for offset in offsets(layout)]


def test_sizes(tmp_path: Path) -> None:
    structs = ("gs_event", "gs_rm", "gs_counters", "gs_managed")
    expected = [events.EVENT_SIZE, events.RM.size, events.COUNTERS.size, 16]
    assert evaluate(tmp_path, [f"sizeof(struct {name})" for name in structs]) == expected
    assert events.CUDA.size == events.WAKE.size == events.HINT.size == events.PROC.size == events.RM.size


def test_wakes_have_the_learner_s_numbers() -> None:
    assert all(WakeKind[wake.name] == wake for wake in events.Wake)


def test_every_enumerator_has_its_python_value(tmp_path: Path) -> None:
    names = [*re.findall(r"^\s+(GS_\w+) = \d+,", HEADER.read_text(), re.M), "GS_FLAG_ASYNC", "GS_FLAG_WHOLE"]
    names += [f"GS_MANAGED_{flag}" for flag in ("FAST", "BURSTS", "ALL", "RESTING")]
    known = [name for name in names if name not in ("GS_CALL_COUNT", "GS_LOST_COUNT")]
    seen = 0
    for name, value in zip(known, evaluate(tmp_path, known), strict=True):
        prefix = next(prefix for prefix in ENUMS if name.startswith(prefix))
        assert ENUMS[prefix][name.removeprefix(prefix)] == value
        seen += 1
    assert seen == sum(len(enum) for enum in ENUMS.values())


def test_constants(tmp_path: Path) -> None:
    constants = {
        "GS_ABI_VERSION": events.ABI_VERSION,
        "(long)GS_UNKNOWN": events.UNKNOWN,
        "GS_COMM_LEN": events.COMM_LENGTH,
        "GS_CALL_COUNT": len(events.Call),
        "GS_LOST_COUNT": len(events.Lost),
        "GS_ARG_LAUNCH_CONFIG": entry_points.LAUNCH_CONFIG,
    }
    assert evaluate(tmp_path, list(constants)) == list(constants.values())


def test_cookies(tmp_path: Path) -> None:
    points = list(entry_points.ENTRY_POINTS.values())
    macros = ("GS_COOKIE_CALL", "GS_COOKIE_FLAGS", "GS_COOKIE_HANDLE", "GS_COOKIE_BYTES")
    values = evaluate(tmp_path, [f"{macro}({point.cookie}ULL)" for point in points for macro in macros])
    expected = [value for point in points for value in (point.call, int(point.is_async), point.handle, point.size)]
    assert values == expected


@given(st.binary(max_size=2 * events.EVENT_SIZE))
def test_any_bytes_decode_or_are_refused(record: bytes) -> None:
    event: events.Event | None = None
    refusal: GpschedError | None = None
    try:
        event = events.decode(record)
    except EventDecodeError as error:
        refusal = error
    assert (event is None) != (refusal is None)
    if len(record) != events.EVENT_SIZE:
        assert isinstance(refusal, EventDecodeError)
        assert refusal.size == len(record)


U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
S32 = st.integers(-(2**31), 2**31 - 1)


@given(U64, U32, U32, st.sampled_from([3, 4, 5, 6]), S32, st.tuples(U32, U32, U32, U32, U64, U32))
def test_resource_manager_events_keep_every_field(
    time_ns: int, pid: int, tid: int, kind: int, result: int, body: tuple[int, ...]
) -> None:
    record = events.HEAD.pack(time_ns, pid, tid, kind, 0, result, 0, 0) + events.RM.pack(*body, 0)
    event = events.decode(record)
    assert isinstance(event, events.RmEvent)
    got = (event.client, event.parent, event.object, event.code, event.value, event.fd)
    assert (event.time_ns, event.pid, event.tid, event.result, got) == (time_ns, pid, tid, result, body)


@given(U64, U32, st.sampled_from([1, 2]), st.sampled_from(list(events.Call)[1:]), st.booleans(), S32, U64, U64)
def test_cuda_events_keep_every_field(
    time_ns: int, pid: int, kind: int, call: events.Call, is_async: bool, result: int, handle: int, size: int
) -> None:
    record = events.HEAD.pack(time_ns, pid, pid, kind, call, result, int(is_async), 0) + events.CUDA.pack(handle, size)
    assert events.decode(record) == events.CudaEvent(time_ns, pid, pid, call, kind == 2, is_async, handle, size, result)


@given(U64, U32, st.sampled_from(list(events.Wake)), st.integers(-1, 2**31 - 1), U64, S32)
def test_wakes_keep_every_field(
    time_ns: int, tid: int, wake: events.Wake, descriptor: int, size: int, result: int
) -> None:
    record = events.HEAD.pack(time_ns, 1, tid, events.Kind.WAKE, wake, result, 0, 0)
    event = events.decode(record + events.WAKE.pack(descriptor, size))
    assert event == events.WakeEvent(time_ns, 1, tid, wake, descriptor, size, result)


@given(U32, st.sampled_from(list(events.Hint)), U64)
def test_hints_keep_every_field(tid: int, hint: events.Hint, in_us: int) -> None:
    record = events.HEAD.pack(7, 1, tid, events.Kind.HINT, hint, 0, 0, 0) + events.HINT.pack(in_us, 0, 0)
    assert events.decode(record) == events.HintEvent(7, 1, tid, hint, in_us)


@given(U64, U32)
def test_own_hints_are_events(time_ns: int, pid: int) -> None:
    event = events.decode(events.encode_hint(time_ns, pid))
    assert event == events.HintEvent(time_ns, pid, pid, events.Hint.RESERVE, 0)


@pytest.mark.parametrize(("kind", "what"), [(events.Kind.WAKE, "wake"), (events.Kind.HINT, "hint")])
@pytest.mark.parametrize("number", [0, 9, 65535])
def test_unknown_wakes_and_hints_are_refused(kind: events.Kind, what: str, number: int) -> None:
    with pytest.raises(EventDecodeError, match=f"unknown {what} {number}"):
        events.decode(events.HEAD.pack(1, 2, 3, kind, number, 0, 0, 0) + bytes(32))


@given(U32, st.binary(max_size=16))
def test_a_name_ends_at_its_first_zero(parent: int, comm: bytes) -> None:
    record = events.HEAD.pack(1, 2, 3, events.Kind.PROC_FORK, 0, 0, 0, 0) + events.PROC.pack(parent, 0, comm)
    event = events.decode(record)
    assert isinstance(event, events.ProcFork)
    assert (event.parent, event.comm) == (parent, comm.split(b"\0")[0].decode(errors="replace"))


@pytest.mark.parametrize("kind", [0, 12, 65535])
def test_unknown_kind_is_refused(kind: int) -> None:
    with pytest.raises(EventDecodeError, match=f"unknown kind {kind}"):
        events.decode(events.HEAD.pack(1, 2, 3, kind, 0, 0, 0, 0) + bytes(32))


@pytest.mark.parametrize("call", [0, 14])
def test_unknown_call_is_refused(call: int) -> None:
    with pytest.raises(EventDecodeError, match="unknown CUDA call"):
        events.decode(events.HEAD.pack(1, 2, 3, events.Kind.CUDA_ENTER, call, 0, 0, 0) + bytes(32))


@given(st.integers(0, events.EVENT_SIZE - 1))
def test_truncated_record_is_refused(length: int) -> None:
    record = events.HEAD.pack(1, 2, 3, events.Kind.PROC_EXIT, 0, 0, 0, 0) + bytes(32)
    with pytest.raises(EventDecodeError, match="64 expected"):
        events.decode(record[:length])
