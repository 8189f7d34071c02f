"""The control socket's messages: one JSON object a line, in both directions."""

from typing import Any

import msgspec


API_VERSION = 1
MAX_LINE = 1 << 16


class Request(msgspec.Struct, frozen=True):
    """A call of ``method``. ``api`` lets an older daemon or client say so instead of misreading the other."""

    method: str
    params: dict[str, Any] = {}
    api: int = API_VERSION


class Failure(msgspec.Struct, frozen=True):
    """Why a call was refused: class name of the error, its message, the CLI's exit code."""

    kind: str
    message: str
    exit_code: int


class Response(msgspec.Struct, frozen=True, omit_defaults=True):
    """Either ``result`` or ``error``."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: Failure | None = None
    api: int = API_VERSION
