"""`FederationRun`s on SuperLinks of Flower, early and late, and on ours: apps of users and of the catalogue."""

from collections.abc import Callable

import pytest

from harness.expected import official_digest
from harness.flower_cli import FlwrCli
from harness.kube import Cluster
from harness.kube_federation import KubeFederation
from harness.kube_resource import FederationRun
from harness.waiting import wait_for

LIMIT_S = 180.0
# Longer than any test.
ENDLESS_S = 3600.0
KINDS = [("1.25", ""), ("1.41", ""), ("", "1.25"), ("", "1.41")]
NAMES = ["flower-1.25", "flower-1.41", "trellis-1.25", "trellis-1.41"]


def bundle(cli: FlwrCli, cluster: Cluster) -> None:
    """As the document says: built by `flwr`, and put into a ConfigMap."""
    # The directory's name is the project's.
    answer = cli.run_command("build", "--app", str(cluster.workspace.copy_app(cli.app, "bundled")))
    assert answer.code == 0, answer.text
    (fab,) = cli.app.glob("*.fab")
    cluster.kubectl("create", "configmap", "app", f"--from-file=app.fab={fab}")


def outcomes(cluster: Cluster, cli: FlwrCli) -> list[str]:
    return sorted(cluster.inside(cli.runs).values())


@pytest.mark.parametrize(("official", "python"), KINDS, ids=NAMES)
def test_apps_of_users_and_of_the_catalogue_run_are_tried_again_and_stopped(
    make_cluster: Callable[..., Cluster], official: str, python: str
) -> None:
    cluster = make_cluster(official or python)
    federation = KubeFederation(cluster, official=official, python=python).apply().wait_ready()
    cli = federation.cli(official or python)
    bundle(cli, cluster)

    # It has nowhere to write what it found, until somebody makes that place.
    place = federation.shared / "results"
    config = {"nodes": federation.replicas, "result-path": str(place / "result.json")}
    app = {"configMap": {"name": "app"}}
    first = FederationRun(cluster, "first").apply(app, config=config, retries=20, backoffSeconds=1)
    first.wait("a try that failed", lambda told: told.get("attempt", 1) > 1, LIMIT_S)
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    told = first.wait_complete(LIMIT_S)
    assert told["state"] == "Succeeded"
    assert federation.result(place / "result.json")["sha256"] == official_digest(nodes=federation.replicas)
    of_first = cluster.inside(cli.runs)
    assert of_first.pop(int(told["runId"])) == "finished:completed"
    assert set(of_first.values()) == {"finished:failed"}
    assert len(of_first) == told["attempt"] - 1

    listed = FederationRun(cluster, "listed").apply({"catalogue": "anomaly-detection"}, rounds=1)
    told = listed.wait_complete(LIMIT_S)
    assert cluster.inside(cli.runs)[int(told["runId"])] == "finished:completed"

    endless = config | {"train-seconds": ENDLESS_S}
    last = FederationRun(cluster, "last").apply(app, config=endless)
    told = last.wait("it to run", lambda told: told.get("state") == "Running", LIMIT_S)
    last.delete()
    run_id = int(told["runId"])
    wait_for("the run to be stopped", lambda: cluster.inside(cli.runs)[run_id] == "finished:stopped", LIMIT_S)
    assert outcomes(cluster, cli).count("finished:stopped") == 1
