"""Fixtures of the suite for native training."""

from collections.abc import Callable

import numpy as np
import pytest

from harness.digits import Digits
from harness.own_supernode import OwnNode
from harness.release import DEFAULT, flower


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
