"""HTTP/1.1 as one call needs it: bytes of a request, and an answer that is read as its bytes arrive. Opens no connection.

The standard library has no HTTP client for asyncio; both clients of this package share this one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from .errors import UnexpectedAnswer

MAX_HEAD_BYTES = 64 << 10
# More than a chunk of any answer.
MAX_LINE_BYTES = 1 << 10
_END_OF_HEAD = b"\r\n\r\n"
_HEXADECIMAL = re.compile(rb"[0-9a-fA-F]{1,16}")


def request(method: str, path: str, host: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Each call has a connection of its own."""
    head = {"Host": host, "Connection": "close", "Content-Length": str(len(body)), **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    return "\r\n".join(lines).encode("ascii") + _END_OF_HEAD + body


class Answer:
    """An answer that arrives piece by piece: `feed` takes bytes, `take` gives those of the body that are there."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        self._raw = bytearray()
        self._body = bytearray()
        # Bytes of the body, or of its chunk, that are still to come; None: until the connection ends.
        self._left: Optional[int] = None
        self._chunked = False

    @property
    def has_head(self) -> bool:
        return self.status != 0

    def feed(self, data: bytes) -> None:
        """An empty piece is the end of the connection."""
        if not data:
            self._end()
            return
        self._raw += data
        if not self.has_head:
            self._read_head()
        if self.has_head and not self.complete:
            self._read_body()

    def take(self) -> bytes:
        """What arrived of the body since the last call."""
        taken = bytes(self._body)
        self._body.clear()
        return taken

    def _end(self) -> None:
        if self.complete:
            return
        if not self.has_head or self._chunked or self._left is not None:
            raise ConnectionError("the connection ended in the middle of an answer")
        self.complete = True

    def _read_head(self) -> None:
        end = self._raw.find(_END_OF_HEAD)
        if end < 0:
            if len(self._raw) > MAX_HEAD_BYTES:
                raise UnexpectedAnswer("the head of the answer is too long; is that a Trellis server?")
            return
        first, *lines = bytes(self._raw[:end]).decode("latin-1").split("\r\n")
        del self._raw[: end + len(_END_OF_HEAD)]
        version, _, rest = first.partition(" ")
        status = rest[:3]
        if not version.startswith("HTTP/1.") or not status.isdigit():
            raise UnexpectedAnswer(f"the answer begins with {first[:80]!r}; is that the port of a Trellis server?")
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.status = int(status)
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length", "")
        if self._chunked or self.status == 204:
            self._left = 0
        elif length.isdigit():
            self._left = int(length)

    def _read_body(self) -> None:
        if self._chunked:
            while not self.complete and self._read_chunk():
                pass
            return
        self._move(len(self._raw) if self._left is None else self._left)
        self.complete = self._left == 0

    def _read_chunk(self) -> bool:
        """Whether there was something to read."""
        if self._left:
            return self._move(self._left)
        # Chunks end with an empty line; the next begins with its length.
        if self._raw.startswith(b"\r\n"):
            del self._raw[:2]
        line, found, _ = bytes(self._raw[:MAX_LINE_BYTES]).partition(b"\r\n")
        if not found and len(self._raw) < MAX_LINE_BYTES:
            return False
        length = line.partition(b";")[0].strip()
        if not found or not _HEXADECIMAL.fullmatch(length):
            raise UnexpectedAnswer("a piece of the answer has no length; is that a Trellis server?")
        self._left = int(length, 16)
        del self._raw[: len(line) + 2]
        self.complete = self._left == 0
        return not self.complete

    def _move(self, most: int) -> bool:
        piece = self._raw[:most]
        del self._raw[:most]
        self._body += piece
        if self._left is not None:
            self._left -= len(piece)
        return bool(piece)
