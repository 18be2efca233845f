"""A Kubernetes cluster for one test: a real control plane, the operator, and a kubelet whose pods are processes.

All of it lives in one network namespace, pods in further ones (crates/testing/fake-kubelet). Images are programs of
this machine: official Flower releases from the test cache, and the built Trellis. Needs root.
"""

import base64
import ctypes
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from harness.namespace import Namespace
from harness.process import Process
from harness.release import Flower, flower
from harness.waiting import NotInTime, wait_for
from harness.workspace import REPOSITORY, Workspace, trellis_binary
from provision import CannotBeHad, releases
from provision_kube import provision

# Kernel constants for a mount namespace.
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x00020000, 0x1000, 0x4000, 0x40000
# The programs of official images, and of ours.
FLOWER_USER, TRELLIS_USER = 49999, 65532
FLOWER_PROGRAMS = ("superlink", "supernode", "superexec")
# The content is the same for all tags, but Kubernetes treats another tag as another image.
TRELLIS_IMAGE = "trellis:"
TRELLIS_PYTHON_IMAGE = "trellis-python:"
OPERATOR_IMAGE = "trellis-operator:"
# Only the system of this machine.
SYSTEM_IMAGE = "system"
FEDERATIONS = "federations.flwr.exalsius.ai"
START_LIMIT_S = 90.0
COMMAND_LIMIT_S = 60.0
READY_LIMIT_S = 120.0
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

T = TypeVar("T")


def built(name: str) -> str:
    """A program of the test crates, in the debug build."""
    place = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "debug" / name
    if not place.exists():
        raise CannotBeHad(f"{place} is missing: cargo build -p trellis-fake-kubelet -p trellis-testing")
    return str(place)


class Cluster:
    """A cluster, and its `kubectl`."""

    def __init__(self, workspace: Workspace, *versions: str, nodes: int = 2, controllers: tuple[str, ...] = ()):
        """Has pods of these releases; `controllers` are flags of kube-controller-manager."""
        if os.geteuid() != 0:
            raise CannotBeHad("pods with their own networks need root")
        self.workspace = workspace
        self.network = Namespace(workspace, "cluster")
        self._programs = provision()
        self.kubeconfig = self._start_control_plane(controllers)
        self.pods = workspace.root / "pods"
        self._operators = 0
        self._start_kubelet([flower(version) for version in versions], nodes)
        # Pods cannot be created before the default service account exists.
        wait_for("an account for pods", lambda: self.list("serviceaccounts") or None, START_LIMIT_S)

    def _start_control_plane(self, controllers: tuple[str, ...]) -> str:
        # Its directory is removed with that of the test, in any order of shutdown.
        env = self.workspace.env(KUBEBUILDER_ASSETS=str(self._programs), TMPDIR=str(self.workspace.root))
        argv = self.network.command([built("kube-control-plane"), *controllers])
        started = self.workspace.start("control-plane", argv, env).wait_line(r"^(/.*kubeconfig)$", START_LIMIT_S)
        return started[1]

    def _start_kubelet(self, found: list[Flower], nodes: int) -> None:
        images = self.workspace.root / "images.json"
        images.write_text(json.dumps({"images": images_of(found)}))
        argv = [built("fake-kubelet"), "--kubeconfig", self.kubeconfig, "--nodes", str(nodes)]
        argv += ["--processes", str(self.pods), "--images", str(images)]
        self.workspace.start("kubelet", self.network.command(argv)).wait_line("^ready$", START_LIMIT_S)

    def start_operator(self, *flags: str) -> Process:
        """Starts the operator as a process that is not in a pod, but resolves the names of services."""
        self._operators += 1
        # Federations of tests mount a host directory in their pods.
        flags = ("--allow-privileged-pods", *flags)
        argv = [str(trellis_binary()), "operator", "run", "--kubeconfig", self.kubeconfig, *flags]
        return self.start(f"operator-{self._operators}", argv)

    def start(self, name: str, argv: list[str], env: dict[str, str] | None = None) -> Process:
        """Starts a program in the cluster's network, with the names of services."""
        source, place = self.names
        see = f"mount --bind {source} {place} && exec \"$@\""
        inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", see, "sh", *argv]
        return self.workspace.start(name, self.network.command(inside), env)

    @property
    def names(self) -> tuple[str, str]:
        """A hosts file with the names of services, and the file that it replaces."""
        return f"{self.pods}/hosts", "/etc/hosts"

    def inside(self, call: Callable[[], T]) -> T:
        """Runs a function with sockets and commands in the cluster's network and with the names of services."""

        def with_names() -> T:
            see_instead(*self.names)
            return call()

        return self.network.inside(with_names)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            self.network.command([*self.kubectl_command(), *words]),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
            env=self.workspace.env(HOME=str(self.workspace.root)),
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def kubectl_command(self) -> list[str]:
        return [str(self._programs / "kubectl"), "--kubeconfig", self.kubeconfig]

    def apply(self, *objects: dict) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", stdin="\n---\n".join(json.dumps(item) for item in objects))

    def install(self) -> None:
        """Installs the prerequisites of the operator."""
        crd = subprocess.run([str(trellis_binary()), "operator", "crd"], capture_output=True, text=True, check=True)
        self.kubectl("apply", "--server-side", "-f", "-", stdin=crd.stdout)
        wait_for("the resource to be served", self._is_served, COMMAND_LIMIT_S)

    def _is_served(self) -> bool:
        conditions = self.get("crd", FEDERATIONS).get("status", {}).get("conditions") or []
        return any(found["type"] == "Established" and found["status"] == "True" for found in conditions)

    def get(self, kind: str, name: str) -> dict:
        return json.loads(self.kubectl("get", kind, name, "-o", "json"))

    def list(self, kind: str, *selection: str) -> list[dict]:
        return json.loads(self.kubectl("get", kind, *selection, "-o", "json"))["items"]

    def wait_ready(self, federation: str, limit_s: float = READY_LIMIT_S) -> dict:
        """Returns the resource when its current generation is ready."""

        def look() -> dict | None:
            found = self.get("federation", federation)
            return found if is_ready(found) else None

        try:
            return wait_for(f"federation {federation} to be ready", look, limit_s)
        except NotInTime as late:
            raise NotInTime(f"{late}\n{self.diagnostics()}") from None

    def diagnostics(self) -> str:
        """Resources, pods, events and logs, for the message of a failure."""
        shown = self.kubectl("get", "federations,pods,events", "-o", "wide")
        federations = self.kubectl("get", "federations", "-o", "jsonpath={.items[*].status}")
        return "\n".join([shown, federations, self.logs()])

    def logs(self) -> str:
        return "\n".join(_tail(log) for log in sorted(self.pods.glob("logs/*/*.log")))

    def service_address(self, federation: str, port: str) -> str:
        """Name and port of the SuperLink; empty if its release has no such port."""
        name = f"{federation}-superlink"
        ports = {found["name"]: found["port"] for found in self.get("service", name)["spec"]["ports"]}
        return f"{name}.default.svc:{ports[port]}" if port in ports else ""

    def secret(self, name: str, key: str) -> bytes:
        return base64.b64decode(self.get("secret", name)["data"][key])

    def log(self, pod: str, container: str, namespace: str = "default") -> str:
        return (self.pods / "logs" / f"{namespace}_{pod}" / f"{container}.log").read_text(errors="replace")


