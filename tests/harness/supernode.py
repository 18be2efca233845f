"""Official `flower-supernode` and `flower-superexec` processes."""

from dataclasses import dataclass

from harness.credentials import NodeKey, TlsFiles
from harness.ports import HOST, free_port
from harness.process import Process
from harness.release import DEFAULT, HTTP, Flower, flower
from harness.superlink import Superlink
from harness.workspace import Workspace

CONNECT_LIMIT_S = 60.0


@dataclass
class Supernode:
    """A node: its partition, its key if it has one, its release, and its current process."""

    workspace: Workspace
    superlink: Superlink
    partition: int
    partitions: int
    key: NodeKey | None = None
    version: str = DEFAULT
    flags: tuple[str, ...] = ()
    # Overrides the address of the SuperLink for its release.
    address: str | None = None

    def __post_init__(self) -> None:
        self._release = flower(self.version)
        self._process: Process | None = None

    @property
    def name(self) -> str:
        return f"supernode-{self.partition}"

    @property
    def process(self) -> Process:
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    def start(self) -> "Supernode":
        env = self.workspace.env(self._release, home=self.name)
        self._process = self.workspace.start(self.name, list(self._argv()), env)
        return self

    def wait_connected(self) -> int:
        """Waits until it has a node id; returns the id."""
        return int(self.process.wait_line(r"SuperNode ID: (\d+)", CONNECT_LIMIT_S).group(1))

    def wait_settled(self) -> None:
        """Waits until it also has its SuperExec; from then on it only polls."""
        self.wait_connected()
        self.process.wait_line("Starting Flower SuperExec", CONNECT_LIMIT_S)

    def _argv(self):
        yield self._release.command("flower-supernode")
        yield from ("--superlink", self.address or self.superlink.fleet_for(self._release))
        port = free_port()
        yield from self._release.arguments("supernode_apps", host=HOST, apps_port=port, apps=f"{HOST}:{port}")
        yield from ("--node-config", f"partition-id={self.partition} num-partitions={self.partitions}")
        tls = self.superlink.options.tls
        yield from ("--insecure",) if tls is None else ("--root-certificates", str(tls.ca))
        if tls is not None and self._release.node_wants_certificate:
            yield from tls.server_flags()
        if self.key is not None:
            yield from ("--auth-supernode-private-key", str(self.key.private))
        yield from self.flags


def start_superexec(workspace: Workspace, superlink: Superlink) -> Process:
    """Starts the SuperExec that an operator runs with `--isolation process`."""
    release = flower(superlink.options.runtime)
    # The gRPC port of apps is for the local machine and has no TLS.
    tls = superlink.options.tls if release.runtime_transport == HTTP else None
    argv = superexec_command(release, "serverapp", superlink.runtime_for(release), tls)
    return workspace.start("superexec", argv, workspace.env(release, home="superexec"))


def superexec_command(release: Flower, plugin: str, address: str, tls: TlsFiles | None = None) -> list[str]:
    """The `flower-superexec` command for the apps of a SuperLink or a SuperNode."""
    argv = [release.command("flower-superexec"), *release.arguments(f"superexec_{plugin}", address=address)]
    return [*argv, *(["--insecure"] if tls is None else ["--root-certificates", str(tls.ca)])]
