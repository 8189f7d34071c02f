"""What the probes cost on this machine; prints a table. Run as root: python -m tests.bpf.bench."""

import os
import statistics
import tempfile
import time
from pathlib import Path

from gpsched.adaptive.probes import links
from gpsched.adaptive.probes.events import CudaEvent, Event
from gpsched.adaptive.probes.probes import Probes
from tests.bpf import fake_cuda
from tests.bpf.conftest import PROGRAMS, Victim, Waker, compile_c, launched


CALLS = 50_000
EVENTS = 500


def per_call_us(victim: Victim, symbol: str = "cuLaunchKernel") -> float:
    """Median of five runs: processor time of one call of an empty entry point, in µs (others may use the machine)."""
    runs = []
    for _ in range(5):
        start = cpu_seconds(victim)
        victim.do(f"repeat {CALLS} {symbol}")
        runs.append((cpu_seconds(victim) - start) / CALLS * 1e6)
    return statistics.median(runs)


def cpu_seconds(victim: Victim) -> float:
    """User and system time of the victim so far."""
    fields = Path(f"/proc/{victim.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def latencies_us(probes: Probes, victim: Victim, events: list[tuple[float, Event]]) -> list[float]:
    """From the entry of a call to the handler, one call every few milliseconds, in µs."""
    events.clear()
    for _ in range(EVENTS):
        victim.send("call cuStreamSynchronize")
        probes.poll(100)
        time.sleep(0.002)
        probes.poll(0)
    entries = [(at, event) for at, event in events if isinstance(event, CudaEvent) and not event.is_return]
    return sorted(at - event.time_ns / 1e3 for at, event in entries)


def resident_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def measure_wakes() -> None:
    """What a system call costs more with the wakes' hooks, by whose it is; the smallest of five runs."""
    with tempfile.TemporaryDirectory() as name:
        waker = Waker(compile_c(PROGRAMS / "waker.c", Path(name) / "waker", "-pthread"))
        critical = Waker(Path(name) / "waker")
        probes = Probes()
        try:
            show("without probes", waker)
            probes.load(lambda _event: None)
            show("probes, no latency-critical process", waker)
            start = time.monotonic()
            probes.manage(critical.pid, "lc")
            probes.wait_attached(30)
            print(f"hooks attached in {time.monotonic() - start:.3f} s")
            show("hooks, unmanaged", waker)
            probes.manage(waker.pid, "be")
            show("hooks, best-effort", waker)
            probes.manage(waker.pid, "lc")
            launched(probes, waker.pid)
            show("hooks, latency-critical (throttled)", waker)
            print(probes.wakes(waker.pid))
            start = time.monotonic()
        finally:
            probes.close()
            waker.close()
            critical.close()
        print(f"close                         {time.monotonic() - start:8.2f} s")


def show(what: str, waker: Waker) -> None:
    calls = ("time_other", "time_read", "time_counter", "time_sent", "time_woken")
    best = [min(waker.do(call) for _ in range(5)) / 10 for call in calls]
    print(f"{what:38s} getppid {best[0]:6.1f} ns, read of /dev/zero {best[1]:6.1f}, of an eventfd {best[2]:6.1f},")
    print(f"{'':38s} of an eventfd now and then {best[3]:6.1f}, wake-up with write and read {best[4]:6.1f}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = fake_cuda.build(folder)
        victim = Victim(compile_c(PROGRAMS / "victim.c", folder / "victim", "-ldl", "-pthread"))
        try:
            measure(library, victim)
        finally:
            victim.close()


def measure(library: Path, victim: Victim) -> None:
    victim.do(f"load {library}")
    bare = per_call_us(victim)
    probes, events = Probes(), list[tuple[float, Event]]()
    start = time.monotonic()
    probes.load(lambda event: events.append((time.monotonic_ns() / 1e3, event)))
    print(f"load                          {time.monotonic() - start:8.2f} s   RSS {resident_mib():.0f} MiB")
    probes.attach_file(library)
    assert probes.wait_attached(60)
    (attachment,) = probes.attachments()
    print(f"attach {attachment.entry_points} entry points        {attachment.seconds:8.3f} s")
    print(f"call, unmanaged process       {per_call_us(victim) - bare:8.2f} µs more than {bare:.3f}")
    probes.manage(victim.pid, "be")
    print(f"call, best-effort             {per_call_us(victim) - bare:8.2f} µs")
    probes.manage(victim.pid, "lc")
    print(f"launch after launch, lat.-crit. {per_call_us(victim) - bare:6.2f} µs")
    print(f"wait, latency-critical        {per_call_us(victim, 'cuStreamSynchronize') - bare:8.2f} µs (ring full)")
    probes.send_fast(victim.pid, False, at_once="all")
    while probes.poll(10):
        pass
    values = latencies_us(probes, victim, events)
    p50, p99 = (values[len(values) * percent // 100] for percent in (50, 99))
    print(f"entry to handler              {p50:8.0f} µs p50, {p99:.0f} p99")
    start = time.monotonic()
    probes.close()
    print(f"close                         {time.monotonic() - start:8.2f} s")


if __name__ == "__main__":
    measure_wakes()
    main()
    print("one perf event a place, as before Linux 6.6:")
    links.supports_multi = lambda *_: False
    main()
