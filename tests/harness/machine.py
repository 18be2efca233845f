"""A Debian machine with its own systemd, as a container: equivalent to the VM of an appliance after its boot.

debootstrap creates the tree once in the test cache; each machine has a copy. Its network is a namespace of the test.
Needs root; raises `CannotBeHad`.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from harness.debian import unpacked
from harness.namespace import Namespace
from harness.process import Process
from harness.waiting import wait_for
from harness.workspace import Workspace
from provision import CannotBeHad, cache_dir, locked

RELEASE = "bookworm"
PACKAGES = ("systemd", "systemd-sysv", "dbus", "nftables", "iproute2", "procps")
CONTAINER = ("systemd-container",)
TREE_LIMIT_S = 1200
COMMAND_LIMIT_S = 180
BOOT_LIMIT_S = 120.0
HALT_LIMIT_S = 90.0
STAMP = "etc/trellis-test-stamp"


def tree(kind: str = "machine", packages: tuple[str, ...] = PACKAGES) -> Path:
    """The tree that machines or images are copied from; created if necessary."""
    place, stamp = cache_dir() / "debian" / f"{kind}-{RELEASE}", " ".join(packages)
    with locked(cache_dir() / "debian-machine.lock"):
        if (place / STAMP).is_file() and (place / STAMP).read_text() == stamp:
            return place
        if os.geteuid() != 0 or shutil.which("debootstrap", path=_path()) is None:
            raise CannotBeHad("a Debian tree requires root and debootstrap")
        shutil.rmtree(place, ignore_errors=True)
        draft = place.with_suffix(".new")
        shutil.rmtree(draft, ignore_errors=True)
        argv = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", RELEASE, str(draft)]
        env = os.environ | {"PATH": _path()}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=TREE_LIMIT_S, check=False)
        if done.returncode != 0:
            raise CannotBeHad(f"debootstrap: {done.stdout[-500:]} {done.stderr[-500:]}")
        (draft / STAMP).write_text(stamp)
        draft.rename(place)
    return place


def _path() -> str:
    return os.pathsep.join([*os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/sbin", "/sbin"])


class Machine:
    """A machine that can be booted and halted repeatedly."""

    def __init__(self, workspace: Workspace, name: str, network: Namespace, shown: dict[str, Path], of: Path | None = None):
        """`shown` are directories of the host by the path at which they are mounted; `of` is the tree that it is a copy of."""
        self.workspace, self.name, self.network, self.shown = workspace, name, network, shown
        self.root = workspace.root / f"machine-{name}"
        subprocess.run(["cp", "--archive", "--reflink=auto", str(of or tree()), str(self.root)], check=True)
        self._process: Process | None = None
        self._leader = 0

    def boot(self) -> None:
        nspawn = unpacked(*CONTAINER).program("usr/bin/systemd-nspawn")
        argv = [nspawn, "--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe", "--capability=CAP_NET_ADMIN"]
        argv += ["--directory", str(self.root), "--machine", f"{self.name}-{os.getpid()}"]
        argv += ["--kill-signal=SIGRTMIN+3"]
        argv += [f"--network-namespace-path=/proc/{self.network.pid}/ns/net"]
        argv += [f"--bind-ro={ours}:{theirs}" for theirs, ours in self.shown.items()]
        self._process = self.workspace.start(f"machine-{self.name}", argv)
        self._leader = wait_for("the machine to begin", self._find_leader, BOOT_LIMIT_S)
        wait_for("the machine's systemd", lambda: self.tried("systemctl", "list-units").returncode == 0, BOOT_LIMIT_S)

    def _find_leader(self) -> int | None:
        assert self._process is not None
        if not self._process.alive:
            raise CannotBeHad(f"machines cannot be booted here: {self._process.output()[-500:]}")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for child in children:
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
        return None

    def tried(self, *argv: str) -> subprocess.CompletedProcess:
        """Runs a command in the machine; returns its result even if it fails."""
        apart = ["--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd=/"]
        inside = ["nsenter", f"--target={self._leader}", *apart, "--"]
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "NO_COLOR": "1"}
        return subprocess.run(
            [*inside, *argv], env=env, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False
        )

    def run(self, *argv: str) -> str:
        done = self.tried(*argv)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout}{done.stderr}"
        return done.stdout

    def close(self) -> None:
        """Kills the machine: its processes have no mark of the test and would otherwise outlive it."""
        if self._leader and self._process is not None and self._process.alive:
            os.kill(self._leader, signal.SIGKILL)

    def halt(self) -> None:
        """Shuts the machine down."""
        assert self._process is not None
        process = self._process
        process.terminate()
        wait_for("the machine to halt", lambda: not process.alive, HALT_LIMIT_S)
