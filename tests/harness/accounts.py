"""Accounts of a SuperLink: created through its API, and used with the official `flwr`. Knows how to log in; tests check the
permissions of accounts.
"""

import html
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import grpc

from harness.control import Control
from harness.flower_cli import Answer, FlwrCli
from harness.place import Place
from harness.process import Process
from harness.release import flower
from harness.superlink import Superlink
from harness.workspace import Workspace

ANSWER_LIMIT_S = 10.0
LOGIN_LIMIT_S = 30.0


class Refused(AssertionError):
    """The SuperLink answered with an HTTP error."""

    def __init__(self, status: int, text: str):
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


@dataclass(frozen=True)
class Api:
    """Calls to /v1/trellis with the token of an account, or without one."""

    superlink: Superlink
    token: str | None = None

    def call(self, rpc: str, **fields: object) -> dict:
        headers = {"content-type": "application/json"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        body = json.dumps(fields).encode()
        return json.loads(_open(self.superlink, f"v1/trellis/{rpc}", body, headers))

    def new_account(self, name: str, role: str) -> str:
        """Creates an account; returns its first token."""
        return self.call("create-account", name=name, role=role)["token"]

    def audit(self) -> list[dict]:
        """The newest entries, unchanged."""
        return self.call("list-audit")["entries"]


def administrator(superlink: Superlink) -> Api:
    """The account that a SuperLink creates at its first start. Its token is in the state directory."""
    return Api(superlink, (superlink.state_dir / "admin.token").read_text().strip())


class AccountControl(Control):
    """The Control API with the token of an account."""

    def __init__(self, api: Api):
        super().__init__(api.superlink.control_address, api.superlink.options.tls)
        self._token = api.token

    def _channel(self) -> grpc.Channel:
        assert self._tls is not None, "tokens are sent over TLS only"
        secure = grpc.ssl_channel_credentials(self._tls.ca.read_bytes())
        known = grpc.composite_channel_credentials(secure, grpc.access_token_call_credentials(self._token))
        return grpc.secure_channel(self._address, known)


class Person:
    """A user with an account and their own installation of `flwr`."""

    def __init__(self, workspace: Workspace, superlink: Superlink, name: str, version: str, app: Path, token: str = ""):
        self.name = name
        self._superlink, self._token = superlink, token
        self._desk = Place.within(workspace, f"desk-{name}-{version}")
        # If the command line reads the settings of the app, these tell it to log in.
        reads_pyproject = not flower(version).cli_reads_home
        self.cli = FlwrCli(self._desk, self._desk.copy_app(app), superlink, account_auth=reads_pyproject, version=version)

    def begin_login(self) -> "Login":
        """Starts `flwr login`, which waits for the browser."""
        release = self.cli.release
        # Newer releases open a browser themselves; this one does nothing.
        env = self._desk.env(release, f"cli-{release.version}", BROWSER="true")
        argv = [release.command("flwr"), "login", *self.cli.here]
        return Login(self._superlink, self._token, self._desk.start("login", argv, env, self.cli.app))

    def ask(self, *words: str) -> Answer:
        """Runs `flwr WORDS` for this SuperLink."""
        return self.cli.run_command(*words, *self.cli.here)

    def credentials(self) -> str:
        """The credentials that the command line has stored."""
        kept = [*self._desk.root.rglob("credentials.yaml"), *self._desk.root.rglob(".credentials/*.json")]
        return "\n".join(path.read_text() for path in kept)


class Login:
    """A login in progress, and the browser that approves it."""

    def __init__(self, superlink: Superlink, token: str, process: Process):
        self.process = process
        self._superlink, self._token = superlink, token
        self._url = urllib.parse.urlparse(process.wait_line(r"https://\S+/login\?code=\S+", LOGIN_LIMIT_S).group(0))

    @property
    def page_address(self) -> str:
        return self._url.netloc

    def approve(self, token: str | None = None) -> str:
        """Opens the page, enters the token and presses the button; returns the text of the resulting page."""
        page = _open(self._superlink, f"{self._url.path}?{self._url.query}")
        code = re.search(r'name=code value="([^"]*)"', page)
        target = re.search(r"<form method=post action=(\S+?)>", page)
        assert code and target, page
        form = {"code": html.unescape(code.group(1)), "token": self._token if token is None else token}
        return _open(self._superlink, target.group(1), urllib.parse.urlencode(form).encode(), {})

    def finish(self) -> str:
        """Waits for the command line; returns its output."""
        assert self.process.wait_exit(LOGIN_LIMIT_S) == 0, self.process.output()
        return self.process.output()


def log_in(*people: Person) -> None:
    """Logs in all of them at the same time."""
    logins = [person.begin_login() for person in people]
    for login in logins:
        login.approve()
    for login in logins:
        assert "Login successful" in login.finish()


def _open(superlink: Superlink, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> str:
    """GET, or POST if there is a body."""
    tls = superlink.options.tls
    context = None if tls is None else ssl.create_default_context(cafile=str(tls.ca))
    scheme = "http" if tls is None else "https"
    url = f"{scheme}://{superlink.http_address}/{path.removeprefix('/')}"
    request = urllib.request.Request(url, data=body, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S, context=context) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as refused:
        raise Refused(refused.code, refused.read().decode()) from refused
