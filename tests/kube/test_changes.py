"""A training goes on while what it runs on is taken away, made larger and replaced."""

import re
from collections.abc import Callable

import pytest

from harness.federation import APPS
from harness.kube import TRELLIS_IMAGE, Cluster
from harness.kube_federation import KubeFederation
from harness.kube_run import finish, goes_on, start_run

pytestmark = pytest.mark.trellis_only

SHORT_ROUNDS = 5
# Enough that all that is done to the federation falls into the run.
ROUNDS = 60
# Long enough that each round is worth a checkpoint.
TRAIN_SECONDS = 1.0


@pytest.mark.quick
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_trellis_images_complete_a_native_run(make_cluster: Callable[..., Cluster], tls: bool) -> None:
    federation = KubeFederation(make_cluster(), image=TRELLIS_IMAGE + "one", tls=tls).apply().wait_ready()
    finish(federation, start_run(federation, "native:mlp", SHORT_ROUNDS), SHORT_ROUNDS)


def test_no_round_is_lost_when_pods_go_pools_grow_and_everything_is_upgraded(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster("1.25")
    federation = KubeFederation(cluster).apply().wait_ready()
    told = {"initial_model": federation.first_model(), "train_seconds": TRAIN_SECONDS}
    run = start_run(federation, APPS / "numpy_fedavg", ROUNDS, **told)
    goes_on(run)

    cluster.kubectl("delete", "pod", "fed-supernode-a-0")
    federation.wait_ready()
    goes_on(run)

    cluster.kubectl("delete", "pod", "fed-superlink-0", "--grace-period=0", "--force")
    federation.wait_ready()
    goes_on(run)

    federation.replicas = 3
    federation.apply().wait_ready()
    goes_on(run)

    federation.tag = "-next"
    federation.apply().wait_ready()
    images = {container["image"] for pod in cluster.list("pods") for container in pod["spec"]["containers"]}
    assert images == {federation.image_of("superlink")}
    goes_on(run)

    federation.replicas = 2
    federation.apply().wait_ready()
    finish(federation, run, ROUNDS)
    # Each once: none was done again because what came of it was lost.
    ended = re.findall(r"round (\d+) ended after .*: ([1-9]\d*) clients?", cluster.log("fed-superlink-0", "superlink"))
    assert [int(number) for number, _ in ended] == list(range(1, ROUNDS + 1))
    assert min(int(clients) for _, clients in ended) >= 2
