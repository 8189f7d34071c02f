import pytest

from gpsched.adaptive.actuator import binary_path
from tests.unit.actuator.rig import Rig, build_fake_rm


@pytest.fixture(scope="session")
def fake_rm(tmp_path_factory):
    return build_fake_rm(tmp_path_factory.mktemp("fake_rm"))


@pytest.fixture
def make_rig(tmp_path, fake_rm):
    if not binary_path().exists():
        pytest.skip(f"{binary_path()} is not built; run: make native")
    rigs = []

    def make(best_effort=1, ring=None, **options):
        rigs.append(Rig(tmp_path, fake_rm, best_effort, ring, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


@pytest.fixture
def rig(make_rig):
    return make_rig()
