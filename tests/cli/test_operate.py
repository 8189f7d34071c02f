"""The commands for operators against daemons that are old, new, odd or broken, and against files that are cut."""

import contextlib
import io
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpsched.adaptive.api import ApiServer
from gpsched.adaptive.config import Config, Metrics, Reservations, Rule, load
from gpsched.adaptive.model import ProcessView, SettingCheck, Snapshot
from gpsched.adaptive.record import Writer
from gpsched.cli.config import to_toml
from gpsched.cli.main import main
from tests.tui import scene


READERS = (["list"], ["status"], ["verify"], ["top", "--once"], ["dump"], ["record", "x.jsonl", "--count", "1"])


def gpsched(*args: str, columns: int = 100, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in this process: a new one for each would take most of the time."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, NO_COLOR="1", COLUMNS=str(columns)),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = main(args)
        except SystemExit as end:  # argparse's way
            code = int(end.code or 0)
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


class Serving:
    """A daemon's socket on a thread, with the given methods."""

    def __init__(self, path: Path, reads: dict[str, Callable[[Any], Any]]) -> None:
        self._selector = selectors.DefaultSelector()
        self._server = ApiServer(path, self._selector, reads, {})
        self._stop = False
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()

    def _loop(self) -> None:
        while not self._stop:
            for key, _ in self._selector.select(0.01):
                key.data()

    def close(self) -> None:
        self._stop = True
        self._thread.join()
        self._server.close()
        self._selector.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.sock"


@pytest.fixture
def serve(path: Path) -> Iterator[Callable[..., None]]:
    servers: list[Serving] = []

    def start(**reads: Any) -> None:
        servers.append(Serving(path, {name: (lambda _params, v=value: v) for name, value in reads.items()}))

    yield start
    for server in servers:
        server.close()


# ---- what they print


def test_status(serve: Callable[..., None], path: Path) -> None:
    serve(snapshot=scene.snapshot(1))
    result = gpsched("status", "--socket", str(path))
    assert result.returncode == 0
    assert "2 latency-critical, 2 best-effort" in result.stdout
    assert "restart the daemon" not in result.stdout
    assert json.loads(gpsched("status", "--json", "--socket", str(path)).stdout)["version"] == "0.1.0"


def test_status_fails_when_something_is_wrong(serve: Callable[..., None], path: Path) -> None:
    daemon = scene.daemon(config_error="c.toml: bad", failed_controls=2, last_failure="SET_TIMESLICE refused")
    serve(snapshot=scene.snapshot(1, daemon=daemon))
    result = gpsched("status", "--socket", str(path))
    assert result.returncode == 1
    assert "c.toml: bad" in result.stdout
    assert "last failure: SET_TIMESLICE refused" in result.stdout


def test_status_tells_that_the_daemon_is_of_another_version(serve: Callable[..., None], path: Path) -> None:
    serve(snapshot=scene.snapshot(1, daemon=scene.daemon(version="0.0.9")))
    assert "restart the daemon" in gpsched("status", "--socket", str(path)).stdout


def test_verify(serve: Callable[..., None], path: Path) -> None:
    plain = {"pid": 7, "client": 1, "handle": 2}
    serve(
        verify=[
            SettingCheck(**plain, intended_us=1, live_us=1),
            SettingCheck(**plain, intended_us=None, live_us=9),
            SettingCheck(**plain, intended_us=1, live_us=2048),
            SettingCheck(**plain, intended_us=1, live_us=None, problem="no permission"),
        ]
    )
    result = gpsched("verify", "--socket", str(path))
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "pid 7 group 0x1:0x2: 2.05 ms, intended 1 µs",
        "pid 7 group 0x1:0x2: no permission",
        "2 of 4 timeslices are as intended",
    ]


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_top_once_fits_any_width(serve: Callable[..., None], path: Path, columns: int) -> None:
    serve(snapshot=scene.snapshot(1))
    result = gpsched("top", "--once", "--socket", str(path), columns=columns)
    assert result.returncode == 0
    table = result.stdout.splitlines()[-4:]
    assert [line.split()[0] for line in table] == ["100", "200", "300", "400"]
    assert max(map(len, table)) <= columns
    assert "\x1b" not in result.stdout


