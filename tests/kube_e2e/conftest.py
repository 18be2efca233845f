"""One cluster with a real node for all tests of the suite: it takes a while to come up."""

import subprocess
from collections.abc import Iterator

import pytest

from harness.kube_node import OPERATOR_IMAGE, RealCluster, real_cluster
from harness.waiting import NotInTime, wait_for
from harness.workspace import Workspace, trellis_binary
from provision import CannotBeHad

OPERATOR = "trellis-system"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
LIMIT_S = 120.0


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


@pytest.fixture(scope="session")
def operator(cluster: RealCluster) -> RealCluster:
    """Installed as its manifests say."""
    argv = [str(trellis_binary()), "operator", "manifests", "--image", OPERATOR_IMAGE]
    manifests = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifests)
    for namespace in (OPERATOR, "default"):
        labels = [f"{name}={value}" for name, value in RESTRICTED.items()]
        cluster.kubectl("label", "--overwrite", "namespace", namespace, *labels)

    def is_available() -> bool:
        found = cluster.list("deployments", "--namespace", OPERATOR)
        return bool(found) and found[0]["status"].get("availableReplicas") == 1

    try:
        wait_for("the operator to be available", is_available, LIMIT_S)
    except NotInTime as late:
        raise NotInTime(f"{late}\n{cluster.diagnostics()}") from None
    return cluster