def see_instead(source: str, place: str) -> None:
    """Bind-mounts for the calling thread and its child processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    steps = [
        lambda: libc.unshare(CLONE_NEWNS),
        lambda: libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None),
        lambda: libc.mount(source.encode(), place.encode(), None, MS_BIND, None),
    ]
    for step in steps:
        if step() != 0:
            raise OSError(ctypes.get_errno(), f"{source} cannot be mounted at {place}")


def is_ready(federation: dict) -> bool:
    """Whether the current generation is ready and nothing is progressing."""
    status = federation.get("status", {})
    conditions = {found["type"]: found["status"] for found in status.get("conditions", [])}
    is_current = status.get("observedGeneration") == federation["metadata"]["generation"]
    return is_current and conditions.get("Ready") == "True" and conditions.get("Reconciling") == "False"


def images_of(found: list[Flower]) -> list[dict]:
    """The official images of each release, by the programs that are their entrypoints, and ours."""
    images = [_official(release, program) for release in found for program in FLOWER_PROGRAMS]
    binary = {"/usr/local/bin/trellis": str(trellis_binary())}
    ours = {"entrypoint": ["trellis"], "user": TRELLIS_USER, "directory": "/"}
    images.append(ours | {"name": f"{TRELLIS_IMAGE}*", "content": binary})
    images.append(ours | {"name": f"{OPERATOR_IMAGE}*", "entrypoint": ["trellis", "operator", "run"], "content": binary})
    images.append({"name": SYSTEM_IMAGE, "entrypoint": []})
    for release in found:
        name = f"{TRELLIS_PYTHON_IMAGE}{release.version}*"
        images.append(ours | {"name": name, "content": binary | _python(release), "env": _env(release)})
    return images


def _official(release: Flower, program: str) -> dict:
    return {
        "name": f"flwr/{program}:{releases()[release.version].flwr}*",
        "entrypoint": [f"flower-{program}"],
        "content": _python(release),
        "env": _env(release),
        "user": FLOWER_USER,
        "user_is_a_name": True,
        "directory": "/app",
    }


def _env(release: Flower) -> dict[str, str]:
    path = f"{release.bin}:{SYSTEM_PATH}"
    return {"PATH": path, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "PYTHONUNBUFFERED": "1"}


def _python(release: Flower) -> dict[str, str]:
    """The environment of the release, with the Python that it was created from."""
    settings = (release.bin.parent / "pyvenv.cfg").read_text().splitlines()
    home = next(line.partition("=")[2].strip() for line in settings if line.startswith("home"))
    places = [str(release.bin.parent), str(Path(home).parent)]
    return {place: place for place in places if place != "/usr"}


def _tail(log: Path, lines: int = 15) -> str:
    kept = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"--- {log.parent.name}/{log.name}", *kept])
