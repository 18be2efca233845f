"""A machine outside of a cluster that can reach only its load balancer."""

import json
import socket
import ssl
import sys
import tempfile
from pathlib import Path

from harness.kube import Cluster
from harness.namespace import Namespace
from harness.process import Process
from harness.release import Flower
from harness.waiting import wait_for
from harness.workspace import trellis_binary

# The addresses of the load balancer and of the link to the machine, from documentation networks.
BALANCER = "203.0.113.10"
NEAR, FAR = "198.51.100.1", "198.51.100.2"
FORWARDER = Path(__file__).with_name("forward.py")
LIMIT_S = 60.0
CALL_LIMIT_S = 5.0


class Outside:
    """The machine with its own network, and a minimal cloud for Services of type LoadBalancer."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.network = Namespace(cluster.workspace, "outside")
        self._started = 0
        # Short: the path of a Unix socket has at most 107 bytes.
        self._home = tempfile.TemporaryDirectory(prefix="home-", ignore_cleanup_errors=True)
        near, far = cluster.network, self.network
        near.run("ip", "address", "replace", f"{BALANCER}/32", "dev", "lo")
        near.run("ip", "link", "add", "outside", "type", "veth", "peer", "name", "eth0", "netns", str(far.pid))
        for end, interface, address in ((near, "outside", NEAR), (far, "eth0", FAR)):
            end.run("ip", "address", "add", f"{address}/30", "dev", interface)
            end.run("ip", "link", "set", interface, "up")
        far.run("ip", "route", "add", f"{BALANCER}/32", "via", NEAR)

    def balance(self, service: str) -> None:
        """Forwards the ports of the Service, and writes the address into its status."""
        spec = wait_for(f"Service {service}", lambda: self._spec(service), LIMIT_S)
        for port in spec["ports"]:
            lead = [f"{BALANCER}:{port['port']}", f"{spec['clusterIP']}:{port['port']}"]
            argv = self.cluster.network.command([sys.executable, str(FORWARDER), *lead])
            forward = self.cluster.workspace.start(f"balancer-{port['name']}", argv)
            forward.wait_line("^ready$", LIMIT_S)
        status = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": BALANCER}]}}})
        self.cluster.kubectl("patch", "service", service, "--subresource=status", "--type=merge", "-p", status)

    def _spec(self, service: str) -> dict | None:
        found = [item["spec"] for item in self.cluster.list("services") if item["metadata"]["name"] == service]
        return found[0] if found and found[0]["type"] == "LoadBalancer" else None

    def wait_trusted(self, address: str, authority: Path) -> None:
        """Waits until the served certificate covers the address: pods see a new certificate with a delay."""
        trust = ssl.create_default_context(cafile=authority)
        host, _, port = address.rpartition(":")

        def look() -> bool:
            try:
                with socket.create_connection((host, int(port)), CALL_LIMIT_S) as plain:
                    trust.wrap_socket(plain, server_hostname=host).close()
            except OSError:
                return False
            return True

        wait_for(f"{address} to have a certificate", lambda: self.network.inside(look), LIMIT_S)

    def directory(self) -> Path:
        """The home of a user who only has what the administrators of the cluster sent."""
        return Path(self._home.name)

    def trellis(self, *words: str, python: Flower | None = None) -> Process:
        """Starts `trellis WORDS` in the home, on the machine."""
        return self.start([str(trellis_binary()), *words], python)

    def start(self, argv: list[str], python: Flower | None = None) -> Process:
        self._started += 1
        env = self.cluster.workspace.env(python, home="outside", HOME=str(self.directory()))
        env.pop("XDG_STATE_HOME", None)
        name = f"outside-{self._started}"
        return self.cluster.workspace.start(name, self.network.command(argv), env, cwd=self.directory())
