"""What a node says of itself: `trellis supernode status`, /metrics, and its log."""

import json

import pytest

from harness.acts import play
from harness.own_supernode import CONNECTED, NOT_CONNECTED, NOT_RUNNING, OwnNode, OwnSupernode
from harness.waiting import wait_for

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


def test_metrics_have_sensible_numbers_after_a_run(stage):
    fed = stage().start()
    (node,) = fed.nodes
    node.wait_connected()
    before = node.metrics()

    told = play(fed, "count count raise os-exit:1 count")

    after = wait_for("all replies to be delivered", lambda: settled(node), EXIT_LIMIT_S)
    answered = {name: value - before.get(name, 0.0) for name, value in after.items()}
    assert sum(value for name, value in answered.items() if name.startswith("trellis_node_instructions_total")) == len(told)


def settled(node: OwnSupernode) -> dict[str, float] | None:
    metrics = node.metrics()
    waiting = [value for name, value in metrics.items() if "replies_waiting" in name]
    return metrics if not any(waiting) else None


def test_the_log_is_json_that_names_runs_and_messages(stage):
    fed = stage().start()
    (node,) = fed.nodes
    node_id = node.wait_connected()

    play(fed, "count")

    lines = [json.loads(line) for line in node.process.output().splitlines()]
    assert lines
    assert any(str(node_id) in json.dumps(line) for line in lines)
