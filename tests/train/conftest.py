"""Fixtures of the suite for native training: federations that learn digits."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.federation import APPS, Federation
from harness.native_run import DIGITS, Native, NativeRuns
from harness.own_supernode import OwnNode
from harness.release import DEFAULT, flower

SEED = 7


@pytest.fixture
def digits(federation) -> Callable[..., "Digits"]:
    """Starts a federation of our nodes, each with some of the digits, whose apps run in the Python of one release."""

    def start(nodes: int, python: str = DEFAULT, fleet: tuple = (), **wanted: object) -> Digits:
        fleet = fleet or (OwnNode(python, port=flower(python).fleet_transport),)
        fed = federation(app="digits", nodes=nodes, fleet=fleet, cli=python, runtime=python, **wanted)
        return Digits(fed.start())

    return start


class Digits:
    """A federation that learns digits, natively or with Flower's own strategies, from one and the same beginning."""

    def __init__(self, federation: Federation):
        self.federation = federation
        self.native = NativeRuns(federation)

    def settings(self, rounds: int, hidden_layers: int = 1, **more: object) -> dict[str, object]:
        nodes = self.federation.shape.nodes
        return {
            "nodes": nodes,
            "num_server_rounds": rounds,
            "data_path": DIGITS,
            "initial_model": self.first_model(hidden_layers),
            "hidden_layers": hidden_layers,
            "seed": SEED,
            **more,
        }

    def run_native(self, *flags: str, rounds: int, **more: object) -> Native:
        return self.native.run(*flags, **self._native_settings(rounds, **more))

    def submit_native(self, rounds: int, **more: object) -> int:
        return self.native.submit(**self._native_settings(rounds, **more))

    def _native_settings(self, rounds: int, **more: object) -> dict[str, object]:
        nodes = self.federation.shape.nodes
        enough = {"min_train_nodes": nodes, "min_evaluate_nodes": nodes, "min_available_nodes": nodes}
        return self.settings(rounds, **more) | enough

    def run_python(self, rounds: int, **more: object) -> tuple[list[dict], dict[str, np.ndarray]]:
        """What Flower's own strategy makes of it: the curve, and the last model."""
        fed = self.federation
        run_id = fed.cli.submit(result_path=fed.result_path(), **self.settings(rounds, **more))
        state = fed.wait_finished(run_id)
        assert state.status == "finished:completed", state
        with np.load(fed.result_path().with_suffix(".npz")) as model:
            return fed.result(), {name: model[name] for name in model.files}

    def first_model(self, hidden_layers: int) -> Path:
        path = self.federation.workspace.root / f"first-{hidden_layers}.npz"
        if not path.exists():
            np.savez(path, **dict(zip(map(str, range(99)), _fresh(hidden_layers))))
        return path


def _fresh(hidden_layers: int) -> list[np.ndarray]:
    sys.path.insert(0, str(APPS / "digits"))
    try:
        from digits import network
    finally:
        sys.path.remove(str(APPS / "digits"))
    return network.fresh(hidden_layers, SEED)
