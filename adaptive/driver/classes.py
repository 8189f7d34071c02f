"""RM object classes: which ones the watcher keeps, and which engine an object on a channel stands for.

The last byte of a class number is its role in every architecture (class/cl*.h), the rest names the architecture;
the numbers below are those of Turing to Blackwell.
"""

CLIENTS = frozenset({0x0000, 0x0001, 0x0041})  # NV01_ROOT, NV01_ROOT_NON_PRIV, NV01_ROOT_CLIENT
ROOT_CLIENT = 0x0041
DEVICE = 0x0080  # NV01_DEVICE_0
SUBDEVICE = 0x2080  # NV20_SUBDEVICE_0
CHANNEL_GROUP = 0xA06C  # KEPLER_CHANNEL_GROUP_A, in every architecture since Kepler

CHANNELS = frozenset({0xC46F, 0xC56F, 0xC86F, 0xC96F, 0xCA6F})
COMPUTE = frozenset({0xC5C0, 0xC6C0, 0xC7C0, 0xC9C0, 0xCBC0, 0xCDC0, 0xCEC0})
COPY = frozenset({0xC5B5, 0xC6B5, 0xC7B5, 0xC8B5, 0xC9B5, 0xCAB5})

# A compute group may also hold objects of the copy engine that shares its runlist: compute decides.
_RANK = ("unknown", "other", "copy", "compute")


def is_channel(class_: int) -> bool:
    """Tell whether a class is a GPFIFO channel, also of an architecture newer than the table."""
    return class_ in CHANNELS or (class_ >= 0xB000 and class_ & 0xFF == 0x6F)


def engine_of(class_: int) -> str:
    """Return "compute", "copy" or "other" for the class of an object on a channel."""
    if class_ in COMPUTE or (class_ >= 0xB000 and class_ & 0xFF == 0xC0):
        return "compute"
    if class_ in COPY or (class_ >= 0xB000 and class_ & 0xFF == 0xB5):
        return "copy"
    return "other"


def stronger(one: str, two: str) -> str:
    """Return which of two engines describes a group that has both."""
    return max(one, two, key=_RANK.index)


def depth(class_: int) -> int:
    """Order classes so that parents come before their children: device, subdevice, group, channel, the rest."""
    if is_channel(class_):
        return 3
    return {DEVICE: 0, SUBDEVICE: 1, CHANNEL_GROUP: 2}.get(class_, 4)
