"""Fixtures of the suite: a cluster per test, with the operator in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.kube import Cluster
from harness.workspace import Workspace
from provision import CannotBeHad


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """A cluster whose pods may be of these releases; skipped where one of its parts cannot be had."""
    workspace = Workspace(tmp_path)

    def make(*versions: str, nodes: int = 2, operator: bool = True, controllers: tuple[str, ...] = ()) -> Cluster:
        try:
            cluster = Cluster(workspace, *versions, nodes=nodes, controllers=controllers)
        except CannotBeHad as why:
            pytest.skip(str(why))
        if operator:
            cluster.install()
            cluster.start_operator()
        return cluster

    try:
        yield make
    finally:
        workspace.close()
