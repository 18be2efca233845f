"""Our SuperLink on the outer side of a cable, and two nodes of ours on the inner one, over gRPC and over HTTP."""

import json
from pathlib import Path

from harness.authority import Authority
from harness.cable import Cable
from harness.federation import APPS
from harness.flower_cli import FlwrCli
from harness.journal import RoundJournal
from harness.outer_superlink import OuterSuperlink
from harness.own_supernode import OwnNode, OwnSupernode
from harness.place import Place
from harness.process import Process
from harness.release import GRPC, HTTP
from harness.superlink import LinkOptions
from harness.waiting import wait_for
from harness.workspace import Workspace

PORTS = (GRPC, HTTP)
GATE_LIMIT_S = 60.0


class Across:
    """Starts all of it. Who may submit is not asked here."""

    def __init__(self, workspace: Workspace, cable: Cable, **node: object):
        self.cable = cable
        self._workspace = workspace
        tls = Authority(workspace).issue(workspace.root / "tls", cable.outer_host)
        outer, inner = Place.within(workspace, "outer", cable.outer), Place.within(workspace, "inner", cable.inner)
        options = LinkOptions(tls=tls, flags=("--account-auth", "off", "--allow-insecure-network"))
        self.superlink = OuterSuperlink(outer, options, cable.outer_host).start()
        self.nodes = [
            OwnSupernode(inner, self.superlink, index, len(PORTS), options=OwnNode(port=port, transport=port, **node))
            for index, port in enumerate(PORTS)
        ]
        for one in self.nodes:
            one.start().wait_connected()
        self._cli = FlwrCli(outer, outer.copy_app(APPS / "numpy_fedavg"), self.superlink)
        self._gate = workspace.root / "gate"

    def submit(self, gated: bool = False, **run_config: object) -> Process:
        """`flwr run --stream`, which ends with the run."""
        if gated:
            run_config |= {"gate_path": self._gate, "gate_partition": -1}
        return self._cli.follow(result_path=self._result, journal_path=self.journal.path, **run_config)

    def wait_at_gate(self) -> None:
        """Until both apps have their instruction, and wait."""
        started = [Path(f"{self._gate}.started-{index}") for index in range(len(PORTS))]
        wait_for("both apps to be at work", lambda: all(path.exists() for path in started), GATE_LIMIT_S)

    def open_gate(self) -> None:
        Path(f"{self._gate}.open").touch()

    @property
    def _result(self) -> Path:
        return self._workspace.root / "result.json"

    @property
    def journal(self) -> RoundJournal:
        return RoundJournal(self._workspace.root / "result.journal")

    def result(self) -> dict:
        return json.loads(self._result.read_text())
