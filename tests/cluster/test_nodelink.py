"""From the controller's QOS to the node's classes and tenants: the rules it prints, read by the node's daemon."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpsched.adaptive.config import Config
from gpsched.adaptive.errors import UnsupportedHostError
from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.adaptive.workloads import rules
from gpsched.adaptive.workloads.procinfo import ProcessInfo
from gpsched.cli.main import main
from gpsched.tuner.cluster.nodelink import node_rules
from tests.sim.test_daemon import Node, slice_of, until


def _job(qos: str) -> dict[str, str]:
    return {"SLURM_JOB_ID": "7", "SLURM_JOB_QOS": qos, "SLURM_JOB_ACCOUNT": "org1"}


def _process(env: dict[str, str]) -> ProcessInfo:
    return ProcessInfo(
        pid=1, start_ticks=1, parent=0, name="p", exe="/p", command="p", user="u", cgroup="/", container=None, env=env
    )


def test_every_qos_has_its_class_and_others_none() -> None:
    given = msgspec.toml.decode(node_rules("hp", ["spot", "spot-4h"]), type=Config).rule
    found = {qos: rules.match(_process(_job(qos)), given) for qos in ("spot", "spot-4h", "hp", "normal", "spotless")}
    classes = {qos: rule.class_ if rule else "unmanaged" for qos, rule in found.items()}
    assert classes == {"spot": "be", "spot-4h": "be", "hp": "lc", "normal": "unmanaged", "spotless": "unmanaged"}
    assert rules.match(_process({"HOME": "/"}), given) is None


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "rules", "--hp-qos", "prod", "--spot-qos", "cheap,cheap-2h"]) == 0
    given = msgspec.toml.decode(capsys.readouterr().out, type=Config).rule
    assert [(rule.slurm_qos, rule.class_) for rule in given] == [("prod", "lc"), ("cheap", "be"), ("cheap-2h", "be")]


@pytest.mark.parametrize("words", [("--hp-qos", 'a"b'), ("--spot-qos", "spot,[")])
def test_what_is_no_qos_is_refused(words: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as found:
        raise SystemExit(main(["cluster", "rules", *words]))
    assert found.value.code == 2


@pytest.fixture
def gpu() -> Iterator[SimulatedGpu]:
    gpu = SimulatedGpu(gpus=1, scale=5)
    try:
        gpu.start()
    except UnsupportedHostError as error:
        pytest.skip(str(error))
    yield gpu
    gpu.stop()


@pytest.mark.sim
@pytest.mark.root
@pytest.mark.bpf
def test_the_daemon_slices_a_spot_job_and_names_its_account(tmp_path: Path, gpu: SimulatedGpu) -> None:
    """An unmodified program with the environment that Slurm gives, on the embedded GPU."""
    node = Node(tmp_path, gpu)
    node.config.write_text(node.config.read_text() + node_rules("hp", ["spot", "spot-1h"]))
    try:
        node.start()
        node.environment |= _job("spot-1h")
        spot = node.job()
        node.environment |= _job("hp")
        service = node.service()
        until(lambda: node.view(spot) and node.view(service))
        seen = [node.view(spot), node.view(service)]
        assert [(view.class_, view.tenant) for view in seen if view] == [("be", "org1"), ("lc", "org1")]
        until(lambda: slice_of(service) > slice_of(spot))
    finally:
        node.close()
