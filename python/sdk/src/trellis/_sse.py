"""Server-sent events from the pieces of a stream. Opens no connection."""

from __future__ import annotations

from collections.abc import Iterator

# Far more than an event with a thousand nodes takes.
MAX_EVENT_BYTES = 16 << 20


class Lines:
    """`data:` lines up to an empty one are an event. Comments and other fields are ignored."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data = ""

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of each event that this piece completes."""
        self._rest += piece
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        if len(rest) + len(self._data) > MAX_EVENT_BYTES:
            raise ConnectionError("an event is too long")
        for line in lines:
            text = line.decode("utf-8", "replace").rstrip("\r")
            if text.startswith("data:"):
                self._data += text[len("data:") :].lstrip(" ")
            elif not text and self._data:
                data, self._data = self._data, ""
                yield data
