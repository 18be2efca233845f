"""Callers without a client library: raw requests over TLS, signed by any key, from any loopback address."""

import base64
import datetime
import socket
import ssl
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from harness.superlink import Superlink

ANSWER_LIMIT_S = 20.0


@dataclass(frozen=True)
class Heard:
    """An answer: its status, its head in lower case, and its body."""

    status: int
    head: str
    body: bytes


class Signer:
    """The key of a node, registered or not."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP384R1())
        public = serialization.PublicFormat.SubjectPublicKeyInfo
        self.pem = self._key.public_key().public_bytes(serialization.Encoding.PEM, public)

    def headers(self) -> dict[str, str]:
        time = datetime.datetime.now(datetime.UTC).isoformat()
        signature = self._key.sign(time.encode(), ec.ECDSA(hashes.SHA256()))
        return {
            "flwr-public-key": base64.b64encode(self.pem).decode(),
            "flwr-timestamp": time,
            "flwr-signature": base64.b64encode(signature).decode(),
        }


def protobuf() -> dict[str, str]:
    return {"content-type": "application/protobuf"}


def connect(superlink: Superlink, source: str | None = None, tls: bool = True) -> socket.socket:
    """Connects to the HTTP port."""
    host, _, port = superlink.http_address.rpartition(":")
    plain = socket.create_connection((host, int(port)), ANSWER_LIMIT_S, (source, 0) if source else None)
    if not tls:
        return plain
    context = ssl.create_default_context(cafile=str(superlink.options.tls.ca))
    return context.wrap_socket(plain, server_hostname="localhost")


def head(path: str, headers: dict[str, str], length: int, method: str = "POST") -> bytes:
    usual = {"host": "localhost", "connection": "close", "content-length": str(length)}
    lines = [f"{method} /{path} HTTP/1.1", *(f"{name}: {value}" for name, value in (usual | headers).items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def listen(connection: socket.socket) -> Heard:
    """Reads the whole response."""
    heard = b""
    try:
        while piece := connection.recv(1 << 16):
            heard += piece
    except (ConnectionResetError, ssl.SSLError):
        pass  # It was answered before all was sent.
    start, _, body = heard.partition(b"\r\n\r\n")
    assert start.startswith(b"HTTP/1.1 "), heard[:200]
    return Heard(int(start.split()[1]), start.decode().lower(), body)


def call(superlink: Superlink, path: str, headers: dict[str, str], message, source: str | None = None) -> Heard:
    """Performs one call; `message` is protobuf or bytes."""
    body = message if isinstance(message, bytes) else message.SerializeToString()
    with connect(superlink, source) as connection:
        try:
            connection.sendall(head(path, headers, len(body)) + body)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            pass  # It was refused before all was sent.
        return listen(connection)
