"""The chart: copied into a real registry, installed by Helm on a real API server, trained with, upgraded, and nothing is left."""

import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
from dist.conftest import Release
from harness.debian import unpacked
from harness.kube import OPERATOR_IMAGE, TRELLIS_IMAGE, Cluster
from harness.kube_federation import KubeFederation
from harness.kube_run import finish, start_run
from harness.waiting import wait_for
from harness.workspace import Workspace
from provision import CannotBeHad
from provision_kube import provision

pytestmark = pytest.mark.trellis_only

ADDRESS = "127.0.0.1:5000"
CHART = f"{ADDRESS}/charts/trellis-operator"
REGISTRY = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {place}}}}}
http: {{addr: "{address}"}}
"""
SKOPEO = ("skopeo", "golang-github-containers-common", "libassuan0", "libdevmapper1.02.1", "libgpgme11")
NAMESPACE = "trellis-system"
KINDS = "deployments,pods,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets"
CLUSTER_KINDS = "clusterroles,clusterrolebindings,crds"
OURS = "app.kubernetes.io/name=trellis-operator"
LIMIT_S = 120.0
ROUNDS = 2


class Installation:
    """A cluster, a registry in its network, and Helm."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.workspace = cluster.workspace
        self.helm_program = str(provision("helm") / "helm")
        self._start_registry()

    def _start_registry(self) -> None:
        program = unpacked("docker-registry").program("usr/bin/docker-registry")
        config = self.workspace.root / "registry.yml"
        config.write_text(REGISTRY.format(place=self.workspace.root / "registry", address=ADDRESS))
        self.cluster.start("registry", [program, "serve", str(config)])
        wait_for("the registry", lambda: self.cluster.inside(is_serving), LIMIT_S)

    def push(self, release: Release) -> None:
        """As somebody publishes it."""
        found = unpacked(*SKOPEO)
        archive = release.one("trellis-operator-chart-*.oci.tar")
        argv = [found.program("usr/bin/skopeo"), "--insecure-policy", "copy", "--dest-tls-verify=false"]
        self.call([*argv, f"oci-archive:{archive}", f"docker://{CHART}:{release.version}"], found.env)

    def helm(self, verb: str, *words: str) -> str:
        argv = [self.helm_program, verb, "trellis", *words, "--namespace", NAMESPACE, "--kubeconfig", self.cluster.kubeconfig]
        return self.call(argv, self.workspace.env(HOME=str(self.workspace.root)))

    def put(self, verb: str, release: Release, *words: str) -> None:
        """With the chart's own values: the kubelet of the tests knows the image by its name."""
        self.helm(verb, f"oci://{CHART}", "--plain-http", "--version", release.version, "--wait", "--timeout=90s", *words)

    def call(self, argv: list[str], env: dict[str, str]) -> str:
        done = subprocess.run(
            self.cluster.network.command(argv), env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        shown = self.cluster.kubectl("get", "pods,events", "--all-namespaces") if done.returncode else ""
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}\n{shown}\n{self.cluster.logs()}"
        return done.stdout

    def objects(self) -> set[str]:
        named = self.cluster.kubectl("get", KINDS, "--namespace", NAMESPACE, "--selector", OURS, "-o", "name")
        return {*named.split(), *self.cluster.kubectl("get", CLUSTER_KINDS, "--selector", OURS, "-o", "name").split()}


def is_serving() -> bool:
    try:
        with urllib.request.urlopen(f"http://{ADDRESS}/v2/", timeout=1) as answer:
            return answer.status == 200
    except OSError:
        return False


def image(cluster: Cluster) -> str:
    return cluster.kubectl("get", "deployments", "--namespace", NAMESPACE, "-o", "jsonpath={..image}")


@pytest.fixture
def installation(workspace: Workspace) -> Iterator[Installation]:
    try:
        yield Installation(Cluster(workspace, "1.25"))
    except CannotBeHad as why:
        pytest.skip(str(why))


def test_the_chart_lives_and_leaves_nothing(installation: Installation, release: Release, older: Release):
    cluster = installation.cluster
    for each in (older, release):
        installation.push(each)
    installation.put("install", older, "--create-namespace")
    assert image(cluster) == f"{OPERATOR_IMAGE}{older.version}"
    federation = KubeFederation(cluster, image=TRELLIS_IMAGE + "one", shares=False).apply().wait_ready()
    finish(federation, start_run(federation, "native:mlp", ROUNDS), ROUNDS)

    installation.put("upgrade", release)
    assert image(cluster) == f"{OPERATOR_IMAGE}{release.version}"
    federation.wait_ready()
    finish(federation, start_run(federation, "native:mlp", ROUNDS), ROUNDS)

    cluster.kubectl("delete", "federation", federation.name, "--wait")
    installation.helm("uninstall", "--wait")
    assert {name.partition("/")[0] for name in installation.objects()} <= {"customresourcedefinition.apiextensions.k8s.io"}
    # Definitions stay until somebody says so: with them go all federations.
    cluster.kubectl("delete", "crds", "--selector", OURS)
    assert installation.objects() == set()
