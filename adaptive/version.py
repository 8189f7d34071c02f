"""The version that runs."""

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """Return the installed package's version; "source" when it runs from a copy that was not installed."""
    try:
        return version("gpsched")
    except PackageNotFoundError:
        return "source"
