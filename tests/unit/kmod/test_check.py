"""The checker and the patch on small trees of our own: the few lines that matter, as old and new releases have them."""

import importlib.util
import subprocess
from pathlib import Path

import pytest


KMOD = Path(__file__).resolve().parents[3] / "kmod_patches"
_spec = importlib.util.spec_from_file_location("gpsched_kmod_check", KMOD / "check.py")
assert _spec is not None
assert _spec.loader is not None
check = importlib.util.module_from_spec(_spec)
__import__("sys").modules[_spec.name] = check
_spec.loader.exec_module(check)


@pytest.fixture(params=["550", "560"])
def tree(request: pytest.FixtureRequest, tmp_path: Path, driver_tree) -> Path:
    driver_tree(request.param, tmp_path / "driver" / "kernel-open")
    return tmp_path / "driver"


def patch(tree: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([KMOD / "scripts" / "patch-tree.sh", tree], capture_output=True, text=True, check=False)


def everything(tree: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes() for path in sorted(tree.rglob("*")) if path.is_file()}


def edit(tree: Path, old: str, new: str, count: int = -1) -> None:
    file = tree / "kernel-open" / "nvidia" / "nv.c"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, count))


def test_tree_can_be_patched_and_is_then_right(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([str(tree)]) == 0
    done = patch(tree)
    assert done.returncode == 0, done.stderr
    assert check.main(["--patched", str(tree)]) == 0
    assert "every hook is in its function" in capsys.readouterr().out
    assert not list(tree.rglob("*.rej"))
    assert not list(tree.rglob("*.orig"))


def test_dkms_layout_is_patched_too(tmp_path: Path, driver_tree) -> None:
    driver_tree("550", tmp_path / "nvidia-550")
    done = patch(tmp_path / "nvidia-550")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "nvidia-550" / "nvidia" / "gpsched" / "control.c").exists()


def test_second_time_is_refused_and_changes_nothing(tree: Path) -> None:
    assert patch(tree).returncode == 0
    before = everything(tree)
    done = patch(tree)
    assert done.returncode == 1
    assert "already patched" in done.stderr
    assert everything(tree) == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rmStatus = rm_ioctl(", "rmStatus = rm_ioctl_v2(", "rm_ioctl("),
        ("nv_module_exit(nv_stack_t", "nv_module_stop(nv_stack_t", "function nv_module_exit is not there"),
        ("rm_cleanup_file_private(sp", "rm_forget(sp", "rm_cleanup_file_private("),
        ("    rc = nv_module_state_init(*sp);\n", "", "nv_module_state_init("),
    ],
)
def test_moved_anchor_is_refused_and_changes_nothing(tree: Path, old: str, new: str, message: str) -> None:
    edit(tree, old, new, 1)
    before = everything(tree)
    done = patch(tree)
    assert done.returncode == 1
    assert message in done.stderr
    assert "nothing was changed" in done.stderr
    assert everything(tree) == before


def test_changed_neighbour_is_refused_and_changes_nothing(tree: Path) -> None:
    """The anchor is where it should be, but the one line of context is not: no guessing."""
    edit(tree, "status = ((rmStatus == NV_OK) ? 0 : -EINVAL);", "status = translate(rmStatus);")
    before = everything(tree)
    done = patch(tree)
    assert done.returncode == 1
    assert "nothing was changed" in done.stderr
    assert everything(tree) == before


def test_hook_in_the_wrong_function_is_found(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert patch(tree).returncode == 0
    edit(tree, "    gpsched_close(&nvlfp->nvfp);\n", "", 1)
    edit(tree, "    return status;\n", "    gpsched_close(&nvlfp->nvfp);\n    return status;\n", 1)
    assert check.main(["--patched", str(tree)]) == 1
    assert "0 times in nvidia_close_callback" in capsys.readouterr().err


def test_hook_far_from_its_anchor_is_found(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert patch(tree).returncode == 0
    edit(tree, "    gpsched_exit();\n", "", 1)
    edit(tree, "    rm_shutdown_rm(sp);\n", "    rm_shutdown_rm(sp);\n    gpsched_exit();\n", 1)
    assert check.main(["--patched", str(tree)]) == 1
    assert "not next to nv_module_state_exit(" in capsys.readouterr().err


def test_version_and_note_for_a_driver_we_did_not_build(
    tmp_path: Path, driver_tree, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main([str(driver_tree("560", tmp_path / "d"))]) == 0
    out = capsys.readouterr().out
    assert "driver 595.45.04: can be patched" in out
    assert "only 535 and 550 were built and loaded by us" in out


@pytest.mark.parametrize("made", ["", "nvidia.ko"])
def test_no_driver_tree(tmp_path: Path, made: str, capsys: pytest.CaptureFixture[str]) -> None:
    if made:
        (tmp_path / made).touch()
    assert check.main([str(tmp_path)]) == 1
    assert ("proprietary" if made else "no driver tree") in capsys.readouterr().err
