"""A SuperLink under test, ours or the official one, that can be stopped, killed and started again on the same state."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.control import Control
from harness.credentials import TlsFiles
from harness.ports import free_address
from harness.process import Process, tail
from harness.waiting import NotInTime, wait_for
from harness.workspace import Workspace, official_bin, trellis_binary

OFFICIAL, TRELLIS = "official", "trellis"
SUBPROCESS, PROCESS = "subprocess", "process"
SERVING_LIMIT_S = 30.0
PROBE_LIMIT_S = 1.0
CHECK_STATE_LIMIT_S = 30.0


@dataclass(frozen=True)
class LinkOptions:
    """What a test chooses about its SuperLink."""

    kind: str = TRELLIS
    isolation: str = SUBPROCESS
    tls: TlsFiles | None = None
    supernode_auth: bool = False


class Superlink:
    """Addresses and state stay the same over restarts; the process does not."""

    def __init__(self, workspace: Workspace, options: LinkOptions):
        self.options = options
        self.control_address = free_address()
        self.fleet_address = free_address()
        self.serverappio_address = free_address()
        self.health_address = free_address()
        self.control = Control(self.control_address, options.tls)
        self._workspace = workspace
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None, "the SuperLink was never started"
        return self._process

    @property
    def state_dir(self) -> Path:
        return self._workspace.root / "superlink-state"

    def start(self) -> "Superlink":
        """Start and wait until it serves."""
        self.launch()
        if not self.settle():
            raise NotInTime(
                f"the SuperLink ended with {self.process.exit_code} before it served\n{tail(self.process.log)}"
            )
        return self

    def launch(self, crash_at: str | None = None) -> None:
        """Start it, armed to kill itself at a crash point if one is named, and wait for nothing."""
        extra = {"TRELLIS_CRASH_AT": crash_at} if crash_at else {}
        self._process = self._workspace.start("superlink", self._argv(), **extra)

    def settle(self, limit_s: float = SERVING_LIMIT_S) -> bool:
        """Wait until it serves or is dead; whether it serves."""
        wait_for("the SuperLink to report SERVING", lambda: self.is_serving() or not self.process.alive, limit_s)
        return self.process.alive

    def is_serving(self) -> bool:
        """Its own word on the health port."""
        try:
            with grpc.insecure_channel(self.health_address) as channel:
                answer = health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(), timeout=PROBE_LIMIT_S
                )
        except grpc.RpcError:
            return False
        return answer.status == health_pb2.HealthCheckResponse.SERVING

    def stop(self) -> int:
        return self.process.stop()

    def kill(self) -> None:
        """kill -9 of the SuperLink alone, as a crash would do."""
        self.process.kill()

    def check_state(self) -> subprocess.CompletedProcess[str]:
        """`--check-state` of the stopped SuperLink's state directory."""
        argv = [str(trellis_binary()), "superlink", "--state-dir", str(self.state_dir), "--check-state"]
        return subprocess.run(
            argv, env=self._workspace.env(), capture_output=True, text=True, timeout=CHECK_STATE_LIMIT_S, check=False
        )

    def stored_objects(self) -> list[Path]:
        """Object files in the state directory; none should be left once every run is over."""
        return sorted(path for path in (self.state_dir / "objects").rglob("*") if path.is_file())

    def _argv(self) -> list[str]:
        return [*self._program(), *self._addresses(), *self._security(), "--isolation", self.options.isolation]

    def _program(self) -> Iterable[str]:
        if self.options.kind == OFFICIAL:
            self.state_dir.mkdir(exist_ok=True)
            database, storage = self.state_dir / "state.db", self.state_dir / "ffs"
            return [
                str(official_bin() / "flower-superlink"),
                "--database",
                str(database),
                "--storage-dir",
                str(storage),
            ]
        python = str(official_bin() / "python")
        return [str(trellis_binary()), "superlink", "--state-dir", str(self.state_dir), "--python", python]

    def _addresses(self) -> Iterable[str]:
        yield from ("--control-api-address", self.control_address)
        yield from ("--fleet-api-address", self.fleet_address)
        yield from ("--serverappio-api-address", self.serverappio_address)
        yield from ("--health-server-address", self.health_address)

    def _security(self) -> Iterable[str]:
        tls = self.options.tls
        if tls is None:
            yield "--insecure"
        else:
            yield from (
                "--ssl-certfile",
                str(tls.cert),
                "--ssl-keyfile",
                str(tls.key),
                "--ssl-ca-certfile",
                str(tls.ca),
            )
        if self.options.supernode_auth:
            yield "--enable-supernode-auth"


def crash_points() -> list[str]:
    """The names at which the binary under test can be told to crash."""
    argv = [str(trellis_binary()), "superlink", "--list-crash-points"]
    listed = subprocess.run(argv, capture_output=True, text=True, timeout=CHECK_STATE_LIMIT_S, check=True)
    return listed.stdout.split()
