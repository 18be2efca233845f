"""A node without space on its disk: it lives, says so, and the run goes on when there is space again."""

import pytest

from harness.own_supernode import OwnNode
from harness.small_disk import fill
from harness.waiting import wait_for

START_LIMIT_S = 60.0
TOLD_LIMIT_S = 60.0

pytestmark = pytest.mark.trellis_only


def test_a_full_disk_of_a_node_is_told_and_survived(federation, small_disk_at, workspace, reference):
    """Filled while an app works: there is no room for its reply, and none for the next instruction."""
    place = small_disk_at("supernode-0-state")
    fed = federation(fleet=(OwnNode(),)).start()
    node, pids = fed.nodes[0], fed.node_pids()
    run_id = fed.cli.submit(gate_path=workspace.root / "gate", result_path=fed.result_path())
    wait_for("the node to work on its instruction", (workspace.root / "gate.started").exists, START_LIMIT_S)

    filler = fill(place)
    (workspace.root / "gate.open").touch()
    wait_for("the node to say that its disk is full", lambda: "No space left" in node.process.output(), TOLD_LIMIT_S)
    filler.unlink()

    state = fed.wait_finished(run_id)
    assert state.status == "finished:completed", state
    assert fed.result()["sha256"] == reference(rounds=3)
    assert (fed.dead_nodes(), fed.node_pids()) == ([], pids)
