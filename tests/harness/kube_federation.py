"""A Federation resource for tests, and runs on it."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.federation import APPS
from harness.flower_cli import FlwrCli
from harness.journal import RoundJournal
from harness.kube import TRELLIS_PYTHON_IMAGE, Cluster
from harness.release import HTTP, Flower, flower
from harness.waiting import wait_for
from provision import releases

RUN_LIMIT_S = 240.0
PROCESS, SUBPROCESS = "process", "subprocess"
SITE = "lab"
# The app numpy_fedavg.
ARRAY_COUNT, ARRAY_LENGTH = 4, 64


@dataclass(frozen=True)
class Authority:
    ca: Path


@dataclass(frozen=True)
class Trust:
    tls: Authority | None


@dataclass(frozen=True)
class ServiceLink:
    """A SuperLink behind a Service, with the attributes that the `flwr` command needs."""

    grpc: str
    http: str
    options: Trust

    def control_for(self, release: Flower) -> str:
        return self.http if release.cli_transport == HTTP else self.grpc


@dataclass
class KubeFederation:
    """In the default namespace, with a directory of the test mounted in all pods, if allowed."""

    cluster: Cluster
    name: str = "fed"
    replicas: int = 2
    isolation: str = SUBPROCESS
    tls: bool = False
    # The release of the images; without one the images of Trellis, with the Python of the release.
    official: str = ""
    python: str = "1.25"
    # A suffix of the tag; the program is the same.
    tag: str = ""
    # The exact image.
    image: str = ""
    # Pods under a strict profile must not mount host directories.
    shares: bool = True
    # Only nodes with registered keys.
    node_auth: bool = False
    # Nodes of the site `lab`, outside of the cluster, connect through a load balancer.
    outside: int = 0

    def __post_init__(self) -> None:
        self.shared = self.cluster.workspace.root / "shared"
        self.shared.mkdir(exist_ok=True)
        # Shared by several users, as those of pods.
        self.shared.chmod(0o777)
        self.models = self.shared / "models"
        self.models.mkdir(exist_ok=True)
        self.models.chmod(0o777)

    def resource(self) -> dict:
        volume = {"name": "shared", "hostPath": {"path": str(self.shared)}}
        mounts = {"volumes": [volume], "volumeMounts": [{"name": "shared", "mountPath": str(self.shared)}]}
        mounts = mounts if self.shares else {}
        config = {"partition-id": "{index}", "num-partitions": "{replicas}"}
        pool = {"name": "a", "replicas": self.replicas, "images": {}, "nodeConfig": config, **mounts}
        superlink = {"image": self.image_of("superlink"), **mounts}
        if self.official and flower(self.official).superlink_installs_packages:
            superlink["extraArgs"] = ["--disable-runtime-dependency-installation"]
        elif not self.official and self.shares:
            superlink["extraArgs"] = [f"--models-dir={self.models}"]
            if not self.image:
                # Sandboxed ServerApps write their results there.
                superlink["extraArgs"] += ["--app-data", f"{self.shared}:rw"]
        if self.isolation == PROCESS:
            superlink["superexecImage"] = pool["images"]["superexecClientApp"] = self.image_of("superexec")
        supernodes = {"image": self.image_of("supernode"), "pools": [pool]}
        spec = {"mode": "StatefulSet", "isolationMode": self.isolation, "insecure": not self.tls}
        if self.node_auth:
            spec["security"] = {"nodeAuth": True}
        if self.outside:
            superlink["service"] = {"type": "LoadBalancer"}
            spec["sites"] = [{"name": SITE, "nodes": self.outside}]
        return {
            "apiVersion": "flwr.exalsius.ai/v1",
            "kind": "Federation",
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": {**spec, "superlink": superlink, "supernodes": supernodes},
        }

    def image_of(self, program: str) -> str:
        if self.image:
            return self.image
        if self.official:
            return f"flwr/{program}:{releases()[self.official].flwr}"
        return f"{TRELLIS_PYTHON_IMAGE}{self.python}{self.tag}"

    def apply(self) -> "KubeFederation":
        self.cluster.apply(self.resource())
        return self

    def wait_ready(self) -> "KubeFederation":
        self.cluster.wait_ready(self.name)
        return self

    def cli(self, version: str) -> FlwrCli:
        """The `flwr` of a release, with its own app. Call it inside the cluster."""
        control, http = (self.cluster.service_address(self.name, port) for port in ("control", "http"))
        link = ServiceLink(control, http, Trust(Authority(self.authority()) if self.tls else None))
        workspace = self.cluster.workspace
        app = workspace.copy_app(APPS / "numpy_fedavg", f"numpy_fedavg-{version}")
        return FlwrCli(workspace, app, link, version=version)

    def authority(self) -> Path:
        """The trust bundle for programs outside of pods, as a file."""
        file = self.cluster.workspace.root / "ca.crt"
        file.write_bytes(self.cluster.secret(f"{self.name}-trust", "ca.crt"))
        return file

    def wait_completed(self, cli: FlwrCli, run_id: int, limit_s: float = RUN_LIMIT_S) -> None:
        def look() -> str | None:
            status = self.cluster.inside(cli.runs).get(run_id, "")
            return status if status.startswith("finished") else None

        status = wait_for(f"run {run_id} to finish", look, limit_s)
        assert status == "finished:completed", f"{status}\n{self.cluster.diagnostics()}"

    def first_model(self) -> Path:
        """The initial model of numpy_fedavg, where the SuperLink's pod can read it."""
        model = self.models / "first.npz"
        np.savez(model, **{str(index): np.zeros(ARRAY_LENGTH, np.float32) for index in range(ARRAY_COUNT)})
        # Paths of a run are relative to the directory of models.
        return Path(model.name)

    def result_path(self, name: str = "result") -> Path:
        return self.shared / f"{name}.json"

    def result(self, path: Path) -> dict:
        """The result that a ServerApp wrote."""
        return json.loads(path.read_text())

    def journal(self, name: str = "result") -> RoundJournal:
        return RoundJournal(self.result_path(name).with_suffix(".journal"))