def test_top_off_a_terminal_prints_once_and_filters(serve: Callable[..., None], path: Path) -> None:
    serve(snapshot=scene.snapshot(1))
    result = gpsched("top", "--filter", "batch", "--tree", "--socket", str(path))
    lines = [line.split()[0] for line in result.stdout.splitlines()[4:]]
    assert lines == ["GPU", "batch", "200", "00d8", "GPU", "batch", "400", "01a0"]


def test_list_names_jobs_pods_and_containers(serve: Callable[..., None], path: Path) -> None:
    processes = [
        scene.process(1, "a", "be", slurm_job=77),
        scene.process(2, "b", "be", pod="prod/web"),
        scene.process(3, "c", "be", container="0123456789ab"),
    ]
    serve(snapshot=scene.snapshot(1, processes=processes))
    lines = gpsched("list", "--socket", str(path)).stdout.splitlines()[-3:]
    assert [line.rpartition("; in ")[2] for line in lines] == ["Slurm job 77", "pod prod/web", "container 0123456789ab"]


def test_list_is_aligned_and_names_do_not_steer_the_terminal(serve: Callable[..., None], path: Path) -> None:
    serve(
        snapshot=scene.snapshot(
            1, processes=[scene.process(1, "a\x1b[31m", "lc", slo_us=5000.0), scene.process(23, "b", "be")]
        )
    )
    lines = gpsched("list", "--socket", str(path)).stdout.splitlines()
    assert lines[:3] == [
        "PID  CLASS  LEVEL      GPU  SLICE   SLO  TENANT  LAUNCHES  NAME",
        "  1  lc     timeslice  0      1 s  5 ms  web            0  a·[31m",
        " 23  be     timeslice  0     1 µs     -  web            0  b",
    ]


def test_doctor_says_what_is_missing_and_shows_the_daemons_processes(serve: Callable[..., None], path: Path) -> None:
    serve(snapshot=scene.snapshot(1))
    result = gpsched("doctor", "--json", "--socket", str(path))
    report = json.loads(result.stdout)
    assert result.returncode == (77 if report["health"] == "missing" else 0)
    missing = [check for check in report["checks"] if check["state"] == "missing"]
    assert bool(missing) == (report["health"] == "missing")
    assert all(check["fix"] for check in missing)
    assert [process["pid"] for process in report["processes"]] == [100, 200, 300, 400]
    assert [(gpu["gpu"], gpu["level"]) for gpu in report["gpus"]] == [(0, "timeslice"), (1, "timeslice")]
    text = gpsched("doctor", "--socket", str(path)).stdout
    for check in missing:
        assert f"fix: {check['fix']}" in text
    assert "GPU 0 H200: timeslice (2 managed processes)" in text


# ---- daemons of other versions, and what is no daemon


def test_an_old_daemon_without_the_newer_fields_is_shown(serve: Callable[..., None], path: Path) -> None:
    old = msgspec.to_builtins(scene.snapshot(1))
    old.pop("gpus")
    for field in ("health", "findings", "config_error"):
        old["daemon"].pop(field)
    for process in old["processes"]:
        for field in [field.name for field in msgspec.structs.fields(ProcessView) if not field.required]:
            process.pop(field)
    serve(snapshot=old)
    for args in (["list"], ["status"], ["top", "--once"], ["dump", "-O", "csv"], ["dump", "-O", "openmetrics"]):
        result = gpsched(*args, "--socket", str(path))
        assert result.returncode == 0, result.stderr
    assert "has no method 'verify'; update it" in one_line(gpsched("verify", "--socket", str(path)))


def test_a_newer_daemon_with_more_fields_is_shown(serve: Callable[..., None], path: Path) -> None:
    new = msgspec.to_builtins(scene.snapshot(1)) | {"quantum": 1}
    new["processes"][0]["colour"] = {"r": 1}
    new["daemon"]["mood"] = "good"
    serve(snapshot=new)
    for args in (["list"], ["status"], ["top", "--once"]):
        assert gpsched(*args, "--socket", str(path)).returncode == 0


