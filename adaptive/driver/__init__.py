"""The RM ABI of the NVIDIA driver and the controls of the stock driver built on it.

The names below are what other rooms use; the rest of the package is its own business.
"""

from gpsched.adaptive.driver.control import StockControl
from gpsched.adaptive.driver.errors import (
    ControlAbsentError,
    ControlError,
    DescriptorAccessError,
    DescriptorGoneError,
    DescriptorLimitError,
    HandleGoneError,
    NoSubdeviceError,
    PrivilegeError,
    UnsupportedDriverError,
)
from gpsched.adaptive.driver.files import DriverFiles
from gpsched.adaptive.driver.scan import scan_process
from gpsched.adaptive.driver.types import Channel, ChannelGroup, Subdevice
from gpsched.adaptive.driver.watcher import (
    AllocationWatcher,
    GroupAdded,
    GroupChanged,
    GroupRemoved,
    SliceSetByOwner,
)


__all__ = (
    "AllocationWatcher",
    "Channel",
    "ChannelGroup",
    "ControlAbsentError",
    "ControlError",
    "DescriptorAccessError",
    "DescriptorGoneError",
    "DescriptorLimitError",
    "DriverFiles",
    "GroupAdded",
    "GroupChanged",
    "GroupRemoved",
    "HandleGoneError",
    "NoSubdeviceError",
    "PrivilegeError",
    "SliceSetByOwner",
    "StockControl",
    "Subdevice",
    "UnsupportedDriverError",
    "scan_process",
)
