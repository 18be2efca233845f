"""Who a node is: over its own restarts, over those of the SuperLink, and where nobody has registered it yet."""

import shutil
from dataclasses import replace

import pytest

from harness.credentials import make_node_key
from harness.federation import OFFICIAL, PLAIN, TLS_AUTH
from harness.own_supernode import NOT_CONNECTED, OwnNode, OwnSupernode
from harness.process import pid_exists
from harness.release import GRPC, HTTP
from harness.waiting import wait_for

START_LIMIT_S = 60.0
EXIT_LIMIT_S = 10.0
# A node that a person has to register tries every 15 s.
REGISTERED_LIMIT_S = 45.0
# A node beats at least every 22.5 s, and so learns that nobody knows it any more.
REJOIN_LIMIT_S = 60.0
KILL, TERMINATE, POWER_LOSS = "kill", "terminate", "power-loss"

pytestmark = pytest.mark.trellis_only


def end(node: OwnSupernode, how: str) -> None:
    if how == TERMINATE:
        assert node.process.stop(EXIT_LIMIT_S) == 0
    elif how == KILL:
        node.process.kill()
    else:
        node.kill_everything()


@pytest.mark.parametrize("how", [pytest.param(TERMINATE, marks=pytest.mark.quick), KILL])
def test_a_restarted_node_is_the_same(federation, how):
    fed = federation(nodes=1, fleet=(OwnNode(),)).start()
    node = fed.nodes[0]
    node_id = node.wait_connected()

    end(node, how)
    node.start()

    assert node.wait_connected() == node_id
    assert fed.superlink.control.online_nodes() == [node_id]


@pytest.mark.parametrize(("version", "port"), [("1.25", GRPC), ("1.42", HTTP)])
@pytest.mark.parametrize("how", [TERMINATE, KILL])
def test_a_restarted_node_is_the_same_to_an_official_superlink(federation, version, port, how):
    """The original does not let a killed node back for a minute; the node has what it needs to go on as before."""
    official = {"kind": OFFICIAL, "official": version, "runtime": version, "cli": version}
    fed = federation(nodes=1, fleet=(OwnNode(port=port),), **official).start()
    node = fed.nodes[0]
    node_id = node.wait_connected()

    end(node, how)
    node.start()

    assert node.wait_connected() == node_id
    assert fed.superlink.control.wait_nodes_online(1, START_LIMIT_S) == [node_id]


@pytest.mark.parametrize("how", [TERMINATE, KILL, POWER_LOSS])
def test_work_under_way_survives_a_restart_of_the_node(federation, workspace, reference, how):
    fed = federation(fleet=(OwnNode(),)).start()
    node = fed.nodes[0]
    node_id = node.wait_connected()
    run_id = fed.cli.submit(gate_path=workspace.root / "gate", result_path=fed.result_path())
    wait_for("the node to work on its instruction", (workspace.root / "gate.started").exists, START_LIMIT_S)

    end(node, how)
    (workspace.root / "gate.open").touch()
    node.start()

    state = fed.wait_finished(run_id)
    assert state.status == "finished:completed", state
    assert fed.result()["sha256"] == reference(rounds=3)
    assert node.wait_connected() == node_id


def test_apps_end_with_their_node(federation, workspace):
    """Also when it was killed and could not end them itself."""
    fed = federation(app="acts", nodes=1, fleet=(OwnNode(),)).start()
    node, sign = fed.nodes[0], workspace.root / "sign"
    fed.cli.submit(script="hang", sign_path=sign)
    wait_for("the app to hang", sign.exists, START_LIMIT_S)
    pids = node.app_pids()
    assert pids, "the node has no app"

    node.process.kill()

    wait_for("the apps to end", lambda: not any(pid_exists(pid) for pid in pids), START_LIMIT_S)


def test_a_state_directory_has_one_node(federation, workspace):
    fed = federation(nodes=1, fleet=(OwnNode(),)).start()
    node_id = fed.nodes[0].wait_connected()
    # The same partition: the same state directory, other ports.
    second = OwnSupernode(workspace, fed.superlink, 0, 1).start()

    assert second.process.wait_exit(EXIT_LIMIT_S) != 0
    assert str(second.state_dir) in second.process.output()
    assert fed.superlink.control.online_nodes() == [node_id]
    assert fed.nodes[0].process.alive


@pytest.mark.parametrize("port", [GRPC, HTTP])
def test_a_node_that_is_not_registered_waits_and_joins_when_it_is(federation, workspace, port):
    fed = federation(security=TLS_AUTH, nodes=0).start()
    key = make_node_key(workspace.root / "keys", "node")
    node = OwnSupernode(workspace, fed.superlink, 0, 1, key, OwnNode(port=port)).start()
    node.wait_status(NOT_CONNECTED)
    wait_for("the node to say why it waits", lambda: "register" in node.process.output(), START_LIMIT_S)
    pid = node.process.pid

    registered = int(fed.cli.json("supernode", "register", str(key.public), *fed.cli.here)["node-id"])

    assert fed.superlink.control.wait_nodes_online(1, REGISTERED_LIMIT_S) == [registered]
    assert node.wait_connected() == registered
    assert (node.process.alive, node.process.pid) == (True, pid)


@pytest.mark.parametrize("port", [GRPC, HTTP])
def test_a_superlink_that_lost_its_state_gets_its_nodes_back(federation, reference, weights, port):
    fed = federation(fleet=(OwnNode(port=port),)).start()
    pids = fed.node_pids()

    fed.superlink.kill()
    shutil.rmtree(fed.superlink.state_dir)
    fed.superlink.start()

    fed.superlink.control.wait_nodes_online(len(pids), REJOIN_LIMIT_S)
    assert weights(fed, num_server_rounds=1) == reference(rounds=1)
    assert (fed.dead_nodes(), fed.node_pids()) == ([], pids)


@pytest.mark.parametrize("security", [PLAIN, TLS_AUTH])
def test_nodes_outlive_a_restart_of_the_superlink(federation, reference, weights, security):
    fed = federation(fleet=(OwnNode(port=GRPC), OwnNode(port=HTTP)), security=security).start()
    ids, pids = sorted(node.wait_connected() for node in fed.nodes), fed.node_pids()

    fed.superlink.kill()
    fed.superlink.start()

    assert fed.superlink.control.wait_nodes_online(len(ids), REJOIN_LIMIT_S) == ids
    assert weights(fed, num_server_rounds=1) == reference(rounds=1)
    assert (fed.dead_nodes(), fed.node_pids()) == ([], pids)


@pytest.mark.parametrize("given", [("--max-retries", "1"), ("--max-wait-time", "1")])
def test_a_node_with_a_limit_gives_up(federation, workspace, given):
    """Nobody serves at that address."""
    fed = federation(nodes=0)
    node = OwnSupernode(workspace, fed.superlink, 0, 1, options=replace(OwnNode(), flags=given)).start()

    assert node.process.wait_exit(START_LIMIT_S) != 0
    assert fed.superlink.fleet_address in node.process.output()
