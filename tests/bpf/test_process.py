"""Fork, exec, exit, threads, and the entries that they make and remove."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpsched.adaptive.errors import ProcessGoneError
from gpsched.adaptive.probes.events import ProcessClass, ProcExec, ProcExit, ProcFork
from tests.bpf.conftest import Recorder, Victim


pytestmark = [pytest.mark.root, pytest.mark.bpf]


@pytest.mark.parametrize(("name", "class_"), [("lc", ProcessClass.LC), ("be", ProcessClass.BE)])
def test_child_has_its_parent_s_class(recorder: Recorder, victim: Victim, name: str, class_: ProcessClass) -> None:
    recorder.probes.manage(victim.pid, name)
    child = victim.do("hold")
    (fork,) = recorder.of(child)
    assert isinstance(fork, ProcFork)
    assert (fork.tid, fork.parent, fork.comm) == (child, victim.pid, "victim")
    assert recorder.probes.managed()[child] is class_
    assert set(recorder.probes.counters(child).values()) == {0}


def test_life_of_a_child(recorder: Recorder, victim: Victim) -> None:
    recorder.probes.manage(victim.pid, "be")
    child = victim.do("fork 7")
    fork, end = recorder.of(child)
    assert isinstance(fork, ProcFork)
    assert isinstance(end, ProcExit)
    assert end.exit_code == 7
    assert child not in recorder.probes.managed()
    assert recorder.probes.counters(child) == {}


def test_grandchildren_are_followed(recorder: Recorder, victims: Callable[..., Victim]) -> None:
    victim = victims("nice", "-n", "0")  # its exec keeps the pid
    recorder.probes.manage(victim.pid, "lc")
    victim.execute()
    child = victim.do("hold")
    assert recorder.probes.managed()[child] is ProcessClass.LC


def test_exec_is_told(recorder: Recorder, victim: Victim) -> None:
    recorder.probes.manage(victim.pid, "lc")
    victim.execute()
    (event,) = recorder.of(victim.pid)
    assert isinstance(event, ProcExec)
    assert event.comm == "victim"
    assert recorder.probes.managed()[victim.pid] is ProcessClass.LC


def test_exit_code_and_signal(recorder: Recorder, victims: Callable[..., Victim]) -> None:
    by_code, by_signal = victims(), victims()
    for victim in (by_code, by_signal):
        recorder.probes.manage(victim.pid, "lc")
    by_code.end("exit 3")
    by_signal.close()
    codes = [recorder.of(victim.pid, ProcExit)[0].exit_code for victim in (by_code, by_signal)]
    assert codes == [3, -9]


def test_main_thread_s_end_is_not_the_process_s(recorder: Recorder, victim: Victim) -> None:
    recorder.probes.manage(victim.pid, "lc")
    victim.send("leave")
    assert victim.do("call none") == -1
    assert recorder.of(victim.pid) == []
    recorder.probes.manage(victim.pid, "be")  # its main thread is a zombie, the process is not
    assert recorder.probes.managed()[victim.pid] is ProcessClass.BE
    assert victim.end("exit 5") == 5
    (end,) = recorder.of(victim.pid)
    assert isinstance(end, ProcExit)
    assert end.exit_code == 5


def test_threads_are_no_processes(recorder: Recorder, victim: Victim) -> None:
    recorder.probes.manage(victim.pid, "lc")
    known = set(recorder.probes.managed())
    victim.send("leave")
    victim.do("call none")
    assert set(recorder.probes.managed()) == known


def test_unmanaged_life_is_invisible(recorder: Recorder, victim: Victim) -> None:
    child = victim.do("fork 0")
    victim.execute()
    victim.end()
    assert recorder.of(victim.pid) == recorder.of(child) == []


def test_forgotten_process_is_silent_but_its_children_stay(recorder: Recorder, victim: Victim) -> None:
    recorder.probes.manage(victim.pid, "be")
    child = victim.do("hold")
    recorder.probes.forget(victim.pid)
    seen = len(recorder.of(victim.pid))
    other = victim.do("hold")
    assert recorder.of(other) == []
    assert recorder.probes.managed()[child] is ProcessClass.BE
    victim.end()  # takes its children along
    assert len(recorder.of(victim.pid)) == seen
    recorder.wait(lambda: child not in recorder.probes.managed())


def test_forgetting_an_unknown_process_is_no_error(recorder: Recorder) -> None:
    recorder.probes.forget(2**22 + 1)
    assert recorder.probes.counters(2**22 + 1) == {}


@pytest.mark.parametrize("reap", [True, False])
def test_ended_process_cannot_be_managed(recorder: Recorder, victim: Victim, reap: bool) -> None:
    """A zombie's exit has been: nothing would ever remove its entry."""
    if reap:
        victim.end()
    else:
        victim.send("exit 0")
        os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessGoneError):
        recorder.probes.manage(victim.pid, "lc")
    assert victim.pid not in recorder.probes.managed()


def test_thread_is_not_a_process_to_manage(recorder: Recorder, victim: Victim) -> None:
    victim.send("leave")
    victim.do("call none")
    (thread,) = {int(path.name) for path in Path(f"/proc/{victim.pid}/task").iterdir()} - {victim.pid}
    with pytest.raises(ProcessGoneError):
        recorder.probes.manage(thread, "lc")


def reuse_pid(pid: int, program: Callable[..., Victim]) -> Victim:
    """Start a victim under the pid of one that has ended, by setting the last pid that the kernel gave."""
    for _ in range(50):
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(pid - 1))
        victim = program()
        if victim.pid == pid:
            return victim
        victim.close()
    pytest.skip(f"pid {pid} could not be had again: another process was faster 50 times")


@pytest.mark.parametrize("before", ["managed", "forgotten"])
def test_pid_in_its_second_life_is_a_stranger(
    recorder: Recorder, victims: Callable[..., Victim], nvidiactl: str, before: str
) -> None:
    first = victims()
    if before == "managed":
        recorder.probes.manage(first.pid, "lc")
    else:
        recorder.probes.forget(first.pid)
    first.end()
    recorder.of(first.pid)
    recorder.events.clear()
    second = reuse_pid(first.pid, victims)
    assert recorder.of(second.pid) == []
    second.allocate_client(second.do(f"open {nvidiactl}"))
    assert recorder.of(second.pid) != []
    assert recorder.probes.managed()[second.pid] is ProcessClass.PENDING
