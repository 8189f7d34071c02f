"""Which libcuda files are probed, and that each is probed once."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpsched.adaptive.errors import ProcessGoneError
from gpsched.adaptive.probes import libraries, links
from gpsched.adaptive.probes.errors import AttachError
from gpsched.adaptive.probes.events import CudaEvent
from gpsched.adaptive.probes.program import import_bcc
from tests.bpf import fake_cuda
from tests.bpf.conftest import Recorder, Victim


pytestmark = [pytest.mark.root, pytest.mark.bpf]


def launches(recorder: Recorder, victim: Victim) -> int:
    """Let the victim launch once and count the entries that are seen."""
    seen = len(recorder.of(victim.pid, CudaEvent))
    victim.do("call cuLaunchKernel")
    events = recorder.of(victim.pid, CudaEvent)[seen:]
    return sum(isinstance(event, CudaEvent) and not event.is_return for event in events)


def watch(recorder: Recorder, victim: Victim, library: Path) -> None:
    assert victim.do(f"load {library}") == 1
    recorder.probes.manage(victim.pid, "lc")
    assert recorder.probes.wait_attached(30)


def test_file_is_probed_once_for_all_its_processes_and_names(
    recorder: Recorder, victims: Callable[..., Victim], tmp_path: Path
) -> None:
    library = fake_cuda.build(tmp_path / "one")
    other_name = tmp_path / "libcuda.so.550.120"
    other_name.hardlink_to(library)
    before = len(recorder.probes.attachments())
    for path in (library, library, other_name):
        victim = victims()
        watch(recorder, victim, path)
        assert launches(recorder, victim) == 1
    (attachment,) = recorder.probes.attachments()[before:]
    assert attachment.entry_points == len(fake_cuda.SYMBOLS)


def test_every_copy_is_probed(recorder: Recorder, victims: Callable[..., Victim], tmp_path: Path) -> None:
    first = fake_cuda.build(tmp_path / "one")
    second = tmp_path / "two" / "libcuda.so.1"
    second.parent.mkdir()
    shutil.copy(first, second)
    for path in (first, second):
        victim = victims()
        watch(recorder, victim, path)
        assert launches(recorder, victim) == 1


def test_library_in_another_mount_namespace(recorder: Recorder, victims: Callable[..., Victim], tmp_path: Path) -> None:
    library = fake_cuda.build(tmp_path / "built")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    script = f'mount -t tmpfs none {hidden} && cp {library} {hidden} && exec "$0"'
    victim = victims("unshare", "-m", "--propagation", "private", "sh", "-c", script)
    watch(recorder, victim, hidden / "libcuda.so.1")
    assert not (hidden / "libcuda.so.1").exists()
    assert launches(recorder, victim) == 1


def test_deleted_library(recorder: Recorder, victim: Victim, tmp_path: Path) -> None:
    """An upgrade of the driver replaces the file under a process that goes on with the old one."""
    library = fake_cuda.build(tmp_path)
    assert victim.do(f"load {library}") == 1
    library.unlink()
    recorder.probes.manage(victim.pid, "lc")
    assert recorder.probes.wait_attached(30)
    assert launches(recorder, victim) == 1


def test_library_is_found_when_its_client_appears(
    recorder: Recorder, victim: Victim, nvidiactl: str, tmp_path: Path
) -> None:
    library = fake_cuda.build(tmp_path)
    recorder.probes.manage(victim.pid, "lc")
    assert recorder.probes.wait_attached(30)  # it has been looked for, and was not there yet
    assert victim.do(f"load {library}") == 1
    assert launches(recorder, victim) == 0
    victim.allocate_client(victim.do(f"open {nvidiactl}"))
    recorder.of(victim.pid)
    assert recorder.probes.wait_attached(30)
    assert launches(recorder, victim) == 1


def test_library_may_be_probed_ahead(recorder: Recorder, victim: Victim, tmp_path: Path) -> None:
    library = fake_cuda.build(tmp_path)
    recorder.probes.attach_file(library)
    assert recorder.probes.wait_attached(30)
    assert str(library) in recorder.probes.libraries()


def test_aliases_are_one_place(recorder: Recorder, victim: Victim, tmp_path: Path) -> None:
    alias = 'int cuLaunchKernel_ptsz(void) __attribute__((alias("cuLaunchKernel")));'
    library = fake_cuda.build(tmp_path, ("cuLaunchKernel",), alias)
    watch(recorder, victim, library)
    assert recorder.probes.attachments()[-1].entry_points == 1
    assert launches(recorder, victim) == 1


def test_missing_entry_points_are_not_missed(recorder: Recorder, victim: Victim, tmp_path: Path) -> None:
    watch(recorder, victim, fake_cuda.build(tmp_path, ("cuLaunchKernel", "cuStreamSynchronize")))
    assert recorder.probes.attachments()[-1].entry_points == 2
    assert launches(recorder, victim) == 1


@pytest.mark.parametrize("content", [b"", b"not a library", b"\x7fELF" + bytes(60)])
def test_file_that_is_no_library_is_reported(recorder: Recorder, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(content)
    recorder.probes.attach_file(path)
    assert recorder.probes.wait_attached(30)
    error = recorder.probes.attachments()[-1].error
    assert error is not None
    assert str(path) in error
    assert "\n" not in error


def test_library_without_entry_points_is_reported(recorder: Recorder, tmp_path: Path) -> None:
    path = fake_cuda.build(tmp_path, ("cuInit",))
    recorder.probes.attach_file(path)
    assert recorder.probes.wait_attached(30)
    assert recorder.probes.attachments()[-1].error is not None


def test_only_libcuda_is_looked_for(victim: Victim, tmp_path: Path) -> None:
    built = fake_cuda.build(tmp_path, ("cuLaunchKernel",))
    other = tmp_path / "libcudart.so.12"
    built.rename(other)
    assert victim.do(f"load {other}") == 1
    assert libraries.mapped_libraries(victim.pid) == []


def test_gone_process() -> None:
    with pytest.raises(ProcessGoneError):
        libraries.mapped_libraries(2**22 + 1)
    with pytest.raises(AttachError):
        libraries.probe_places(libraries.Library(libraries.FileId(0, 0), -1, "/nonexistent"))


def _old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "supports_multi", lambda *_: False)


def _old_bcc(monkeypatch: pytest.MonkeyPatch) -> None:
    """As bcc 0.18: it cannot say for which kind of attachment a program is loaded."""
    bpf = import_bcc().BPF
    load = bpf.load_func

    def load_func(self: Any, func_name: bytes, prog_type: int, device: bytes | None = None) -> Any:
        return load(self, func_name, prog_type, device)

    monkeypatch.setattr(bpf, "load_func", load_func)


@pytest.mark.parametrize("make_old", [_old_kernel, _old_bcc])
def test_without_multi_links(
    make_old: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, victim: Victim, tmp_path: Path
) -> None:
    """Each place by a perf event of its own, as before Linux 6.6."""
    make_old(monkeypatch)
    recorder = Recorder()
    try:
        symbols = ("cuLaunchKernel", "cuStreamSynchronize")
        watch(recorder, victim, fake_cuda.build(tmp_path, symbols))
        assert launches(recorder, victim) == 1
        victim.do(f"call cuStreamSynchronize {fake_cuda.STREAM}")
        event = recorder.of(victim.pid, CudaEvent)[-2]
        assert isinstance(event, CudaEvent)
        assert event.handle == fake_cuda.STREAM
    finally:
        recorder.probes.close()
