"""Nodes that are not the cluster's: they come with what is in the Secret of their site, and with nothing else."""

import json
import os
import re
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.credentials import make_node_key
from harness.federation import APPS
from harness.kube import TRELLIS_IMAGE, Cluster
from harness.kube_federation import SITE, KubeFederation
from harness.kube_outside import BALANCER, Outside
from harness.kube_run import finish, start_run
from harness.process import Process
from harness.release import flower
from harness.waiting import wait_for
from harness.workspace import REPOSITORY

ROUNDS = 3
LIMIT_S = 90.0
DOCUMENT = REPOSITORY / "docs" / "kubernetes" / "security.md"


def joinable(cluster: Cluster, **options: object) -> tuple[KubeFederation, Outside]:
    """A federation of two pods and a site, ready for machines of the site."""
    federation = KubeFederation(cluster, **options).apply()
    outside = Outside(cluster)
    outside.balance("fed-superlink")
    federation.wait_ready()

    known = federation.replicas + federation.outside

    def look() -> bool:
        status = cluster.get("federation", "fed")["status"]
        sites = status.get("sites", [])
        told = {found["type"]: found["message"] for found in status["conditions"] if found["status"] == "True"}
        is_enrolled = not federation.node_auth or told.get("NodesEnrolled") == f"the SuperLink knows {known} nodes"
        return is_enrolled and any(site.get("address", "").startswith(BALANCER) for site in sites)

    wait_for("the site to be told an address, and its nodes to be known", look, LIMIT_S)
    return federation, outside


def export(cluster: Cluster, outside: Outside, form: str = "yaml") -> str:
    """As somebody does who sends it to the machine's owner."""
    file = outside.directory() / f"lab.{form}"
    file.write_text(cluster.kubectl("get", "secret", f"fed-join-{SITE}", "-o", form))
    return file.name


def train(federation: KubeFederation, nodes: int, *machines: Process, app: str | Path = "native:mlp") -> None:
    """Only all of them together can."""
    told: dict[str, object] = {f"min_{what}_nodes": nodes for what in ("available", "train", "evaluate")}
    if isinstance(app, Path):
        told["initial_model"] = federation.first_model()
    run = start_run(federation, app, ROUNDS, **told)

    def look() -> bool:
        gone = [machine.output() for machine in machines if not machine.alive]
        assert not gone, "\n".join(gone)
        return not run.alive

    wait_for(f"a run of {nodes} nodes to end", look, LIMIT_S)
    finish(federation, run, ROUNDS)


def manifest(name: str) -> str:
    """The one that is given to `kubectl apply` under this heading of the document."""
    section = DOCUMENT.read_text().split(f"### {name}\n")[1]
    return section.split("<<'YAML'\n")[1].split("\nYAML\n")[0]


@pytest.mark.trellis_only
@pytest.mark.parametrize(
    ("tls", "node_auth"),
    [pytest.param(True, True, marks=pytest.mark.quick), (True, False), (False, False)],
    ids=["keys", "tls", "plain"],
)
def test_a_machine_joins_with_the_exported_secret(
    make_cluster: Callable[..., Cluster], tls: bool, node_auth: bool
) -> None:
    cluster = make_cluster()
    options = {"image": TRELLIS_IMAGE + "one", "tls": tls, "node_auth": node_auth, "outside": 2}
    federation, outside = joinable(cluster, **options)
    first = outside.trellis("supernode", "--join", export(cluster, outside), "--node", "0")
    train(federation, 3, first)
    kept = outside.directory() / ".local/state/trellis/supernode/join"
    files = {"node-0.toml"} | ({"ca.crt"} if tls else set()) | ({"node-0.key"} if node_auth else set())
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in kept.iterdir()} == dict.fromkeys(files, 0o600)
    # The other one as JSON, beside the first.
    flags = ["--join", export(cluster, outside, "json"), "--node", "1", "--state-dir", "second"]
    train(federation, 4, first, outside.trellis("supernode", *flags))


