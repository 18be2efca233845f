"""The official `flwr` command of any release, configured for the SuperLink in the way of that release."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.process import Process
from harness.release import DEFAULT, Flower, flower
from harness.superlink import Superlink
from harness.workspace import Workspace

FEDERATION = "tested"
COMMAND_LIMIT_S = 60.0


class CommandFailed(AssertionError):
    """`flwr` did not succeed."""


@dataclass(frozen=True)
class Answer:
    """The output and exit code of a `flwr` command."""

    code: int
    stdout: str
    stderr: str

    @classmethod
    def of(cls, argv: list[str], cwd: Path, env: dict[str, str], limit_s: float) -> "Answer":
        """Runs a command."""
        done = subprocess.run(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, check=False
        )
        return cls(done.returncode, done.stdout, done.stderr)

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


class FlwrCli:
    """Runs `flwr` in a copy of an app, with the SuperLink as the only configured one.
    `here` are the arguments after a command that name the SuperLink.
    """

    def __init__(
        self,
        workspace: Workspace,
        app: Path,
        superlink: Superlink,
        account_auth: bool = False,
        version: str = DEFAULT,
    ):
        self.app = app
        self.release = flower(version)
        self.here = (FEDERATION,) if self.release.cli_reads_home else (".", FEDERATION)
        self._home = f"cli-{version}"
        self._workspace = workspace
        config = app / "pyproject.toml"
        if self.release.cli_reads_home:
            config = workspace.home(self._home) / "config.toml"
            config.parent.mkdir(parents=True, exist_ok=True)
        with config.open("a") as file:
            file.write("\n".join(_connection_table(self.release, superlink, account_auth)))

    def run_command(self, *words: str, limit_s: float = COMMAND_LIMIT_S) -> Answer:
        """Runs `flwr WORDS` in the directory of the app."""
        argv = [self.release.command("flwr"), *words]
        return Answer.of(argv, self.app, self._workspace.env(self.release, self._home), limit_s)

    def json(self, *words: str) -> dict | list:
        """The JSON output of a command. `success: false` in it is an error; some commands print a list, some have no such field."""
        answer = self.run_command(*words, "--format", "json")
        try:
            parsed = json.loads(answer.stdout)
        except json.JSONDecodeError:
            raise CommandFailed(f"flwr {' '.join(words)} printed no JSON:\n{answer.text}") from None
        if isinstance(parsed, dict) and not parsed.get("success", True):
            raise CommandFailed(f"flwr {' '.join(words)}: {parsed}")
        return parsed

    def submit(self, **run_config: object) -> int:
        """Runs `flwr run` without following it; returns the run id."""
        return int(self.json("run", ".", FEDERATION, *_overrides(run_config))["run-id"])

    def follow(self, **run_config: object) -> Process:
        """Runs `flwr run --stream` in the background, with a log."""
        argv = [self.release.command("flwr"), "run", ".", FEDERATION, "--stream", *_overrides(run_config)]
        name = f"flwr-run-{len(self._workspace.processes)}"
        return self._workspace.start(name, argv, self._workspace.env(self.release, self._home), cwd=self.app)

    def log(self, run_id: int) -> Answer:
        return self.run_command("log", str(run_id), *self.here)

    def runs(self) -> dict[int, str]:
        """`flwr ls`: the status of each run by id."""
        return {int(run["run-id"]): run["status"] for run in self.json("ls", *self.here)["runs"]}

    def stop(self, run_id: int) -> None:
        self.json("stop", str(run_id), *self.here)

    def nodes(self) -> dict[int, str]:
        """`flwr supernode list`: the status of each node by id."""
        return {int(node["node-id"]): node["status"] for node in self.json("supernode", "list", *self.here)["nodes"]}

    def federations(self) -> list[str]:
        """`flwr federation list`: the names of federations."""
        printed = self.json("federation", "list", *self.here)
        listed = printed["federations"] if isinstance(printed, dict) else printed
        return [federation.get("id") or federation["name"] for federation in listed]

    def federation(self, name: str) -> tuple[dict[int, str], dict[int, str]]:
        """The status of nodes and runs of a federation by id, from `federation show` or its successor."""
        words = ("show",) if self.release.cli_shows_federations else ("list", "--federation", name)
        shown = self.json("federation", *words, *self.here)
        if isinstance(shown, dict):
            nodes, runs = shown["federation"]["nodes"], shown["federation"]["runs"]
        else:
            _, nodes, runs = shown
        return _statuses(nodes, "node_id"), _statuses(runs, "run_id")


def _statuses(things: list[dict], key: str) -> dict[int, str]:
    return {int(thing[key]): thing["status"] for thing in things}


def _connection_table(release: Flower, superlink: Superlink, account_auth: bool) -> list[str]:
    table = "superlink" if release.cli_reads_home else "tool.flwr.federations"
    lines = ["", f"[{table}.{FEDERATION}]", f'address = "{superlink.control_for(release)}"']
    tls = superlink.options.tls
    lines.append("insecure = true" if tls is None else f'root-certificates = "{tls.ca}"')
    if account_auth:
        lines.append("enable-account-auth = true")
    return [*lines, ""]


def _overrides(run_config: dict[str, object]) -> list[str]:
    """Run settings as arguments; `_` in a keyword stands for `-`."""
    if not run_config:
        return []
    return ["--run-config", " ".join(f"{key.replace('_', '-')}={_toml(value)}" for key, value in run_config.items())]


def _toml(value: object) -> str:
    return json.dumps(str(value)) if isinstance(value, (str, Path)) else json.dumps(value)
