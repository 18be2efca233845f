"""Fixtures of the fault suite: federations of our own nodes, and what each fault must leave as it was."""

from collections.abc import Callable

import pytest

from harness.federation import Shape
from harness.node_campaign import NodeCampaign
from harness.superlink import TRELLIS
from harness.trellis_supernode import NodeOptions, TrellisFederation
from harness.workspace import Workspace
from provision import CannotBeHad


@pytest.fixture
def own_federation(workspace: Workspace) -> Callable[..., TrellisFederation]:
    """Makes a federation that is all ours, with nodes as told; start it with `.start()`."""

    def make(nodes: int = 2, app: str = "numpy_fedavg", **wanted: object) -> TrellisFederation:
        options = NodeOptions(**wanted)
        try:
            shape = Shape(kind=TRELLIS, nodes=nodes, app=app, cli=options.runtime, runtime=options.runtime)
            return TrellisFederation(workspace, shape, node_options=options)
        except CannotBeHad as why:
            pytest.skip(str(why))

    return make


@pytest.fixture
def check_unharmed() -> Callable[[NodeCampaign, dict[int, str], str], None]:
    return _check_unharmed


def _check_unharmed(campaign: NodeCampaign, runs: dict[int, str], expected: str) -> None:
    """All runs completed with the right weights and every reply once, by the nodes that began; nothing is left behind."""
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
