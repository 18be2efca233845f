"""Certificates and their authority are replaced while a training runs, and nothing is lost.

Every step is taken while a client holds an instruction, so none can fall before or after the training. Nodes have the
files that they were set up with, as they would on machines of their own.
"""

import copy
import json
import shutil
import ssl
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from harness.authority import Authority
from harness.control import RunState
from harness.credentials import NodeKey, TlsFiles, make_node_key
from harness.federation import APPS
from harness.flower_cli import FlwrCli
from harness.superlink import LinkOptions, Superlink
from harness.supernode import Supernode
from harness.waiting import wait_for
from harness.workspace import Workspace
from provision import CannotBeHad
from security.handshake import served_certificate

pytestmark = pytest.mark.trellis_only

NODES = ("1.25", "1.42")
# A step lets one round pass, or two where a client was quick.
ROUNDS = 8
HELD_LIMIT_S = 60.0
ROUND_LIMIT_S = 60.0
RELOAD_LIMIT_S = 10.0
ONLINE_LIMIT_S = 60.0
RUN_LIMIT_S = 180.0
HOST = "127.0.0.1"


@dataclass
class Gate:
    """Where the first node's client waits in each round, while it is closed."""

    path: Path

    @property
    def _reached(self) -> Path:
        return self.path.with_name(f"{self.path.name}.started")

    @property
    def _opened(self) -> Path:
        return self.path.with_name(f"{self.path.name}.open")

    def hold(self) -> None:
        """Close it. The training does not get past the round that is now under way, or past the next."""
        self._opened.unlink(missing_ok=True)
        wait_for("a client at the gate", self._reached.exists, HELD_LIMIT_S)

    def release(self) -> None:
        self._reached.unlink(missing_ok=True)
        self._opened.touch()


