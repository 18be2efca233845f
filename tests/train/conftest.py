"""Fixtures of the suite for native training."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conftest import ARRAY_COUNT, ARRAY_LENGTH, SEED
from harness.digits import Digits
from harness.federation import APPS
from harness.own_supernode import OwnNode
from harness.release import DEFAULT, flower
from harness.workspace import Workspace


@pytest.fixture(scope="session")
def numpy_model():
    """The arithmetic of the numpy app."""
    sys.path.insert(0, str(APPS / "numpy_fedavg"))
    try:
        from numpy_fedavg import model
    finally:
        sys.path.remove(str(APPS / "numpy_fedavg"))
    return model


@pytest.fixture
def first_model(workspace: Workspace, numpy_model) -> Path:
    """The first model of the numpy app, which its own ServerApp would make."""
    arrays = numpy_model.initial_arrays(SEED, ARRAY_COUNT, ARRAY_LENGTH)
    path = workspace.root / "first.npz"
    np.savez(path, *arrays)
    return path


@pytest.fixture
def numpy_app(workspace: Workspace) -> Path:
    return workspace.copy_app(APPS / "numpy_fedavg", "submitted")


@pytest.fixture
def digest(numpy_model) -> Callable[[dict[str, np.ndarray]], str]:
    """Of a model of the numpy app, in the order of its arrays."""

    def of(arrays: dict[str, np.ndarray]) -> str:
        return numpy_model.digest([arrays[name] for name in sorted(arrays, key=int)])

    return of


@pytest.fixture
def digits(federation) -> Callable[..., Digits]:
    """Starts a federation of our nodes, each with some of the digits, whose apps run in the Python of one release."""

    def start(nodes: int, python: str = DEFAULT, fleet: tuple = (), **wanted: object) -> Digits:
        fleet = fleet or (OwnNode(python, port=flower(python).fleet_transport),)
        fed = federation(app="digits", nodes=nodes, fleet=fleet, cli=python, runtime=python, **wanted)
        return Digits(fed.start())

    return start
