"""TLS handshakes with a live SuperLink, as a client of any kind might try them."""

import contextlib
import socket
import ssl
import threading
import warnings
from pathlib import Path

from harness.credentials import TlsFiles
from harness.ports import HOST

LIMIT_S = 10.0


def trusting(ca: Path) -> ssl.SSLContext:
    """What a careful client does: all checks, and this CA only."""
    return ssl.create_default_context(cafile=str(ca))


def offering(newest: ssl.TLSVersion, ca: Path) -> ssl.SSLContext:
    """A client that offers this version of TLS and older ones, whatever this machine thinks of them."""
    context = trusting(ca)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def shake(address: str, context: ssl.SSLContext, name: str = HOST) -> ssl.SSLSocket:
    """A handshake with the server that is expected to be called `name`; raises where either side refuses."""
    host, _, port = address.rpartition(":")
    return context.wrap_socket(socket.create_connection((host, int(port)), LIMIT_S), server_hostname=name)


def served_certificate(address: str, ca: Path) -> bytes:
    """The leaf that a trusted handshake shows now, as DER."""
    with shake(address, trusting(ca)) as connection:
        return connection.getpeercert(binary_form=True)


class OldServer:
    """A server that accepts old versions of TLS: whoever fails with it did not really offer them."""

    def __init__(self, tls: TlsFiles):
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(tls.cert, tls.key)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self._context.minimum_version = ssl.TLSVersion.TLSv1
        self._context.set_ciphers("ALL:@SECLEVEL=0")
        self._listener = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):
                self._context.wrap_socket(accepted, server_side=True).close()

    def close(self) -> None:
        # An accept that waits is not ended by close alone.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
