"""The hold agent: a library that the CUDA driver loads into a latency-critical program at its start."""

from importlib import resources
from pathlib import Path


def library_path() -> Path:
    """Where the library is built."""
    return Path(str(resources.files("gpsched.adaptive.agent"))) / "build" / "libgpsched_agent.so"


def environment() -> dict[str, str]:
    """What to add to a program's environment so that CUDA loads the agent; empty when it is not built."""
    path = library_path()
    return {"CUDA_INJECTION64_PATH": str(path)} if path.exists() else {}
