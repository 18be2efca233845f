"""Two gateways of real WireGuard, each in a network of its own.

Networks behind them reach each other, also after a gateway was gone.
"""

import contextlib
import os
import socket
import subprocess
from pathlib import Path

import pytest

from harness.debian import unpacked
from harness.namespace import Namespace
from harness.process import Process
from harness.waiting import wait_for
from harness.workspace import Workspace, trellis_binary
from harness.zones import WIREGUARD_GO
from provision import CannotBeHad

PORT, TUNNEL_PORT = 7000, 51820
UP_LIMIT_S = 60.0
CALL_LIMIT_S = 2.0
INTERFACE = "trellis0"
# `wireguard-go` names its sockets machine-wide: each machine has a /run of its own.
OWN_RUN = "mount -t tmpfs none /run && exec \"$@\""


class Gateway:
    """A machine that is nothing but a gateway."""

    def __init__(self, workspace: Workspace, number: int):
        self.workspace, self.number = workspace, number
        self.tools = unpacked(*WIREGUARD_GO)
        self.network = Namespace(workspace, f"gateway-{number}")
        self.public, self.lan, self.inside = f"10.96.0.{number}", f"10.97.{number}.1", f"10.66.0.{number}"
        self.network.run("ip", "address", "add", f"{self.lan}/24", "dev", "lo")
        self.key = self._wg("genkey")
        self.root = workspace.root / f"gateway-{number}"
        (self.root / "etc/trellis").mkdir(parents=True)
        (self.root / "etc/trellis/role").write_text("gateway")
        self.process: Process | None = None

    def _wg(self, verb: str, told: str = "") -> str:
        argv = [self.tools.program("usr/bin/wg"), verb]
        return subprocess.run(argv, input=told, capture_output=True, text=True, check=True).stdout.strip()

    def meet(self, other: "Gateway") -> None:
        values = {
            "WG_PRIVATE_KEY": self.key,
            "WG_LOCAL_ADDRESS": f"{self.inside}/24",
            "WG_LISTEN_PORT": str(TUNNEL_PORT),
            "WG_PEER_PUBLIC_KEY": self._wg("pubkey", other.key),
            "WG_PEER_ENDPOINT": f"{other.public}:{TUNNEL_PORT}",
            "WG_PEER_ALLOWED_IPS": f"{other.inside}/32,10.97.{other.number}.0/24",
            "WG_PEER_KEEPALIVE": "1",
        }
        text = "".join(f"{name}='{value}'\n" for name, value in values.items())
        (self.root / "context.sh").write_text(text)

    def start(self) -> None:
        own = os.environ.get("PATH", os.defpath)
        path = os.pathsep.join([self.tools.program("usr/bin"), own, "/usr/sbin", "/sbin"])
        words = [str(trellis_binary()), "appliance", "run", "--root", str(self.root)]
        words += ["--context", str(self.root / "context.sh")]
        argv = self.network.command(["unshare", "--mount", "sh", "-c", OWN_RUN, "sh", *words])
        self.process = self.workspace.start(f"gateway-{self.number}", argv, self.workspace.env() | {"PATH": path})

    def is_there(self) -> bool:
        assert self.process and self.process.alive, self.process and self.process.output()
        return self.process.output().count("ready=true") > 0

    def listen(self) -> socket.socket:
        made = self.network.inside(lambda: socket.create_server((self.lan, PORT)))
        made.settimeout(CALL_LIMIT_S)
        return made

    def reaches(self, other: "Gateway") -> bool:
        def call() -> bool:
            with contextlib.suppress(OSError):
                socket.create_connection((other.lan, PORT), CALL_LIMIT_S, (self.lan, 0)).close()
                return True
            return False

        return self.network.inside(call)


@pytest.fixture
def gateways(workspace: Workspace) -> tuple[Gateway, Gateway]:
    try:
        if not Path("/dev/net/tun").exists():
            raise CannotBeHad("/dev/net/tun is not there")
        first, second = Gateway(workspace, 1), Gateway(workspace, 2)
        wire = ("wan", "type", "veth", "peer", "name", "wan", "netns", str(second.network.pid))
        first.network.run("ip", "link", "add", *wire)
    except CannotBeHad as why:
        pytest.skip(str(why))
    for gateway in (first, second):
        gateway.network.run("ip", "address", "add", f"{gateway.public}/24", "dev", "wan")
        gateway.network.run("ip", "link", "set", "wan", "up")
    first.meet(second)
    second.meet(first)
    return first, second


def test_networks_behind_gateways_reach_each_other(gateways: tuple[Gateway, Gateway]) -> None:
    first, second = gateways
    listeners = [gateway.listen() for gateway in gateways]
    assert not first.reaches(second), "there is a way without a tunnel"
    for gateway in gateways:
        gateway.start()
    for gateway in gateways:
        wait_for("the gateway to be ready", gateway.is_there, UP_LIMIT_S)
    wait_for("the first to reach the second", lambda: first.reaches(second), UP_LIMIT_S)
    wait_for("the second to reach the first", lambda: second.reaches(first), UP_LIMIT_S)
    routes = first.network.run("ip", "route", "show")
    assert f"10.97.2.0/24 dev {INTERFACE}" in routes, routes

    # Gone from under the agent: it makes it again.
    first.network.run("ip", "link", "delete", "dev", INTERFACE)
    wait_for("the tunnel to be made again", lambda: first.reaches(second), UP_LIMIT_S)

    # The machine is switched off, and on again.
    assert second.process
    second.process.kill()
    second.network.run("ip", "link", "delete", "dev", INTERFACE)
    assert not first.reaches(second)
    second.start()
    wait_for("the first to reach the second again", lambda: first.reaches(second), UP_LIMIT_S)
    for listener in listeners:
        listener.close()
