"""What a node says of itself: `trellis supernode status`, /metrics, and its log."""

import json

import pytest

from harness.acts import play, submit
from harness.own_supernode import CONNECTED, NOT_CONNECTED, NOT_RUNNING, OwnNode, OwnSupernode
from harness.process import wait_pid_file
from harness.waiting import wait_for

START_LIMIT_S = 60.0
EXIT_LIMIT_S = 10.0
# A lost link is seen when the held call ends or the next heartbeat fails.
LOST_LIMIT_S = 60.0

pytestmark = pytest.mark.trellis_only


@pytest.mark.quick
def test_the_status_is_true_in_every_state(federation, workspace):
    fed = federation(nodes=0)
    node = OwnSupernode(workspace, fed.superlink, 0, 1)
    assert node.status().code == NOT_RUNNING, "before the first start"

    node.start()
    node.wait_status(NOT_CONNECTED)

    fed.superlink.start()
    connected = node.wait_status(CONNECTED)
    assert fed.superlink.control.online_nodes() == [connected.node_id]

    fed.superlink.kill()
    node.wait_status(NOT_CONNECTED, LOST_LIMIT_S)

    fed.superlink.start()
    assert node.wait_status(CONNECTED, LOST_LIMIT_S).node_id == connected.node_id

    assert node.process.stop(EXIT_LIMIT_S) == 0
    assert node.status().code == NOT_RUNNING, "after it was told to stop"


def test_the_status_of_a_killed_node_is_not_running(federation):
    fed = federation(nodes=1, fleet=(OwnNode(),)).start()
    (node,) = fed.nodes
    assert node.wait_status(CONNECTED).node_id is not None

    node.process.kill()

    assert node.status().code == NOT_RUNNING


def test_the_status_for_people_says_the_same(federation):
    fed = federation(nodes=1, fleet=(OwnNode(),)).start()
    (node,) = fed.nodes
    node_id = node.wait_connected()

    shown = node.status_text()

    assert str(node_id) in shown
    assert fed.superlink.fleet_address in shown


def test_numbers_are_sensible_after_a_run(stage):
    fed = stage().start()
    (node,) = fed.nodes
    node.wait_connected()

    play(fed, "count count raise os-exit:1 count")

    counted = wait_for("all replies to be counted as delivered", lambda: delivered(node, 5), EXIT_LIMIT_S)
    assert counted["trellis_node_connected"] == 1
    assert counted["trellis_node_instructions_received_total"] == 5
    # The app that raised has replied: its word for it is a reply with an error.
    assert counted['trellis_node_instructions_total{outcome="replied"}'] == 4
    assert counted['trellis_node_instructions_total{outcome="failed"}'] == 1
    assert counted['trellis_node_apps_ended_total{reason="crashed"}'] == 1
    assert counted["trellis_node_replies_waiting"] == 0
    assert counted["trellis_node_app_duration_seconds_count"] >= 4
    assert counted['trellis_node_apps{state="working"}'] == 0
    assert counted["trellis_node_app_memory_bytes"] > 10 << 20
    assert 0 < counted["trellis_node_disk_bytes"] < counted["trellis_node_disk_limit_bytes"]
    for direction in ("received", "sent"):
        assert counted[f'trellis_node_object_bytes_total{{direction="{direction}"}}'] > 0


def delivered(node: OwnSupernode, replies: int) -> dict[str, float] | None:
    counted = node.metrics()
    return counted if counted["trellis_node_replies_delivered_total"] == replies else None


def test_the_status_tells_of_an_app_at_work(stage, workspace):
    fed = stage().start()
    (node,) = fed.nodes
    sign = workspace.root / "sign"
    run_id = submit(fed, "count hang", sign_path=sign)
    pid = wait_pid_file(sign, START_LIMIT_S)

    content = node.status().content

    assert content["instructions_under_way"] == 1
    assert [(run["run_id"], run["replied"], run["under_way"]) for run in content["runs"]] == [(str(run_id), 1, 1)]
    assert [(app["pid"], app["run_id"], app["state"]) for app in content["apps"]] == [(pid, str(run_id), "working")]


def test_the_log_is_json_that_names_runs_and_messages(stage):
    fed = stage().start()
    (node,) = fed.nodes
    node_id = node.wait_connected()

    play(fed, "count")

    lines = [json.loads(line) for line in node.process.output().splitlines()]
    assert lines
    assert any(str(node_id) in json.dumps(line) for line in lines)
