"""A whole federation for one test: SuperLink, SuperNodes, a SuperExec if needed, and the command line."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from harness.control import RunState, tolerant
from harness.credentials import NodeKey, make_node_key, make_tls
from harness.flower_cli import FlwrCli
from harness.journal import RoundJournal
from harness.own_supernode import OwnNode, OwnSupernode
from harness.process import Process
from harness.release import DEFAULT, flower
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
    """The kind of federation that a test needs.

    Releases are given by minor version: of the nodes (in turn; for a node of ours its options), of the command line, of
    ServerApps, and of an official SuperLink.
    """

    kind: str = TRELLIS
    isolation: str = SUBPROCESS
    security: str = PLAIN
    nodes: int = 2
    app: str = "numpy_fedavg"
    # The ServerApp of the faulty app, by its module.
    serverapp: str = ""
    fleet: tuple[str | OwnNode, ...] = (DEFAULT,)
    cli: str = DEFAULT
    runtime: str = DEFAULT
    official: str = DEFAULT
    # Additional flags of the SuperLink.
    link_flags: tuple[str, ...] = ()

    def node_kind(self, partition: int) -> str | OwnNode:
        return self.fleet[partition % len(self.fleet)]

    @property
    def releases(self) -> set[str]:
        """All releases that take part."""
        nodes = {kind.python if isinstance(kind, OwnNode) else kind for kind in self.fleet}
        return nodes | {self.cli, self.runtime, self.official}


@dataclass
class Federation:
    """The processes of one federation; `start` starts all of them, or each can be controlled separately."""

    workspace: Workspace
    shape: Shape
    nodes: list[Supernode | OwnSupernode] = field(default_factory=list)
    superexec: Process | None = None
    _command_lines: dict[str, FlwrCli] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for version in self.shape.releases:
            flower(version)
        tls = None if self.shape.security == PLAIN else make_tls(self.workspace.root / "tls")
        auth = self.shape.security == TLS_AUTH
        runtime = self.shape.official if self.shape.kind == OFFICIAL else self.shape.runtime
        flags = self.shape.link_flags
        options = LinkOptions(self.shape.kind, self.shape.isolation, tls, auth, runtime, self.shape.official, flags)
        self.superlink = Superlink(self.workspace, options)
        self.cli = self.cli_of(self.shape.cli)

    def cli_of(self, version: str) -> FlwrCli:
        """The command line of some release, with its own copy of the app."""
        if version not in self._command_lines:
            self._command_lines[version] = self._make_cli(version)
        return self._command_lines[version]

    def _make_cli(self, version: str) -> FlwrCli:
        app = self.workspace.copy_app(APPS / self.shape.app, f"{self.shape.app}-{version}")
        if self.shape.serverapp:
            config = app / "pyproject.toml"
            config.write_text(config.read_text().replace("faulty.completes:app", f"faulty.{self.shape.serverapp}:app"))
        return FlwrCli(self.workspace, app, self.superlink, version=version)

    def start(self) -> "Federation":
        self.superlink.start()
        self.start_nodes()
        self.superlink.control.wait_nodes_online(self.shape.nodes, ONLINE_LIMIT_S)
        return self

    def start_nodes(self) -> None:
        """Starts SuperNodes, after registering them if required, and a SuperExec if the SuperLink does not start apps."""
        if self.shape.isolation == PROCESS:
            self.superexec = start_superexec(self.workspace, self.superlink)
        for partition in range(self.shape.nodes):
            self.nodes.append(self._make_node(partition).start())

    def _make_node(self, partition: int) -> Supernode | OwnSupernode:
        kind, key = self.shape.node_kind(partition), self._key(partition)
        make = OwnSupernode if isinstance(kind, OwnNode) else Supernode
        return make(self.workspace, self.superlink, partition, self.shape.nodes, key, kind)

    def result_path(self, name: str = "result") -> Path:
        return self.workspace.root / f"{name}.json"

    def result(self, name: str = "result") -> dict:
        return json.loads(self.result_path(name).read_text())

    def journal(self, name: str = "result") -> RoundJournal:
        """The journal of a run that was configured to write one there."""
        return RoundJournal(self.result_path(name).with_suffix(".journal"))

    def node_pids(self) -> list[int]:
        return [node.process.pid for node in self.nodes]

    def dead_nodes(self) -> list[str]:
        return [node.name for node in self.nodes if not node.process.alive]

    def wait_finished(self, run_id: int, limit_s: float = RUN_LIMIT_S) -> RunState:
        """Waits for the end of a run; fails at once if a process has died."""

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
        self.cli.json("supernode", "register", str(key.public), *self.cli.here)
        return key
