"""Names of containers and labels of pods, from the files that their engines keep on the node.

Docker writes a container's settings into a folder of its own, podman a list of all. Labels of a pod are on the node
only where the pod mounts them (a downward API volume of ``metadata.labels`` whose file has "label" in its name): the
kubelet writes that file, and pods cannot.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec


DOCKER = Path("/var/lib/docker/containers")
PODMAN = Path("/var/lib/containers/storage")
PODS = Path("/var/lib/kubelet/pods")
_VOLUMES = ("kubernetes.io~downward-api", "kubernetes.io~projected")
_LABEL = re.compile(r'^([\w./-]+)="((?:[^"\\]|\\.)*)"$', re.MULTILINE)
_FRESH_S = 10.0
_MOST = 1000
_MAX_FILE = 64 << 10


class _Docker(msgspec.Struct):
    name: str = msgspec.field(name="Name", default="")


class _Podman(msgspec.Struct):
    id: str
    names: list[str] = []


def name(container: str, docker: Path = DOCKER, podman: Path = PODMAN) -> str | None:
    """The name of the container with this id (12 digits or more); None when no engine here knows it."""
    return _docker_name(container, docker) or _podman_name(container, podman)


def _docker_name(container: str, folder: Path) -> str | None:
    for file in folder.glob(f"{container}*/config.v2.json"):
        try:
            return msgspec.json.decode(file.read_bytes(), type=_Docker).name.lstrip("/") or None
        except (OSError, msgspec.MsgspecError):
            return None
    return None


def _podman_name(container: str, storage: Path) -> str | None:
    try:
        known = msgspec.json.decode((storage / "overlay-containers/containers.json").read_bytes(), type=list[_Podman])
    except (OSError, msgspec.MsgspecError):
        return None
    return next((each.names[0] for each in known if each.id.startswith(container) and each.names), None)


def pod_labels(uid: str, pods: Path = PODS) -> dict[str, str]:
    """The labels of the pod with this uid, as far as it mounts them."""
    labels: dict[str, str] = {}
    for kind in _VOLUMES:
        for file in (pods / uid / "volumes" / kind).glob("*/*"):
            if "label" in file.name and file.is_file():
                labels |= _read_labels(file)
    return labels


def _read_labels(file: Path) -> dict[str, str]:
    try:
        with file.open(errors="replace") as opened:
            text = opened.read(_MAX_FILE)
    except OSError:
        return {}
    return {key: re.sub(r"\\(.)", r"\1", value) for key, value in _LABEL.findall(text)}


class Known:
    """Remembers answers for a few seconds: the same containers are asked for at every look."""

    def __init__(self, ask: Callable[[str], str | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._clock = ask, clock
        self._answers: dict[str, tuple[float, str | None]] = {}

    def __call__(self, key: str) -> str | None:
        """The answer, at most ``_FRESH_S`` old."""
        asked, answer = self._answers.get(key, (-_FRESH_S, None))
        if self._clock() - asked >= _FRESH_S:
            if len(self._answers) >= _MOST:
                self._answers.clear()
            asked, answer = self._answers[key] = self._clock(), self._ask(key)
        return answer
