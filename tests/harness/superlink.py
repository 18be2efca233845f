"""A SuperLink under test, ours or the official one, that can be stopped, killed and restarted with its state."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.control import Control
from harness.credentials import TlsFiles
from harness.ports import HOST, free_address, free_port
from harness.process import Process, tail
from harness.release import DEFAULT, HTTP, Flower, flower
from harness.waiting import NotInTime, wait_for
from harness.workspace import Workspace, trellis_binary

OFFICIAL, TRELLIS = "official", "trellis"
SUBPROCESS, PROCESS = "subprocess", "process"
SERVING_LIMIT_S = 30.0
PROBE_LIMIT_S = 1.0
CHECK_STATE_LIMIT_S = 30.0


@dataclass(frozen=True)
class LinkOptions:
    """The options of a SuperLink in a test."""

    kind: str = TRELLIS
    isolation: str = SUBPROCESS
    tls: TlsFiles | None = None
    supernode_auth: bool = False
    # The release of ServerApps, and of an official SuperLink.
    runtime: str = DEFAULT
    official: str = DEFAULT
    # Additional flags.
    flags: tuple[str, ...] = ()
    # An official SuperLink serves nodes and users only with the preferred transport of its release.
    as_shipped: bool = False


class Superlink:
    """Addresses and state survive restarts; the process does not."""

    def __init__(self, workspace: Workspace, options: LinkOptions):
        self.options = options
        self.control_address = free_address()
        self.fleet_address = free_address()
        self.serverappio_address = free_address()
        self.health_address = free_address()
        self.http_port = free_port()
        self.control = Control(self.control_address, options.tls)
        self._workspace = workspace
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None, "the SuperLink was never started"
        return self._process

    @property
    def state_dir(self) -> Path:
        return self._workspace.states / "superlink-state"

    @property
    def http_address(self) -> str:
        """The address of the HTTP port."""
        return f"{HOST}:{self.http_port}"

    def control_for(self, release: Flower) -> str:
        """The address for the command line of some release."""
        return self.http_address if release.cli_transport == HTTP else self.control_address

    def fleet_for(self, release: Flower) -> str:
        return self.http_address if release.fleet_transport == HTTP else self.fleet_address

    def runtime_for(self, release: Flower) -> str:
        return self.http_address if release.runtime_transport == HTTP else self.serverappio_address

    def start(self) -> "Superlink":
        """Starts it and waits until it serves."""
        self.launch()
        if not self.settle():
            raise NotInTime(
                f"the SuperLink ended with {self.process.exit_code} before it served\n{tail(self.process.log)}"
            )
        return self

    def launch(self, crash_at: str | None = None) -> None:
        """Starts it without waiting; if a crash point is named, it kills itself there."""
        extra = {"TRELLIS_CRASH_AT": crash_at} if crash_at else {}
        if self.options.kind == OFFICIAL and not self.options.as_shipped:
            # Newer releases serve gRPC only on request.
            extra |= {"FLWR_INTERNAL_GRPC_CONTROL_API": "1", "FLWR_INTERNAL_GRPC_FLEET_API": "1"}
        env = self._workspace.env(flower(self.options.runtime), **extra)
        self._process = self._workspace.start("superlink", self._argv(), env)

    def settle(self, limit_s: float = SERVING_LIMIT_S) -> bool:
        """Waits until it serves or has exited; returns whether it serves."""
        wait_for("the SuperLink to report SERVING", lambda: self.is_serving() or not self.process.alive, limit_s)
        return self.process.alive

    def is_serving(self) -> bool:
        """Asks its health port."""
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
        """Sends kill -9 to the SuperLink only, like a crash."""
        self.process.kill()

    def check_state(self) -> subprocess.CompletedProcess[str]:
        """Runs `--check-state` on the state directory of the stopped SuperLink."""
        argv = [str(trellis_binary()), "superlink", "--state-dir", str(self.state_dir), "--check-state"]
        return subprocess.run(
            argv, env=self._workspace.env(), capture_output=True, text=True, timeout=CHECK_STATE_LIMIT_S, check=False
        )

    def stored_objects(self) -> list[Path]:
        """Object files in the state directory; none may be left when all runs are over."""
        return sorted(path for path in (self.state_dir / "objects").rglob("*") if path.is_file())

    def _argv(self) -> list[str]:
        mode = ["--isolation", self.options.isolation, *self.options.flags]
        return [*self._program(), *self._addresses(), *self._security(), *mode]

    def _program(self) -> Iterable[str]:
        if self.options.kind == OFFICIAL:
            self.state_dir.mkdir(exist_ok=True)
            return official_program(flower(self.options.official), self.state_dir)
        program = [str(trellis_binary()), "superlink", "--state-dir", str(self.state_dir)]
        if "--python" in self.options.flags:
            return program
        return [*program, "--python", flower(self.options.runtime).command("python")]

    def _addresses(self) -> Iterable[str]:
        ours = self.options.kind == TRELLIS
        one_port = flower(self.options.official).superlink_has_one_port
        yield from ("--control-api-address", self.control_address)
        yield from ("--fleet-api-address", self.fleet_address)
        yield from ("--health-server-address", self.health_address)
        if ours or not one_port:
            yield from ("--serverappio-api-address", self.serverappio_address)
        if ours or one_port:
            yield from ("--host", HOST, "--port", str(self.http_port))

    def _security(self) -> Iterable[str]:
        tls = self.options.tls
        if tls is None:
            yield "--insecure"
        else:
            yield from tls.server_flags()
        if self.options.supernode_auth:
            yield "--enable-supernode-auth"


def official_program(release: Flower, state_dir: Path) -> list[str]:
    program = [release.command("flower-superlink"), *release.arguments("superlink_state", state=state_dir)]
    if release.superlink_installs_packages:
        program.append("--disable-runtime-dependency-installation")
    return program


def crash_points() -> list[str]:
    """The names of crash points of the binary under test."""
    argv = [str(trellis_binary()), "superlink", "--list-crash-points"]
    listed = subprocess.run(argv, capture_output=True, text=True, timeout=CHECK_STATE_LIMIT_S, check=True)
    return listed.stdout.split()
