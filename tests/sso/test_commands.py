"""The command line and `flwr` with identities of a real provider: browser, device code, and the login of the official `flwr`."""

import json
import stat
import subprocess
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.dex import Visitor
from harness.platform import Platform
from harness.process import Process
from harness.release import flower
from harness.sign_on import Server
from harness.waiting import wait_for
from harness.workspace import Workspace

pytestmark = [pytest.mark.trellis_only]

FEDERATION = "lab"
COMMAND_LIMIT_S = 60.0
READY_LIMIT_S = 180.0
DOCUMENT = f"""apiVersion: trellis.dev/v1
kind: Federation
metadata:
  name: {FEDERATION}
spec:
  pools:
  - name: wards
    count: 2
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    workspace = Workspace(tmp_path_factory.mktemp("sso-commands"))
    try:
        yield Server.start(workspace)
    finally:
        workspace.close()


class Desk:
    """A user's machine: a home of its own, no token, and a browser that tells which page it was sent to."""

    def __init__(self, server: Server, root: Path):
        self.server, self.root = server, root
        self.page = root / "page"
        program = root / "bin" / "xdg-open"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nprintf %s "$1" > {self.page}.draft && mv {self.page}.draft {self.page}\n')
        program.chmod(0o755)

    def env(self, **extra: str) -> dict[str, str]:
        env = self.server.workspace.env(TRELLIS_HOME=str(self.root / "home"), TRELLIS_SERVER=self.server.url)
        for name in ("DISPLAY", "WAYLAND_DISPLAY"):
            env.pop(name, None)
        return env | {"PATH": f"{self.root / 'bin'}:{env['PATH']}"} | extra

    def start(self, *words: str, **extra: str) -> Process:
        name = f"{self.root.name}-{words[0]}-{len(self.server.workspace.processes)}"
        return self.server.workspace.start(name, Platform(self.server.workspace).argv(*words), self.env(**extra))

    def run(self, *words: str) -> subprocess.CompletedProcess:
        argv = Platform(self.server.workspace).argv(*words)
        return subprocess.run(argv, env=self.env(), capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)

    def sign_in(self, email: str) -> None:
        """With the browser of this machine."""
        command = self.start("login", "--oidc", DISPLAY=":0")
        wait_for("the browser to be opened", self.page.exists, COMMAND_LIMIT_S)
        place, _ = Visitor().sign_in(self.page.read_text(), email)
        with Visitor().ask(place) as shown:
            self.shown = shown.read().decode()
        self.code, self.output = command.wait_exit(COMMAND_LIMIT_S), command.output()


@pytest.mark.quick
def test_login_with_a_browser_on_this_machine(server, tmp_path):
    email = server.dex.user("ada", "researchers")
    desk = Desk(server, tmp_path / "ada")
    assert "there is no token" in desk.run("status").stderr
    desk.sign_in(email)
    assert desk.code == 0 and f"as {email} (runner)" in desk.output, desk.output
    assert "You are signed in" in desk.shown
    [kept] = (desk.root / "home" / "logins").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert server.me(kept.read_text().strip()) == (email, "runner")
    assert desk.run("status", "-o", "json").returncode == 0

    ended = desk.run("login", "end")
    assert ended.returncode == 0, ended.stderr
    assert not kept.exists()
    assert server.audit("signed-out")[-1]["actor"] == email


@pytest.mark.quick
def test_a_refused_login_says_why(server, tmp_path):
    desk = Desk(server, tmp_path / "eve")
    desk.sign_in(server.dex.user("eve", "visitors"))
    assert desk.code == 1 and "missing group" in desk.output, desk.output
    assert "refused" in desk.shown and not (desk.root / "home").exists()


@pytest.mark.quick
def test_login_with_a_code_where_there_is_no_display(server, tmp_path):
    email = server.dex.user("grace", "staff")
    desk = Desk(server, tmp_path / "grace")
    command = desk.start("login", "--oidc")
    page = command.wait_line(r"Sign in at (\S+) with the code \S+", COMMAND_LIMIT_S).group(1)
    _, shown = Visitor().sign_in(page, email)
    assert "Login Successful" in shown, shown
    assert command.wait_exit(COMMAND_LIMIT_S) == 0, command.output()
    assert f"as {email} (viewer)" in command.output()


