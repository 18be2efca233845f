"""A HorizontalPodAutoscaler of Kubernetes scales a federation by what is trained.

All of the way is real: the operator's numbers, Debian's Prometheus, the Prometheus adapter behind the API server, and
the controller of Kubernetes with its own permissions. What users write is taken out of docs/kubernetes/scaling.md.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.federation import APPS
from harness.kube import Cluster
from harness.kube_federation import KubeFederation
from harness.kube_run import finish, start_run
from harness.ports import free_port
from harness.process import Process
from harness.prometheus import prometheus_bin
from harness.waiting import NotInTime, wait_for
from harness.workspace import REPOSITORY
from provision import CannotBeHad
from provision_kube import provision

pytestmark = pytest.mark.trellis_only

DOCUMENT = REPOSITORY / "docs" / "kubernetes" / "scaling.md"
NAME = "demo"
# The controller as a cluster runs it, with an account for each of its parts, but in a hurry.
CONTROLLERS = ("--use-service-account-credentials=true", "--horizontal-pod-autoscaler-sync-period=2s")
AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
# Endpoints may not be on loopback.
ADAPTER_ADDRESS = "172.30.1.1"
ADAPTER_NAMESPACE, ADAPTER = "monitoring", "adapter"
METRICS = {"federation_nodes_wanted", "federation_round_seconds"}
LEAST, WANTED, MOST = 2, 3, 5
ROUNDS, TRAIN_SECONDS = 60, 1.0
START_LIMIT_S = 60.0
# The operator asks every 15 s, and pods take their time to come and to go.
SCALE_LIMIT_S = 150.0


def block(beginning: str, **changes: str) -> str:
    """The YAML of the document that begins so, with other words here and there."""
    found = re.findall(r"^```yaml\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    (told,) = [text for text in found if text.startswith(beginning)]
    for old, new in changes.items():
        assert told.count(old) == 1, f"{old} is not once in\n{told}"
        told = told.replace(old, new)
    return told


def start_prometheus(cluster: Cluster, operator: str) -> str:
    """Its address."""
    root, address = cluster.workspace.root, f"127.0.0.1:{free_port()}"
    scraped = block("scrape_configs:", **{"trellis-operator-metrics.trellis-system:8080": operator})
    config = root / "prometheus.yml"
    config.write_text(f"global: {{scrape_interval: 1s}}\n{scraped}")
    argv = [str(prometheus_bin() / "prometheus"), f"--config.file={config}"]
    argv += [f"--storage.tsdb.path={root / 'prometheus'}", f"--web.listen-address={address}"]
    cluster.start("prometheus", argv).wait_line("ready to receive web requests", START_LIMIT_S)
    return address


def start_adapter(cluster: Cluster, program: Path, prometheus: str) -> Process:
    """With the permissions that its own manifests give it, and a Service of which it is the only endpoint."""
    root, port = cluster.workspace.root, free_port()
    cluster.network.run("ip", "address", "add", f"{ADAPTER_ADDRESS}/32", "dev", "lo")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ADAPTER_NAMESPACE}})
    cluster.apply(*permissions())
    kubeconfig, config = root / "adapter.kubeconfig", root / "adapter.yaml"
    kubeconfig.write_text(json.dumps(as_account(cluster)))
    config.write_text(block("rules:"))
    account = [f"--{of}-kubeconfig={kubeconfig}" for of in ("lister", "authentication", "authorization")]
    served = [f"--bind-address={ADAPTER_ADDRESS}", f"--secure-port={port}", f"--cert-dir={root / 'adapter'}"]
    hurried = ["--metrics-relist-interval=2s", "--metrics-max-age=10s"]
    argv = [str(program), *account, *served, *hurried, f"--config={config}", f"--prometheus-url=http://{prometheus}"]
    adapter = cluster.start(ADAPTER, argv)
    cluster.apply(*service(port))
    return adapter


def as_account(cluster: Cluster) -> dict:
    told = json.loads(Path(cluster.kubeconfig).read_text())
    token = cluster.kubectl("create", "token", ADAPTER, "--namespace", ADAPTER_NAMESPACE, "--duration=1h").strip()
    for user in told["users"]:
        user["user"] = {"token": token}
    return told


def permissions() -> list[dict]:
    account = {"kind": "ServiceAccount", "name": ADAPTER, "namespace": ADAPTER_NAMESPACE}
    reader = {"kind": "Role", "name": "extension-apiserver-authentication-reader"}
    every_metric = [{"apiGroups": ["custom.metrics.k8s.io"], "resources": ["*"], "verbs": ["*"]}]
    authorization = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _named(ADAPTER, ADAPTER_NAMESPACE)},
        authorization | _bound("RoleBinding", _named(ADAPTER, "kube-system"), reader, account),
        authorization | _bound("ClusterRoleBinding", _named(ADAPTER), _role("system:auth-delegator"), account),
        authorization | {"kind": "ClusterRole", "metadata": _named("metrics"), "rules": every_metric},
        authorization | _bound("ClusterRoleBinding", _named("metrics"), _role("metrics"), _user(AUTOSCALER)),
    ]


def _named(name: str, namespace: str = "") -> dict:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def _bound(kind: str, metadata: dict, role: dict, subject: dict) -> dict:
    role = {"apiGroup": "rbac.authorization.k8s.io", **role}
    return {"kind": kind, "metadata": metadata, "roleRef": role, "subjects": [subject]}


def _role(name: str) -> dict:
    return {"kind": "ClusterRole", "name": name}


def _user(name: str) -> dict:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def service(port: int) -> list[dict]:
    ports = [{"name": "https", "port": 443, "targetPort": port}]
    slice_ports = [{"name": "https", "port": port}]
    labels = {"kubernetes.io/service-name": ADAPTER}
    metadata = _named(ADAPTER, ADAPTER_NAMESPACE)
    endpoints = [{"addresses": [ADAPTER_ADDRESS], "conditions": {"ready": True}}]
    behind = {"service": metadata, "group": "custom.metrics.k8s.io", "insecureSkipTLSVerify": True}
    priorities = {"groupPriorityMinimum": 100, "versionPriority": 100}
    versions = ("v1beta1", "v1beta2")
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata | {"labels": labels},
            "addressType": "IPv4",
            "ports": slice_ports,
            "endpoints": endpoints,
        },
        *(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": _named(f"{version}.custom.metrics.k8s.io"),
                "spec": {**behind, **priorities, "version": version},
            }
            for version in versions
        ),
    ]


class Scaled:
    """A federation, and the autoscaler that is about it."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.federation = KubeFederation(cluster, name=NAME, replicas=LEAST)

    def apply(self) -> None:
        resource = self.federation.resource()
        resource["spec"]["scaling"] = {"replicas": LEAST}
        # The same for all sizes of the pool: a node is not started anew because another one came.
        (pool,) = resource["spec"]["supernodes"]["pools"]
        pool["nodeConfig"] = {"partition-id": "{index}", "num-partitions": str(MOST)}
        self.cluster.apply(resource)
        self.federation.wait_ready()
        hurried = {'value: "120"': 'value: "500m"', "Seconds: 600": "Seconds: 5"}
        autoscaler = block("apiVersion: autoscaling/v2", **hurried, **{"maxReplicas: 10": f"maxReplicas: {MOST}"})
        self.cluster.kubectl("apply", "-f", "-", stdin=autoscaler)

    def start_run(self) -> Process:
        told = {"initial_model": self.federation.first_model(), "train_seconds": TRAIN_SECONDS, "min_available_nodes": WANTED}
        return start_run(self.federation, APPS / "numpy_fedavg", ROUNDS, **told)

    def wait_size(self, size: int, during: Process | None = None) -> None:
        """What the resource says, what the pool is told, and the pods that are there."""

        def look() -> bool:
            assert during is None or during.alive, f"the run ended before\n{during.output()}"
            return self.sizes() == (size, size, size)

        self._wait(f"{size} nodes", look)

    def wait_numbers(self) -> None:
        """Of all metrics: without one of them the autoscaler would not take nodes away."""

        def look() -> bool:
            status = self.cluster.get("hpa", NAME).get("status", {})
            told = {found["type"]: found["status"] for found in status.get("conditions", [])}
            seen = [found["object"] for found in status.get("currentMetrics") or [] if "object" in found]
            return told.get("ScalingActive") == "True" and {found["metric"]["name"] for found in seen} == METRICS

        self._wait("the autoscaler to have numbers", look)

    def _wait(self, what: str, look: Callable[[], bool]) -> None:
        try:
            wait_for(what, look, SCALE_LIMIT_S)
        except NotInTime as late:
            raise NotInTime(f"{late}, there are {self.sizes()}\n{self.told()}") from None

    def sizes(self) -> tuple[int, int, int]:
        resource = self.cluster.get("federation", NAME)
        pool = self.cluster.get("statefulset", f"{NAME}-supernode-a")
        # As the autoscaler counts them, with those that are on their way out.
        pods = self.cluster.list("pods", "--selector", resource["status"].get("selector", "none"))
        return resource["spec"]["scaling"]["replicas"], pool["spec"]["replicas"], len(pods)

    def told(self) -> str:
        served = self.cluster.kubectl("get", "apiservices")
        return "\n".join([self.cluster.kubectl("describe", "hpa", NAME), served, self.cluster.diagnostics()])