class Training:
    """A SuperLink whose files `trellis pki` keeps, a node of each transport, and a run that is held at the gate."""

    def __init__(self, workspace: Workspace, with_keys: bool):
        self.workspace = workspace
        self.authority = Authority(workspace)
        self._tls_dir = workspace.root / "tls"
        self._first_ca = self.authority.trust(workspace.root / "first-ca.crt")
        options = LinkOptions(tls=self.authority.issue(self._tls_dir, HOST), supernode_auth=with_keys)
        self.superlink = Superlink(workspace, options)
        self.nodes: list[Supernode] = []
        self.gate = Gate(workspace.root / "gate")
        self.result = workspace.root / "result.json"
        self._rounds_passed = 0

    def start(self) -> None:
        self.superlink.start()
        app = self.workspace.copy_app(APPS / "numpy_fedavg")
        cli = FlwrCli(self.workspace, app, self._seen_with(self._hand_out("cli")))
        for index, version in enumerate(NODES):
            seen = self._seen_with(self._hand_out(f"node-{index}"))
            key = self._registered_key(cli, index) if self.superlink.options.supernode_auth else None
            self.nodes.append(Supernode(self.workspace, seen, index, len(NODES), key, version).start())
        self.superlink.control.wait_nodes_online(len(NODES), ONLINE_LIMIT_S)
        self._run_id = cli.submit(
            num_server_rounds=ROUNDS, evaluate=False, gate_path=self.gate.path, result_path=self.result
        )
        self.gate.hold()

    def _hand_out(self, to: str) -> TlsFiles:
        """A copy of the present files, for a machine that is set up with them."""
        own = self.workspace.root / "handed-out" / to
        own.mkdir(parents=True, exist_ok=True)
        files = TlsFiles(own / "ca.crt", own / "server.pem", own / "server.key")
        for ours, theirs in zip(self._files, (files.ca, files.cert, files.key), strict=True):
            shutil.copy(ours, theirs)
        return files

    @property
    def _files(self) -> tuple[Path, Path, Path]:
        tls = self.superlink.options.tls
        return tls.ca, tls.cert, tls.key

    def _seen_with(self, tls: TlsFiles) -> Superlink:
        """The SuperLink, as somebody sees it who was given these files."""
        seen = copy.copy(self.superlink)
        seen.options = replace(self.superlink.options, tls=tls)
        return seen

    def _registered_key(self, cli: FlwrCli, index: int) -> NodeKey:
        key = make_node_key(self.workspace.root / "keys", f"node-{index}")
        cli.json("supernode", "register", str(key.public), *cli.here)
        return key

    def renew(self, due: bool = True) -> None:
        """What a timer does, or earlier than due; returns when every port serves the new leaf."""
        before = self.served()
        self.authority.issue(self._tls_dir, HOST, renew=due)
        wait_for("the new leaf on every port", lambda: self.served().isdisjoint(before), RELOAD_LIMIT_S)
        assert len(self.served()) == 1

    def served(self) -> set[bytes]:
        """The leaves that those see who trust what is handed out now."""
        bundle = self.authority.trust(self.workspace.root / "bundle.crt")
        addresses = (self.superlink.control_address, self.superlink.fleet_address, self.superlink.http_address)
        return {served_certificate(address, bundle) for address in addresses}

    def switch(self) -> None:
        """Let the new CA sign; those who know the first one only are lost from then on."""
        assert served_certificate(self.superlink.http_address, self._first_ca) in self.served()
        self.authority.rotate("switch")
        self.renew()
        with pytest.raises(ssl.SSLCertVerificationError):
            served_certificate(self.superlink.http_address, self._first_ca)

    def announce(self) -> None:
        """A new CA, which does not sign yet; the files of the SuperLink get the bundle with both."""
        self.authority.rotate("begin")
        self.authority.issue(self._tls_dir, HOST, renew=True)

    def restart_nodes(self) -> None:
        """One after the other, each with the present files, as if its machine was started anew."""
        for index, node in enumerate(self.nodes):
            self._hand_out(f"node-{index}")
            known = self.superlink.control.online_nodes()
            node.process.kill_group()
            node.start()
            wait_for(f"{node.name} to be settled again", partial(self._settled, node), ONLINE_LIMIT_S)
            assert self.superlink.control.wait_nodes_online(len(NODES), ONLINE_LIMIT_S) == known

    @staticmethod
    def _settled(node: Supernode) -> bool:
        """For the second time in its log."""
        return node.process.output().count("Starting Flower SuperExec") == 2

    def one_round(self) -> None:
        """Let the training go on for a round."""
        self._rounds_passed += 1
        self.gate.release()
        self.superlink.process.wait_line(rf"round {self._rounds_passed} ended", ROUND_LIMIT_S)
        self.gate.hold()

    def finish(self) -> RunState:
        state = self.superlink.control.run(self._run_id)
        assert state.status == "running", f"the training was over too early: {state}"
        self.gate.release()
        return self.superlink.control.wait_finished(self._run_id, RUN_LIMIT_S)


@pytest.fixture
def training(workspace):
    def make(with_keys: bool = False) -> Training:
        try:
            return Training(workspace, with_keys)
        except CannotBeHad as why:
            pytest.skip(str(why))

    return make


def assert_nothing_lost(held: Training, expected: str) -> None:
    state = held.finish()
    assert state.status == "finished:completed", state
    result = json.loads(held.result.read_text())
    assert (result["sha256"], result["rounds"]) == (expected, ROUNDS)
    assert [node.process.alive for node in held.nodes] == [True] * len(NODES)


def test_leaf_and_authority_are_replaced_under_a_training_whose_nodes_keep_running(training, reference):
    """The new CA was announced before the nodes were set up, so they trust both."""
    held = training()
    held.announce()
    held.start()
    pids = [node.process.pid for node in held.nodes]

    held.renew(due=False)
    held.one_round()
    held.switch()
    held.one_round()
    held.authority.rotate("finish")
    assert len(held.served()) == 1, "trusted by those who know the new CA only"
    # Now all connections are made anew.
    held.superlink.stop()
    held.superlink.start()
    held.one_round()

    assert_nothing_lost(held, reference(rounds=ROUNDS))
    assert [node.process.pid for node in held.nodes] == pids


def test_the_authority_is_replaced_under_a_training_from_beginning_to_end(training, reference):
    """Official SuperNodes read what they trust when they start, so each is started anew; its key keeps its place."""
    held = training(with_keys=True)
    held.start()

    held.announce()
    held.restart_nodes()
    held.one_round()
    held.switch()
    held.one_round()
    held.authority.rotate("finish")
    assert len(held.served()) == 1

    assert_nothing_lost(held, reference(rounds=ROUNDS))
