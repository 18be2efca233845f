"""Output of ClientApps on a node that joined from elsewhere reaches `trellis logs RUN --node N`, and none of a node that keeps it."""

import json
import subprocess
import time
from pathlib import Path
from urllib import request

import pytest
from harness.platform import Platform
from harness.release import flower
from harness.waiting import wait_for
from harness.workspace import TESTS, Workspace

pytestmark = pytest.mark.trellis_only

DOCUMENT = "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: lab}\nspec: {nodes: 1}\n"
CLIENT = """import os
print("client sees", os.environ["EDGE_TOKEN"])
import a_module_that_does_not_exist
"""
SECRET = "s3cret-of-the-edge"
TRACEBACK = "ModuleNotFoundError: No module named 'a_module_that_does_not_exist'"
# The time in which the traceback must arrive.
ARRIVAL_LIMIT_S = 5.0
RUN_LIMIT_S = 120.0


class Edge:
    """A node that joins the federation with a token, and is nobody's process."""

    def __init__(self, platform: Platform, name: str, release, *flags: str):
        workspace, state = platform.workspace, platform.workspace.states / name
        self.platform, self.name = platform, name
        connection = ask(platform, "/federations/lab/connection")
        env = workspace.env(release, home=name, TRELLIS_JOIN_TOKEN=platform.run("node", "token").strip(), EDGE_TOKEN=SECRET)
        state.mkdir(parents=True)
        key = state.with_suffix(".key")
        at = ("--superlink", connection["http"], "--root-certificates", connection["root_certificates_path"])
        join = platform.argv("node", "join", "--key", str(key), "--name", name, *at)
        self.id = subprocess.check_output(join, env=env, text=True).strip()
        argv = platform.argv("supernode", *at, "--auth-supernode-private-key", str(key), "--state-dir", str(state))
        argv += ["--python", release.command("python"), "--app-env", "EDGE_TOKEN", "--sandbox", "best-effort", *flags]
        self.process = workspace.start(name, argv, env)

    def said(self) -> str:
        return Path(self.process.log).read_text()

    def app_log(self, run: str) -> str:
        return self.platform.run("logs", run, "--federation", "lab", "--node", self.name)


@pytest.fixture
def workspace(tmp_path):
    made = Workspace(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("version", "lifecycle"),
    [
        pytest.param("1.25", "warm", marks=pytest.mark.quick),
        ("1.25", "per-message"),
        ("1.42", "warm"),
        ("1.42", "per-message"),
    ],
)
def test_a_traceback_on_import_arrives_within_seconds_and_without_secrets(workspace, version, lifecycle):
    platform, release = Platform(workspace), flower(version)
    (workspace.root / "lab.yaml").write_text(DOCUMENT)
    platform.run("apply", "-f", "lab.yaml")
    edge = Edge(platform, "edge", release, "--app-lifecycle", lifecycle)
    quiet = Edge(platform, "quiet", release, "--app-lifecycle", lifecycle, "--no-app-logs")
    wait_for("both nodes to join", lambda: len(platform.json("nodes", "lab")["items"]) == 3, RUN_LIMIT_S)

    app = workspace.copy_app(TESTS / "apps" / "numpy_fedavg")
    (app / "numpy_fedavg" / "client.py").write_text(CLIENT)
    platform.run("run", str(app), "--federation", "lab", "--detach")
    run = platform.json("runs", "--federation", "lab")["items"][0]["id"]

    wait_for("the app to fail", lambda: TRACEBACK in edge.said(), RUN_LIMIT_S)
    failed_at = time.monotonic()
    log = wait_for("its traceback", lambda: TRACEBACK in (text := edge.app_log(run)) and text, ARRIVAL_LIMIT_S)
    assert time.monotonic() - failed_at < ARRIVAL_LIMIT_S
    assert "client sees ********" in log and SECRET not in log
    assert SECRET not in edge.said(), "the node's own log"

    wait_for("the other app to fail", lambda: TRACEBACK in quiet.said(), RUN_LIMIT_S)
    wait_for("the run to end", lambda: platform.json("runs", run, "--federation", "lab")["state"] == "finished", RUN_LIMIT_S)
    assert platform.run("logs", "-f", run, "--federation", "lab", "--node", edge.id).startswith(log), "following it to its end"
    assert quiet.app_log(run) == "", "it keeps its output"
    assert "has no node" in missing(platform, run)

    # What was written survives the SuperLink.
    before = set(platform.processes("superlink"))
    (old,) = before
    subprocess.run(["kill", "-9", str(old)], check=True)
    wait_for("another SuperLink", lambda: set(platform.processes("superlink")) - before, RUN_LIMIT_S)
    platform.wait_ready("lab")
    assert edge.app_log(run).startswith(log)


def ask(platform: Platform, route: str) -> dict:
    """An answer of the REST API."""
    server = json.loads((platform.home / "server.json").read_text())["url"].rstrip("/")
    token = (platform.home / "admin.token").read_text().strip()
    asked = request.Request(f"{server}/api/v1{route}", headers={"Authorization": f"Bearer {token}"})
    with request.urlopen(asked, timeout=30) as answer:
        return json.load(answer)


def missing(platform: Platform, run: str) -> str:
    """The error about a node that does not exist."""
    argv = platform.argv("logs", run, "--federation", "lab", "--node", "nowhere")
    done = subprocess.run(argv, env=platform.env(), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done
    return done.stderr
