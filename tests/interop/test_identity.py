"""Nodes keep their identity: over their own death, over a restart of the SuperLink, and they end when told to."""

import pytest

from harness.federation import PLAIN, TLS_AUTH
from harness.waiting import wait_for

START_LIMIT_S = 60.0
NODE_EXIT_LIMIT_S = 5.0
RECONNECT_LIMIT_S = 60.0
KILL, TERMINATE = "kill", "terminate"


@pytest.mark.quick
@pytest.mark.trellis_only
def test_a_killed_node_comes_back_under_its_key_and_gets_its_instruction_again(federation, workspace, reference):
    expected = reference(rounds=3)
    fed = federation(security=TLS_AUTH).start()
    node = fed.nodes[0]
    node_id = node.wait_connected()
    run_id = fed.cli.submit(gate_path=workspace.root / "gate", result_path=fed.result_path())
    wait_for("the node to work on its instruction", (workspace.root / "gate.started").exists, START_LIMIT_S)

    node.process.kill_group()
    (workspace.root / "gate.open").touch()
    node.start()

    state = fed.wait_finished(run_id)
    assert state.status == "finished:completed", state
    assert fed.result()["sha256"] == expected
    assert node.wait_connected() == node_id
    assert sorted(fed.superlink.control.online_nodes()) == sorted(fed_node.wait_connected() for fed_node in fed.nodes)


@pytest.mark.parametrize("security", [pytest.param(PLAIN, marks=pytest.mark.quick), TLS_AUTH])
def test_a_node_told_to_end_during_its_poll_ends_at_once(federation, security):
    """A SuperLink that holds polls open must not hold the node's exit with them."""
    fed = federation(security=security, nodes=1).start()
    fed.nodes[0].wait_settled()

    fed.nodes[0].process.stop(NODE_EXIT_LIMIT_S)

    assert fed.superlink.control.online_nodes() == []
    assert "SuperNode terminated gracefully" in fed.nodes[0].process.output()


@pytest.mark.parametrize(
    ("security", "how"),
    [
        (PLAIN, KILL),
        pytest.param(PLAIN, TERMINATE, marks=pytest.mark.trellis_only),
        (TLS_AUTH, KILL),
        pytest.param(TLS_AUTH, TERMINATE, marks=pytest.mark.trellis_only),
    ],
)
def test_idle_nodes_outlive_a_restart_of_the_superlink(federation, reference, security, how):
    fed = federation(security=security).start()
    ids, pids = sorted(node.wait_connected() for node in fed.nodes), fed.node_pids()

    fed.superlink.kill() if how == KILL else fed.superlink.stop()
    fed.superlink.start()

    assert fed.superlink.control.wait_nodes_online(len(ids), RECONNECT_LIMIT_S) == ids
    run_id = fed.cli.submit(result_path=fed.result_path())
    assert fed.wait_finished(run_id).status == "finished:completed"
    assert fed.result()["sha256"] == reference(rounds=3)
    assert (fed.dead_nodes(), fed.node_pids()) == ([], pids)
