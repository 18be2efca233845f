"""A federation across a firewall, and links of several kinds that are silent until the firewall has forgotten them.

| inner side                                   | outer side                             |
|----------------------------------------------|----------------------------------------|
| SuperNode 1.25 (gRPC), SuperNode 1.42 (HTTP) | SuperLink with default settings        |
| a gRPC channel, an HTTP/1.1 connection       | the same                               |
| a gRPC channel, an HTTP/1.1 connection       | SuperLink that pings every ten minutes |
| a TCP connection that nobody keeps           | a plain listener                       |
"""

import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from harness.authority import Authority
from harness.federation import APPS
from harness.firewall import Firewall
from harness.flower_cli import FlwrCli
from harness.outer_superlink import OuterSuperlink, get
from harness.place import Place
from harness.process import Process
from harness.release import flower
from harness.superlink import LinkOptions
from harness.supernode import Supernode
from harness.waiting import wait_for
from harness.workspace import Workspace

FORGOTTEN_AFTER_S = 60
SILENT_FOR_S = 90
NODES = ("1.25", "1.42")
SLOW_PINGS = ("--keepalive-interval", "10m", "--keepalive-timeout", "20s")
ANSWER_LIMIT_S = 10.0
# Packets take less than a millisecond here; what does not arrive in this time never will.
LOST_AFTER_S = 3.0
START_LIMIT_S = 60.0


@dataclass
class Links:
    """Two links that carried a call, and then nothing."""

    grpc: Process
    grpc_ports: set[int]
    http: ssl.SSLSocket
    http_port: int


class Silence:
    """Starts all of it; `keep` waits until every link has been silent for long enough."""

    def __init__(self, workspace: Workspace, firewall: Firewall):
        self.firewall = firewall
        self._workspace = workspace
        self._inner = Place.within(workspace, "inner", firewall.inner)
        self._tls = Authority(workspace).issue(workspace.root / "tls", firewall.outer_host)
        self._go = workspace.root / "go"
        self.superlink = self._start_superlink("outer")
        self.slow_superlink = self._start_superlink("slow", *SLOW_PINGS)
        self.nodes = [
            Supernode(self._inner, self.superlink, index, len(NODES), version=version).start()
            for index, version in enumerate(NODES)
        ]
        for node in self.nodes:
            node.wait_settled()
        self.kept, self.lost = self._open_links(self.superlink), self._open_links(self.slow_superlink)
        self.plain, self.plain_peer = self._open_plain()
        self.node_ports = firewall.inner.connections(self.superlink.fleet_address)
        self.activations = self.superlink.calls("ActivateNode")
        # At their start nodes may try more than once to reach their own parts; that is not looked at.
        self._said_at_start = [len(node.process.output()) for node in self.nodes]

    def _start_superlink(self, name: str, *flags: str) -> OuterSuperlink:
        place = Place.within(self._workspace, name, self.firewall.outer)
        # Who may submit is not asked here; how connections are kept is as an operator gets it.
        options = LinkOptions(tls=self._tls, flags=("--account-auth", "off", "--allow-insecure-network", *flags))
        return OuterSuperlink(place, options, self.firewall.outer_host).start()

    def _open_links(self, superlink: OuterSuperlink) -> Links:
        script = str(Path(__file__).with_name("silent_client.py"))
        argv = [flower().command("python"), script, superlink.control_address, str(self._tls.ca), str(self._go)]
        client = self._inner.start(f"silent-client-{superlink.http_port}", argv)
        client.wait_line("^first call: OK$", START_LIMIT_S)
        ports = self.firewall.inner.connections(superlink.control_address)
        secure = ssl.create_default_context(cafile=str(self._tls.ca)).wrap_socket(
            self.firewall.inner.connect(superlink.http_address), server_hostname=self.firewall.outer_host
        )
        assert get(secure, "/health") == '{"status":"ok"}'
        return Links(client, ports, secure, secure.getsockname()[1])

    def _open_plain(self) -> tuple[socket.socket, socket.socket]:
        host = self.firewall.outer_host
        with self.firewall.outer.inside(lambda: socket.create_server((host, 0))) as listener:
            own = self.firewall.inner.connect(f"{host}:{listener.getsockname()[1]}")
            peer, _ = listener.accept()
        own.sendall(b"early")
        peer.settimeout(ANSWER_LIMIT_S)
        assert peer.recv(16) == b"early"
        peer.settimeout(LOST_AFTER_S)
        return own, peer

    def keep(self) -> None:
        """The one wait of this suite that no event can end: nothing must happen."""
        time.sleep(SILENT_FOR_S)

    def second_call(self, links: Links) -> str:
        """How the gRPC channel's next call ends, after the silence."""
        self._go.touch()
        return links.grpc.wait_line("^second call: (.*)$", START_LIMIT_S).group(1)

    def said_since(self) -> list[str]:
        """What the nodes said since everything was set up."""
        return [node.process.output()[start:] for node, start in zip(self.nodes, self._said_at_start, strict=True)]

    def train(self, limit_s: float, **run_config: object) -> Path:
        """A training from its submission to its end; where its result is."""
        place = Place.within(self._workspace, "operator", self.firewall.outer)
        app = place.copy_app(APPS / "numpy_fedavg")
        result = self._workspace.root / "result.json"
        run = FlwrCli(place, app, self.superlink).follow(result_path=result, **run_config)
        assert run.wait_exit(limit_s) == 0, run.output()
        wait_for("the result of the training", result.exists, ANSWER_LIMIT_S)
        return result
