"""Federations whose pods cannot start, and federations that are deleted while nodes work, on a real kubelet."""

import pytest

from harness.kube_federation import KubeFederation
from harness.kube_node import IMAGE, RealCluster
from harness.kube_run import goes_on, start_run
from harness.waiting import wait_for

pytestmark = pytest.mark.trellis_only

LIMIT_S = 180.0
# A node drains for up to 600 s; one whose SuperLink is deleted gives up after 30 s, and then has 10 s to end.
DELETED_LIMIT_S = 90.0
ROUNDS = 100_000


def stalled(cluster: RealCluster, name: str) -> tuple[str, str]:
    """Reason and message of the condition, where it holds."""
    conditions = cluster.get("federation", name).get("status", {}).get("conditions", [])
    found = [each for each in conditions if each["type"] == "Stalled" and each["status"] == "True"]
    return (found[0]["reason"], found[0]["message"]) if found else ("", "")


def remove(cluster: RealCluster, name: str, limit_s: float) -> None:
    """Deletes a federation with its claims, and waits until its pods are gone."""
    label = f"app.kubernetes.io/instance={name}"
    cluster.kubectl("delete", "federation", name, "--wait=false")
    wait_for("the pods to be gone", lambda: not cluster.list("pods", "-l", label), limit_s)
    cluster.kubectl("delete", "persistentvolumeclaims", "-l", label)


def test_a_wrong_image_is_told_and_a_corrected_one_starts(operator: RealCluster) -> None:
    federation = KubeFederation(operator, image="registry.invalid/nothing:1", name="broken", shares=False).apply()
    wait_for("the image to be told", lambda: stalled(operator, "broken")[0] == "ImagePullBackOff", LIMIT_S)
    assert "registry.invalid/nothing:1 cannot be pulled" in stalled(operator, "broken")[1]

    federation.image = IMAGE
    federation.apply().wait_ready()
    wait_for("it to be forgotten", lambda: stalled(operator, "broken") == ("", ""), LIMIT_S)
    remove(operator, "broken", LIMIT_S)


def test_nodes_of_a_deleted_federation_do_not_drain(operator: RealCluster) -> None:
    federation = KubeFederation(operator, image=IMAGE, name="deleted", shares=False).apply().wait_ready()
    run = start_run(federation, "native:mlp", ROUNDS, checkpoint_interval=ROUNDS)
    goes_on(run)

    remove(operator, "deleted", DELETED_LIMIT_S)
