"""Three machines in a row; the middle one is a strict stateful firewall. Knows nothing of Flower.

    inner (10.91.1.2)  -  firewall  -  outer (10.91.2.2)

The inner side may open TCP connections to the outer one. The firewall forgets a connection that is idle for `idle_s` and drops
packets of unknown connections silently, so both ends consider it open.
"""

import shutil

from harness.debian import unpacked
from harness.namespace import Namespace
from harness.workspace import Workspace

NFTABLES = ("nftables", "libnftables1", "libnftnl11", "libmnl0", "libjansson4", "libedit2", "libbsd0", "libxtables12")
INNER, OUTER = "10.91.1", "10.91.2"
RULES = """
table inet firewall {
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state established accept
    iifname "inner" ct state new tcp flags & (fin|syn|rst|ack) == syn accept
    counter drop comment "belongs to no connection"
  }
}
"""


class Firewall:
    """The three connected namespaces."""

    def __init__(self, workspace: Workspace, idle_s: int):
        self.inner = Namespace(workspace, "inner")
        self.outer = Namespace(workspace, "outer")
        self._router = Namespace(workspace, "firewall")
        self.outer_host = f"{OUTER}.2"
        for side, network in ((self.inner, INNER), (self.outer, OUTER)):
            self._join(side, network)
        # Without `tcp_loose`, a packet of a forgotten connection does not make the firewall track it again.
        settings = {
            "net.ipv4.ip_forward": 1,
            "net.netfilter.nf_conntrack_tcp_timeout_established": idle_s,
            "net.netfilter.nf_conntrack_tcp_loose": 0,
        }
        self._router.run("sysctl", "--quiet", "-w", *(f"{name}={value}" for name, value in settings.items()))
        self._nft("--file", "-", stdin=RULES)

    def _join(self, side: Namespace, network: str) -> None:
        near, far = self._router, side
        near.run("ip", "link", "add", side.name, "type", "veth", "peer", "name", "eth0", "netns", str(far.pid))
        for end, interface, host in ((near, side.name, f"{network}.1"), (far, "eth0", f"{network}.2")):
            end.run("ip", "address", "add", f"{host}/24", "dev", interface)
            end.run("ip", "link", "set", interface, "up")
        far.run("ip", "route", "add", "default", "via", f"{network}.1")

    def _nft(self, *words: str, stdin: str | None = None) -> str:
        if found := shutil.which("nft", path="/usr/sbin:/usr/bin:/sbin:/bin"):
            return self._router.run(found, *words, stdin=stdin)
        packages = unpacked(*NFTABLES)
        return self._router.run(packages.program("usr/sbin/nft"), *words, stdin=stdin, env=packages.env)

    def rules(self) -> str:
        """The active rules, with the count of dropped packets."""
        return self._nft("list", "ruleset")

    def knows(self, own_port: int) -> bool:
        """Whether the firewall tracks a connection from this port of the inner side."""
        return f" sport={own_port} " in self._router.run("cat", "/proc/net/nf_conntrack")
