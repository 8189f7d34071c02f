"""What holds for all tests."""

from hypothesis import settings


# An example's wall time says nothing on a shared machine.
settings.register_profile("gpsched", deadline=None)
settings.load_profile("gpsched")
