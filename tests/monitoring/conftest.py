"""What the monitoring suite shares: the files under test, and Debian's Prometheus to test them with."""

from pathlib import Path

import pytest

from harness.prometheus import prometheus_bin
from harness.workspace import REPOSITORY
from provision import CannotBeHad

DEPLOYED = REPOSITORY / "deploy" / "monitoring"


@pytest.fixture(scope="session")
def deployed() -> Path:
    """The directory that operators copy."""
    return DEPLOYED


@pytest.fixture(scope="session")
def prometheus_tools() -> Path:
    """The directory with `prometheus` and `promtool`; without them a test is skipped, loudly."""
    try:
        return prometheus_bin()
    except CannotBeHad as why:
        pytest.skip(f"Prometheus cannot be had here: {why}")
