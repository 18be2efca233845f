"""Official `flower-supernode` and `flower-superexec` processes."""

from dataclasses import dataclass

from harness.credentials import NodeKey
from harness.ports import free_address
from harness.process import Process
from harness.superlink import Superlink
from harness.workspace import Workspace, official_bin

CONNECT_LIMIT_S = 60.0


@dataclass
class Supernode:
    """One node: its partition, its key if it has one, and the process that runs it now."""

    workspace: Workspace
    superlink: Superlink
    partition: int
    partitions: int
    key: NodeKey | None = None

    def __post_init__(self) -> None:
        self._process: Process | None = None

    @property
    def name(self) -> str:
        return f"supernode-{self.partition}"

    @property
    def process(self) -> Process:
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    def start(self) -> "Supernode":
        self._process = self.workspace.start(self.name, list(self._argv()))
        return self

    def wait_connected(self) -> int:
        """Wait until it has a node id, and return it."""
        return int(self.process.wait_line(r"SuperNode ID: (\d+)", CONNECT_LIMIT_S).group(1))

    def wait_settled(self) -> None:
        """Wait until it also has its launcher of ClientApps; from then on it only polls."""
        self.wait_connected()
        self.process.wait_line("Starting Flower SuperExec", CONNECT_LIMIT_S)

    def _argv(self):
        yield str(official_bin() / "flower-supernode")
        yield from ("--superlink", self.superlink.fleet_address)
        yield from ("--clientappio-api-address", free_address())
        yield from ("--node-config", f"partition-id={self.partition} num-partitions={self.partitions}")
        tls = self.superlink.options.tls
        yield from ("--insecure",) if tls is None else ("--root-certificates", str(tls.ca))
        if self.key is not None:
            yield from ("--auth-supernode-private-key", str(self.key.private))


def start_superexec(workspace: Workspace, superlink: Superlink) -> Process:
    """The separate launcher of ServerApps that `--isolation process` expects an operator to run."""
    argv = [str(official_bin() / "flower-superexec"), "--insecure", "--plugin-type", "serverapp"]
    return workspace.start("superexec", [*argv, "--appio-api-address", superlink.serverappio_address])
