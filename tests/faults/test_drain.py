"""Nodes that are told to finish leave in the middle of a run, and no round waits for one that has left."""

import subprocess

import pytest

from harness.own_supernode import OwnSupernode
from harness.trellis_run import TrellisRun
from harness.waiting import wait_for
from harness.workspace import trellis_binary

TIMES, QUICK_TIMES = 20, 3
# For a node that may come back a run waits for two minutes.
ROUND_LIMIT_S = 30.0
DRAIN_LIMIT_S = 60.0

pytestmark = pytest.mark.trellis_only


def drain(node: OwnSupernode) -> None:
    argv = [str(trellis_binary()), "supernode", "drain", "--wait", "--state-dir", str(node.state_dir)]
    subprocess.run(argv, env=node.workspace.env(), timeout=DRAIN_LIMIT_S, check=True, capture_output=True)


def leave_and_return(federation, times: int) -> None:
    federation.start()
    settings = {"num-server-rounds": 100_000, "min-available-nodes": 2, "min-train-nodes": 2, "min-evaluate-nodes": 2}
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    run = TrellisRun(federation.workspace, "native:mlp", *flags, superlink=federation.superlink)
    run.wait_started()

    def rounds() -> int:
        return sum(report["kind"] == "round" for report in run.events("report"))

    def goes_on() -> None:
        wanted = rounds() + 2
        wait_for(f"round {wanted}", lambda: rounds() >= wanted, ROUND_LIMIT_S)

    goes_on()
    node = federation.nodes[-1]
    for _ in range(times):
        drain(node)
        assert node.process.stop() == 0
        goes_on()
        node.start().wait_connected()
        goes_on()


def test_no_round_waits_for_a_node_that_left(own_federation):
    leave_and_return(own_federation(nodes=3, native="mlp"), TIMES)


@pytest.mark.quick
def test_no_round_waits_for_a_node_that_left_quick(own_federation):
    leave_and_return(own_federation(nodes=3, native="mlp"), QUICK_TIMES)
