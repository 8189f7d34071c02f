"""GPU numbers: as nvidia-smi counts where /proc tells, in the order of ids elsewhere."""

from pathlib import Path

from gpsched.adaptive.views import GpuNumbers


def test_listed_gpus_are_numbered_by_address(tmp_path: Path) -> None:
    for address in ("0000:c8:00.0", "0000:1b:00.0", "0001:03:00.0"):
        (tmp_path / address).mkdir()
    numbers = GpuNumbers(tmp_path)
    assert [numbers.number(gpu) for gpu in (0xC800, 0x1B00, 0x1_0300, None)] == [1, 0, 2, None]


def test_unlisted_gpus_are_numbered_as_they_are_met(tmp_path: Path) -> None:
    numbers = GpuNumbers(tmp_path / "none")
    assert numbers.number(0x300) == 0
    assert numbers.number(0x200) == 0
    assert numbers.number(0x300) == 1
