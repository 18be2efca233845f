"""Sockets, clocks and processes of the synchronous client. `aio/_io.py` has the same for an event loop."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Optional

from .._program import Finished

_PIECE_BYTES = 1 << 16
_STOPPING_S = 60.0


class Connection:
    """Bytes to and from a server."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened

    @classmethod
    def open(cls, host: str, port: int, trust: Optional[ssl.SSLContext], limit_s: float) -> Connection:
        opened = socket.create_connection((host, port), limit_s)
        if trust is None:
            return cls(opened)
        try:
            return cls(trust.wrap_socket(opened, server_hostname=host))
        except BaseException:
            opened.close()
            raise

    def send(self, data: bytes, limit_s: float) -> None:
        self._socket.settimeout(limit_s)
        try:
            self._socket.sendall(data)
        except socket.timeout:
            raise TimeoutError(f"the request was not taken within {limit_s:g} s") from None

    def receive(self, limit_s: float) -> bytes:
        """What arrives next; nothing: the other side closed. A call that takes too long loses no bytes."""
        # A socket with a limit of 0 would not wait, and say so in another way.
        self._socket.settimeout(max(limit_s, 0.001))
        try:
            return self._socket.recv(_PIECE_BYTES)
        except socket.timeout:
            raise TimeoutError(f"no answer within {limit_s:g} s") from None

    def close(self) -> None:
        self._socket.close()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def execute(argv: Sequence[str], env: Mapping[str, str], text: str = "") -> Finished:
    """Runs a program to its end, with `text` on its standard input."""
    pipe = subprocess.PIPE
    # A session of its own: Ctrl-C on the terminal is not also sent to the program, which takes a second one as "at once".
    child = subprocess.Popen(argv, env=dict(env), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        out, err = child.communicate(text.encode())
    except BaseException:
        # The program takes back what it began.
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.wait(_STOPPING_S)
        raise
    return Finished(child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
