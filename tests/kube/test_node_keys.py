"""Nodes with keys that the operator made known: those of official SuperLinks and of ours."""

from collections.abc import Callable

import pytest

from harness.expected import official_digest
from harness.flower_cli import FlwrCli
from harness.kube import TRELLIS_IMAGE, Cluster
from harness.kube_federation import KubeFederation
from harness.kube_run import finish, start_run
from harness.waiting import wait_for

LIMIT_S = 120.0
ROUNDS = 3
ENROLLED = "NodesEnrolled"
# The claim with the SuperLink's state, and the pod that has it.
CLAIM, POD = "trellis-state-fed-superlink-0", "fed-superlink-0"


def enrolled(federation: KubeFederation) -> tuple[str, str]:
    """What is told of it: whether, and how many."""
    conditions = federation.cluster.get("federation", federation.name)["status"].get("conditions", [])
    told = [(found["status"], found["message"]) for found in conditions if found["type"] == ENROLLED]
    return told[0] if told else ("", "")


def wait_enrolled(federation: KubeFederation, nodes: int) -> None:
    wanted = ("True", f"the SuperLink knows {nodes} nodes")
    wait_for(f"{nodes} nodes to be known", lambda: enrolled(federation) == wanted, LIMIT_S)


def wait_online(federation: KubeFederation, cli: FlwrCli, nodes: int) -> None:
    """At the SuperLink: a node of Flower says that it is well before it is let in."""

    def look() -> bool:
        statuses = federation.cluster.inside(cli.nodes).values()
        return [status for status in statuses if status != "unregistered"] == ["online"] * nodes

    wait_for(f"{nodes} nodes to be online", look, LIMIT_S)


def keys(federation: KubeFederation) -> set[str]:
    return set(federation.cluster.get("secret", f"{federation.name}-node-keys-a")["data"])


@pytest.mark.parametrize("version", ["1.25", "1.41"])
def test_pods_of_official_images_enrol_train_and_are_forgotten(
    make_cluster: Callable[..., Cluster], version: str
) -> None:
    cluster = make_cluster(version)
    federation = KubeFederation(cluster, official=version, tls=True, node_auth=True, replicas=3).apply()
    federation.wait_ready()
    wait_enrolled(federation, 3)
    cli = federation.cli(version)
    # One that is told to go while it starts does not hear it, is killed, and its key is refused for a minute.
    wait_online(federation, cli, 3)
    federation.replicas = 2
    federation.apply().wait_ready()
    wait_enrolled(federation, 2)
    kept = {"fed-supernode-a-0", "fed-supernode-a-1"}
    wait_for("the key to be gone", lambda: keys(federation) == kept, LIMIT_S)
    wait_online(federation, cli, 2)
    path = federation.result_path()
    run_id = cluster.inside(lambda: cli.submit(nodes=2, result_path=path))
    federation.wait_completed(cli, run_id)
    assert federation.result(path)["sha256"] == official_digest(nodes=2)
    # One that comes later is known before its pod is: it is not started in vain.
    federation.replicas = 3
    federation.apply().wait_ready()
    wait_enrolled(federation, 3)
    (pod,) = [pod for pod in cluster.list("pods") if pod["metadata"]["name"] == "fed-supernode-a-2"]
    assert [told["restartCount"] for told in pod["status"]["containerStatuses"]] == [0]


@pytest.mark.trellis_only
def test_a_superlink_that_lost_its_state_is_told_again(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    federation = KubeFederation(cluster, image=TRELLIS_IMAGE + "one", tls=True, node_auth=True).apply().wait_ready()
    wait_enrolled(federation, 2)
    finish(federation, start_run(federation, "native:mlp", ROUNDS), ROUNDS)
    # Its claim goes with it, as when a disk is lost. The set makes both anew.
    lost = cluster.get("persistentvolumeclaim", CLAIM)["metadata"]["uid"]
    cluster.kubectl("delete", "persistentvolumeclaim", CLAIM, "--wait=false")
    cluster.kubectl("delete", "pod", POD)
    federation.wait_ready()
    finish(federation, start_run(federation, "native:mlp", ROUNDS), ROUNDS)
    assert cluster.get("persistentvolumeclaim", CLAIM)["metadata"]["uid"] != lost
    wait_enrolled(federation, 2)
