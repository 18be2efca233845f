"""Images of both roles as real machines (emulated, so it takes a while): they find each other, train, and survive a reset."""

import os
from pathlib import Path

import pytest

from vm.federation import NODES

pytestmark = pytest.mark.trellis_only

ROUNDS = 3
# Enough that a reset falls into the run.
LONG_ROUNDS = 40
ROUND_LIMIT_S = 600.0


@pytest.fixture(scope="module", autouse=True)
def evidence(machines):
    """What was seen, for those who were not there: VM_EVIDENCE names the file."""
    yield
    if place := os.environ.get("VM_EVIDENCE"):
        machines.keep_evidence(Path(place))


def test_the_machines_find_each_other_through_onegate(machines):
    superlink = machines.cloud.machines("superlink")[0]
    nodes = machines.cloud.machines("supernode")

    assert superlink["attributes"]["FL_TLS"] == "YES"
    assert superlink["attributes"]["FL_ENDPOINT"] == f"{superlink['ip']}:9092"
    assert [node["attributes"]["FL_NODE_READY"] for node in nodes] == ["YES"] * NODES
    assert len({node["attributes"]["FL_NODE_ID"] for node in nodes}) == NODES


def test_a_run_completes(machines):
    told = machines.finish(machines.start_run(ROUNDS))

    assert told[-1]["event"] == "ended"
    rounds = [line for line in told if line["event"] == "report" and line.get("kind") == "round"]
    assert len(rounds) == ROUNDS


def test_a_run_survives_a_reset_of_its_superlink(machines):
    before = machines.superlink["attributes"]["TRELLIS_INSTANCE"]
    run = machines.start_run(LONG_ROUNDS)
    run.wait_line('"kind":"round"', ROUND_LIMIT_S)

    machines.cloud.reset(machines.superlink)
    machines.note("the SuperLink's machine was reset")
    told = machines.finish(run)

    assert told[-1]["event"] == "ended"
    rounds = [line for line in told if line["event"] == "report" and line.get("kind") == "round"]
    assert [line["round"] for line in rounds] == list(range(1, LONG_ROUNDS + 1))
    after = machines.cloud.machines("superlink")[0]["attributes"]["TRELLIS_INSTANCE"]
    machines.note(f"the SuperLink was instance {before} and is instance {after}")
    assert after != before
