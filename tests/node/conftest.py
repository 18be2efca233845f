"""Fixtures of the suite for our own SuperNode."""

from collections.abc import Callable

import pytest

from harness.expected import official_outcomes
from harness.federation import Federation
from harness.own_supernode import OwnNode
from provision import CannotBeHad


@pytest.fixture
def weights() -> Callable[..., str]:
    """Trains the numpy app in a federation, and returns the digest of what came out."""

    def train(fed: Federation, **config: object) -> str:
        run_id = fed.cli.submit(nodes=fed.shape.nodes, result_path=fed.result_path(), **config)
        state = fed.wait_finished(run_id)
        assert state.status == "finished:completed", state
        return fed.result()["sha256"]

    return train


@pytest.fixture
def stage(federation) -> Callable[..., Federation]:
    """Makes a federation of one node for the `acts` app; start it with `.start()`."""

    def make(node: OwnNode = OwnNode(), **wanted: object) -> Federation:
        return federation(app="acts", nodes=1, fleet=(node,), **wanted)

    return make


@pytest.fixture(scope="session")
def official(pytestconfig: pytest.Config) -> Callable[[str, str], list[str]]:
    """What an all-official federation of some release makes of a script, measured at most once per session."""
    known: dict[tuple[str, str], list[str]] = {}

    def outcomes(script: str, version: str) -> list[str]:
        if (script, version) not in known:
            try:
                recompute = pytestconfig.getoption("--recompute")
                known[script, version] = official_outcomes(script, version, recompute)
            except CannotBeHad as why:
                pytest.skip(str(why))
        return known[script, version]

    return outcomes
