"""`trellis connect` for a `flwr` of some release, in a home and an app of its own."""

from dataclasses import dataclass
from pathlib import Path

from harness.flower_cli import Answer
from harness.release import Flower
from harness.superlink import Superlink
from harness.workspace import Workspace, trellis_binary

CONNECT_LIMIT_S = 60.0
FLWR_LIMIT_S = 180.0


@dataclass(frozen=True)
class Person:
    """A user with a release of Flower on PATH, who works in an app and has not configured any SuperLink."""

    workspace: Workspace
    release: Flower
    app: Path

    @property
    def config(self) -> Path:
        return self.workspace.home(self._home) / "config.toml"

    @property
    def pyproject(self) -> Path:
        return self.app / "pyproject.toml"

    def connect(self, name: str, superlink: Superlink) -> Answer:
        tls = superlink.options.tls
        trust = ["--insecure"] if tls is None else ["--root-certificates", str(tls.ca)]
        return self._run([str(trellis_binary()), "connect", name, "--address", superlink.http_address, *trust])

    def disconnect(self, name: str, superlink: Superlink) -> Answer:
        tls = superlink.options.tls
        trust = [] if tls is None else ["--root-certificates", str(tls.ca)]
        return self._run([str(trellis_binary()), "connect", name, "--remove", *trust])

    def flwr(self, *words: str) -> Answer:
        return self._run([self.release.command("flwr"), *words], FLWR_LIMIT_S)

    @property
    def _home(self) -> str:
        return f"person-{self.release.version}"

    def _run(self, argv: list[str], limit_s: float = CONNECT_LIMIT_S) -> Answer:
        return Answer.of(argv, self.app, self.workspace.env(self.release, self._home), limit_s)
