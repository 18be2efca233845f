"""A whole federation for one test: SuperLink, SuperNodes, launcher where needed, and the command line."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from harness.control import RunState, tolerant
from harness.credentials import NodeKey, make_node_key, make_tls
from harness.flower_cli import FEDERATION, FlwrCli
from harness.process import Process
from harness.superlink import OFFICIAL, PROCESS, SUBPROCESS, TRELLIS, LinkOptions, Superlink
from harness.supernode import Supernode, start_superexec
from harness.waiting import wait_for
from harness.workspace import TESTS, Workspace

APPS = TESTS / "apps"
ONLINE_LIMIT_S = 60.0
RUN_LIMIT_S = 180.0

PLAIN, TLS, TLS_AUTH = "plain", "tls", "tls-auth"

__all__ = ["OFFICIAL", "PLAIN", "PROCESS", "SUBPROCESS", "TLS", "TLS_AUTH", "TRELLIS", "Federation", "Shape"]


@dataclass(frozen=True)
class Shape:
    """Which kind of federation a test wants."""

    kind: str = TRELLIS
    isolation: str = SUBPROCESS
    security: str = PLAIN
    nodes: int = 2
    app: str = "numpy_fedavg"


@dataclass
class Federation:
    """Processes of one federation; `start` brings all of it up, the parts can be moved one by one."""

    workspace: Workspace
    shape: Shape
    nodes: list[Supernode] = field(default_factory=list)
    superexec: Process | None = None

    def __post_init__(self) -> None:
        tls = None if self.shape.security == PLAIN else make_tls(self.workspace.root / "tls")
        auth = self.shape.security == TLS_AUTH
        self.superlink = Superlink(self.workspace, LinkOptions(self.shape.kind, self.shape.isolation, tls, auth))
        self.cli = FlwrCli(self.workspace, self.workspace.copy_app(APPS / self.shape.app), self.superlink)

    def start(self) -> "Federation":
        self.superlink.start()
        self.start_nodes()
        self.superlink.control.wait_nodes_online(self.shape.nodes, ONLINE_LIMIT_S)
        return self

    def start_nodes(self) -> None:
        """SuperNodes, registered first where that is demanded, and the launcher if the SuperLink has none."""
        if self.shape.isolation == PROCESS:
            self.superexec = start_superexec(self.workspace, self.superlink)
        for partition in range(self.shape.nodes):
            node = Supernode(self.workspace, self.superlink, partition, self.shape.nodes, self._key(partition))
            self.nodes.append(node.start())

    def result_path(self, name: str = "result") -> Path:
        return self.workspace.root / f"{name}.json"

    def result(self, name: str = "result") -> dict:
        return json.loads(self.result_path(name).read_text())

    def node_pids(self) -> list[int]:
        return [node.process.pid for node in self.nodes]

    def dead_nodes(self) -> list[str]:
        return [node.name for node in self.nodes if not node.process.alive]

    def wait_finished(self, run_id: int, limit_s: float = RUN_LIMIT_S) -> RunState:
        """Wait for a run's end, but not for one that cannot come because a part has died."""

        def look() -> RunState | None:
            assert self.superlink.process.alive, f"the SuperLink died with {self.superlink.process.exit_code}"
            assert self.dead_nodes() == [], "nodes died"
            state = self.superlink.control.run(run_id)
            return state if state.finished else None

        return wait_for(f"run {run_id} to finish", tolerant(look), limit_s)

    def _key(self, partition: int) -> NodeKey | None:
        if self.shape.security != TLS_AUTH:
            return None
        key = make_node_key(self.workspace.root / "keys", f"node-{partition}")
        self.cli.json("supernode", "register", str(key.public), ".", FEDERATION)
        return key
