"""A node's disk without space: it says so, loses nothing, and goes on when there is space again."""

import re
from pathlib import Path

import pytest

from harness.own_supernode import PER_MESSAGE, WARM
from harness.small_disk import fill
from harness.waiting import wait_for

SMALL_DISK_BYTES = 64 << 20
# A model of 8 MB.
ARRAY_LENGTH = 524_288
ROUNDS = 2
GATE_LIMIT_S = 60.0
NOTICE_LIMIT_S = 30.0
TROUBLE = r"(?i)no space left|disk is full|disk full"

pytestmark = pytest.mark.trellis_only


@pytest.fixture
def disk(small_disk_at) -> Path:
    """At the place of the first node's state directory."""
    return small_disk_at("supernode-0-state", SMALL_DISK_BYTES)


def lifecycles():
    yield pytest.param(WARM, marks=pytest.mark.quick)
    yield PER_MESSAGE


class Said:
    """What a node says from now on."""

    def __init__(self, node):
        self._node = node
        self._before = len(node.process.output())

    def wait(self, pattern: str) -> None:
        wait_for(
            f"{self._node.name} to say {pattern!r}",
            lambda: re.search(pattern, self._node.process.output()[self._before :]),
            NOTICE_LIMIT_S,
        )


def submit(fed, name: str, **settings: object) -> int:
    paths = {"result_path": fed.result_path(name), "journal_path": fed.journal(name).path}
    return fed.cli.submit(num_server_rounds=ROUNDS, array_length=ARRAY_LENGTH, **paths, **settings)


def check(fed, run_id: int, name: str, expected: str) -> None:
    state = fed.wait_finished(run_id)
    assert fed.journal(name).faults(ROUNDS, fed.shape.nodes) == []
    assert state.status == "finished:completed", state
    assert fed.result(name)["sha256"] == expected
    for node in fed.nodes:
        wait_for(f"{node.name} to keep nothing", lambda node=node: not node.stored_objects(), NOTICE_LIMIT_S)


@pytest.mark.parametrize("lifecycle", lifecycles())
def test_while_an_instruction_is_fetched(own_federation, disk, reference, lifecycle):
    """The first time also the app is not there yet; the second time it is."""
    fed = own_federation(lifecycle=lifecycle).start()
    expected, pids = reference(rounds=ROUNDS, length=ARRAY_LENGTH), fed.node_pids()

    for name in ("first", "second"):
        said = Said(fed.nodes[0])
        filler = fill(disk)
        run_id = submit(fed, name)
        said.wait(TROUBLE)
        assert fed.journal(name).answered() == 0
        filler.unlink()
        check(fed, run_id, name, expected)

    assert (fed.dead_nodes(), fed.node_pids()) == ([], pids)


@pytest.mark.parametrize("lifecycle", lifecycles())
def test_while_a_reply_is_written(own_federation, disk, reference, lifecycle):
    fed = own_federation(lifecycle=lifecycle).start()
    expected, pids = reference(rounds=ROUNDS, length=ARRAY_LENGTH), fed.node_pids()
    gate = fed.workspace.root / "gate"
    run_id = submit(fed, "result", gate_path=gate)
    wait_for("the app to be at work", gate.with_suffix(".started").exists, GATE_LIMIT_S)

    said = Said(fed.nodes[0])
    filler = fill(disk)
    gate.with_suffix(".open").touch()
    said.wait(TROUBLE)
    assert fed.journal().answered() == 0
    filler.unlink()

    check(fed, run_id, "result", expected)
    assert (fed.dead_nodes(), fed.node_pids()) == ([], pids)
