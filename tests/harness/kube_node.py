"""A cluster with one real node: the kubelet of Kubernetes and Debian's containerd, so pods are real containers.

`fake-kubelet` provides services, names and volumes, as kube-proxy, name server and provisioner. All of it lives in one network
namespace and ends with the test. Needs root and the cgroups of this machine.
"""

import contextlib
import io
import json
import os
import shutil
import tarfile
from hashlib import sha256
from pathlib import Path

from harness.debian import unpacked
from harness.kube import START_LIMIT_S, TRELLIS_IMAGE, TRELLIS_USER, Cluster, built
from harness.release import Flower
from harness.waiting import wait_for
from harness.workspace import Workspace, libraries, trellis_binary
from provision import CannotBeHad
from provision_kube import provision

PACKAGES = ("containerd", "runc", "containernetworking-plugins", "libseccomp2", "libbtrfs0")
SCRIPT = Path(__file__).with_suffix(".sh")
NODE, NODE_ADDRESS = "node-0", "172.30.0.1"
CLOSE_LIMIT_S = 30.0
TAG = "test"
IMAGE = TRELLIS_IMAGE + TAG
OPERATOR_IMAGE = f"trellis-operator:{TAG}"
PROGRAM = "/usr/local/bin/trellis"
CONTAINERD = """
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:{tag}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{directory}/cni"
"""
BRIDGE = {
    "type": "bridge",
    "bridge": "pods",
    "isGateway": True,
    "hairpinMode": True,
    "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "10.244.0.0/16"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    },
}


class RealCluster(Cluster):
    """One node, `node-0`, with our image."""

    def __init__(self, workspace: Workspace):
        self._packages = unpacked(*PACKAGES)
        self._node = provision("node")
        self._cgroup = f"trellis-{workspace.mark[:12]}"
        super().__init__(workspace)

    def _start_kubelet(self, found: list[Flower], nodes: int) -> None:
        del found, nodes
        self._make_network()
        directory = self.workspace.root / "node"
        self._write_settings(directory)
        flags = ["--nodes", "0", "--name-server", f"{NODE_ADDRESS}:53", "--volumes", str(self.workspace.root / "volumes")]
        serve = [built("fake-kubelet"), "--kubeconfig", self.kubeconfig, *flags]
        self.workspace.start("services", self.network.command(serve)).wait_line("^ready$", START_LIMIT_S)
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private"]
        words = [str(directory), self.kubeconfig, self._cgroup, str(self._packages.root), str(self._node / "kubelet")]
        argv = self.network.command([*apart, "sh", str(SCRIPT), *words])
        env = self._packages.env | {name: value for name, value in self.workspace.env().items() if "PATH" not in name}
        self.workspace.start("node", argv, env)
        wait_for("the node to be ready", self._is_node_ready, START_LIMIT_S)

    def _is_node_ready(self) -> bool:
        conditions = [found for node in self.list("nodes") for found in node["status"].get("conditions", [])]
        return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)

    def _make_network(self) -> None:
        """Adds an address other than loopback, and a default route without a gateway: kubelets require both."""
        self.network.run("ip", "link", "add", "node", "type", "veth", "peer", "name", "nowhere")
        self.network.run("ip", "address", "add", f"{NODE_ADDRESS}/24", "dev", "node")
        self.network.run("ip", "link", "set", "node", "up")
        self.network.run("ip", "link", "set", "nowhere", "up")
        self.network.run("ip", "route", "add", "default", "via", "172.30.0.2", "dev", "node")
        self.network.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")

    def _write_settings(self, directory: Path) -> None:
        (directory / "cni").mkdir(parents=True)
        (directory / "images").mkdir()
        plugins = self._packages.root / "usr" / "lib" / "cni"
        (directory / "containerd.toml").write_text(CONTAINERD.format(tag=TAG, plugins=plugins, directory=directory))
        network = {"cniVersion": "1.0.0", "name": "pods", "plugins": [BRIDGE]}
        (directory / "cni" / "10-pods.conflist").write_text(json.dumps(network))
        # YAML is a superset of JSON.
        (directory / "kubelet.yaml").write_text(json.dumps(self._kubelet(directory)))
        self.resolver = directory / "resolv.conf"
        self.resolver.write_text(f"nameserver {NODE_ADDRESS}\n")
        images = directory / "images"
        save_image(images / "pause.tar", f"pause:{TAG}", {"/pause": self._node / "pause"}, ["/pause"])
        content = {PROGRAM: trellis_binary()} | libraries(trellis_binary())
        # Entrypoints as in deploy/images.
        entrypoints = {IMAGE: [PROGRAM], f"{IMAGE}-next": [PROGRAM], OPERATOR_IMAGE: [PROGRAM, "operator", "run"]}
        for number, (name, entrypoint) in enumerate(entrypoints.items()):
            save_image(images / f"{number}.tar", name, content, entrypoint, str(TRELLIS_USER))

    def _kubelet(self, directory: Path) -> dict:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            # The test machines have cgroup v1.
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            # Tests must not depend on free disk space of the machine.
            "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "1Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "makeIPTablesUtilChains": False,
            "resolvConf": str(directory / "resolv.conf"),
            "clusterDomain": "cluster.local",
            "clusterDNS": [NODE_ADDRESS],
        }

    def close(self) -> None:
        """Removes the cgroups of the kubelet, which is possible when their processes have ended."""
        wait_for("the groups of the node's processes to be empty", self._are_groups_gone, CLOSE_LIMIT_S)

    def _are_groups_gone(self) -> bool:
        places = [controller / self._cgroup for controller in Path("/sys/fs/cgroup").iterdir()]
        for place, _, _ in (found for top in places for found in os.walk(top, topdown=False)):
            with contextlib.suppress(OSError):
                os.rmdir(place)
        return not any(place.exists() for place in places)

    @property
    def names(self) -> tuple[str, str]:
        return str(self.resolver), "/etc/resolv.conf"

    def logs(self) -> str:
        pods = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in self.list("pods", "--all-namespaces")]
        logs = []
        for namespace, pod in pods:
            with contextlib.suppress(AssertionError):
                words = ("logs", "--all-containers", "--tail=15", "--namespace", namespace, pod)
                logs.append(f"--- {namespace}/{pod}\n{self.kubectl(*words)}")
        return "\n".join(logs)

    def log(self, pod: str, container: str, namespace: str = "default") -> str:
        return self.kubectl("logs", pod, "--container", container, "--namespace", namespace)


def save_image(file: Path, name: str, content: dict[str, Path], entrypoint: list[str], user: str = "") -> None:
    """Writes an image FROM scratch in the format of `docker save`."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for parent in sorted({str(above) for path in content for above in Path(path).parents if str(above) != "/"}):
            entry = tarfile.TarInfo(parent.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path, source in content.items():
            _add(tar, path.lstrip("/"), source.read_bytes(), 0o755)
    blob = layer.getvalue()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": entrypoint, "User": user, "Env": ["PATH=/usr/local/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(blob).hexdigest()}"]},
    }
    written = json.dumps(config).encode()
    manifest = [{"Config": "config.json", "RepoTags": [f"docker.io/library/{name}"], "Layers": ["layer.tar"]}]
    with tarfile.open(file, "w") as tar:
        _add(tar, "config.json", written)
        _add(tar, "layer.tar", blob)
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def real_cluster(workspace: Workspace) -> RealCluster:
    if shutil.which("unshare") is None or not Path("/sys/fs/cgroup").is_dir():
        raise CannotBeHad("a kubelet needs namespaces and cgroups")
    return RealCluster(workspace)
