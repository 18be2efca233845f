"""Our container images, built by deploy/images with buildah or podman, and containers as strict as the pods of our operator."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.machine import tree
from harness.podman import Podman
from harness.workspace import REPOSITORY
from provision import CannotBeHad

FILES = REPOSITORY / "deploy" / "images"
BUILD = FILES / "build.sh"
BUILD_LIMIT_S = 300.0
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
