"""The sample programs on a driver that runs kernels at once, and sometimes wrongly."""

import os
import signal
import subprocess
import time

import pytest

from gpsched.bench.errors import ProgramFailedError
from gpsched.bench.messages import Ready
from gpsched.bench.process import CommandProcess
from gpsched.bench.workload import Service, cuda_job, cuda_service, program


SMALL = ("--blocks", "2")


def run(name: str, *options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **(env or {})}
    return subprocess.run(
        [program(name), *options], env=environment, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("name", ["gpsched-lc", "gpsched-be"])
def test_help_lists_options_and_exit_codes(name: str) -> None:
    result = run(name, "--help")
    assert result.returncode == 0
    assert "--kernel-us" in result.stdout
    assert "77" in result.stdout


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gpsched-be", ["--queue", "0"]),
        ("gpsched-be", ["--queue", "8x"]),
        ("gpsched-be", ["--kernel-us", "nan"]),
        ("gpsched-be", ["--seconds"]),
        ("gpsched-be", ["unexpected"]),
        ("gpsched-lc", ["--mode", "lazy"]),
        ("gpsched-lc", ["--arrival", "never"]),
        ("gpsched-lc", ["--unknown"]),
        ("gpsched-lc", ["--connect", "5000"]),
        ("gpsched-lc", ["--load", "10", "--commands"]),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(name: str, options: list[str]) -> None:
    result = run(name, *options)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert not result.stdout


def test_bad_time_scale_is_refused(fake_cuda: dict[str, str]) -> None:
    result = run("gpsched-be", env={**fake_cuda, "GPSCHED_TIME_SCALE": "fast"})
    assert result.returncode == 2
    assert "GPSCHED_TIME_SCALE" in result.stderr


@pytest.mark.parametrize("name", ["gpsched-lc", "gpsched-be"])
@pytest.mark.parametrize(
    ("env", "options"),
    [({"FAKE_CUDA_DEVICES": "0"}, []), ({}, ["--gpu", "1"])],
)
def test_no_device(name: str, env: dict[str, str], options: list[str], fake_cuda: dict[str, str]) -> None:
    result = run(name, *options, env={**fake_cuda, **env})
    assert result.returncode == 77
    assert result.stderr.startswith("no GPU: ")
    assert len(result.stderr.splitlines()) == 1


def test_no_library(tmp_path: object) -> None:
    broken = tmp_path / "libcuda.so.1"  # type: ignore[operator]
    broken.write_text("not a library")
    result = run("gpsched-be", env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert result.returncode == 77
    assert "libcuda.so.1" in result.stderr


def test_launch_failure_names_the_call_and_the_error(fake_cuda: dict[str, str]) -> None:
    result = run("gpsched-be", *SMALL, env={**fake_cuda, "FAKE_CUDA_FAIL": "5", "FAKE_CUDA_DEVICES": "1"})
    assert result.returncode == 3
    assert "cuLaunchKernel failed: CUDA_ERROR_LAUNCH_FAILED (719)" in result.stderr


def test_correct_job_verifies(fake_cuda: dict[str, str]) -> None:
    with cuda_job(fake_cuda, *SMALL) as job:
        time.sleep(0.1)
        end = job.finish()
    assert end.ok
    assert end.kernels > 10


@pytest.mark.parametrize("fault", ["FAKE_CUDA_DROP", "FAKE_CUDA_TWICE"])
def test_one_kernel_lost_or_repeated_is_found(fault: str, fake_cuda: dict[str, str]) -> None:
    result = run("gpsched-be", *SMALL, "--seconds", "0.2", "--verify", env={**fake_cuda, fault: "20"})
    assert result.returncode == 1
    assert '"bad_counters":512' in result.stdout


def test_service_verifies_its_kernels_too(fake_cuda: dict[str, str]) -> None:
    result = run("gpsched-lc", *SMALL, "--load", "500", "--requests", "5", env={**fake_cuda, "FAKE_CUDA_DROP": "490"})
    assert result.returncode == 1
    assert '"bad_counters":512' in result.stdout


def test_job_pauses_and_resumes(fake_cuda: dict[str, str]) -> None:
    with cuda_job(fake_cuda, *SMALL) as job:
        time.sleep(0.05)
        job.pause()
        first = job.progress()
        time.sleep(0.1)
        paused = job.progress()
        job.resume()
        time.sleep(0.1)
        running = job.progress()
        assert job.finish().ok
    assert first.kernels == paused.kernels < running.kernels
    assert running.largest_gap_us < 90_000  # the pause is no gap


def test_job_ends_cleanly_on_sigterm(fake_cuda: dict[str, str]) -> None:
    environment = {**os.environ, **fake_cuda}
    command = [program("gpsched-be"), *SMALL, "--verify"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert '"verified":true,"bad_counters":0' in output


def test_service_ends_on_sigterm_and_takes_its_generator_along(fake_cuda: dict[str, str]) -> None:
    with CommandProcess([program("gpsched-lc"), "--commands", *SMALL], fake_cuda) as process:
        process.expect(Ready, 20)
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, timeout=10)
        generator = int(children.stdout)
        os.kill(process.pid, signal.SIGTERM)
        assert process.close() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(generator, 0)


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_service_answers_every_request(mode: str, fake_cuda: dict[str, str]) -> None:
    with cuda_service(fake_cuda, *SMALL, "--mode", mode, "--gpu-time", "--connections", "3") as service:
        run = service.run(40, 400, "poisson", seed=5)
        end = service.finish()
    assert end.ok
    assert len(run.latency_us) == len(run.scheduled_us) == len(run.server_us) == run.requests == 40
    assert run.gpu_us == [160.0] * 40  # the fake GPU's clock: 20 kernels of 8 us
    pairs = zip(run.latency_us, run.scheduled_us, run.server_us, strict=True)
    assert all(server < latency <= scheduled + 0.2 for latency, scheduled, server in pairs)
    assert min(run.server_us) >= 200  # the host preparation


def test_preparation_and_gap_are_spent(fake_cuda: dict[str, str]) -> None:
    options = ("--mode", "eager", "--kernels", "3", "--gap-us", "500", "--prep-us", "1000")
    with cuda_service(fake_cuda, *SMALL, *options) as service:
        run = service.run(5, 50)
    assert min(run.server_us) >= 2000


@pytest.mark.parametrize("arrival", ["constant", "poisson", "bursty", "jitter"])
@pytest.mark.parametrize("scale", ["1", "3"])
def test_load_arrives_at_the_rate_asked_for_in_program_time(
    arrival: str, scale: str, fake_cuda: dict[str, str]
) -> None:
    requests, rate = 300, 1000.0
    environment = {**fake_cuda, "GPSCHED_TIME_SCALE": scale}
    options = ("--prep-us", "0", "--kernels", "1", "--kernel-us", "1", "--connections", "8")
    with cuda_service(environment, *SMALL, *options) as service:
        elapsed = [service.run(requests, rate, arrival, seed) for seed in range(1, 5)]
    measured = 4 * requests / sum(run.end_us - run.start_us for run in elapsed) * 1e6
    tolerance = 0.05 if arrival in ("constant", "jitter") else 0.25  # random gaps: their own spread over 1200 arrivals
    assert measured == pytest.approx(rate, rel=tolerance)


def test_overload_shows_in_the_scheduled_latency(fake_cuda: dict[str, str]) -> None:
    """One connection, requests due five times faster than they are served: the queue grows, and is seen."""
    with cuda_service(fake_cuda, *SMALL, "--prep-us", "2000") as service:
        run = service.run(30, 2000)
    assert run.scheduled_us[-1] > 20 * run.latency_us[-1] / 2
    assert run.scheduled_us[-1] > run.scheduled_us[0]


def test_same_seed_same_arrivals(fake_cuda: dict[str, str]) -> None:
    """Arrivals are seen through the time from due to sent, which is zero: compare the lengths of two runs."""
    with cuda_service(fake_cuda, *SMALL, "--prep-us", "0", "--kernels", "1", "--connections", "8") as service:
        lengths = [(run := service.run(100, 500, "poisson", seed)).end_us - run.start_us for seed in (1, 1, 2)]
    assert lengths[0] == pytest.approx(lengths[1], rel=0.05)
    assert lengths[0] != pytest.approx(lengths[2], rel=0.001)


@pytest.mark.parametrize("line", ["run", "run 0 10", "run 10 -1", "run 5 10 never", "fly"])
def test_wrong_command_is_refused_and_the_service_lives(line: str, fake_cuda: dict[str, str]) -> None:
    with CommandProcess([program("gpsched-lc"), "--commands", *SMALL], fake_cuda) as process:
        process.expect(Ready, 20)
        with pytest.raises(ProgramFailedError, match="expected: run"):
            process.ask(line, Ready, 10)
        process.send("quit")
        assert process.close() == 0


def test_generator_alone_loads_a_service_that_already_listens(fake_cuda: dict[str, str]) -> None:
    with Service([program("gpsched-lc"), "--commands", *SMALL], fake_cuda, generator=[]) as service:
        assert service.run(10, 200).requests == 10


def test_generator_without_a_service_says_so(fake_cuda: dict[str, str]) -> None:
    result = run("gpsched-lc", "--connect", "1", "--load", "10", env=fake_cuda)
    assert result.returncode == 4
    assert "cannot connect" in result.stderr
