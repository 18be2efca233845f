"""What `make dist` made, an older release of the same program, and clean systems to install them in."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.machine import PACKAGES, Machine, tree
from harness.namespace import Namespace
from harness.waiting import wait_for
from harness.workspace import REPOSITORY, Workspace, trellis_binary
from provision import CannotBeHad
from provision_kube import provision

DIST = REPOSITORY / "deploy" / "dist"
MAKE_LIMIT_S = 900.0
NODES_LIMIT_S = 30.0
OLDER = "0.0.9"
USER = "ada"
# Debian has a program for .rpm, too.
SYSTEM = (*PACKAGES, "rpm", "python3-venv")
SERVICES = ("superlink", "supernode", "server")
ROUNDS = "2"
# What every system writes while it lives.
LIVING = ("/dev", "/proc", "/run", "/sys", "/tmp", "/var/cache", "/var/log", "/var/tmp", "/var/lib/systemd", "/root", "/home")
LIVING_FILES = (
    "/var/lib/dpkg/",
    "/var/lib/rpm/",
    "/etc/passwd-",
    "/etc/group-",
    "/etc/shadow-",
    "/etc/gshadow-",
    "/etc/.pwd.lock",
    "/etc/machine-id",
)


@dataclass(frozen=True)
class Release:
    """The files of one call of dist.py."""

    directory: Path
    version: str

    def names(self) -> set[str]:
        return {path.name for path in self.directory.iterdir()}

    def one(self, pattern: str) -> Path:
        found = sorted(self.directory.glob(pattern))
        assert len(found) == 1, f"{pattern}: {[path.name for path in found]} of {self.names()}"
        return found[0]


def make(out: Path, *words: str, programs: tuple[Path, ...] = (), **env: str) -> subprocess.CompletedProcess:
    argv = [sys.executable, str(DIST / "dist.py"), "--out", str(out), "--nfpm", str(provision("nfpm") / "nfpm")]
    argv += [word for program in programs or (trellis_binary(),) for word in ("--program", str(program))]
    argv += words
    return subprocess.run(argv, env=os.environ | env, capture_output=True, text=True, timeout=MAKE_LIMIT_S, check=False)


def version() -> str:
    told = subprocess.run([str(trellis_binary()), "version"], capture_output=True, text=True, check=True).stdout
    return told.split()[1]


@pytest.fixture(scope="session")
def release() -> Release:
    """As users get it."""
    directory = Path(os.environ.get("TRELLIS_DIST", REPOSITORY / "dist"))
    assert (directory / "SHA256SUMS").is_file(), f"{directory} has no release: make dist"
    return Release(directory, version())


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Published files in TRELLIS_DIST_OLDER, or the same program with an older number."""
    if given := os.environ.get("TRELLIS_DIST_OLDER"):
        [bill] = Path(given).glob("trellis-*.cdx.json")
        return Release(Path(given), bill.name.removeprefix("trellis-").removesuffix(".cdx.json"))
    out = tmp_path_factory.mktemp("older")
    # Users of the machine read it, too.
    out.chmod(0o755)
    done = make(out, "--version", OLDER)
    assert done.returncode == 0, done.stderr
    return Release(out, OLDER)


class System:
    """A Debian machine with systemd, an ordinary user, and the files of both releases."""

    def __init__(self, machine: Machine):
        self.machine = machine
        machine.run("useradd", "--create-home", "--shell", "/bin/bash", USER)
        # Written once by any package with a user or a manual page.
        self.before = self.files()
        self.users = self.accounts()

    def files(self) -> set[str]:
        prune = " -o ".join(f"-path {place}" for place in LIVING)
        found = self.machine.run("sh", "-c", rf"find / -xdev \( {prune} \) -prune -o -print").splitlines()
        return {path for path in found if not path.startswith(LIVING_FILES)}

    def accounts(self) -> str:
        return self.machine.run("cat", "/etc/passwd", "/etc/group")

    def left(self) -> set[str]:
        """What is there now and was not before."""
        return self.files() - self.before

    def tried(self, script: str, user: str = "root") -> subprocess.CompletedProcess:
        return self.machine.tried("runuser", "--login", user, "--command", script)

    def run(self, script: str, user: str = "root") -> str:
        done = self.tried(script, user)
        assert done.returncode == 0, f"{user}: {script}\n{done.stdout}{done.stderr}\n{self.journal()}"
        return done.stdout + done.stderr

    def journal(self) -> str:
        return self.machine.tried("journalctl", "--no-pager", "--unit=trellis*", "--lines=40").stdout

    def train_as_both(self, program: str = "trellis") -> None:
        """In one process, as root and as an ordinary user."""
        for user in ("root", USER):
            self.run(f"{program} run --rounds {ROUNDS} --nodes 2", user)

    def start_services(self) -> None:
        for service in ("superlink", "supernode"):
            self.run(f"sed -i 's/^#insecure/insecure/' /etc/trellis/{service}.toml")
        self.run("systemctl enable --now trellis-superlink trellis-supernode trellis-server")
        self.wait_for_services()

    def wait_for_services(self) -> None:
        for service in SERVICES:
            active = lambda service=service: self.tried(f"systemctl is-active trellis-{service}").returncode == 0  # noqa: E731
            wait_for(f"trellis-{service}", active, NODES_LIMIT_S)
        wait_for("the node", lambda: '"online"' in self.tried("trellis nodes --insecure -o json").stdout, NODES_LIMIT_S)

    def train_with_services(self) -> None:
        few = " ".join(f"--set min-{what}-nodes=1" for what in ("available", "train", "evaluate"))
        self.run(f"trellis run native:mlp --superlink 127.0.0.1:8000 --insecure --rounds {ROUNDS} {few}", USER)

    def models(self) -> set[str]:
        """Runs with a model, as the SuperLink keeps them."""
        told = json.loads(self.run("trellis model ls --models /var/lib/trellis/superlink/models -o json"))
        return {each["run_id"] for each in told["checkpoints"]}

    def pids(self) -> list[str]:
        return self.run("systemctl show --property=MainPID " + " ".join(f"trellis-{each}" for each in SERVICES)).split()


@pytest.fixture
def system(workspace: Workspace, release: Release, older: Release) -> Iterator[Callable[[], System]]:
    """Boots the machine; the releases are below /dist, by version."""
    machine = None
    try:
        network = Namespace(workspace, "system")
        shown = {f"/mnt/{each.version}": each.directory for each in (release, older)}
        machine = Machine(workspace, "system", network, shown, tree("dist", SYSTEM))
        machine.boot()
        yield System(machine)
    except CannotBeHad as why:
        pytest.skip(str(why))
    finally:
        if machine is not None:
            machine.close()
