"""A link that can be cut, restored and slowed down, made of the firewall in `firewall`. Both ends only see silence."""

from pathlib import Path

from harness.firewall import Firewall
from harness.workspace import Workspace

# Tests with this link are not about connection timeouts of the firewall.
REMEMBERED_S = 24 * 3600
# Evaluated before the firewall's own rules.
SWITCH = """
table inet cable {
  chain forward {
    type filter hook forward priority filter - 10; policy accept;
  }
}
"""


class Cable(Firewall):
    """A link between an inner side, which opens connections, and an outer side."""

    def __init__(self, workspace: Workspace):
        super().__init__(workspace, REMEMBERED_S)
        self._nft("--file", "-", stdin=SWITCH)

    def cut(self) -> None:
        """Drops all packets in both directions from now on."""
        self._nft("add", "rule", "inet", "cable", "forward", "drop")

    def mend(self) -> None:
        self._nft("flush", "chain", "inet", "cable", "forward")

    def slow_uplink(self, mbit_s: int) -> None:
        """Limits the rate of the inner side by queueing packets."""
        shape = ("tbf", "rate", f"{mbit_s}mbit", "burst", "64kb", "latency", "100ms")
        self.inner.run("tc", "qdisc", "replace", "dev", "eth0", "root", *shape)

    def uplink_bytes(self) -> int:
        """The bytes that the inner side has sent, counted at the other end of its first link."""
        for line in Path(f"/proc/{self._router.pid}/net/dev").read_text().splitlines():
            interface, _, counters = line.partition(":")
            if interface.strip() == self.inner.name:
                return int(counters.split()[0])
        raise AssertionError("the firewall has no interface to the inner side")
