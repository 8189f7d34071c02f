"""adaptive/agent/page.py against a C compiler with hold_page.h."""

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gpsched.adaptive.actuator import slots
from gpsched.adaptive.agent import page


NATIVE = Path(page.__file__).parent / "native"
FIELDS = [name for name, _ in page.Layout._fields_]


def test_the_page_is_what_the_agent_writes(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc); install gcc")
    wanted = {
        "sizeof(struct gs_hold_page)": ctypes.sizeof(page.Layout),
        "GS_HOLD_MAGIC": page.MAGIC,
        "GS_HOLD_VERSION": page.VERSION,
        "GS_HOLD_BYTES": page.BYTES,
        **{f"offsetof(struct gs_hold_page, {name})": getattr(page.Layout, name).offset for name in FIELDS},
        **{f"sizeof(((struct gs_hold_page *)0)->{name})": getattr(page.Layout, name).size for name in FIELDS},
    }
    prints = "\n".join(f'printf("\\"%s\\": %llu,\\n", "{e}", (unsigned long long)({e}));' for e in wanted)
    include = '#include <stddef.h>\n#include <stdio.h>\n#include "hold_page.h"\n'
    source = include + f"int main(void) {{ {prints} return 0; }}\n"
    (tmp_path / "page.c").write_text(source)
    subprocess.run([compiler, "-I", NATIVE, "-o", tmp_path / "page", tmp_path / "page.c"], check=True)
    output = subprocess.run([tmp_path / "page"], check=True, capture_output=True, text=True).stdout
    assert json.loads("{" + output.rstrip(",\n") + "}") == wanted


def test_names_and_limits_are_the_agents():
    header = (NATIVE / "hold_page.h").read_text()
    assert f'#define GS_HOLD_FILE "{slots.AGENT_FILE.removeprefix("memfd:")}"' in header
    assert f'#define GS_HOLD_THREAD "{slots.AGENT_THREAD}"' in header
    assert f"#define MAX_FAILURES {page.MAX_FAILURES}\n" in (NATIVE / "agent.c").read_text()
