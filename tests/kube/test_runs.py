"""Runs for real, on pods that the operator's objects became: official Flower as old and as new as it gets, and Trellis."""

import json
from collections.abc import Callable

import pytest

from harness.expected import official_digest
from harness.kube import Cluster
from harness.kube_federation import PROCESS, SUBPROCESS, KubeFederation


def complete(federation: KubeFederation, version: str) -> dict:
    """A run by `flwr` of that release; what its ServerApp wrote."""
    cli = federation.cli(version)
    path = federation.result_path()
    run_id = federation.cluster.inside(lambda: cli.submit(nodes=federation.replicas, result_path=path))
    federation.wait_completed(cli, run_id)
    return json.loads(path.read_text())


@pytest.mark.parametrize("isolation", [SUBPROCESS, PROCESS])
@pytest.mark.parametrize("version", ["1.25", "1.41"])
def test_official_images_complete_a_run(make_cluster: Callable[..., Cluster], version: str, isolation: str) -> None:
    cluster = make_cluster(version)
    federation = KubeFederation(cluster, official=version, isolation=isolation).apply().wait_ready()
    assert complete(federation, version)["sha256"] == official_digest(nodes=federation.replicas)
    pods = cluster.list("pods")
    assert len(pods) == 1 + federation.replicas
    assert {len(pod["spec"]["containers"]) for pod in pods} == {2 if isolation == PROCESS else 1}
    assert sum(told["restartCount"] for pod in pods for told in pod["status"]["containerStatuses"]) == 0


@pytest.mark.parametrize(("version", "isolation"), [("1.25", SUBPROCESS), ("1.41", PROCESS)])
def test_official_images_complete_a_run_with_tls(
    make_cluster: Callable[..., Cluster], version: str, isolation: str
) -> None:
    federation = KubeFederation(make_cluster(version), official=version, isolation=isolation, tls=True)
    federation.apply().wait_ready()
    assert complete(federation, version)["sha256"] == official_digest(nodes=federation.replicas)


@pytest.mark.parametrize("version", ["1.25", "1.41"])
def test_trellis_images_complete_a_flower_app(make_cluster: Callable[..., Cluster], version: str) -> None:
    federation = KubeFederation(make_cluster(version), python=version).apply().wait_ready()
    assert complete(federation, version)["sha256"] == official_digest(nodes=federation.replicas)
