"""A cloud of real virtual machines: the fake OpenNebula on a bridge in a network of its own, with QEMU as its hypervisor."""

import base64
import json
import socket
import sys
import urllib.request
import xmlrpc.client
from pathlib import Path

from harness.namespace import Namespace
from harness.process import Process
from harness.waiting import wait_for
from harness.workspace import Workspace, trellis_binary
from harness.zones import fake_one

BRIDGE = "br0"
GATEWAY = "10.77.0.1"
NETWORK = "private=10.77.0.0/24,first=10.77.0.10"
SESSION = "oneadmin:onepass"
CALL_LIMIT_S = 30.0
SERVE_LIMIT_S = 60.0


class Cloud:
    """Serves on the bridge; machines get their addresses from its network."""

    def __init__(self, workspace: Workspace, images: Path):
        self.workspace = workspace
        self.namespace = Namespace(workspace, "cloud")
        for words in (
            ("link", "add", BRIDGE, "type", "bridge"),
            ("address", "add", f"{GATEWAY}/24", "dev", BRIDGE),
            ("link", "set", BRIDGE, "up"),
        ):
            self.namespace.run("ip", *words)
        self.directory = workspace.root / "vms"
        hypervisor = f"{sys.executable} {Path(__file__).parent / 'hypervisor.py'} {images} {BRIDGE}"
        argv = [str(fake_one()), "--network", NETWORK, "--vm-command", hypervisor, "--dir", str(self.directory)]
        for service in ("oned", "flow", "gate", "control"):
            argv += [f"--{service}", f"{GATEWAY}:0"]
        env = workspace.env(TRELLIS_BIN=str(trellis_binary()), RUST_LOG="info")
        self.process: Process = workspace.start("fake-one", self.namespace.command(argv), env)
        self.serves = json.loads(self.process.wait_line(r"^\{.*\}$", SERVE_LIMIT_S).group())

    def call(self, method: str, *arguments: object) -> object:
        """An XML-RPC of oned; what it returns."""

        def ask() -> list:
            server = xmlrpc.client.ServerProxy(self.serves["oned"])
            return getattr(server, method)(SESSION, *arguments)

        done, result, *_ = self.namespace.inside(ask)
        assert done, f"{method}: {result}"
        return result

    def flow(self, path: str, body: dict) -> dict:
        """Something new in OneFlow."""
        token = base64.b64encode(SESSION.encode()).decode()
        headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
        url = f"{self.serves['flow'].rstrip('/')}{path}"
        return self._json(urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST"))["DOCUMENT"]

    def machines(self, role: str) -> list[dict]:
        everyone = self._json(urllib.request.Request(f"{self.serves['control'].rstrip('/')}/vms"))
        return [machine for machine in everyone if machine["role"] == role]

    def ready(self, role: str, count: int, limit_s: float) -> list[dict]:
        """Wait until so many machines of the role say that they are ready."""

        def look() -> list[dict] | None:
            found = [vm for vm in self.machines(role) if vm["attributes"].get("READY") == "YES"]
            return found if len(found) >= count else None

        return wait_for(f"{count} machines of role {role} to be ready", look, limit_s)

    def reset(self, machine: dict) -> None:
        """The button on the front of a machine."""
        with socket.socket(socket.AF_UNIX) as qmp:
            qmp.settimeout(CALL_LIMIT_S)
            qmp.connect(str(self.place(machine) / "qmp"))
            told = qmp.makefile("rw")
            told.readline()
            for order in ("qmp_capabilities", "system_reset"):
                told.write(json.dumps({"execute": order}) + "\n")
                told.flush()
                while "return" not in json.loads(told.readline()):
                    pass

    def place(self, machine: dict) -> Path:
        """The directory of a machine."""
        for place in self.directory.iterdir():
            if (place / "id").read_text().strip() == str(machine["id"]):
                return place
        raise AssertionError(f"machine {machine['id']} has no directory in {self.directory}")

    def _json(self, request: urllib.request.Request) -> object:
        def ask() -> object:
            with urllib.request.urlopen(request, timeout=CALL_LIMIT_S) as answer:
                return json.load(answer)

        return self.namespace.inside(ask)
