"""The built sample programs and a driver that can misbehave (fake_libcuda.c)."""

import shutil
import subprocess
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    if not shutil.which("cc"):
        pytest.skip("no C compiler: the sample programs cannot be built")
    subprocess.run(["make", "-s", "-C", str(ROOT / "bench/programs")], check=True, timeout=120)


@pytest.fixture(scope="session")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of programs that use the fake driver; add FAKE_CUDA_... for faults."""
    directory = tmp_path_factory.mktemp("fake_cuda")
    source = Path(__file__).with_name("fake_libcuda.c")
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-o", str(directory / "libcuda.so.1"), str(source)], check=True, timeout=60
    )
    return {"LD_LIBRARY_PATH": str(directory)}
