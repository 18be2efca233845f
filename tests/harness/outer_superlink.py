"""A SuperLink in a network namespace, reached from another one."""

import http.client
import re
import socket

from harness.place import Place
from harness.ports import free_address, free_port
from harness.superlink import LinkOptions, Superlink

START_LIMIT_S = 60.0
ANSWER_LIMIT_S = 10.0


class OuterSuperlink(Superlink):
    """A SuperLink that the inner side reaches through the firewall; its state is visible in its log and metrics."""

    def __init__(self, place: Place, options: LinkOptions, host: str):
        super().__init__(place, options)
        self._host = host
        self.control_address = f"{host}:{free_port()}"
        self.fleet_address = f"{host}:{free_port()}"
        self.metrics_address = free_address()
        self._namespace = place.namespace

    @property
    def http_address(self) -> str:
        return f"{self._host}:{self.http_port}"

    def settle(self, limit_s: float = START_LIMIT_S) -> bool:
        self.process.wait_line("SuperLink is ready", limit_s)
        return True

    def _addresses(self) -> list[str]:
        words = list(super()._addresses())
        words[words.index("--host") + 1] = self._host
        return [*words, "--metrics-address", self.metrics_address]

    def metrics(self) -> str:
        with self._namespace.connect(self.metrics_address) as connection:
            return get(connection, "/metrics")

    def calls(self, rpc: str) -> int:
        """How often a call was made in total."""
        counted = re.findall(rf'^trellis_calls_total{{[^}}]*rpc="{rpc}"[^}}]*}} (\d+)', self.metrics(), re.MULTILINE)
        return sum(int(count) for count in counted)


def get(connection: socket.socket, path: str, limit_s: float = ANSWER_LIMIT_S) -> str:
    """Sends an HTTP request on an open connection, which stays open; returns the answer."""
    connection.settimeout(limit_s)
    connection.sendall(f"GET {path} HTTP/1.1\r\nhost: superlink\r\n\r\n".encode())
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.read().decode()
