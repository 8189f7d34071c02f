"""A child process that obeys lines on its standard input and answers with JSON lines. Every wait is bounded."""

import contextlib
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from gpsched.bench.errors import ProgramFailedError, ProgramMissingError, ProgramTimeoutError
from gpsched.bench.messages import Message, Refused, decoder


M = TypeVar("M", bound=msgspec.Struct)

_CHUNK = 1 << 16
_TERMINATE_S = 10.0


class CommandProcess:
    """Starts ``command`` in ``environment``, which is added to this process's own. Ends with the ``with`` block."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.name = Path(next((part for part in command[:2] if part.endswith(".py")), command[0])).name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self._buffer = bytearray()
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, **(environment or {})},
                bufsize=0,
            )
        except OSError as error:
            self._errors.close()
            raise ProgramMissingError(command[0]) from error
        assert self._process.stdin
        assert self._process.stdout
        self._input, self._output = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close() if error is None else self.close(grace_s=0)

    @property
    def pid(self) -> int:
        """Process id of the program itself."""
        return self._process.pid

    def send(self, line: str) -> None:
        """Give a command; raise ``ProgramFailedError`` when the program has ended."""
        try:
            self._input.write(line.encode() + b"\n")
        except OSError as error:
            raise self._failure() from error

    def expect(self, kind: type[M], timeout_s: float) -> M:
        """Return the next message, which must be a ``kind``.

        Raises ``ProgramFailedError`` when the program ends or says something else, ``ProgramTimeoutError``.
        """
        message = self._next_message(kind.__name__.lower(), timeout_s)
        if isinstance(message, Refused):
            raise ProgramFailedError(self.name, message.message)
        if type(message) is not kind:
            raise ProgramFailedError(self.name, f"expected {kind.__name__}, got {message}")
        return message

    def ask(self, line: str, kind: type[M], timeout_s: float) -> M:
        """Give a command and return its answer."""
        self.send(line)
        return self.expect(kind, timeout_s)

    def close(self, grace_s: float = 20.0) -> int:
        """Let the program end: end of input, after ``grace_s`` SIGTERM, then SIGKILL. Returns its exit code."""
        with contextlib.suppress(OSError):
            self._input.close()
        for seconds, escalate in ((grace_s, self._process.terminate), (_TERMINATE_S, self._process.kill)):
            if self._wait(seconds):
                break
            escalate()
        returncode = self._process.wait()
        self._output.close()
        self._errors.close()
        return returncode

    def _wait(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _next_message(self, awaited: str, timeout_s: float) -> Message:
        line = self._next_line(awaited, timeout_s)
        try:
            return decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise ProgramFailedError(self.name, f"unreadable line {line[:80]!r}: {error}") from error

    def _next_line(self, awaited: str, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        while (end := self._buffer.find(b"\n")) < 0:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._output], [], [], left)[0]:
                raise ProgramTimeoutError(self.name, awaited, timeout_s)
            chunk = os.read(self._output.fileno(), _CHUNK)
            if not chunk:
                raise self._failure()
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _failure(self) -> ProgramFailedError:
        if not self._wait(_TERMINATE_S):
            return ProgramFailedError(self.name, "it closed its output")
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return ProgramFailedError(self.name, lines[-1] if lines else "it said nothing", self._process.returncode)
