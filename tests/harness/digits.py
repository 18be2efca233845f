"""A federation that learns digits, natively or with Flower's own strategies, from the same initial model."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.federation import APPS, Federation
from harness.trellis_run import TrellisRun, saved_arrays
from harness.workspace import REPOSITORY

DATA = REPOSITORY / "crates" / "training" / "native" / "data" / "digits.bin"
SEED = 7


@dataclass(frozen=True)
class Trained:
    """A completed native run."""

    run_id: int
    reports: list[dict]
    checkpoint: Path

    def curve(self, metric: str = "eval_acc") -> list[float]:
        """The aggregated metric of each round."""
        return [report["evaluate"]["metrics"][metric] for report in self.reports if report["kind"] == "round"]

    def weights(self) -> dict[str, np.ndarray]:
        return saved_arrays(self.checkpoint)

    def saved_bytes(self) -> bytes:
        return (self.checkpoint / "model.safetensors").read_bytes()


class Digits:
    """A federation with the app `digits`."""

    def __init__(self, federation: Federation):
        self.federation = federation

    def train(self, *flags: str, rounds: int, **more: object) -> Trained:
        """Executes a native run."""
        run = self.begin(*flags, rounds=rounds, **more)
        ended = run.wait_ended()
        return Trained(int(ended["run_id"]), run.events("report"), Path(ended["model"]))

    def begin(self, *flags: str, rounds: int, **more: object) -> TrellisRun:
        fed = self.federation
        nodes = fed.shape.nodes
        enough = {"min_train_nodes": nodes, "min_evaluate_nodes": nodes, "min_available_nodes": nodes}
        settings = self._settings(rounds, **more)
        # Paths of a native run are relative to the SuperLink's directory of models.
        first = Path(settings["initial_model"])
        models = fed.superlink.state_dir / "models"
        models.mkdir(exist_ok=True)
        settings["initial_model"] = shutil.copy(first, models / first.name).name
        for name, value in (settings | enough).items():
            flags += ("--set", f"{name.replace('_', '-')}={value}")
        return TrellisRun(fed.workspace, fed.cli.app, *flags, superlink=fed.superlink, release=fed.cli.release)

    def train_in_python(self, rounds: int, **more: object) -> tuple[list[dict], dict[str, np.ndarray]]:
        """Trains with Flower's own strategy: returns the curve and the final model."""
        fed = self.federation
        run_id = fed.cli.submit(result_path=fed.result_path(), **self._settings(rounds, **more))
        state = fed.wait_finished(run_id)
        assert state.status == "finished:completed", state
        with np.load(fed.result_path().with_suffix(".npz")) as model:
            return fed.result(), {name: model[name] for name in model.files}

    def _settings(self, rounds: int, hidden_layers: int = 1, **more: object) -> dict[str, object]:
        return {
            "nodes": self.federation.shape.nodes,
            "num_server_rounds": rounds,
            "data_path": DATA,
            "initial_model": self._first_model(hidden_layers),
            "hidden_layers": hidden_layers,
            "seed": SEED,
            **more,
        }

    def _first_model(self, hidden_layers: int) -> Path:
        path = self.federation.workspace.root / f"first-{hidden_layers}.npz"
        if not path.exists():
            np.savez(path, **dict(zip(map(str, range(99)), fresh(hidden_layers))))
        return path


def fresh(hidden_layers: int) -> list[np.ndarray]:
    sys.path.insert(0, str(APPS / "digits"))
    try:
        from digits import network
    finally:
        sys.path.remove(str(APPS / "digits"))
    return network.fresh(hidden_layers, SEED)
