"""The kubelet of these tests itself: a pod is what its specification says, as far as a program in it can tell."""

import base64
from collections.abc import Callable

import pytest

from harness.kube import SYSTEM_IMAGE, Cluster
from harness.waiting import wait_for

LIMIT_S = 60.0
LOOKS_AROUND = """
trap 'echo bye; exit 0' TERM
echo "user $(id -u) groups $(id -G) host $(hostname) address $ADDRESS index $INDEX argument $0"
cat /settings/level /keys/key /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo
touch /data/here && echo "a volume can be written"
touch /here 2> /dev/null || echo "the root cannot"
ls /root /home | grep -v : | grep -q . || echo "nothing of the machine is there"
while ! grep -q second /settings/level; do sleep 0.1; done
echo "settings changed"
touch /data/ready
while true; do sleep 0.1; done
"""
SERVES = """
import http.server, socketserver
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"hello")
socketserver.TCPServer(("", 8080), Answers).serve_forever()
"""
ASKS = "import urllib.request; print(urllib.request.urlopen('http://greeter.default.svc:80/').read().decode())"


def pod(name: str, *containers: dict, **spec: object) -> dict:
    metadata = {"name": name, "namespace": "default", "labels": {"app": name, "apps.kubernetes.io/pod-index": "7"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": list(containers), **spec}}


def settings(level: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "default"},
        "data": {"level": level},
    }


def wait_status(cluster: Cluster, name: str, what: str, holds: Callable[[dict], bool]) -> None:
    def look() -> bool:
        return holds(cluster.get("pod", name)["status"].get("containerStatuses", [{}])[0])

    wait_for(f"pod {name}: {what}", look, LIMIT_S)


@pytest.mark.quick
def test_a_pod_is_what_its_specification_says(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=1, operator=False)
    key = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"}}
    cluster.apply(settings("first\n"), key | {"data": {"key": base64.b64encode(b"secret\n").decode()}})
    env = [
        {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    mounts = [
        {"name": "settings", "mountPath": "/settings"},
        {"name": "keys", "mountPath": "/keys"},
        {"name": "data", "mountPath": "/data"},
    ]
    looks = {
        "name": "looks",
        "image": SYSTEM_IMAGE,
        "command": ["sh", "-c", LOOKS_AROUND, "$(INDEX)"],
        "env": env,
        "volumeMounts": mounts,
        "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
        "readinessProbe": {"exec": {"command": ["test", "-e", "/data/ready"]}, "periodSeconds": 1},
    }
    security = {"runAsUser": 1234, "runAsGroup": 1235, "fsGroup": 1236, "runAsNonRoot": True}
    volumes = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
        {"name": "data", "emptyDir": {}},
    ]
    cluster.apply(pod("looks", looks, volumes=volumes, securityContext=security))
    wait_status(cluster, "looks", "runs", lambda told: "running" in told.get("state", {}))
    wait_for("it to have looked around", lambda: "of the machine" in cluster.log("looks", "looks"), LIMIT_S)
    assert not cluster.get("pod", "looks")["status"]["containerStatuses"][0]["ready"]
    cluster.apply(settings("second\n"))
    wait_status(cluster, "looks", "is ready", lambda told: told["ready"])
    address = cluster.get("pod", "looks")["status"]["podIP"]
    cluster.kubectl("delete", "pod", "looks")
    assert cluster.log("looks", "looks").splitlines() == [
        f"user 1234 groups 1235 1236 host looks address {address} index 7 argument 7",
        "first",
        "secret",
        "default",
        "a volume can be written",
        "the root cannot",
        "nothing of the machine is there",
        "settings changed",
        "bye",
    ]


def test_services_have_names_and_addresses_and_containers_that_end_or_hang_are_started_anew(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(nodes=1, operator=False)
    probe = {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 1}
    ports = [{"name": "web", "containerPort": 8080}]
    greets = {"name": "greets", "image": SYSTEM_IMAGE, "command": ["python3", "-c", SERVES], "ports": ports}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "greeter", "namespace": "default"}}
    behind = {"selector": {"app": "greets"}, "ports": [{"port": 80, "targetPort": "web"}]}
    asks = {"name": "asks", "image": SYSTEM_IMAGE, "command": ["python3", "-c", ASKS]}
    hangs = {"name": "hangs", "image": SYSTEM_IMAGE, "command": ["sleep", "infinity"]}
    dead = {"tcpSocket": {"port": 81}, "periodSeconds": 1, "failureThreshold": 2}
    cluster.apply(
        service | {"spec": behind},
        pod("greets", greets | {"readinessProbe": probe}),
        # It fails until there is somebody to ask, and is tried again.
        pod("asks", asks, restartPolicy="OnFailure"),
        pod("hangs", hangs | {"livenessProbe": dead}, terminationGracePeriodSeconds=1),
        pod("absent", {"name": "absent", "image": "no-such-image"}),
    )
    wait_status(cluster, "asks", "has an answer", lambda told: told["state"].get("terminated", {}).get("exitCode") == 0)
    assert cluster.get("pod", "asks")["status"]["phase"] == "Succeeded"
    assert cluster.log("asks", "asks").splitlines()[-1] == "hello"
    wait_status(cluster, "hangs", "was started anew", lambda told: told["restartCount"] >= 1)
    wait_status(cluster, "absent", "waits", lambda told: told["state"]["waiting"]["reason"] == "ErrImagePull")
