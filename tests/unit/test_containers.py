"""Names of containers and labels of pods, read from files as docker, podman and the kubelet write them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.config import Rule
from gpsched.adaptive.workloads import containers, rules
from gpsched.adaptive.workloads.containers import Known, name, pod_labels
from tests.unit.test_workloads import _info


ID = "0123456789ab" + "c" * 52
UID = "1b2c3d4e-0000-1111-2222-333344445555"
CGROUP = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as docker's; there is no podman."""
    folder = tmp_path / "docker"
    (folder / ID).mkdir(parents=True)
    (folder / ID / "config.v2.json").write_text(json.dumps({"ID": ID, "Name": "/web-1", "Config": {"Labels": {}}}))
    monkeypatch.setattr(containers.name, "__defaults__", (folder, tmp_path / "none"))
    return folder


@pytest.fixture
def labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A downward API volume, with the links by which the kubelet replaces its files at once."""
    volume = tmp_path / "pods" / UID / "volumes/kubernetes.io~downward-api/podinfo"
    (volume / "..2026").mkdir(parents=True)
    file = volume / "..2026/labels"
    file.write_text('app="web"\napp.kubernetes.io/part-of="shop \\"A\\""\n')
    (volume / "..data").symlink_to("..2026")
    (volume / "labels").symlink_to("..data/labels")
    monkeypatch.setattr(containers.pod_labels, "__defaults__", (tmp_path / "pods",))
    return file


def test_docker_and_podman_tell_names(docker: Path, tmp_path: Path) -> None:
    listed = tmp_path / "storage/overlay-containers/containers.json"
    listed.parent.mkdir(parents=True)
    listed.write_text(json.dumps([{"id": "f" * 64}, {"id": "e" * 64, "names": ["train"], "layer": "x"}]))
    assert name(ID[:12]) == "web-1"
    assert name("e" * 12, docker, tmp_path / "storage") == "train"
    assert name("f" * 12, docker, tmp_path / "storage") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"Name": 7}'])
def test_a_file_that_makes_no_sense_names_nothing(docker: Path, tmp_path: Path, text: str) -> None:
    (docker / ID / "config.v2.json").write_text(text)
    listed = tmp_path / "storage/overlay-containers/containers.json"
    listed.parent.mkdir(parents=True)
    listed.write_text(text)
    assert name(ID[:12], docker, tmp_path / "storage") is None


def test_labels_are_those_that_the_pod_mounts(labels: Path) -> None:
    assert pod_labels(UID) == {"app": "web", "app.kubernetes.io/part-of": 'shop "A"'}
    assert pod_labels("0" * 36) == {}


@given(st.text(max_size=200))
def test_no_file_of_labels_is_an_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("pods")
    volume = folder / UID / "volumes/kubernetes.io~projected/all"
    volume.mkdir(parents=True)
    (volume / "labels").write_bytes(text.encode("utf-16", "surrogatepass"))
    assert all("=" not in key for key in pod_labels(UID, folder))


def test_rules_by_name_and_by_label(docker: Path, labels: Path) -> None:
    info = _info(cgroup=CGROUP, container=ID[:12])
    for rule in (
        Rule(class_="be", container="web-*"),
        Rule(class_="be", container=ID),
        Rule(class_="be", pod_labels={"app": "we*"}),
        Rule(class_="be", container="web-1", pod_labels={"app": "web", "app.kubernetes.io/part-of": "shop*"}),
    ):
        assert rules.match(info, [rule]) is rule
    for rule in (
        Rule(class_="be", container="web"),
        Rule(class_="be", pod_labels={"app": "batch"}),
        Rule(class_="be", pod_labels={"tier": "*"}),
    ):
        assert rules.match(info, [rule]) is None
    assert rules.match(_info(container=None), [Rule(class_="be", container="*")]) is None
    assert rules.match(_info(), [Rule(class_="be", pod_labels={"app": "*"})]) is None


def test_answers_are_kept_for_a_moment() -> None:
    asked: list[str] = []
    now = [0.0]

    def ask(key: str) -> str:
        asked.append(key)
        return key.upper()

    known = Known(ask, lambda: now[0])
    assert [known("a"), known("a"), known("b")] == ["A", "A", "B"]
    assert asked == ["a", "b"]
    now[0] = 11.0
    assert known("a") == "A"
    assert asked == ["a", "b", "a"]
