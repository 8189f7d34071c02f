"""The mirror of ``adaptive/actuator/native/plan.h``: what daemon and actuator share. A test compares every offset."""

import ctypes


U8, U16, U32, U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64

MAGIC = 0x54434147
VERSION = 6
MAX_GPUS = 8
MAX_SLOTS = 256
MAX_GROUPS = 128
MAX_CHANNELS = 64
MAX_PLANS = 64
MAX_TRIGGERS = 4
MAX_TURNS = 32
MAX_RECORDS = 1024
NO_INDEX = 0xFFFFFFFF

MSG_SLOT, MSG_DROP, MSG_PUBLISH, MSG_EVENT = 1, 2, 3, 4
SLOT_DRIVER, SLOT_PIDFD, SLOT_AGENT, SLOT_RING = 1, 2, 3, 4


class Group(ctypes.Structure):
    """``struct ga_group``."""

    _fields_ = (
        ("pid", U32),
        ("slot", U32),
        ("gpu", U32),
        ("role", U32),
        ("client", U32),
        ("handle", U32),
        ("subdevice", U32),
        ("turn", U32),
        ("original_us", U64),
        ("channel_count", U32),
        ("channels", U32 * MAX_CHANNELS),
        ("pad", U32),
    )


class Trigger(ctypes.Structure):
    """``struct ga_trigger``."""

    _fields_ = (
        ("kind", U16),
        ("call", U16),
        ("tid", U32),
        ("handle_mask", U64),
        ("handle", U64),
        ("bytes_min", U64),
        ("bytes_max", U64),
        ("offset_us", U32),
        ("before_us", U32),
    )


class Plan(ctypes.Structure):
    """``struct ga_plan``."""

    _fields_ = (
        ("pid", U32),
        ("gpu", U32),
        ("group", U32),
        ("mechanism", U32),
        ("limit_us", U32),
        ("launch_within_us", U32),
        ("quiet_us", U32),
        ("end_calls", U32),
        ("release_us", U32),
        ("agent_slot", U32),
        ("agent_tid", U32),
        ("hold_kernels", U32),
        ("max_per_second", U32),
        ("trigger_count", U32),
        ("rank", U32),
        ("due_us", U32),
        ("triggers", Trigger * MAX_TRIGGERS),
    )


class Gpu(ctypes.Structure):
    """``struct ga_gpu``."""

    _fields_ = (
        ("turn_count", U32),
        ("max_reserved_permille", U32),
        ("break_us", U32),
        ("break_every_us", U32),
        ("wait_us", U32),
        ("turn_us", U32 * MAX_TURNS),
    )


class Plans(ctypes.Structure):
    """``struct ga_plans``."""

    _fields_ = (
        ("gpu_count", U32),
        ("group_count", U32),
        ("plan_count", U32),
        ("pad", U32),
        ("gpus", Gpu * MAX_GPUS),
        ("groups", Group * MAX_GROUPS),
        ("plans", Plan * MAX_PLANS),
    )


class Record(ctypes.Structure):
    """``struct ga_record``."""

    _fields_ = (
        ("sequence", U64),
        ("trigger_ns", U64),
        ("begin_ns", U64),
        ("ready_ns", U64),
        ("launch_ns", U64),
        ("end_ns", U64),
        ("undone_ns", U64),
        ("pid", U32),
        ("gpu", U32),
        ("trigger", U32),
        ("reason", U32),
        ("merged", U32),
        ("controls", U32),
        ("failures", U32),
        ("last_status", U32),
    )


class Counters(ctypes.Structure):
    """``struct ga_counters``."""

    _fields_ = tuple(
        (name, U64)
        for name in (
            "events",
            "triggers",
            "throttled",
            "reservations",
            "controls",
            "failures",
            "turns",
            "descriptors",
            "disabled",
            "beside",
        )
    )


class Turns(ctypes.Structure):
    """``struct ga_turns``."""

    _fields_ = (("had_ns", U64 * MAX_TURNS),)


class Shared(ctypes.Structure):
    """``struct ga_shared``."""

    _fields_ = (
        ("magic", U32),
        ("version", U32),
        ("size", U32),
        ("pad", U32),
        ("generation", U64),
        ("counters", Counters),
        ("plans", Plans),
        ("record_count", U64),
        ("records", Record * MAX_RECORDS),
        ("turns", Turns * MAX_GPUS),
    )


class Message(ctypes.Structure):
    """``struct ga_message``."""

    _fields_ = (("type", U32), ("slot", U32), ("kind", U32), ("pid", U32), ("generation", U64), ("event", U8 * 64))


STRUCTS: dict[str, type[ctypes.Structure]] = {
    "ga_group": Group,
    "ga_trigger": Trigger,
    "ga_plan": Plan,
    "ga_gpu": Gpu,
    "ga_plans": Plans,
    "ga_record": Record,
    "ga_counters": Counters,
    "ga_turns": Turns,
    "ga_shared": Shared,
    "ga_message": Message,
}
