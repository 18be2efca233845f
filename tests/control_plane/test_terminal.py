"""`trellis top` and `trellis doctor` beside a federation that lives: what they show, and that the terminal is given back."""

import json
import signal
import subprocess

import pytest
from harness.platform import Platform
from harness.screen import ENTERS, Screen
from harness.workspace import Workspace

NODES = 2


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("terminal"))
    made = Platform(workspace)
    try:
        made.run("up", "--nodes", str(NODES), "--detach")
        made.wait_ready("local")
        yield made
    finally:
        workspace.close()


@pytest.fixture
def top(platform):
    opened = []

    def open_screen(*words: str) -> Screen:
        opened.append(Screen(platform.argv("top", *words), platform.env(), platform.workspace.root))
        return opened[-1]

    yield open_screen
    for screen in opened:
        screen.close()


@pytest.mark.quick
def test_top_in_a_pipe_is_text(platform):
    shown = platform.run("top")
    assert "\x1b" not in shown
    names = [node["name"] for node in platform.json("nodes", "--federation", "local")["items"]]
    assert len(names) == NODES and all(name in shown for name in names)
    assert f"nodes {NODES} of {NODES} ready" in shown


@pytest.mark.quick
@pytest.mark.parametrize("end", ["q", "\x03", signal.SIGTERM, signal.SIGINT])
def test_top_gives_the_terminal_back(top, end):
    screen = top()
    screen.wait(ENTERS, "local", "live", "ready")
    screen.press(end) if isinstance(end, str) else screen.kill(end)
    assert screen.wait_end() == 0
    assert screen.is_as_before


def test_top_follows_a_run_keys_and_the_size_of_its_window(platform, top):
    screen = top("--federation", "local")
    screen.wait("local", "live")
    platform.run("run", "native:mlp", "--federation", "local", "--rounds", "3")
    screen.wait("completed")
    screen.forget()
    screen.press("\t\t\r")
    # With a new size the whole picture is written anew, not only what changed in it.
    screen.resize(120, 40)
    screen.wait("strategy", "3/3", "accuracy", "submitted")
    screen.press("q")
    assert screen.wait_end() == 0


@pytest.mark.quick
def test_doctor_finds_the_server_and_what_it_keeps(platform):
    report = json.loads(platform.run("doctor", "-o", "json"))
    found = {check["name"]: check for check in report["checks"]}
    assert found["server"]["verdict"] == "ok" and "http" in found["server"]["found"]
    assert found["certificates"]["verdict"] == "ok" and found["certificates"]["found"].startswith("files: ")
    assert found["flwr config"]["found"].endswith("flwr run . local")
    assert all(check.get("fix") for check in report["checks"] if check["verdict"] != "ok")


@pytest.mark.quick
def test_doctor_fails_where_there_is_a_problem(platform, tmp_path):
    broken = tmp_path / "flwr-home"
    broken.mkdir()
    (broken / "config.toml").write_text("[superlink\n")
    env = platform.env(FLWR_HOME=str(broken))
    done = subprocess.run(platform.argv("doctor"), env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "flwr does not start with it" in done.stdout
