"""What a package holds besides the program, as far as it can be judged without installing it."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpsched.adaptive.metrics import SnapshotCollector
from gpsched.cli.main import SUBCOMMANDS
from tests.tui import scene


_PACKAGING = Path(__file__).parents[2] / "packaging"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generated")
    subprocess.run([str(_PACKAGING / "generate.sh"), sys.executable, str(out)], check=True, timeout=120)
    return out


def test_every_folder_with_python_is_installed() -> None:
    top = _PACKAGING.parent
    setuptools = tomllib.loads((top / "pyproject.toml").read_text())["tool"]["setuptools"]
    rooms = set(setuptools["package-dir"].values()) - {"bpf"}
    found = {file.parent.relative_to(top) for room in rooms for file in (top / room).rglob("*.py")}
    assert {"gpsched." + ".".join(folder.parts) for folder in found} == set(setuptools["packages"]) - {"gpsched.bpf"}


def test_the_man_page_has_every_command_and_no_mistakes(generated: Path) -> None:
    page = (generated / "gpsched.1").read_text()
    for name in SUBCOMMANDS:
        assert f"gpsched {name}" in page
    assert "exit codes" in page
    if shutil.which("groff"):
        warned = subprocess.run(
            ["groff", "-man", "-Tutf8", "-wall", "-z", str(generated / "gpsched.1")], capture_output=True, text=True
        )
        assert warned.stderr == ""


def test_completions_are_scripts_that_know_every_command(generated: Path) -> None:
    script = generated / "gpsched.bash"
    complete = f"source {script}; COMP_WORDS=(gpsched ''); COMP_CWORD=1; _shtab_gpsched; echo ${{COMPREPLY[@]}}"
    words = subprocess.run(["bash", "-c", complete], capture_output=True, text=True, check=True).stdout.split()
    assert set(SUBCOMMANDS) <= set(words)
    assert "#compdef gpsched" in (generated / "gpsched.zsh").read_text()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_the_unit_is_right(tmp_path: Path) -> None:
    program = tmp_path / "gpsched"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = (_PACKAGING / "systemd/gpsched.service").read_text()
    unit = re.sub(r"^Documentation=.*\n", "", unit, flags=re.MULTILINE)  # the page is not installed here
    copy = tmp_path / "gpsched.service"
    copy.write_text(unit.replace("/usr/bin/gpsched", str(program)))
    result = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True)
    about_us = [line for line in result.stderr.splitlines() if "gpsched" in line]
    assert about_us == []


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_the_unit_is_no_weaker_than_it_was(tmp_path: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=55"]
    unit = str(_PACKAGING / "systemd/gpsched.service")
    result = subprocess.run([*command, unit], capture_output=True, text=True, timeout=60)
    if "unrecognized option" in result.stderr:
        pytest.skip("this systemd cannot judge a file")
    assert result.returncode == 0, result.stdout.splitlines()[-1]


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    text = (_PACKAGING / "grafana.json").read_text()
    dashboard = json.loads(text)
    exist = {family.name for family in SnapshotCollector(scene.snapshot(1)).collect()}
    asked = set(re.findall(r"gpsched_\w+", " ".join(t["expr"] for p in dashboard["panels"] for t in p["targets"])))
    stems = {re.sub(r"_(bucket|total|info)$", "", name) for name in asked}
    assert stems <= exist
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_prolog_writes_the_qos_and_the_epilog_removes_it(tmp_path: Path) -> None:
    script = tmp_path / "prolog"
    script.write_text((_PACKAGING / "slurm-prolog.sh").read_text().replace("/run/gpsched/slurm", str(tmp_path / "q")))
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_QOS": "spot", "SLURM_JOB_ACCOUNT": "org1"}
    subprocess.run(["sh", str(script)], env=environment, check=True)
    assert (tmp_path / "q/7").read_text() == "spot\norg1\n"
    subprocess.run(["sh", str(script)], env=environment | {"SLURM_SCRIPT_CONTEXT": "epilog_slurmd"}, check=True)
    assert not (tmp_path / "q/7").exists()
