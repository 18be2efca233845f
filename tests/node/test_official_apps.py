"""Official apps of many releases under our node's port for apps, started by the node or by `flower-superexec`.

No SuperLink takes part: the node's side is the example `official_app` of the crate trellis-node.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from harness.matrix import BETWEEN, RELEASES
from harness.process import Process
from harness.release import flower
from harness.supernode import superexec_command
from harness.waiting import wait_for
from harness.workspace import REPOSITORY, TESTS, Workspace
from provision import CannotBeHad

# Each speaks to its launcher or its node in another way than the one before it; the rest with --every-release.
USUAL = ("1.25", "1.30", "1.31", "1.36", "1.39", "1.42")
LIMIT_S = 120.0
APP_RAISED, APP_CRASHED = 2, 8


def example() -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return Path(os.environ.get("TRELLIS_OFFICIAL_APP", target / "debug" / "examples" / "official_app"))


class Node:
    """The example at work, with the app built by a release."""

    def __init__(self, workspace: Workspace, version: str):
        if not example().exists():
            pytest.skip(f"{example()} does not exist: cargo build -p trellis-node --example official_app")
        try:
            self.release = flower(version)
        except CannotBeHad as why:
            pytest.skip(str(why))
        self.workspace = workspace
        self.env = workspace.env(self.release)
        self.process: Process | None = None

    def build(self) -> Path:
        source = self.workspace.copy_app(TESTS / "apps" / "behaving")
        build = [self.release.command("flwr"), "build", "--app", str(source)]
        subprocess.run(build, cwd=self.workspace.root, env=self.env, check=True, capture_output=True, timeout=LIMIT_S)
        (bundle,) = [*self.workspace.root.glob("*.fab"), *source.glob("*.fab")]
        return bundle

    def start(self, *actions: str, python: bool = False, secret: Path | None = None) -> None:
        settings = {
            "directory": str(self.workspace.root / "node"),
            "bundle": str(self.build()),
            "python": str(self.release.bin / "python") if python else None,
            "secret": str(secret) if secret else None,
            "actions": actions,
        }
        (self.workspace.root / "node").mkdir()
        self.process = self.workspace.start("node", [str(example()), json.dumps(settings)], self.env)

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.process.output().splitlines() if line.startswith("{")]

    def superexec(self, *flags: str) -> None:
        address = wait_for("the address", lambda: self.lines()[0]["address"] if self.lines() else None, LIMIT_S)
        argv = superexec_command(self.release, "clientapp", address)
        self.workspace.start("superexec", [*argv, *flags], self.env)

    def outcomes(self) -> list[dict]:
        wait_for("the end of all instructions", lambda: not self.process.alive, LIMIT_S)
        assert self.process.exit_code == 0, self.process.output()
        return self.lines()[1:]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    every = metafunc.config.getoption("--every-release")
    metafunc.parametrize("version", sorted({*RELEASES, *BETWEEN}) if every else USUAL)


@pytest.fixture
def node(workspace: Workspace, version: str) -> Node:
    return Node(workspace, version)


def check_counts(outcomes: list[dict], upto: int) -> None:
    """The app remembers, and its replies are whole."""
    counted = [outcome["metrics"] for outcome in outcomes[:upto]]
    assert counted == [[f"count Sint64({number})"] for number in range(1, upto + 1)]


def test_apps_that_the_node_starts(node: Node) -> None:
    node.start("count", "count", "raise", "exit", "die", "count", python=True)
    outcomes = node.outcomes()
    check_counts(outcomes, 2)
    assert outcomes[2]["error"] == APP_RAISED and "raised on purpose" in outcomes[2]["reason"]
    for outcome, wish in zip(outcomes[3:5], ("exit", "die"), strict=True):
        assert outcome["failed"] == APP_CRASHED and f"the app is asked to {wish}" in outcome["reason"]
    assert outcomes[5]["metrics"] == ["count Sint64(3)"]


def test_apps_that_a_superexec_starts(node: Node) -> None:
    node.start("count", "raise", "count")
    node.superexec()
    outcomes = node.outcomes()
    assert [outcomes[0]["metrics"], outcomes[2]["metrics"]] == [["count Sint64(1)"], ["count Sint64(2)"]]
    assert outcomes[1]["error"] == APP_RAISED


def test_a_superexec_with_a_secret(node: Node, workspace: Workspace) -> None:
    if node.release.minor < 29:
        pytest.skip("SuperExecs know no secret before 1.29")
    secret = workspace.root / "secret"
    secret.write_text("a secret that both know")
    node.start("count", secret=secret)
    node.superexec("--superexec-auth-secret-file", str(secret))
    check_counts(node.outcomes(), 1)