def test_an_autoscaler_follows_what_is_trained(make_cluster: Callable[..., Cluster]) -> None:
    try:
        program = provision("adapter") / "adapter"
        prometheus_bin()
    except CannotBeHad as why:
        pytest.skip(str(why))
    cluster = make_cluster("1.25", operator=False, controllers=CONTROLLERS)
    cluster.install()
    metrics = f"127.0.0.1:{free_port()}"
    cluster.start_operator("--metrics-address", metrics)
    start_adapter(cluster, program, start_prometheus(cluster, metrics))
    scaled = Scaled(cluster)
    scaled.apply()
    # No run is at work, which is known: the autoscaler has a number to go by.
    scaled.wait_numbers()
    assert scaled.sizes() == (LEAST, LEAST, LEAST)

    run = scaled.start_run()
    # It waits for more nodes than there are; and then its rounds take too long.
    scaled.wait_size(MOST, during=run)
    history = [event["message"] for event in cluster.list("events") if event["reason"] == "SuccessfulRescale"]
    assert any(f"New size: {WANTED}" in told and "federation_nodes_wanted" in told for told in history), history
    assert any(f"New size: {MOST}" in told and "federation_round_seconds" in told for told in history), history
    finish(scaled.federation, run, ROUNDS)

    scaled.wait_size(LEAST)
