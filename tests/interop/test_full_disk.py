"""A disk without space: the SuperLink says that it cannot serve, loses nobody, and goes on when there is space again."""

from collections.abc import Iterator

import pytest

from harness.small_disk import SmallDisk, small_disk
from harness.waiting import wait_for
from provision import CannotBeHad

SMALL_DISK_BYTES = 16 << 20
HEALTH_LIMIT_S = 30.0


@pytest.fixture
def disk(workspace) -> Iterator[SmallDisk]:
    """At the place of the state directory."""
    try:
        with small_disk(workspace.root / "superlink-state", SMALL_DISK_BYTES) as made:
            yield made
    except CannotBeHad as why:
        pytest.skip(str(why))


@pytest.mark.trellis_only
def test_a_full_disk_is_told_and_survived(federation, disk, reference):
    fed = federation().start()
    ids, pids = sorted(node.wait_connected() for node in fed.nodes), fed.node_pids()

    disk.fill()
    wait_for("the SuperLink to say that it cannot serve", lambda: not fed.superlink.is_serving(), HEALTH_LIMIT_S)

    disk.free()
    wait_for("the SuperLink to serve again", fed.superlink.is_serving, HEALTH_LIMIT_S)
    run_id = fed.cli.submit(result_path=fed.result_path())
    assert fed.wait_finished(run_id).status == "finished:completed"
    assert fed.result()["sha256"] == reference(rounds=3)
    assert sorted(fed.superlink.control.online_nodes()) == ids
    assert (fed.dead_nodes(), fed.node_pids()) == ([], pids)
