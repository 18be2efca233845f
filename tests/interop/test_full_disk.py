"""A disk without space: the SuperLink says that it cannot serve, loses nobody, and goes on when there is space again."""

import pytest

from harness.small_disk import fill
from harness.waiting import wait_for

HEALTH_LIMIT_S = 30.0


@pytest.mark.trellis_only
def test_a_full_disk_is_told_and_survived(federation, small_disk_at, reference):
    place = small_disk_at("superlink-state")
    fed = federation().start()
    ids, pids = sorted(node.wait_connected() for node in fed.nodes), fed.node_pids()

    filler = fill(place)
    wait_for("the SuperLink to say that it cannot serve", lambda: not fed.superlink.is_serving(), HEALTH_LIMIT_S)

    filler.unlink()
    wait_for("the SuperLink to serve again", fed.superlink.is_serving, HEALTH_LIMIT_S)
    run_id = fed.cli.submit(result_path=fed.result_path())
    assert fed.wait_finished(run_id).status == "finished:completed"
    assert fed.result()["sha256"] == reference(rounds=3)
    assert sorted(fed.superlink.control.online_nodes()) == ids
    assert (fed.dead_nodes(), fed.node_pids()) == ([], pids)
