"""Fixtures of the suite with virtual machines: a federation of three of them, shared by its tests, for it takes minutes."""

from collections.abc import Iterator

import pytest

from harness.workspace import Workspace
from provision import CannotBeHad
from vm.cloud import Cloud
from vm.federation import Machines
from vm.images import images


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    made = Workspace(tmp_path_factory.mktemp("vm"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def machines(grounds: Workspace) -> Machines:
    """A SuperLink and two SuperNodes, each in a machine of its own, that have found each other."""
    try:
        federation = Machines(Cloud(grounds, images()))
    except CannotBeHad as why:
        pytest.skip(f"no virtual machines can be had here: {why}")
    federation.deploy()
    return federation
