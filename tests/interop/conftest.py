"""Fixtures of the interop suite."""

from collections.abc import Callable

import pytest

from harness.federation import Federation


@pytest.fixture
def nodeless(federation) -> Callable[..., Federation]:
    """Makes a federation without SuperNodes for one of the faulty app's ServerApps, named by its module."""

    def make(serverapp: str = "completes", **wanted: object) -> Federation:
        made = federation(app="faulty", nodes=0, **wanted)
        config = made.cli.app / "pyproject.toml"
        config.write_text(config.read_text().replace("faulty.completes:app", f"faulty.{serverapp}:app"))
        return made

    return make
