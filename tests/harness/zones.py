"""Several clouds, each with its own network behind a NAT router, connected by an internet.

    VM - - lan - - router (NAT, front end of the cloud)  - - internet - -  router  - - lan - - VM

Each front end runs `fake-one`, an OpenNebula whose VMs are appliances in network namespaces (`zone_vm.py`). From outside a zone
only forwarded ports of its router reach its LAN.
"""

import json
import os
import shutil
import sys
import urllib.request
from pathlib import Path

from harness.debian import unpacked
from harness.firewall import NFTABLES
from harness.namespace import Namespace
from harness.process import Process
from harness.waiting import wait_for
from harness.workspace import REPOSITORY, Workspace, trellis_binary
from provision import CannotBeHad

WIREGUARD_GO = ("wireguard-go", "wireguard-tools")
PUBLIC = "203.0.113"
# The initial credentials of the fake cloud.
CREDENTIALS = "oneadmin:onepass"
SERVED_LIMIT_S = 30.0
VM_PROGRAM = Path(__file__).with_name("zone_vm.py")
RULES = """
table inet cable {
  chain input { type filter hook input priority filter - 10; policy accept; }
  chain output { type filter hook output priority filter - 10; policy accept; }
  chain forward { type filter hook forward priority filter - 10; policy accept; }
}
table inet router {
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state established,related accept
    iifname "lan" accept
    ct status dnat accept
  }
}
table ip nat {
  chain prerouting {
    type nat hook prerouting priority dstnat; policy accept;
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "wan" masquerade
  }
}
"""


def fake_one() -> Path:
    """The program of the fake cloud: FAKE_ONE_BIN, or the debug build of this repository."""
    default = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "debug" / "fake-one"
    found = Path(os.environ.get("FAKE_ONE_BIN", default)).resolve()
    if not found.exists():
        raise CannotBeHad(f"{found} is missing: cargo build -p trellis-fake-one")
    return found


class Internet:
    """A switch that connects all routers."""

    def __init__(self, workspace: Workspace):
        self.workspace = workspace
        self.switch = Namespace(workspace, "internet")
        self.switch.run("ip", "link", "add", "sw", "type", "bridge")
        self.switch.run("ip", "link", "set", "sw", "up")

    def plug(self, router: Namespace, address: str) -> None:
        port = f"p-{router.name}"
        self.switch.run("ip", "link", "add", port, "type", "veth", "peer", "name", "wan", "netns", str(router.pid))
        self.switch.run("ip", "link", "set", port, "master", "sw", "up")
        router.run("ip", "address", "add", f"{address}/24", "dev", "wan")
        router.run("ip", "link", "set", "wan", "up")


class Zone:
    """A LAN with its router, which is also the cloud's front end."""

    def __init__(self, internet: Internet, name: str, number: int):
        self.name, self.number = name, number
        self.public = f"{PUBLIC}.{number}"
        self.lan = f"10.{number}.0"
        self.workspace = internet.workspace
        self.router = Namespace(self.workspace, name)
        internet.plug(self.router, self.public)
        self.router.run("ip", "link", "add", "lan", "type", "bridge")
        self.router.run("ip", "address", "add", f"{self.lan}.1/24", "dev", "lan")
        self.router.run("ip", "link", "set", "lan", "up")
        self.router.run("sysctl", "--quiet", "-w", "net.ipv4.ip_forward=1")
        self._nft("--file", "-", stdin=RULES)

    def _nft(self, *words: str, stdin: str | None = None) -> str:
        if found := shutil.which("nft", path="/usr/sbin:/usr/bin:/sbin:/bin"):
            return self.router.run(found, *words, stdin=stdin)
        packages = unpacked(*NFTABLES)
        return self.router.run(packages.program("usr/sbin/nft"), *words, stdin=stdin, env=packages.env)

    def forward(self, protocol: str, port: int, to: str) -> None:
        """Forwards a port of the router to a machine of its LAN."""
        rule = ("iifname", "wan", protocol, "dport", str(port), "dnat", "to", to)
        self._nft("add", "rule", "ip", "nat", "prerouting", *rule)

    def cut(self) -> None:
        """Drops all packets between this zone, including its front end, and the others."""
        for chain, way in (("input", "iifname"), ("output", "oifname"), ("forward", "iifname"), ("forward", "oifname")):
            self._nft("add", "rule", "inet", "cable", chain, way, "wan", "drop")

    def mend(self) -> None:
        for chain in ("input", "output", "forward"):
            self._nft("flush", "chain", "inet", "cable", chain)


class Cloud:
    """The OpenNebula of a zone."""

    def __init__(self, zone: Zone):
        self.zone = zone
        self.endpoint = f"http://{zone.public}:2633/RPC2"
        self.flow = f"http://{zone.public}:2474"
        directory = zone.workspace.root / f"cloud-{zone.name}"
        directory.mkdir()
        tools = unpacked(*WIREGUARD_GO)
        programs = [tools.program("usr/bin"), *os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/sbin", "/sbin"]
        env = zone.workspace.env(
            ZONE_TRELLIS=str(trellis_binary()), ZONE_LAN="lan", ZONE_GATEWAY=f"{zone.lan}.1", PATH=os.pathsep.join(programs)
        )
        argv = [str(fake_one()), "--dir", str(directory)]
        argv += ["--oned", f"{zone.public}:2633", "--flow", f"{zone.public}:2474", "--gate", f"{zone.lan}.1:5030"]
        argv += ["--control", "127.0.0.1:5999", "--gate-endpoint", f"http://{zone.lan}.1:5030"]
        argv += ["--network", f"lan={zone.lan}.0/24,first={zone.lan}.10"]
        argv += ["--vm-command", f"{sys.executable} {VM_PROGRAM}"]
        self.process: Process = zone.workspace.start(f"cloud-{zone.name}", zone.router.command(argv), env)
        wait_for(f"the cloud of {zone.name}", lambda: "{" in self.process.output(), SERVED_LIMIT_S)

    def vms(self, role: str) -> list[dict]:
        """The running VMs of a role."""
        return [vm for vm in self.control("/vms") if vm["role"] == role and vm["state"] == "RUNNING"]

    def control(self, path: str, body: dict | None = None) -> dict | list | None:
        """Reads, or with a body changes, the state of the fake through its control port."""
        data = None if body is None else json.dumps(body).encode()

        def ask() -> bytes:
            request = urllib.request.Request(f"http://127.0.0.1:5999{path}", data=data)
            with urllib.request.urlopen(request, timeout=SERVED_LIMIT_S) as answer:
                return answer.read()

        text = self.zone.router.inside(ask)
        return json.loads(text) if text else None
