"""A real identity provider, Dex, with users that a test makes; and a visitor who signs in there as a browser would."""

import html
import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.client import HTTPResponse
from http.cookiejar import CookieJar

import pytest

import provision_kube
from harness.ports import free_port
from harness.process import MARK
from harness.waiting import wait_for
from harness.workspace import Workspace
from provision import CannotBeHad

CLIENT = "trellis"
OTHER_CLIENT = "wiki"
SECRET = "client-secret"
PASSWORD = "correct horse"
START_LIMIT_S = 30.0
CALL_LIMIT_S = 20.0
MAX_REDIRECTS = 12


@dataclass
class Dex:
    """`callback`: where it may send users of the server under test."""

    workspace: Workspace
    callback: str
    algorithm: str = "RS256"
    id_tokens_s: int = 3600
    port: int = field(default_factory=free_port)
    users: dict[str, dict] = field(default_factory=dict)
    process: subprocess.Popen | None = None

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}/dex"

    def start(self) -> "Dex":
        """Starts it, or starts it again: with the same users and new keys."""
        try:
            program = provision_kube.provision("dex") / "dex"
        except CannotBeHad as why:
            pytest.skip(f"Dex cannot be had here: {why}")
        client = {"secret": SECRET, "redirectURIs": [self.callback, "/device/callback", "/dex/device/callback"]}
        config = {
            "listen": f"127.0.0.1:{self.port}",
            "algorithm": self.algorithm,
            "idTokensS": self.id_tokens_s,
            "clients": [client | {"id": CLIENT, "name": "Trellis"}, client | {"id": OTHER_CLIENT, "name": "Wiki"}],
        }
        with (self.workspace.logs / f"dex-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(program), json.dumps(config)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env=self.workspace.env() | {MARK: self.workspace.mark},
            )  # fmt: skip
        wait_for("Dex to serve", self.is_up, START_LIMIT_S)
        for user in self.users.values():
            self._tell(user)
        return self

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.issuer}/.well-known/openid-configuration", timeout=CALL_LIMIT_S):
                return True
        except OSError:
            return False

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def user(self, name: str, *groups: str, verified: bool = True) -> str:
        """Makes or changes a user; their e-mail address."""
        email = f"{name}@example.org"
        user = {"email": email, "password": PASSWORD, "groups": list(groups), "verified": verified}
        self.users[email] = user
        self._tell(user)
        return email

    def remove(self, email: str) -> None:
        del self.users[email]
        self._tell({"email": email, "removed": True})

    def _tell(self, user: dict) -> None:
        self.process.stdin.write(json.dumps(user) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def id_token(self, email: str, client: str = CLIENT, scopes: Iterable[str] = ("openid", "email", "groups")) -> str:
        """An ID token without a browser, as a program with a password gets it."""
        form = {"grant_type": "password", "username": email, "password": PASSWORD, "scope": " ".join(scopes)}
        form |= {"client_id": client, "client_secret": SECRET}
        body = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(f"{self.issuer}/token", data=body, timeout=CALL_LIMIT_S) as answer:
            return json.load(answer)["id_token"]


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class Visitor:
    """A browser without a screen: follows redirects, keeps cookies, fills in the forms of Dex."""

    def __init__(self) -> None:
        self.opener = urllib.request.build_opener(Stay, urllib.request.HTTPCookieProcessor(CookieJar()))

    def ask(self, url: str, form: dict[str, str] | None = None) -> HTTPResponse | urllib.error.HTTPError:
        body = urllib.parse.urlencode(form).encode() if form is not None else None
        try:
            return self.opener.open(url, data=body, timeout=CALL_LIMIT_S)
        except urllib.error.HTTPError as answer:
            return answer

    def follow(self, url: str, form: dict[str, str] | None = None) -> tuple[str, str]:
        """Where redirects end, and the page there. An address with a fragment, or beyond Dex and the server, is an end."""
        for _ in range(MAX_REDIRECTS):
            with self.ask(url, form) as answer:
                place = answer.headers.get("Location")
                if answer.status not in (302, 303):
                    return url, answer.read().decode()
            url, form = urllib.parse.urljoin(url, place), None
            if "#" in url or urllib.parse.urlsplit(url).path == "/":
                return url, ""
        raise AssertionError(f"too many redirects, the last to {url}")

    def submit(self, place: str, page: str, fields: dict[str, str]) -> tuple[str, str]:
        action = re.search(r'<form[^>]*action="([^"]*)"', page)
        assert action, f"no form at {place}: {page[-2000:]}"
        return self.follow(urllib.parse.urljoin(place, html.unescape(action[1])), fields)

    def sign_in(self, url: str, email: str) -> tuple[str, str]:
        """From an address of the server or of Dex to where the login ends, and the page there."""
        place, page = self.follow(url)
        if 'name="user_code"' in page:
            code = urllib.parse.parse_qs(urllib.parse.urlsplit(place).query)["user_code"][0]
            place, page = self.submit(place, page, {"user_code": code})
        return self.submit(place, page, {"login": email, "password": PASSWORD})
