"""The cable of our SuperNodes is taken away during a run, for shorter and longer than anybody waits for a heartbeat."""

import json
import time

import pytest

from harness.authority import Authority
from harness.federation import APPS
from harness.firewall import Firewall
from harness.flower_cli import FlwrCli
from harness.own_supernode import NOT_CONNECTED, OwnNode, OwnSupernode
from harness.place import Place
from harness.release import GRPC, HTTP
from harness.superlink import LinkOptions
from harness.waiting import wait_for
from network.silence import FORGOTTEN_AFTER_S, OuterSuperlink
from provision import CannotBeHad

ROUNDS = 3
START_LIMIT_S = 60.0
# Backoff after a long outage is capped; the rest is the run itself.
RUN_LIMIT_S = 180.0

pytestmark = pytest.mark.trellis_only


@pytest.fixture
def firewall(workspace) -> Firewall:
    try:
        return Firewall(workspace, FORGOTTEN_AFTER_S)
    except CannotBeHad as why:
        pytest.skip(f"no cable can be cut here: {why}")


@pytest.mark.parametrize("seconds", [10, 60, 300])
def test_a_run_survives_a_cut_link(workspace, firewall, reference, seconds):
    """The reply is made while the link is down, and delivered when it is back."""
    tls = Authority(workspace).issue(workspace.root / "tls", firewall.outer_host)
    options = LinkOptions(tls=tls, flags=("--account-auth", "off", "--allow-insecure-network"))
    outer = Place.within(workspace, "outer", firewall.outer)
    superlink = OuterSuperlink(outer, options, firewall.outer_host).start()
    inner = Place.within(workspace, "inner", firewall.inner)
    nodes = [
        OwnSupernode(inner, superlink, partition, 2, options=OwnNode(port=port)).start()
        for partition, port in enumerate((GRPC, HTTP))
    ]
    ids = [node.wait_connected() for node in nodes]
    gate, result = workspace.root / "gate", workspace.root / "result.json"
    cli = FlwrCli(outer, outer.copy_app(APPS / "numpy_fedavg"), superlink)
    run = cli.follow(num_server_rounds=ROUNDS, gate_path=gate, result_path=result)
    wait_for("the first client to work", (workspace.root / "gate.started").exists, START_LIMIT_S)

    firewall.cut()
    (workspace.root / "gate.open").touch()
    cut_at = time.monotonic()
    if seconds > START_LIMIT_S:
        for node in nodes:
            node.wait_status(NOT_CONNECTED, seconds)
    # The length of the outage is what is tested: no event ends it.
    time.sleep(max(0.0, cut_at + seconds - time.monotonic()))
    firewall.mend()

    assert run.wait_exit(RUN_LIMIT_S) == 0, run.output()
    wait_for("the result of the training", result.exists, START_LIMIT_S)
    assert json.loads(result.read_text())["sha256"] == reference(rounds=ROUNDS)
    assert [node.wait_connected() for node in nodes] == ids
