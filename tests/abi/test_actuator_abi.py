"""adaptive/actuator/abi.py against a C compiler with plan.h: every structure's size, every field's offset and size."""

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import pytest

import gpsched.adaptive.actuator
from gpsched.adaptive.actuator import abi
from gpsched.adaptive.actuator.plans import Mechanism, Role
from gpsched.adaptive.actuator.records import Counters, Reason, Record


NATIVE = Path(gpsched.adaptive.actuator.__file__).parent / "native"
CONSTANTS = (
    "MAGIC",
    "MAX_GPUS",
    "MAX_SLOTS",
    "MAX_GROUPS",
    "MAX_CHANNELS",
    "MAX_PLANS",
    "MAX_TRIGGERS",
    "MAX_TURNS",
    "MAX_RECORDS",
    "NO_INDEX",
    "MSG_SLOT",
    "MSG_DROP",
    "MSG_PUBLISH",
    "MSG_EVENT",
    "SLOT_DRIVER",
    "SLOT_PIDFD",
    "SLOT_AGENT",
    "SLOT_RING",
)


def _expressions():
    for name, structure in abi.STRUCTS.items():
        yield f"sizeof(struct {name})"
        for field in structure._fields_:
            yield f"offsetof(struct {name}, {field[0]})"
            yield f"sizeof(((struct {name} *)0)->{field[0]})"
    yield from (f"GA_{name}" for name in CONSTANTS)
    yield "GA_ABI_VERSION"
    yield from (f"GA_{mechanism.name}" for mechanism in Mechanism if mechanism)
    yield from (f"GA_END_{reason.name}" for reason in Reason)
    yield from (f"GA_ROLE_{role.name}" for role in Role)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc); install gcc")
    folder = tmp_path_factory.mktemp("abi")
    prints = "\n".join(f'printf("\\"%s\\": %llu,\\n", "{e}", (unsigned long long)({e}));' for e in _expressions())
    source = f'#include <stddef.h>\n#include <stdio.h>\n#include "plan.h"\nint main(void) {{ {prints} return 0; }}\n'
    (folder / "abi.c").write_text(source)
    subprocess.run([compiler, "-I", NATIVE, "-o", folder / "abi", folder / "abi.c"], check=True)
    output = subprocess.run([folder / "abi"], check=True, capture_output=True, text=True).stdout
    return json.loads("{" + output.rstrip(",\n") + "}")


@pytest.mark.parametrize("name", abi.STRUCTS)
def test_layout(compiled, name):
    structure = abi.STRUCTS[name]
    assert compiled[f"sizeof(struct {name})"] == ctypes.sizeof(structure)
    for field in structure._fields_:
        descriptor = getattr(structure, field[0])
        assert compiled[f"offsetof(struct {name}, {field[0]})"] == descriptor.offset, field[0]
        assert compiled[f"sizeof(((struct {name} *)0)->{field[0]})"] == descriptor.size, field[0]


def test_constants(compiled):
    for name in CONSTANTS:
        assert compiled[f"GA_{name}"] == getattr(abi, name), name
    assert compiled["GA_ABI_VERSION"] == abi.VERSION
    for enum, prefix in ((Mechanism, ""), (Reason, "END_"), (Role, "ROLE_")):
        for member in enum:
            if member:
                assert compiled[f"GA_{prefix}{member.name}"] == member, member


def test_public_records_have_the_same_fields():
    assert list(Record.__struct_fields__) == [field[0] for field in abi.Record._fields_]
    assert list(Counters.__struct_fields__) == [field[0] for field in abi.Counters._fields_]
