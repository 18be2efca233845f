"""A training goes on while what it runs on is taken away, made larger and replaced."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.federation import APPS
from harness.kube import TRELLIS_IMAGE, Cluster
from harness.kube_federation import KubeFederation
from harness.process import Process
from harness.waiting import wait_for
from harness.workspace import trellis_binary

pytestmark = pytest.mark.trellis_only

SHORT_ROUNDS = 5
# Enough that all that is done to the federation falls into the run.
ROUNDS = 60
TRAIN_SECONDS = 0.5
ARRAY_COUNT, ARRAY_LENGTH = 4, 64
ROUND_LIMIT_S = 120.0
RUN_LIMIT_S = 600.0


def start_run(federation: KubeFederation, app: str | Path, rounds: int, **settings: object) -> Process:
    """`trellis run` from within the cluster, by the name of the Service; its output is JSON lines."""
    told = {"num-server-rounds": rounds, "min-available-nodes": 2, "min-train-nodes": 2, "min-evaluate-nodes": 2}
    told |= {name.replace("_", "-"): value for name, value in settings.items()}
    argv = [str(trellis_binary()), "run", str(app), "-o", "json"]
    argv += ["--superlink", federation.cluster.service_address(federation.name, "http")]
    argv += credentials(federation)
    argv += [word for name, value in told.items() for word in ("--set", f"{name}={value}")]
    return federation.cluster.start(f"run-{len(federation.cluster.workspace.processes)}", argv)


def credentials(federation: KubeFederation) -> list[str]:
    if not federation.tls:
        return ["--insecure", "--allow-insecure-network"]
    token = federation.cluster.workspace.root / "token"
    token.write_bytes(federation.cluster.secret(f"{federation.name}-admin", "token"))
    return ["--root-certificates", str(federation.authority()), "--token-file", str(token)]


def rounds_of(run: Process) -> list[int]:
    lines = [json.loads(line) for line in run.output().splitlines() if line.startswith("{")]
    return [line["round"] for line in lines if line["event"] == "report" and line.get("kind") == "round"]


def finish(federation: KubeFederation, run: Process, rounds: int) -> None:
    code = run.wait_exit(RUN_LIMIT_S)
    assert code == 0, f"it exited with {code}\n{run.output()}\n{federation.cluster.told()}"
    assert rounds_of(run) == list(range(1, rounds + 1))


def goes_on(run: Process, rounds: int = 2) -> None:
    """So many more rounds than there are now."""
    wanted = len(rounds_of(run)) + rounds

    def look() -> bool:
        assert run.alive, f"it ended in the middle\n{run.output()}"
        return len(rounds_of(run)) >= wanted

    wait_for(f"round {wanted}", look, ROUND_LIMIT_S)


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
    # Where the SuperLink's pod sees it, too.
    model = federation.shared / "first.npz"
    np.savez(model, **{str(index): np.zeros(ARRAY_LENGTH, np.float32) for index in range(ARRAY_COUNT)})
    told = {"initial_model": model, "train_seconds": TRAIN_SECONDS, "checkpoint_interval": 1}
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
