"""Fixtures of the interop suite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.federation import Federation
from harness.matrix import Record


@pytest.fixture(scope="session")
def record(pytestconfig: pytest.Config) -> Iterator[Record]:
    """How official releases got on with the SuperLink; written where `--matrix` says."""
    kept = Record()
    yield kept
    if path := pytestconfig.getoption("--matrix"):
        kept.write(Path(path))


@pytest.fixture
def nodeless(federation) -> Callable[..., Federation]:
    """Makes a federation without SuperNodes for one of the faulty app's ServerApps, named by its module."""

    def make(serverapp: str = "completes", **wanted: object) -> Federation:
        return federation(app="faulty", serverapp=serverapp, nodes=0, **wanted)

    return make
