"""The firewall of `firewall`, as a link that can be cut, mended and made slow. Both ends notice nothing but silence."""

from pathlib import Path

from harness.firewall import Firewall
from harness.workspace import Workspace

# Nothing here is about connections that are forgotten.
REMEMBERED_S = 24 * 3600
# Looked at before the firewall's own rules.
SWITCH = """
table inet cable {
  chain forward {
    type filter hook forward priority filter - 10; policy accept;
  }
}
"""


class Cable(Firewall):
    """Between an inner side, which opens connections, and an outer one."""

    def __init__(self, workspace: Workspace):
        super().__init__(workspace, REMEMBERED_S)
        self._nft("--file", "-", told=SWITCH)

    def cut(self) -> None:
        """From now on packets are lost, both ways."""
        self._nft("add", "rule", "inet", "cable", "forward", "drop")

    def mend(self) -> None:
        self._nft("flush", "chain", "inet", "cable", "forward")

    def slow_uplink(self, mbit_s: int) -> None:
        """What the inner side sends waits its turn, instead of being lost."""
        shape = ("tbf", "rate", f"{mbit_s}mbit", "burst", "64kb", "latency", "100ms")
        self.inner.run("tc", "qdisc", "replace", "dev", "eth0", "root", *shape)

    def uplink_bytes(self) -> int:
        """What the inner side has sent since the beginning, as the other end of its first wire counts it."""
        for line in Path(f"/proc/{self._router.pid}/net/dev").read_text().splitlines():
            interface, _, counters = line.partition(":")
            if interface.strip() == self.inner.name:
                return int(counters.split()[0])
        raise AssertionError("the firewall has no wire to the inner side")
