"""The official `flwr` command, told by an app's pyproject.toml where the SuperLink is."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.process import Process
from harness.superlink import Superlink
from harness.workspace import Workspace, official_bin

FEDERATION = "tested"
COMMAND_LIMIT_S = 60.0


class CommandFailed(AssertionError):
    """`flwr` answered something other than success."""


@dataclass(frozen=True)
class Answer:
    """What a `flwr` command printed and how it ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


class FlwrCli:
    """Runs `flwr` in a copy of an app that names the SuperLink as its only federation."""

    def __init__(self, workspace: Workspace, app: Path, superlink: Superlink, account_auth: bool = False):
        self.app = app
        self._workspace = workspace
        with (app / "pyproject.toml").open("a") as config:
            config.write("\n".join(_federation_table(superlink, account_auth)))

    def run_command(self, *words: str, limit_s: float = COMMAND_LIMIT_S) -> Answer:
        """`flwr WORDS` with the app directory as working directory."""
        done = subprocess.run(
            [str(official_bin() / "flwr"), *words],
            cwd=self.app,
            env=self._workspace.env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def json(self, *words: str) -> dict:
        """The JSON a command prints; `success: false` in it is an error."""
        answer = self.run_command(*words, "--format", "json")
        try:
            parsed = json.loads(answer.stdout)
        except json.JSONDecodeError:
            raise CommandFailed(f"flwr {' '.join(words)} printed no JSON:\n{answer.text}") from None
        if not parsed.get("success"):
            raise CommandFailed(f"flwr {' '.join(words)}: {parsed}")
        return parsed

    def submit(self, **run_config: object) -> int:
        """`flwr run` without following it; the run id."""
        return int(self.json("run", ".", FEDERATION, *_overrides(run_config))["run-id"])

    def follow(self, **run_config: object) -> Process:
        """`flwr run --stream` in the background, its output in a log."""
        argv = [str(official_bin() / "flwr"), "run", ".", FEDERATION, "--stream", *_overrides(run_config)]
        name = f"flwr-run-{len(self._workspace.processes)}"
        process = Process(name, argv, self._workspace.logs / f"{name}.log", self._workspace.env(), cwd=self.app)
        self._workspace.processes.append(process)
        return process

    def log(self, run_id: int) -> Answer:
        return self.run_command("log", str(run_id), ".", FEDERATION)


def _federation_table(superlink: Superlink, account_auth: bool) -> list[str]:
    lines = ["", f"[tool.flwr.federations.{FEDERATION}]", f'address = "{superlink.control_address}"']
    tls = superlink.options.tls
    lines.append("insecure = true" if tls is None else f'root-certificates = "{tls.ca}"')
    if account_auth:
        lines.append("enable-account-auth = true")
    return [*lines, ""]


def _overrides(run_config: dict[str, object]) -> list[str]:
    """Run settings as the command takes them; `_` in a keyword stands for `-`."""
    if not run_config:
        return []
    return ["--run-config", " ".join(f"{key.replace('_', '-')}={_toml(value)}" for key, value in run_config.items())]


def _toml(value: object) -> str:
    return json.dumps(str(value)) if isinstance(value, (str, Path)) else json.dumps(value)
