"""What the sample programs were taught for the scenarios: chains, rates, traces, steps, HTTP, turns, hints."""

import contextlib
import http.client
import json
import socket
import time
from pathlib import Path

import pytest

from gpsched.bench.errors import ProgramFailedError
from gpsched.bench.fleet import Switchboard
from gpsched.bench.workload import cuda_job, cuda_service
from tests.unit.bench.test_programs import run


SMALL = ("--blocks", "2", "--prep-us", "0")


@pytest.fixture
def chain(tmp_path: Path) -> str:
    path = tmp_path / "chain"
    path.write_text("10\n20.5\n30\n")
    return str(path)


def test_chain_is_what_the_service_launches(fake_cuda: dict[str, str], chain: str) -> None:
    with cuda_service(fake_cuda, *SMALL, "--chain", chain, "--gpu-time") as service:
        measured = service.run(5, 500)
        end = service.finish()
    assert measured.gpu_us == [60.5] * 5
    assert end.ok


def test_steps_are_bursts_of_their_own(fake_cuda: dict[str, str]) -> None:
    options = ("--kernels", "2", "--steps", "4", "--step-gap-us", "500")
    with cuda_service(fake_cuda, *SMALL, *options) as service:
        measured = service.run(5, 100)
        assert service.finish().ok
    assert min(measured.server_us) >= 3 * 500


@pytest.mark.parametrize("text", ["", "10\nx\n", "0\n", "10\n-3\n"])
def test_wrong_chain(text: str, tmp_path: Path, fake_cuda: dict[str, str]) -> None:
    path = tmp_path / "chain"
    path.write_text(text)
    result = run("gpsched-be", "--blocks", "2", "--chain", str(path), env=fake_cuda)
    assert result.returncode == 2
    assert "is not a length" in result.stderr


def test_job_counts_chains_as_units(fake_cuda: dict[str, str], chain: str) -> None:
    with cuda_job(fake_cuda, "--blocks", "2", "--chain", chain, "--rate", "200", "--phase", "0.5") as job:
        before = job.progress()
        time.sleep(0.5)
        after = job.progress()
        end = job.finish()
    rate = (after.kernels - before.kernels) / (after.time_us - before.time_us) * 1e6
    assert 50 < rate < 205  # never faster than asked for; a busy host may leave ticks out
    assert end.ok


def test_replay_sends_at_the_recorded_times(fake_cuda: dict[str, str], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text("0\n5000\n30000\n")
    with cuda_service(fake_cuda, *SMALL) as service:
        service.replay(trace, 0.03)
        measured = service.result()
        assert service.finish().ok
    assert (measured.arrival, measured.requests) == ("trace", 3)
    assert measured.end_us - measured.start_us >= 30000


@pytest.mark.parametrize("text", ["", "5\n3\n", "x\n"])
def test_wrong_trace_is_refused(text: str, fake_cuda: dict[str, str], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text(text)
    with cuda_service(fake_cuda, *SMALL) as service:
        service.replay(trace, 1)
        with pytest.raises(ProgramFailedError, match="replay FILE"):
            service.result()


def test_http_service_under_its_own_load_and_for_anyone_else(fake_cuda: dict[str, str]) -> None:
    with cuda_service(fake_cuda, *SMALL, "--http", "--connections", "3") as service:
        assert service.ready
        measured = service.run(50, 1000, "poisson")
        client = http.client.HTTPConnection("127.0.0.1", service.ready.port, timeout=10)
        client.request("POST", "/v1/anything", body=b"x" * 3000, headers={"X-Long": "y" * 200})
        answer = client.getresponse()
        said = json.loads(answer.read())
        client.request("GET", "/")
        assert client.getresponse().read().startswith(b'{"sequence":0')
        client.close()
        end = service.finish()
    assert len(measured.latency_us) == 50
    assert answer.status == 200
    assert said["server_us"] > 0
    assert end.ok


HEAD = b"POST / HTTP/1.1\r\nContent-Length: "


@pytest.mark.parametrize("text", [HEAD + b"99999\r\n\r\n", HEAD + b"x\r\n\r\n", HEAD + b"0\r\n\r\nmore", b"z" * 9000])
def test_http_nonsense_costs_the_connection_only(text: bytes, fake_cuda: dict[str, str]) -> None:
    with cuda_service(fake_cuda, *SMALL, "--http") as service:
        assert service.ready
        with socket.create_connection(("127.0.0.1", service.ready.port), timeout=10) as connection:
            connection.sendall(text)
            with contextlib.suppress(ConnectionResetError):  # what was not read when the service hung up
                assert connection.recv(1) == b""
        assert len(service.run(3, 100).latency_us) == 3
        assert service.finish().ok


def test_turns_are_taken_while_switched_on(fake_cuda: dict[str, str], tmp_path: Path) -> None:
    board = Switchboard(tmp_path / "board")
    options = ("--switchboard", str(board.path))
    with cuda_job(fake_cuda, "--blocks", "2", *options) as job, cuda_service(fake_cuda, *SMALL, *options) as service:
        with board.seq():
            service.run(20, 200)
            words = memoryview(board.path.read_bytes()).cast("I")
            assert words[0] == 1
            assert words[1] >= 21  # tickets: of 20 requests and of the job
        taken = memoryview(board.path.read_bytes()).cast("I")[1]
        service.run(20, 200)
        time.sleep(0.1)
        assert memoryview(board.path.read_bytes()).cast("I")[1] <= taken + 1  # the job may have been about to ask
        assert service.finish().ok
        assert job.finish().ok


def test_switchboard_that_is_missing(fake_cuda: dict[str, str]) -> None:
    result = run("gpsched-lc", "--switchboard", "/nonexistent", "--load", "10", env=fake_cuda)
    assert result.returncode == 2
    assert "cannot map" in result.stderr