@pytest.mark.parametrize("args", READERS, ids=lambda args: args[0])
@pytest.mark.parametrize("answer", [b"rubbish\n", b"", b'{"result": {"time_s": "x"}, "api": 1}\n'])
def test_a_socket_that_answers_rubbish(tmp_path: Path, path: Path, args: list[str], answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def serve() -> None:
            peer, _ = listener.accept()
            peer.recv(1000)
            peer.sendall(answer)
            peer.close()

        thread = threading.Thread(target=serve)
        thread.start()
        result = gpsched(*args, "--socket", str(path), cwd=tmp_path)
        thread.join()
    assert "no daemon answers" in one_line(result)
    assert result.returncode in (0, 4) if args[0] == "record" else result.returncode == 4


@pytest.mark.parametrize("args", READERS, ids=lambda args: args[0])
def test_without_a_daemon(tmp_path: Path, path: Path, args: list[str]) -> None:
    result = gpsched(*args, "--socket", str(path), cwd=tmp_path)
    assert "start one with: gpsched daemon" in one_line(result)
    assert result.returncode == 4
    assert list(tmp_path.iterdir()) == []  # record leaves no file behind


# ---- records


@pytest.fixture
def record(tmp_path: Path) -> Path:
    writer = Writer(tmp_path / "r.jsonl")
    for second in range(4):
        writer.put(scene.snapshot(second))
    writer.close()
    return writer.path


def test_replay_off_a_terminal_is_a_summary(record: Path) -> None:
    lines = gpsched("replay", str(record)).stdout.splitlines()
    assert "4 snapshots over 3.0 s" in lines[0]
    assert lines[2] == "200 train (be): level timeslice, 6000 CUDA calls"


def test_a_record_that_was_cut(record: Path) -> None:
    record.write_bytes(record.read_bytes()[:-100])
    assert "3 snapshots over 2.0 s, cut: the end is missing" in gpsched("replay", str(record)).stdout
    dumped = gpsched("dump", str(record))
    assert len(dumped.stdout.splitlines()) == 3
    assert "was cut; 3 snapshots are whole" in one_line(dumped)


@pytest.mark.parametrize("command", ["replay", "dump"])
def test_what_is_no_record(tmp_path: Path, command: str) -> None:
    (tmp_path / "x").write_bytes(os.urandom(3000))
    for name in ("x", "none"):
        result = gpsched(command, str(tmp_path / name))
        assert "gpsched record FILE" in one_line(result)
        assert result.returncode == 2


def test_record_refuses_to_overwrite_and_to_hurry(serve: Callable[..., None], path: Path, record: Path) -> None:
    serve(snapshot=scene.snapshot(1))
    assert "exists" in one_line(gpsched("record", str(record), "--socket", str(path)))
    assert "250ms" in one_line(gpsched("record", "y", "-i", "10ms", "--socket", str(path)))
    result = gpsched("record", str(record) + "2.gz", "-d", "500ms", "-i", "250ms", "--socket", str(path))
    assert result.stdout.startswith("3 snapshots in ")


# ---- configuration


def _keys() -> Iterator[tuple[str, str]]:
    for section in msgspec.structs.fields(Config):
        if isinstance(section.type, type) and issubclass(section.type, msgspec.Struct):
            for field in msgspec.structs.fields(section.type):
                yield section.name, field.encode_name


@pytest.mark.parametrize(("section", "key"), list(_keys()))
def test_a_wrong_value_of_every_key_is_named(tmp_path: Path, section: str, key: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f"[{section}]\n{key} = [[1]]\n")
    result = gpsched("config", "check", "--config", str(file))
    assert f"{section}.{key}: " in one_line(result)
    assert result.returncode == 2
    file.write_text(f"[{section}]\nx{key} = 1\n")
    assert f"did you mean {key!r}" in one_line(gpsched("config", "check", "--config", str(file)))


@pytest.mark.parametrize("key", [field.encode_name for field in msgspec.structs.fields(Rule)])
def test_a_wrong_value_of_every_key_of_a_rule_is_named(tmp_path: Path, key: str) -> None:
    file = tmp_path / "c.toml"
    first = "" if key == "class" else 'class = "be"\n'
    file.write_text(f'[[rule]]\nclass = "lc"\nexe = "x"\n[[rule]]\n{first}{key} = [[1]]\n')
    result = gpsched("config", "check", "--config", str(file))
    assert f"rule[1].{key}: " in one_line(result)
    assert result.returncode == 2
    file.write_text(f"[[rule]]\n{first}x{key} = 1\n")
    assert f"did you mean {key!r}" in one_line(gpsched("config", "check", "--config", str(file)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule = 1", "rule: Expected `array`"),
        ("timeslice = 1", "timeslice: Expected `object`"),
        ("[[rule]]\nclass = 'be'\n", "matches every process"),
        ("[[rule]]\nclass = 'lc'\nexe = 'x'\nslo = 'soon'\n", "rule[0].slo: "),
        ("[[rule]]\nclass = 'lc'\ncommand = '('\n", "not a regular expression"),
        ("[metrics]\nlisten = 'here'\n", "metrics.listen: 'here' is not ADDRESS:PORT"),
        ("[timeslice\n", "c.toml: "),
    ],
)
def test_what_is_wrong_as_a_whole_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    result = gpsched("config", "check", "--config", str(file))
    assert message in one_line(result)
    assert result.returncode == 2


def test_the_default_configuration_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(gpsched("config", "--default").stdout)
    assert gpsched("config", "check", "--config", str(file)).stdout == "right: 0 rules\n"
    shown = gpsched("config", "show", "--config", str(file)).stdout
    assert shown == to_toml(Config())


def test_show_reads_back_whatever_was_set(tmp_path: Path) -> None:
    first, second = tmp_path / "1.toml", tmp_path / "2.toml"
    first.write_text(
        '[metrics]\nlisten = "[::1]:9435"\n[[rule]]\nclass = "be"\nslurm_qos = "spot*"\ncommand = "a\\"\\\\\\\\b\\t"\n'
        'env = { "A.B" = "x y", C = "é" }\n'
    )
    second.write_text(gpsched("config", "show", "--config", str(first)).stdout)
    assert gpsched("config", "show", "--config", str(second)).stdout == second.read_text()
    assert "slurm_qos" in second.read_text()


# ---- speed: what is imported decides it


def _imported(*args: str) -> set[str]:
    command = [sys.executable, "-X", "importtime", "-m", "gpsched.cli.main", *args]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in result.stderr.splitlines() if "|" in line}


