"""Our container images, built by deploy/images with buildah or podman, and containers as strict as the pods of our operator."""

import io
import json
import os
import subprocess
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from harness.machine import tree
from harness.podman import Podman
from harness.ports import free_port
from harness.trellis_run import RUN_LIMIT_S
from harness.waiting import wait_for
from harness.workspace import REPOSITORY, Workspace, trellis_binary
from provision import CannotBeHad

FILES = REPOSITORY / "deploy" / "images"
BUILD = FILES / "build.sh"
BUILD_LIMIT_S = 300.0
START_LIMIT_S = 30.0
# The configuration of the machine for package indexes, which no image must contain.
OF_THE_MACHINE = ("/etc/pip.conf", "/etc/ssl/certs")
UNWANTED = ("./proc/*", "./sys/*", "./dev/*", "./var/cache/*", "./var/lib/apt/lists/*")
# The restricted profile of Kubernetes with a read-only root.
RESTRICTED = (
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--user=65532:65532",
)


@dataclass(frozen=True)
class Images:
    podman: Podman
    tag: str

    def name(self, role: str) -> str:
        return f"localhost/trellis-{role}:{self.tag}"

    def run(self, role: str, *arguments: str, flags: tuple[str, ...] = ("--rm", "--network=none")) -> str:
        return self.podman.run("run", *RESTRICTED, *flags, self.name(role), *arguments)

    def start(self, role: str, called: str, *arguments: str, flags: tuple[str, ...] = ()) -> None:
        """Starts a container in the background, on this machine's loopback."""
        self.run(role, *arguments, flags=("--detach", "--network=host", f"--name={called}", *flags))

    def digest(self, role: str) -> str:
        return self.podman.run("image", "inspect", "--format", "{{.Digest}}", self.name(role)).strip()

    def contents(self, role: str) -> dict[str, tarfile.TarInfo]:
        """What is in an image, by its names."""
        saved = self.podman.state / f"{role}.tar"
        self.podman.run("save", "--format", "oci-archive", "--output", str(saved), self.name(role))
        found: dict[str, tarfile.TarInfo] = {}
        with tarfile.open(saved) as archive:

            def blob(entry: dict) -> bytes:
                return archive.extractfile("blobs/" + entry["digest"].replace(":", "/")).read()

            index = json.loads(archive.extractfile("index.json").read())
            for layer in json.loads(blob(index["manifests"][0]))["layers"]:
                with tarfile.open(fileobj=io.BytesIO(blob(layer)), mode="r:*") as files:
                    found |= {member.name.strip("/"): member for member in files.getmembers()}
        return found


def is_static(binary: Path) -> bool:
    ldd = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False)
    return "statically linked" in ldd.stdout or "not a dynamic executable" in ldd.stderr


def build(podman: Podman, binary: Path, *roles: str, tag: str = "test", builder: str = "podman") -> Images:
    """Images of a static program; raises CannotBeHad."""
    if not is_static(binary):
        raise CannotBeHad(f"{binary} is not static (make release): our images contain nothing else")
    env = os.environ | {"PATH": podman.path, "BUILDER": builder, "TRELLIS_BIN": str(binary), "TAG": tag}
    env.pop("REPOSITORY", None)
    done = subprocess.run(
        [str(BUILD), *roles], capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False, env=env
    )
    assert done.returncode == 0, f"build.sh exited with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return Images(podman, tag)


def import_debian(podman: Podman, kind: str, packages: tuple[str, ...]) -> str:
    """Imports a Debian with these packages as an image; returns its name, which no registry has."""
    name = f"localhost/debian-{kind}:test"
    argv = ["tar", "--create", *(f"--exclude={path}" for path in UNWANTED), f"--directory={tree(kind, packages)}", "."]
    packed = subprocess.run(argv, capture_output=True, timeout=BUILD_LIMIT_S, check=True).stdout
    podman.run("import", "-", name, given=packed)
    return name


def build_from(podman: Podman, file: str, image: str, context: Path, **arguments: str) -> None:
    """Builds our Dockerfile with buildah, using the network configuration of the machine."""
    given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    seen = [word for path in OF_THE_MACHINE if Path(path).exists() for word in ("--volume", f"{path}:{path}:ro")]
    words = ("--file", str(FILES / file), "--format", "oci", "--layers=false", "--network=host", *seen, *given)
    podman.buildah("build", *words, "--tag", image, str(context), limit_s=BUILD_LIMIT_S)


def is_healthy(port: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
            return answer.status == 200
    except OSError:
        return False


class ContainerFederation:
    """A SuperLink and nodes, each in a container that may do nothing."""

    def __init__(self, images: Images, workspace: Workspace, nodes: int, flags: tuple[str, ...] = ()):
        """`flags` are of the SuperLink's container."""
        self.images, self.workspace, self.nodes = images, workspace, nodes
        self.shared = workspace.root / "shared"
        self.shared.mkdir(exist_ok=True)
        # The models of the SuperLink, who is another user in its container.
        self.shared.chmod(0o777)
        self.http, fleet, control, inner = (str(free_port()) for _ in range(4))
        images.start(
            "superlink",
            "superlink",
            "--insecure",
            *("--port", self.http, "--fleet-api-address", f"127.0.0.1:{fleet}"),
            *("--control-api-address", f"127.0.0.1:{control}", "--serverappio-api-address", f"127.0.0.1:{inner}"),
            *("--models-dir", str(self.shared)),
            flags=(f"--volume={self.shared}:{self.shared}", *flags),
        )

    def start_nodes(self, role: str, flags: tuple[str, ...] = ()) -> None:
        """In flags, {number} is that of the node."""
        for number in range(self.nodes):
            config = f"partition-id={number} num-partitions={self.nodes}"
            words = ("--insecure", "--superlink", f"127.0.0.1:{self.http}", "--node-config", config)
            self.images.start(role, f"node-{number}", *words, flags=tuple(flag.format(number=number) for flag in flags))

    def train(self, app: str, rounds: int, **settings: object) -> None:
        argv = [str(trellis_binary()), "run", app, "-o", "json", "--rounds", str(rounds)]
        argv += ["--superlink", f"127.0.0.1:{self.http}", "--insecure"]
        argv += [word for name, value in settings.items() for word in ("--set", f"{name.replace('_', '-')}={value}")]
        wait_for("the SuperLink to answer", lambda: is_healthy(self.http), START_LIMIT_S)
        training = self.workspace.start("run", argv)
        code = training.wait_exit(RUN_LIMIT_S)
        podman = self.images.podman
        told = "\n".join(podman.run("logs", each) for each in podman.containers())
        assert code == 0, f"{training.output()}\n{told}"
        ended = [json.loads(line) for line in training.output().splitlines() if line.startswith("{")][-1]
        assert ended["status"] == "completed"
