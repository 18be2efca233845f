"""Fixtures of the fault suite: federations of our own nodes, and what each fault must leave as it was."""

from collections.abc import Callable

import pytest

from harness.federation import Federation
from harness.node_campaign import NodeCampaign
from harness.own_supernode import RETRY_SOON, OwnNode
from harness.release import DEFAULT, GRPC, HTTP


@pytest.fixture
def own_federation(federation) -> Callable[..., Federation]:
    """Makes a federation that is all ours, half of its nodes over gRPC and half over HTTP; start it with `.start()`."""

    def make(nodes: int = 2, app: str = "numpy_fedavg", python: str = DEFAULT, flags: tuple[str, ...] = (), **wanted):
        flags = (*RETRY_SOON, *flags)
        fleet = tuple(OwnNode(python, port, transport=port, flags=flags, **wanted) for port in (GRPC, HTTP))
        return federation(nodes=nodes, app=app, fleet=fleet, cli=python, runtime=python)

    return make


@pytest.fixture
def check_unharmed() -> Callable[[NodeCampaign, dict[int, str], str], None]:
    return _check_unharmed


def _check_unharmed(campaign: NodeCampaign, runs: dict[int, str], expected: str) -> None:
    """All runs completed with the right weights and every reply once, by the nodes that began; nothing is left."""
    story = "\n".join(campaign.story)
    federation = campaign.federation
    for run_id, name in runs.items():
        state = campaign.finish(run_id)
        faults = federation.journal(name).faults(campaign.rounds, federation.shape.nodes)
        assert faults == [], f"{faults}\n{story}"
        assert state.status == "finished:completed", f"{state}\n{story}"
        result = federation.result(name)
        assert (result["sha256"], result["rounds"]) == (expected, campaign.rounds), f"{result}\n{story}"
    control = federation.superlink.control
    assert set(control.runs()) == set(runs), f"a run appeared that nobody submitted\n{story}"
    assert len(control.nodes()) == federation.shape.nodes, f"a node came back as another one\n{story}"
    assert federation.dead_nodes() == [], story
    assert campaign.left_behind() == [], story
