"""What every crash test demands once the runs are over."""

from collections.abc import Callable

import pytest

from harness.campaign import Campaign


@pytest.fixture
def check_survival() -> Callable[[Campaign, dict[int, str], str], None]:
    return _check_survival


def _check_survival(campaign: Campaign, runs: dict[int, str], expected: str) -> None:
    """All runs completed with the right weights, the nodes never restarted, nothing left behind."""
    story = "\n".join(campaign.story)
    federation = campaign.federation
    for run_id, name in runs.items():
        state = campaign.finish(run_id)
        assert state.status == "finished:completed", f"{state}\n{story}"
        result = federation.result(name)
        assert (result["sha256"], result["rounds"]) == (expected, campaign.rounds), f"{result}\n{story}"
        assert f"weights sha256 {expected}" in campaign.logged(run_id), f"the log lacks the last line\n{story}"
    assert set(federation.superlink.control.runs()) == set(runs), f"a run appeared that nobody submitted\n{story}"
    assert federation.dead_nodes() == [], story
    for node in federation.nodes:
        assert node.process.output().count("SuperNode ID:") == 1, f"{node.name} connected as another node\n{story}"
    assert campaign.left_behind() == [], story
