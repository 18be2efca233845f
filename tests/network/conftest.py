"""Fixtures of the network suite: a federation across a firewall that forgets silent connections."""

from collections.abc import Iterator

import pytest

from harness.firewall import Firewall
from harness.workspace import Workspace
from network.silence import FORGOTTEN_AFTER_S, Silence
from provision import CannotBeHad


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    made = Workspace(tmp_path_factory.mktemp("network"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def silence(grounds: Workspace) -> Silence:
    """Everything that a module looks at, after one long silence. The tests share it: it costs a minute and a half."""
    try:
        across = Silence(grounds, Firewall(grounds, FORGOTTEN_AFTER_S))
    except CannotBeHad as why:
        pytest.skip(f"no firewall can be set up here, so silent links are not tested: {why}")
    across.keep()
    return across