def test_flwr_login_acts_as_the_identity_and_ends_with_it(server, tmp_path):
    """The official `flwr login` waits; the identity that is signed in at the server approves it for the account of its name."""
    admin = Platform(server.workspace)
    document = tmp_path / "federation.yaml"
    document.write_text(DOCUMENT)
    admin.run("apply", "-f", str(document))
    admin.wait_ready(FEDERATION, READY_LIMIT_S)
    desk = Desk(server, tmp_path / "ada")
    email = server.dex.user("ada", "researchers")
    desk.sign_in(email)
    _, connection = server.call("GET", f"/federations/{FEDERATION}/connection", token=server.admin)
    flwr = flower("1.42")
    home = tmp_path / "flwr"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink.{FEDERATION}]\naddress = "{connection["http"]}"\nroot-certificates = "{connection["root_certificates_path"]}"\n'
    )
    env = server.workspace.env(flwr) | {"FLWR_HOME": str(home), "BROWSER": "true"}
    login = server.workspace.start("flwr-login", [flwr.command("flwr"), "login", FEDERATION], env, tmp_path)
    url = urllib.parse.urlparse(login.wait_line(r"https://\S+/login\?code=\S+", COMMAND_LIMIT_S).group(0))
    [code] = urllib.parse.parse_qs(url.query)["code"]

    wrong = desk.run("login", "approve", "0000000000", "--federation", FEDERATION)
    assert wrong.returncode == 1 and "No pending login" in wrong.stderr, wrong.stderr
    approved = desk.run("login", "approve", code, "--federation", FEDERATION)
    assert approved.returncode == 0 and email in approved.stdout, approved.stderr
    assert login.wait_exit(COMMAND_LIMIT_S) == 0, login.output()

    def accounts() -> dict[str, str]:
        listed = admin.json("account", "ls", "--federation", FEDERATION)["accounts"]
        return {account["name"]: account["role"] for account in listed}

    assert accounts()[email] == "runner"
    listed = subprocess.run(
        [flwr.command("flwr"), "ls", FEDERATION, "--format", "json"], env=env, capture_output=True, text=True,
        timeout=COMMAND_LIMIT_S, check=False,
    )  # fmt: skip
    assert listed.returncode == 0 and json.loads(listed.stdout)["success"], listed.stdout + listed.stderr
    entries = admin.json("audit", FEDERATION)["entries"]
    assert [entry["actor"] for entry in entries if entry["event"] == "login"] == [email]
    tokens = admin.json("token", "ls", "--federation", FEDERATION)["tokens"]
    ends = [token["expires_at"] - token["created_at"] for token in tokens if token["account"] == email and token["purpose"] == "refresh"]
    assert ends and max(ends) <= 12 * 3600, "it ends with the session, not after 30 days"
    assert server.audit("login-approved")[-1]["actor"] == email

    refused = server.call("POST", f"/federations/{FEDERATION}/logins", {"code": code}, server.admin)
    assert refused[0] == 403, "a token that is no identity's approves nothing"


def test_a_training_does_not_notice_that_the_provider_is_down(server):
    """Needs the federation of the test before it."""
    email = server.dex.user("joan", "researchers")
    body = {"app": "native:mlp", "settings": {"num-server-rounds": 5}}

    def trained(meanwhile: Callable[[], None]) -> float:
        status, run = server.call("POST", f"/federations/{FEDERATION}/runs", body, server.sign_in(email))
        assert status == 201, run
        meanwhile()

        def ended() -> dict | None:
            _, seen = server.call("GET", f"/federations/{FEDERATION}/runs/{run['id']}", token=server.admin)
            return seen if seen["state"] == "finished" else None

        seen = wait_for("the run to end", ended, READY_LIMIT_S)
        assert (seen["outcome"], seen["started_by"]) == ("completed", email), seen
        return seen["finished_at"] - seen["started_at"]

    usual = [trained(lambda: None) for _ in range(2)]
    away = trained(server.dex.stop)
    server.dex.start()
    assert away < 2 * max(usual) + 1, f"{away:.1f} s without the provider, {usual} s with it"
