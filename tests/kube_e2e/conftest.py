"""One cluster with a real node for all tests of the suite: it takes a while to come up."""

from collections.abc import Iterator

import pytest

from harness.kube_node import RealCluster, real_cluster
from harness.workspace import Workspace
from provision import CannotBeHad


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    workspace = Workspace(tmp_path_factory.mktemp("kube"))
    made = None
    try:
        made = real_cluster(workspace)
        yield made
    except CannotBeHad as why:
        pytest.skip(str(why))
    finally:
        workspace.close()
        if made is not None:
            made.close()
