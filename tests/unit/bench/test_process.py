"""Programs that die, hang or speak nonsense."""

import sys

import pytest

from gpsched.bench.errors import ProgramFailedError, ProgramMissingError, ProgramTimeoutError
from gpsched.bench.messages import Progress, Ready
from gpsched.bench.process import CommandProcess


READY = 'print(\'{"event":"ready","pid":1,"gpu":"x"}\', flush=True)'


def script(text: str) -> CommandProcess:
    return CommandProcess([sys.executable, "-c", text])


def test_message_in_pieces() -> None:
    text = (
        'import sys,time\nfor c in \'{"event":"ready","pid":1,"gpu":"x"}\\n\': sys.stdout.write(c); sys.stdout.flush()'
    )
    with script(text) as process:
        assert process.expect(Ready, 10).gpu == "x"


def test_death_reports_the_last_line_and_the_code() -> None:
    with (
        script("import sys; print('first\\nno GPU here', file=sys.stderr); sys.exit(77)") as process,
        pytest.raises(ProgramFailedError, match="ended with code 77: no GPU here") as failure,
    ):
        process.expect(Ready, 10)
    assert failure.value.returncode == failure.value.exit_code == 77


def test_silence_times_out_and_the_program_is_ended() -> None:
    with (
        pytest.raises(ProgramTimeoutError, match="no ready within"),
        script("import signal,time; signal.signal(15, signal.SIG_DFL); time.sleep(60)") as process,
    ):
        process.expect(Ready, 0.2)
    assert process.close() == -15


@pytest.mark.parametrize("line", ["nonsense", '{"event":"sing"}', '{"event":"ready"}'])
def test_unreadable_line(line: str) -> None:
    with script(f"print({line!r}, flush=True)") as process, pytest.raises(ProgramFailedError, match="unreadable"):
        process.expect(Ready, 10)


def test_another_message_than_expected() -> None:
    with script(READY) as process, pytest.raises(ProgramFailedError, match="expected Progress"):
        process.expect(Progress, 10)


def test_command_to_a_dead_program() -> None:
    with script("import sys; sys.exit('gone')") as process:
        process._process.wait(10)
        with pytest.raises(ProgramFailedError, match="gone"):
            process.send("stat")


def test_program_that_does_not_exist() -> None:
    with pytest.raises(ProgramMissingError, match="make native"):
        CommandProcess(["/nonexistent/program"])
