"""Fixtures of the security suite."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.accounts import AccountControl, Api, Person, administrator
from harness.clock import Clock
from harness.federation import APPS
from harness.superlink import LinkOptions, Superlink
from harness.workspace import Workspace
from provision import CannotBeHad
from security.certificates import Signer

ROLES = {"vera": "viewer", "rolf": "runner", "rita": "runner", "ada": "admin"}


@dataclass
class Office:
    """A SuperLink that asks who calls, and the accounts it has. Its clock can be set."""

    grounds: Clock
    superlink: Superlink
    admin: Api
    tokens: dict[str, str]

    @property
    def control(self) -> AccountControl:
        return AccountControl(self.admin)

    def person(self, workspace: Workspace, name: str, version: str) -> Person:
        """Somebody at a desk, with an account or without one."""
        app = self.grounds.root / "apps" / "faulty"
        try:
            return Person(workspace, self.superlink, name, version, app, self.tokens.get(name, ""))
        except CannotBeHad as why:
            pytest.skip(str(why))

    def restart(self, ahead_s: int) -> None:
        """At another time of day."""
        self.superlink.stop()
        try:
            self.grounds.ahead_s = ahead_s
            self.superlink.start()
        except CannotBeHad as why:
            pytest.skip(f"the clock cannot be set here, so the end of logins is not tested: {why}")


@pytest.fixture(scope="module")
def open_office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Office]]:
    """Opens offices, each of which lives until the module is over."""
    opened: list[Clock] = []

    def make() -> Office:
        opened.append(Clock(tmp_path_factory.mktemp("office")))
        return make_office(opened[-1])

    yield make
    for grounds in opened:
        grounds.close()


@pytest.fixture(scope="module")
def office(open_office: Callable[[], Office]) -> Office:
    """One for all tests that only use it."""
    return open_office()


def make_office(grounds: Clock) -> Office:
    tls = Signer(grounds.root / "tls").sign()
    superlink = Superlink(grounds, LinkOptions(tls=tls, flags=("--account-auth", "on"))).start()
    app = grounds.copy_app(APPS / "faulty")
    choose_serverapp(app, "waits")
    admin = administrator(superlink)
    return Office(grounds, superlink, admin, {name: admin.new_account(name, role) for name, role in ROLES.items()})


def choose_serverapp(app: Path, module: str) -> None:
    config = app / "pyproject.toml"
    config.write_text(config.read_text().replace("faulty.completes:app", f"faulty.{module}:app"))
