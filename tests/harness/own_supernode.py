"""Our own SuperNode, `trellis supernode`: its options, its process and its status."""

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.credentials import NodeKey
from harness.ports import HOST, free_port
from harness.process import Process, tail
from harness.release import DEFAULT, GRPC, HTTP, Flower, flower
from harness.superlink import PROCESS, SUBPROCESS, Superlink
from harness.supernode import CONNECT_LIMIT_S, superexec_command
from harness.waiting import NotInTime, wait_for
from harness.workspace import Workspace, trellis_binary

AUTO = "auto"
# For tests with failures: the usual maximum of the backoff would be too slow.
RETRY_SOON = ("--backoff-max", "5s")
WARM, PER_MESSAGE = "warm", "per-message"
STATUS_LIMIT_S = 10.0
METRICS_LIMIT_S = 5.0
# Exit codes of `trellis supernode status`.
CONNECTED, NOT_RUNNING, NOT_CONNECTED = 0, 1, 3


@dataclass(frozen=True)
class OwnNode:
    """The options of a node of ours; a federation accepts it in place of an official release."""

    # The release of Flower whose Python runs the apps.
    python: str = DEFAULT
    # The port of the SuperLink, and the transport.
    port: str = GRPC
    transport: str = AUTO
    isolation: str = SUBPROCESS
    lifecycle: str = WARM
    # A built-in app; `python` and `lifecycle` are then ignored.
    native: str | None = None
    # Whether the program is called by the name of the official one.
    as_official: bool = False
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Status:
    """The output of `trellis supernode status` and its exit code."""

    code: int
    content: dict

    @property
    def node_id(self) -> int | None:
        node_id = self.content.get("node_id")
        return None if node_id is None else int(node_id)

    @property
    def transport(self) -> str | None:
        return self.content["link"].get("transport")


@dataclass
class OwnSupernode:
    """State directory and ports survive restarts; the process does not. Has the interface of `Supernode`."""

    workspace: Workspace
    superlink: Superlink
    partition: int
    partitions: int
    key: NodeKey | None = None
    options: OwnNode = OwnNode()

    def __post_init__(self) -> None:
        self._release = flower(self.options.python)
        self._app_port, self._metrics_port = free_port(), free_port()
        self._process: Process | None = None
        self.superexec: Process | None = None

    @property
    def name(self) -> str:
        return f"supernode-{self.partition}"

    @property
    def state_dir(self) -> Path:
        return self.workspace.states / f"{self.name}-state"

    @property
    def process(self) -> Process:
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    def start(self) -> "OwnSupernode":
        """Starts the node and, in process isolation, a SuperExec."""
        env = self.workspace.env(self._release, home=self.name)
        self._process = self.workspace.start(self.name, list(self._argv()), env)
        if self.options.isolation == PROCESS and self.superexec is None:
            argv = superexec_command(self._release, "clientapp", f"{HOST}:{self._app_port}")
            home = f"{self.name}-superexec"
            self.superexec = self.workspace.start(home, argv, self.workspace.env(self._release, home=home))
        return self

    def wait_connected(self) -> int:
        """Waits until it is connected; returns its node id."""
        return self.wait_status(CONNECTED).node_id

    def wait_status(self, code: int, limit_s: float = CONNECT_LIMIT_S) -> Status:
        def look() -> Status | None:
            status = self.status()
            if code != NOT_RUNNING and not self.process.alive:
                raise NotInTime(f"{self.name} ended with {self.process.exit_code}\n{tail(self.process.log)}")
            return status if status.code == code else None

        return wait_for(f"the status of {self.name} to be {code}", look, limit_s)

    def status(self) -> Status:
        done = self._status_command("-o", "json")
        return Status(done.returncode, json.loads(done.stdout) if done.stdout.strip() else {})

    def status_text(self) -> str:
        """The status in the format for people."""
        return self._status_command().stdout

    def metrics(self) -> dict[str, float]:
        """The samples of its /metrics, by name and labels."""
        with urllib.request.urlopen(f"http://{HOST}:{self._metrics_port}/metrics", timeout=METRICS_LIMIT_S) as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def stored_objects(self) -> list[Path]:
        """Object files in the state directory; none may be left when all replies are delivered."""
        return sorted(path for path in (self.state_dir / "objects").rglob("*") if path.is_file())

    def app_pids(self) -> list[int]:
        """The processes that it or its children started."""
        return descendants(self.process.pid)

    def kill_everything(self) -> None:
        """Sends kill -9 to the node and its apps at once, as in a power failure."""
        for pid in [self.process.pid, *self.app_pids()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.reap()

    def _status_command(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [str(trellis_binary()), "supernode", "status", "--state-dir", str(self.state_dir), *words]
        return subprocess.run(
            argv, env=self.workspace.env(), capture_output=True, text=True, timeout=STATUS_LIMIT_S, check=False
        )

    def _argv(self) -> Iterable[str]:
        yield from self._program()
        yield from ("--state-dir", str(self.state_dir))
        yield from ("--superlink", self._superlink_address())
        tls = self.superlink.options.tls
        yield from ("--insecure",) if tls is None else ("--root-certificates", str(tls.ca))
        if self.options.transport != AUTO:
            yield from ("--transport", self.options.transport)
        yield from ("--node-config", f"partition-id={self.partition} num-partitions={self.partitions}")
        if self.key is not None:
            yield from ("--auth-supernode-private-key", str(self.key.private))
        yield from self._apps()
        yield from ("--metrics-address", f"{HOST}:{self._metrics_port}", "--log-format", "json")
        yield from self.options.flags

    def _program(self) -> list[str]:
        if not self.options.as_official:
            return [str(trellis_binary()), "supernode"]
        link = self.workspace.root / "flower-supernode"
        if not link.exists():
            link.symlink_to(trellis_binary())
        return [str(link)]

    def _superlink_address(self) -> str:
        return self.superlink.http_address if self.options.port == HTTP else self.superlink.fleet_address

    def _apps(self) -> Iterable[str]:
        if self.options.native is not None:
            yield from ("--client-app", f"native:{self.options.native}")
            return
        yield from ("--isolation", self.options.isolation)
        if self.options.isolation == SUBPROCESS:
            yield from ("--python", self._release.command("python"), "--app-lifecycle", self.options.lifecycle)
        yield from app_port_flags(self._release, self._app_port)


def app_port_flags(release: Flower, port: int) -> list[str]:
    """The flags for the API address of the node, as in that release: both are accepted."""
    return release.arguments("supernode_apps", host=HOST, apps_port=port, apps=f"{HOST}:{port}")


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, children before grandchildren."""
    below = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            below += [child, *descendants(child)]
    return below
