"""The log as text and JSON, on a terminal and in the journal."""

import json
import logging
import subprocess
import sys

import pytest

from gpsched.adaptive import logs


def _logged(form: str, journal: bool) -> list[str]:
    code = (
        "import logging; from gpsched.adaptive import logs\n"
        f"logs.setup('info', {form!r})\n"
        "log = logging.getLogger('gpsched.x'); log.debug('no'); log.info('a %d', 1); log.error('b\\nc')\n"
        "try: 1/0\nexcept ZeroDivisionError: log.exception('boom')\n"
    )
    environment = {"JOURNAL_STREAM": "8:1"} if journal else {}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return result.stderr.splitlines()


def test_text() -> None:
    lines = _logged("text", False)
    assert lines[:3] == ["gpsched: a 1", "gpsched: b", "c"]
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_text_in_the_journal_has_a_priority_on_every_line() -> None:
    lines = _logged("text", True)
    assert lines[:3] == ["<6>a 1", "<3>b", "<3>c"]
    assert all(line.startswith("<3>") for line in lines[1:])


@pytest.mark.parametrize("journal", [False, True])
def test_json_is_one_object_a_line(journal: bool) -> None:
    lines = _logged("json", journal)
    entries = [json.loads(line[3:] if journal else line) for line in lines]
    assert [entry["message"] for entry in entries] == ["a 1", "b\nc", "boom"]
    assert [entry["level"] for entry in entries] == ["info", "error", "error"]
    assert "ZeroDivisionError" in entries[2]["traceback"]
    assert journal == lines[0].startswith("<6>")


def test_unknown_levels_are_information() -> None:
    assert logs.prefixed("x", logging.INFO + 3) == "<6>x"