def test_help_imports_nothing_heavy() -> None:
    heavy = {
        "rich",
        "textual",
        "msgspec",
        "prometheus_client",
        "numpy",
        "sklearn",
        "matplotlib",
        "bcc",
        "asyncio",
        "tomllib",
    }
    assert not heavy & _imported("--help")


def test_list_imports_only_what_it_prints_with(serve: Callable[..., None], path: Path) -> None:
    serve(snapshot=scene.snapshot(1))
    heavy = {"rich", "textual", "prometheus_client", "numpy", "sklearn", "matplotlib", "bcc", "asyncio", "pyroute2"}
    assert not heavy & _imported("list", "--socket", str(path))


def test_the_snapshot_of_the_scene_is_what_the_daemon_would_send() -> None:
    assert msgspec.json.decode(msgspec.json.encode(scene.snapshot(1)), type=Snapshot) == scene.snapshot(1)


_TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(exe=_TEXT, env=st.dictionaries(_TEXT, _TEXT, max_size=3), waste=st.floats(0, 1), listen=st.booleans())
def test_what_show_prints_reads_back_as_the_same(
    tmp_path: Path, exe: str, env: dict[str, str], waste: float, listen: bool
) -> None:
    settings_ = Config(
        rule=[Rule(class_="be", exe=exe, env=env)],
        reservations=Reservations(waste_budget=waste),
        metrics=Metrics(listen="127.0.0.1:9435" if listen else ""),
    )
    file = tmp_path / "c.toml"
    file.write_text(to_toml(settings_), newline="")
    assert load(file) == settings_
