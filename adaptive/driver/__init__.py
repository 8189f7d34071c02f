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
from gpsched.adaptive.driver.types import Channel, ChannelGroup, Subdevice


__all__ = (
    "Channel",
    "ChannelGroup",
    "ControlAbsentError",
    "ControlError",
    "DescriptorAccessError",
    "DescriptorGoneError",
    "DescriptorLimitError",
    "DriverFiles",
    "HandleGoneError",
    "NoSubdeviceError",
    "PrivilegeError",
    "StockControl",
    "Subdevice",
    "UnsupportedDriverError",
)
