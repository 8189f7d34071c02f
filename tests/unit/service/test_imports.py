"""What the daemon's process may import: what costs memory or needs a newer processor belongs to other processes."""

import pkgutil
import subprocess
import sys

import gpsched.adaptive


_FOREIGN = ("numpy", "scipy", "sklearn", "matplotlib", "rich", "textual", "jinja2")
_WHEN_ASKED = ("bcc", "pynvml", "prometheus_client.exposition")  # what it imports within functions
_ELSEWHERE = ("gpsched.adaptive.simgpu", "gpsched.adaptive.calibration")  # processes of their own
_IMPORT = "import sys, importlib; [importlib.import_module(name) for name in sys.argv[1:]]; print(*sys.modules)"


def _imported(*modules: str) -> set[str]:
    """Names of the modules and packages that a new interpreter has after importing these."""
    result = subprocess.run([sys.executable, "-c", _IMPORT, *modules], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_daemon_imports_nothing_heavy() -> None:
    modules = [
        found.name
        for found in pkgutil.walk_packages(gpsched.adaptive.__path__, "gpsched.adaptive.")
        if not found.name.startswith(_ELSEWHERE)
    ]
    assert "gpsched.adaptive.daemon" in modules
    imported = _imported("gpsched.cli.main", "gpsched.cli.daemon", *_WHEN_ASKED, *modules)
    assert imported.isdisjoint(_FOREIGN)


def test_the_check_sees_an_import() -> None:
    assert not _imported("gpsched.tuner.space").isdisjoint(_FOREIGN)
