"""Commands about the federation of this machine: they find it without flags, by position, by flag and by variable, and call its
SuperLink, not another one."""

import re
import subprocess

import pytest
from harness.platform import Platform
from harness.workspace import Workspace

pytestmark = pytest.mark.quick

DOCUMENT = "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: lab}\nspec: {nodes: 1}\n"


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("one-federation"))
    made = Platform(workspace)
    (workspace.root / "lab.yaml").write_text(DOCUMENT)
    try:
        made.run("apply", "-f", "lab.yaml")
        yield made
        made.run("delete", "lab")
        assert not (workspace.home() / "config.toml").exists(), "the connection of flwr goes with the federation"
    finally:
        workspace.close()


def test_apply_writes_the_connection_of_flwr(platform):
    config = platform.workspace.home() / "config.toml"
    assert "[superlink.lab]" in config.read_text()
    assert platform.json("connect")["changes"][0]["done"] == "unchanged", "the only federation, without an address"


def test_superlink_commands_call_the_superlink_of_the_federation(platform):
    assert platform.run("whoami") == "admin (admin)\n"
    assert [account["name"] for account in platform.json("account", "ls")["accounts"]] == ["admin"]
    assert platform.json("audit", "lab")["entries"]
    made = platform.json("token", "add", "--label", "mine")
    assert made["token"]
    assert platform.json("token", "revoke", made["id"], "--federation", "lab")["state"] == "revoked"


def test_tokens_of_the_server_are_made_listed_and_revoked(platform):
    made = platform.json("token", "server", "add", "ada", "--role", "viewer", "--ttl", "1h")
    listed = {token["id"]: token["role"] for token in platform.json("token", "server", "ls")["items"]}
    assert listed[made["about"]["id"]] == "viewer"
    platform.run("token", "server", "revoke", made["about"]["id"][:6])
    assert made["about"]["id"] not in {token["id"] for token in platform.json("token", "server", "ls")["items"]}


@pytest.mark.parametrize("words", [("status", "lab"), ("status", "--federation", "lab"), ("nodes", "lab"), ("top", "lab")])
def test_a_federation_is_named_in_one_way(platform, words):
    assert platform.run(*words)
    env = platform.env(TRELLIS_FEDERATION="nowhere")
    done = subprocess.run(platform.argv(*words[:1]), env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1 and "nowhere" in done.stderr, done


def test_models_of_the_federation_and_of_one_process_are_in_one_place(platform):
    platform.run("run", "--rounds", "1")
    platform.run("run", "--rounds", "1", "--nodes", "2")
    listed = platform.json("model", "ls")["checkpoints"]
    assert {line["federation"] for line in listed} == {"lab", "_in-process"}
    run = listed[-1]["run_id"]
    platform.run("model", "rm", run)
    assert run not in {line["run_id"] for line in platform.json("model", "ls")["checkpoints"]}


def test_a_python_that_cannot_be_used_changes_nothing(platform):
    before = platform.json("status", "lab")["summary"]["revision"]
    platform.run("up", "lab", "--python", "/no/such/python", "--detach", code=2)
    assert platform.json("status", "lab")["summary"]["revision"] == before


def test_the_last_hint_of_the_demo_works_in_any_home(tmp_path):
    workspace = Workspace(tmp_path)
    try:
        demo = Platform(workspace)
        hint = re.search(r"`trellis (model show .*)`", demo.run("up", "--demo", "--nodes", "2"))
        # `make demo` has a home of its own.
        env = workspace.env(TRELLIS_HOME=str(tmp_path / "another"))
        done = subprocess.run(demo.argv(*hint[1].split()), env=env, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0 and "Round       10 of 10" in done.stdout, done
    finally:
        workspace.close()
