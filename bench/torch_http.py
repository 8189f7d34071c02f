"""HTTP/1.1 on asyncio for torch_lc.py, as small Python services have it. Needs the standard library alone."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping


MAX_BODY = 1 << 20

#: Takes the body of a request; what it returns is sent as JSON.
Answer = Callable[[bytes], Mapping[str, object]]


class BadRequestError(Exception):
    """What came is no request that can be answered; the text says why."""


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    """Return the next request's body, and whether the connection is to be kept.

    Raises ``BadRequestError``, and ``asyncio.IncompleteReadError`` when the peer is gone.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise BadRequestError("its headers are too long") from error
    start, *lines = head.decode("latin-1").split("\r\n")[:-2]
    version = start.rpartition(" ")[2]
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadRequestError("not HTTP/1.1")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = fields.get("content-length", "0")
    if "transfer-encoding" in fields or not (length.isascii() and length.isdecimal()) or int(length) > MAX_BODY:
        raise BadRequestError(f"its body needs a Content-Length of at most {MAX_BODY}")
    body = await reader.readexactly(int(length))
    return body, version == "HTTP/1.1" and fields.get("connection", "").lower() != "close"


def response(status: str, fields: Mapping[str, object], *, keep: bool) -> bytes:
    """Headers and body of an answer."""
    body = json.dumps(fields, separators=(",", ":")).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + (b"" if keep else b"Connection: close\r\n") + b"\r\n" + body


class Server:
    """Serves all connections from one thread, one request at a time, until told to stop."""

    def __init__(self, answer: Answer, ready: Callable[[int], None]) -> None:
        self.answer, self.ready = answer, ready

    async def run(self, port: int) -> None:
        """Tell ``ready`` the port (0: any free one is taken), then serve; raises what ``answer`` raises."""
        loop = asyncio.get_running_loop()
        self.stopped: asyncio.Future[None] = loop.create_future()
        server = await asyncio.start_server(self.converse, "127.0.0.1", port)
        loop.add_reader(sys.stdin.fileno(), self.command)
        self.ready(server.sockets[0].getsockname()[1])
        try:
            await self.stopped
        finally:
            loop.remove_reader(sys.stdin.fileno())
            server.close()

    def command(self) -> None:
        """Stop on ``quit`` and at the end of input."""
        if os.read(sys.stdin.fileno(), 4096).strip() in (b"", b"quit") and not self.stopped.done():
            self.stopped.set_result(None)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        keep = True
        try:
            while keep:
                body, keep = await read_request(reader)
                writer.write(response("200 OK", self.answer(body), keep=keep))
                await writer.drain()
        except BadRequestError as error:
            writer.write(response("400 Bad Request", {"error": str(error)}, keep=False))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the peer is gone
        except Exception as error:
            if not self.stopped.done():
                self.stopped.set_exception(error)
        finally:
            writer.close()


def run(port: int, answer: Answer, ready: Callable[[int], None]) -> None:
    """Serve on ``port`` of the loopback until told to stop."""
    asyncio.run(Server(answer, ready).run(port))
