# Generated from trellis/aio/_call.py by generate.py; do not edit.
"""One call to a server: a request, and its answer whole or as a stream of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Optional

from .. import _decode, _http, _patience, _sse, types
from .._explain import explained, refusal
from .._target import Target
from ..errors import Refused, Unreachable
from ._io import Connection, sleep

_BASE = "/api/v1"


def call(
    target: Target,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Optional[Mapping[str, str]] = None,
    limit_s: float = _patience.ANSWER_S,
) -> bytes:
    """The body of the answer. A call that the server puts off ("not now") is repeated a few times; it has done nothing."""
    waits = iter(_patience.RETRIES_S)
    while True:
        try:
            return _once(target, method, path, body, headers, limit_s)
        except Refused as error:
            wait_s = next(waits, None)
            # Too many wrong tokens: another attempt would make it worse.
            if wait_s is None or error.status == 429 or not error.may_pass:
                raise
        sleep(wait_s)


def _once(
    target: Target, method: str, path: str, body: bytes, headers: Optional[Mapping[str, str]], limit_s: float
) -> bytes:
    with _opened(target) as connection:
        answer = _begin(target, connection, method, path, body, headers or {}, limit_s)
        whole = _rest(target, connection, answer, limit_s)
    if 200 <= answer.status < 300:
        return whole
    raise refusal(target, method, path, answer, whole)


class EventStream:
    """Server-sent events of one connection."""

    def __init__(self, target: Target, connection: Connection, answer: _http.Answer) -> None:
        self._target = target
        self._connection = connection
        self._answer = answer
        self._lines = _sse.Lines()
        self._ready: list[types.Event] = []
        self._silence_s = 0.0

    @classmethod
    def open(cls, target: Target, path: str) -> EventStream:
        connection = _open(target)
        try:
            answer = _begin(target, connection, "GET", path, b"", {"Accept": "text/event-stream"}, _patience.ANSWER_S)
            if answer.status != 200:
                whole = _rest(target, connection, answer, _patience.ANSWER_S)
                raise refusal(target, "GET", path, answer, whole)
        except BaseException:
            connection.close()
            raise
        return cls(target, connection, answer)

    def next(self, limit_s: float) -> Optional[types.Event]:
        """The next event; None: there was none in this time. Raises Unreachable when the stream ends."""
        while True:
            with explained(self._target):
                arrived = [_decode.read_event(data) for data in self._lines.feed(self._answer.take())]
            # What a newer server tells and is unknown here is left out.
            self._ready += [event for event in arrived if event is not None]
            if self._ready:
                return self._ready.pop(0)
            if self._answer.complete:
                raise Unreachable(f"the server at {self._target.url} ended the stream of events")
            if not self._receive(limit_s):
                return None

    def _receive(self, limit_s: float) -> bool:
        """Whether something arrived."""
        with explained(self._target):
            try:
                self._answer.feed(self._connection.receive(limit_s))
            except TimeoutError:
                self._silence_s += limit_s
                if self._silence_s > _patience.SILENCE_S:
                    raise
                return False
        self._silence_s = 0.0
        return True

    def close(self) -> None:
        self._connection.close()


def _begin(
    target: Target,
    connection: Connection,
    method: str,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    limit_s: float,
) -> _http.Answer:
    """Sends a request, and reads the head of its answer."""
    given = {"Authorization": f"Bearer {target.token}", "Accept": "application/json", **headers}
    answer = _http.Answer()
    with explained(target):
        connection.send(_http.request(method, _BASE + path, target.authority, given, body), limit_s)
        while not answer.has_head:
            answer.feed(connection.receive(limit_s))
    return answer


def _rest(target: Target, connection: Connection, answer: _http.Answer, limit_s: float) -> bytes:
    """The body of an answer, to its end."""
    whole = bytearray(answer.take())
    with explained(target):
        while not answer.complete:
            answer.feed(connection.receive(limit_s))
            whole += answer.take()
    return bytes(whole)


def _open(target: Target) -> Connection:
    with explained(target):
        return Connection.open(target.host, target.port, target.trust, _patience.CONNECT_S)


@contextmanager
def _opened(target: Target) -> Iterator[Connection]:
    connection = _open(target)
    try:
        yield connection
    finally:
        connection.close()
