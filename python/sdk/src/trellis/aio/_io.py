"""Sockets, clocks and processes of the asynchronous client. `_sync/_io.py` has the same without waiting in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
from collections.abc import Mapping, Sequence
from typing import Optional

from .._program import Finished

_PIECE_BYTES = 1 << 16
_STOPPING_S = 60.0
_CLOSING_S = 1.0


class Connection:
    """Bytes to and from a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int, trust: Optional[ssl.SSLContext], limit_s: float) -> Connection:
        opening = asyncio.open_connection(host, port, ssl=trust, server_hostname=host if trust else None)
        try:
            reader, writer = await asyncio.wait_for(opening, limit_s)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no connection within {limit_s:g} s") from None
        return cls(reader, writer)

    async def send(self, data: bytes, limit_s: float) -> None:
        self._writer.write(data)
        try:
            await asyncio.wait_for(self._writer.drain(), limit_s)
        except asyncio.TimeoutError:
            raise TimeoutError(f"the request was not taken within {limit_s:g} s") from None

    async def receive(self, limit_s: float) -> bytes:
        """What arrives next; nothing: the other side closed. A call that takes too long loses no bytes."""
        try:
            return await asyncio.wait_for(self._reader.read(_PIECE_BYTES), limit_s)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no answer within {limit_s:g} s") from None

    async def aclose(self) -> None:
        self._writer.close()
        # The other side may never answer the end of a TLS connection, or be gone.
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), _CLOSING_S)


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def execute(argv: Sequence[str], env: Mapping[str, str], text: str = "") -> Finished:
    """Runs a program to its end, with `text` on its standard input."""
    pipe = asyncio.subprocess.PIPE
    # A session of its own: Ctrl-C on the terminal is not also sent to the program, which takes a second one as "at once".
    child = await asyncio.create_subprocess_exec(
        *argv, env=dict(env), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        out, err = await child.communicate(text.encode())
    except BaseException:
        # The program takes back what it began.
        if child.returncode is None:
            child.send_signal(signal.SIGINT)
            await asyncio.wait_for(child.wait(), _STOPPING_S)
        raise
    return Finished(child.returncode or 0, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
