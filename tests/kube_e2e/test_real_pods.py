"""The operator and federations as real containers, under the restricted profile of Pod Security."""

import re

import pytest

from harness.kube_federation import KubeFederation
from harness.kube_node import IMAGE, RealCluster
from harness.kube_run import finish, goes_on, start_run
from harness.waiting import wait_for

pytestmark = pytest.mark.trellis_only

OPERATOR = "trellis-system"
LIMIT_S = 120.0
ROUNDS = 400


def test_a_training_goes_on_while_pods_go_and_everything_is_upgraded(operator: RealCluster) -> None:
    cluster = operator
    federation = KubeFederation(cluster, image=IMAGE, shares=False).apply().wait_ready()
    run = start_run(federation, "native:mlp", ROUNDS, checkpoint_interval=1)
    goes_on(run)

    cluster.kubectl("delete", "pod", "fed-supernode-a-0")
    federation.wait_ready()
    goes_on(run)

    federation.replicas = 3
    federation.apply().wait_ready()
    goes_on(run)

    federation.image = f"{IMAGE}-next"
    federation.apply().wait_ready()
    images = {container["image"] for pod in cluster.list("pods") for container in pod["spec"]["containers"]}
    assert images == {federation.image}
    goes_on(run)
    finish(federation, run, ROUNDS)


def test_what_pods_say_can_be_read_and_of_a_federation_that_is_deleted_its_state_stays(operator: RealCluster) -> None:
    cluster = operator
    told = cluster.log("fed-superlink-0", "superlink")
    assert re.search("SuperLink is ready", told), told
    assert "created" in cluster.kubectl("logs", "deployment/trellis-operator", "--namespace", OPERATOR)
    kinds = "pods,statefulsets,services,poddisruptionbudgets"

    def left() -> list[dict]:
        return cluster.list(kinds, "-l", "app.kubernetes.io/instance=fed")

    assert {found["kind"] for found in left()} == {"Pod", "StatefulSet", "Service", "PodDisruptionBudget"}
    cluster.kubectl("delete", "federation", "fed")
    wait_for("all of the federation to be gone", lambda: not left(), LIMIT_S)
    # What it had learned stays, until somebody says that it may go.
    assert len(cluster.list("persistentvolumeclaims")) == 1
