"""The PyTorch programs: arguments always, the CPU path where torch is installed.

GPSCHED_TORCH_PYTHON names another interpreter that has torch, as ``--python`` does for the measurements.
"""

import http.client
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpsched.adaptive.probes.libraries import hint_offset, open_library
from gpsched.bench import torch_lc
from gpsched.bench.fleet import Switchboard
from gpsched.bench.workload import HERE, Service, torch_job, torch_service


PYTHON = os.environ.get("GPSCHED_TORCH_PYTHON", sys.executable)
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, timeout=60, check=False).returncode == 0
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed; GPSCHED_TORCH_PYTHON may name a Python")


def run(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PYTHON, str(HERE / name), *options], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["torch_lc.py", "torch_be.py"])
def test_help(name: str) -> None:
    result = run(name, "--help")
    assert result.returncode == 0
    assert "--device" in result.stdout


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("torch_lc.py", ["--mode", "lazy"]),
        ("torch_lc.py", ["--device", "cpu", "--mode", "graph"]),
        ("torch_be.py", ["--size", "1"]),
        ("torch_be.py", ["--device", "tpu"]),
    ],
)
def test_bad_arguments(name: str, options: list[str]) -> None:
    result = run(name, *options)
    assert result.returncode == 2
    assert "error:" in result.stderr


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
@pytest.mark.parametrize("name", ["torch_lc.py", "torch_be.py"])
def test_without_torch(name: str) -> None:
    result = run(name)
    assert result.returncode == 77
    assert result.stderr.startswith("no PyTorch in this interpreter")


def test_services_in_python_give_hints_where_a_probe_hears_them(tmp_path: Path) -> None:
    assert hint_offset(open_library(str(HERE / "build/libgpsched-switchboard.so"))) is not None
    switches = Switchboard(tmp_path / "board")
    own = torch_lc.Switchboard(str(switches.path))
    with switches.hints():
        assert own.library.hints_wanted() & 1
        own.announce(200.0)
    assert not own.library.hints_wanted() & 1
    torch_lc.Switchboard(None).announce(200.0)


#: The whole service but for the model: one whose third answer is wrong.
WITHOUT_TORCH = """
import argparse, itertools, sys
sys.path.insert(0, sys.argv[1])
import torch_lc
answers = itertools.count()
requests = torch_lc.Requests(500.0, lambda: 2.0 if next(answers) == 2 else 1.0, 1.0)
torch_lc.serve(argparse.Namespace(http="--http" in sys.argv, port=0), requests, "none")
torch_lc.say("end", kernels=requests.served, verified=True, bad_counters=requests.wrong)
"""


def service_without_torch(*language: str) -> Service:
    load = ["--connections", "4", *language]
    return Service([sys.executable, "-c", WITHOUT_TORCH, str(HERE), *language], {}, generator=load)


@pytest.mark.parametrize("language", [(), ("--http",)])
def test_both_languages_are_those_of_the_load_generator(language: tuple[str, ...]) -> None:
    with service_without_torch(*language) as service:
        run = service.run(40, 400, "poisson")
        again = service.run(10, 400)  # on the same connections
        end = service.finish()
    assert min(run.server_us) >= 500
    assert len(again.latency_us) == 10
    assert (end.kernels, end.bad_counters) == (50, 1)


def test_http_that_is_not_understood_is_answered() -> None:
    with service_without_torch("--http") as service:
        assert service.ready is not None
        connection = http.client.HTTPConnection("127.0.0.1", service.ready.port, timeout=10)
        connection.request("POST", "/infer", body=b"any", headers={"Connection": "close"})
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Connection")) == (200, "close")
        assert answer.read().startswith(b'{"sequence":0,"server_us":')
        connection.putrequest("POST", "/infer")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()  # and no piece: it may be refused before it is read
        answer = connection.getresponse()
        assert answer.status == 400
        assert b"Content-Length" in answer.read()
        connection.close()
        assert service.finish().kernels == 1


@needs_torch
@pytest.mark.parametrize("language", [(), ("--http",)])
def test_service_on_the_processor(language: tuple[str, ...]) -> None:
    options = ("--device", "cpu", "--mode", "eager", "--model", "linear", "--prep-us", "1000", *language)
    with torch_service({}, *options, python=PYTHON) as service:
        run = service.run(20, 100)
        end = service.finish()
    assert min(run.server_us) >= 1000
    assert end.ok
    assert end.kernels == 20


@needs_torch
def test_job_on_the_processor() -> None:
    with torch_job({}, "--device", "cpu", "--size", "32", python=PYTHON) as job:
        job.pause()
        first = job.progress()
        job.resume()
        while job.progress().kernels < first.kernels + 10:
            pass
        end = job.finish()
    assert end.ok
    assert end.kernels >= first.kernels + 10
