"""podman and buildah from Debian packages, unpacked into the cache, with all state in one directory; and an image of
our program. Nothing is installed on the machine, and there is no registry: the image contains the binary and its
libraries.
"""

import io
import os
import shlex
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from harness.debian import Unpacked, unpacked
from harness.workspace import libraries
from provision import CannotBeHad

COMMAND_LIMIT_S = 300.0
ENGINE = ("runc", "golang-github-containers-common", "libassuan0", "libdevmapper1.02.1", "libgpgme11", "libseccomp2")
PACKAGES = ("podman", "conmon", *ENGINE, "libsubid4", "libyajl2")
BUILDAH = ("buildah", *ENGINE)
# crun fails with the cgroups of some machines, and limits must not exceed those of the user of the tests.
CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
seccomp_profile = "{root}/usr/share/containers/seccomp.json"
[engine]
cgroup_manager = "cgroupfs"
conmon_path = ["{root}/usr/bin/conmon"]
events_logger = "file"
runtime = "runc"
[engine.runtimes]
runc = ["{root}/usr/sbin/runc"]
"""
STORAGE_CONF = """\
[storage]
driver = "vfs"
graphroot = "{state}/graph"
runroot = "{state}/run"
"""
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'


@dataclass(frozen=True)
class Podman:
    """With `bin` first on PATH, `podman` is this one."""

    state: Path

    @property
    def bin(self) -> Path:
        return self.state / "bin"

    @property
    def path(self) -> str:
        return f"{self.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

    def run(self, *words: str, given: bytes | None = None) -> str:
        return self._call("podman", words, given)

    def add_buildah(self) -> None:
        """Adds buildah, whose images podman can use; raises CannotBeHad."""
        found = unpacked(*BUILDAH)
        _write_wrapper(self.state, found, "buildah", BUILDAH_RUNTIME=found.program("usr/sbin/runc"))
        try:
            self.buildah("images")
        except AssertionError as error:
            raise CannotBeHad(f"buildah does not work here: {error}") from None

    def buildah(self, *words: str, limit_s: float = COMMAND_LIMIT_S) -> str:
        return self._call("buildah", words, limit_s=limit_s)

    def _call(
        self, program: str, words: tuple[str, ...], given: bytes | None = None, limit_s: float = COMMAND_LIMIT_S
    ) -> str:
        done = subprocess.run(
            [str(self.bin / program), *words], input=given, capture_output=True, timeout=limit_s, check=False
        )
        said = f"{program} {' '.join(words)} ended with {done.returncode}\n{done.stderr.decode(errors='replace')}"
        assert done.returncode == 0, said
        return done.stdout.decode()

    def load_program(self, binary: Path, image: str) -> None:
        """Imports an image that contains only a program and its libraries."""
        self.run("import", "-", image, given=rootfs(binary))

    def containers(self) -> list[str]:
        """The names of running containers."""
        return self.run("ps", "--format", "{{.Names}}").split()

    def close(self) -> None:
        """Stops and removes all containers."""
        self.run("rm", "--all", "--force")


def podman(state: Path) -> Podman:
    """podman with its state in a directory; raises CannotBeHad."""
    if os.geteuid() != 0:
        raise CannotBeHad("rootless podman requires user namespaces, which the packages alone do not set up")
    found = unpacked(*PACKAGES)
    _configure(found, state)
    ready = Podman(state)
    try:
        ready.run("info")
    except AssertionError as error:
        raise CannotBeHad(f"podman does not work here: {error}") from None
    return ready


def _configure(found: Unpacked, state: Path) -> None:
    policy = state / "home" / ".config" / "containers" / "policy.json"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text(POLICY)
    (state / "containers.conf").write_text(CONTAINERS_CONF.format(root=found.root))
    (state / "storage.conf").write_text(STORAGE_CONF.format(state=state))
    (state / "registries.conf").write_text("unqualified-search-registries = []\n")
    _write_wrapper(state, found, "podman")


def _write_wrapper(state: Path, found: Unpacked, program: str, **more: str) -> None:
    """A wrapper for a program of the packages, which uses only our configuration."""
    variables = {
        "CONTAINERS_CONF": state / "containers.conf",
        "CONTAINERS_STORAGE_CONF": state / "storage.conf",
        "CONTAINERS_REGISTRIES_CONF": state / "registries.conf",
        "LD_LIBRARY_PATH": found.env["LD_LIBRARY_PATH"],
        "HOME": state / "home",
        **more,
    }
    settings = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items())
    wrapper = state / "bin" / program
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(f'#!/bin/sh\nexec env {settings} {shlex.quote(found.program(f"usr/bin/{program}"))} "$@"\n')
    wrapper.chmod(0o755)


def rootfs(binary: Path) -> bytes:
    """A tar of the program at /bin, and its libraries where it expects them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for directory in ("tmp", "etc"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755
            archive.addfile(entry)
        archive.add(binary, "bin/trellis")
        for name, library in libraries(binary).items():
            archive.add(library, name.lstrip("/"))
    return packed.getvalue()