@pytest.mark.trellis_only
def test_a_machine_with_a_key_that_nobody_made_known_is_refused(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    _, outside = joinable(cluster, image=TRELLIS_IMAGE + "one", tls=True, node_auth=True, outside=1)
    key = make_node_key(outside.directory(), "stranger")
    exported = export(cluster, outside)
    stranger = outside.trellis("supernode", "--join", exported, "--auth-supernode-private-key", str(key.private))
    stranger.wait_line("refuses this node.*No SuperNode found with the given public key", LIMIT_S)
    # Without any it is no better off.
    settings = outside.directory() / ".local/state/trellis/supernode/join/node-0.toml"
    keyless = [line for line in settings.read_text().splitlines() if "private-key" not in line]
    (settings.parent / "keyless.toml").write_text("\n".join(keyless))
    nobody = outside.trellis("supernode", "--config", str(settings.parent / "keyless.toml"), "--state-dir", "nobody")
    nobody.wait_line("refuses this node.*must be registered", LIMIT_S)


@pytest.mark.trellis_only
def test_another_cluster_joins_with_the_documented_manifest(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    federation, outside = joinable(cluster, image=TRELLIS_IMAGE + "one", tls=True, node_auth=True, outside=2)
    elsewhere = ("--namespace", "elsewhere")
    cluster.kubectl("create", "namespace", "elsewhere")
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", "elsewhere", restricted)
    file = outside.directory() / export(cluster, outside)
    cluster.kubectl("create", "secret", "generic", "demo-join-lab", f"--from-file=lab.yaml={file}", *elsewhere)
    ours = f"image: {TRELLIS_IMAGE}one"
    text, exchanged = re.subn(r"image: trellis-supernode:\S+", ours, manifest("Another cluster"))
    assert exchanged == 1
    cluster.kubectl("apply", *elsewhere, "-f", "-", stdin=text)

    def look() -> bool:
        status = json.loads(cluster.kubectl("get", "statefulset", "lab", *elsewhere, "-o", "json"))["status"]
        return status.get("readyReplicas") == 2

    wait_for("the other cluster's nodes to be ready", look, LIMIT_S)
    train(federation, 4)


def official_node(cluster: Cluster, outside: Outside, version: str) -> Process:
    """The commands of the document: the first ones on a machine with `kubectl`, the last one on that of the site."""
    section = DOCUMENT.read_text().split("### Flower's own SuperNode\n")[1]
    script = section.split("```sh\n")[1].split("```")[0]
    loop, _, start = script.partition("flower-supernode ")
    assert start
    release = flower(version)
    fetch = loop.replace("demo-join-lab", f"fed-join-{SITE}")
    kubectl = outside.directory() / "kubectl"
    kubectl.write_text("#!/bin/sh\nexec " + " ".join(cluster.network.command(cluster.kubectl_command())) + ' "$@"\n')
    kubectl.chmod(0o755)
    env = {**os.environ, "PATH": f"{kubectl.parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-euc", fetch], cwd=outside.directory(), env=env, check=True)
    # It tries once, and ends.
    outside.wait_trusted((outside.directory() / "address").read_text(), outside.directory() / "ca.crt")
    settings = "--node-config 'partition-id=0 num-partitions=2'"
    command = f"exec {release.command('flower-supernode')} {start.strip()} {settings}"
    return outside.start(["sh", "-c", command], release)


@pytest.mark.parametrize("official", ["1.41", ""], ids=["official", "trellis"])
def test_an_official_node_joins_with_the_entries_of_the_secret(
    make_cluster: Callable[..., Cluster], official: str
) -> None:
    cluster = make_cluster("1.41")
    options = {"official": official, "python": "1.41", "tls": True, "node_auth": True, "outside": 1}
    federation, outside = joinable(cluster, **options)
    node = official_node(cluster, outside, "1.41")
    if official:
        cli = federation.cli("1.41")
        run_id = cluster.inside(lambda: cli.submit(nodes=3, result_path=federation.result_path()))
        federation.wait_completed(cli, run_id)
    else:
        train(federation, 3, node, app=APPS / "numpy_fedavg")
    assert node.alive, node.output()
