"""A server with single sign-on at a real provider, and calls of its API as its callers make them."""

import base64
import hashlib
import json
import secrets
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

from harness.dex import CLIENT, SECRET, Dex, Visitor
from harness.platform import Platform
from harness.ports import free_port
from harness.process import Process
from harness.waiting import wait_for
from harness.workspace import Workspace

START_LIMIT_S = 60.0
CALL_LIMIT_S = 30.0
ROLES = ("--oidc-role", "researchers=runner", "--oidc-role", "staff=viewer", "--oidc-role", "platform=admin")


@dataclass
class Server:
    workspace: Workspace
    dex: Dex
    url: str
    process: Process | None = None

    @classmethod
    def start(cls, workspace: Workspace, *words: str, **of_dex: object) -> "Server":
        """Both, with sessions that the provider confirms every second unless `words` say otherwise."""
        url = f"http://127.0.0.1:{free_port()}"
        server = cls(workspace, Dex(workspace, f"{url}/api/v1/sign-on/callback", **of_dex).start(), url)
        server.serve(*words)
        return server

    def serve(self, *words: str) -> None:
        platform = Platform(self.workspace)
        secret = self.workspace.root / "client.secret"
        secret.write_text(SECRET + "\n")
        argv = platform.argv(
            "server", "--listen", self.url.removeprefix("http://"), "--oidc-issuer", self.dex.issuer,
            "--oidc-client-id", CLIENT, "--oidc-client-secret-file", str(secret), "--oidc-label", "Clinic",
            *ROLES, *(words or ("--oidc-confirm", "1s")),
        )  # fmt: skip
        self.process = self.workspace.start("server", argv, platform.env())
        wait_for("the server to serve", self.is_up, START_LIMIT_S)

    def is_up(self) -> bool:
        try:
            return self.call("GET", "/sign-on")[0] == 200 and bool(self.admin)
        except OSError:
            return False

    @property
    def admin(self) -> str:
        return (self.workspace.root / "home" / "admin.token").read_text().strip()

    def call(self, method: str, route: str, body: object = None, token: str = "") -> tuple[int, dict | list | None]:
        """Status and answer."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        data = json.dumps(body).encode() if body is not None else None
        asked = urllib.request.Request(f"{self.url}/api/v1{route}", method=method, data=data, headers=headers)
        try:
            answer = urllib.request.urlopen(asked, timeout=CALL_LIMIT_S)
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None

    def audit(self, event: str) -> list[dict]:
        """Entries of this kind, oldest first."""
        status, entries = self.call("GET", "/audit?limit=1000", token=self.admin)
        assert status == 200, entries
        return [entry for entry in entries if entry["event"] == event]

    def begin(self) -> tuple[str, str]:
        """A login as the page begins it: the address for the browser, and the verifier."""
        verifier = secrets.token_urlsafe(48)
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return f"{self.url}/api/v1/sign-on/start?challenge={challenge}", verifier

    def returned(self, email: str) -> tuple[dict[str, str], str]:
        """What the page gets in its fragment when a user is back, and the verifier."""
        start, verifier = self.begin()
        place, _ = Visitor().sign_in(start, email)
        parts = urllib.parse.urlsplit(place)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.url}/", place
        return dict(urllib.parse.parse_qsl(parts.fragment)), verifier

    def sign_in(self, email: str) -> str:
        """A token for a user, by way of a browser."""
        fragment, verifier = self.returned(email)
        proof = {"browser": {"code": fragment["sign-on-code"], "verifier": verifier}}
        status, issued = self.call("POST", "/sign-on/token", proof)
        assert status == 201, issued
        return issued["token"]

    def me(self, token: str) -> tuple[str, str] | int:
        """Name and role of a token, or the status of the refusal."""
        status, me = self.call("GET", "/me", token=token)
        return (me["name"], me["role"]) if status == 200 else status
