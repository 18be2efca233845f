"""The apps of the catalogue learn, under our SuperLink and our nodes, in the Python of several releases, with numpy alone."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from harness.flower_cli import FlwrCli
from harness.own_supernode import OwnNode
from harness.release import flower
from harness.workspace import trellis_binary

OLDEST, NEWEST = "1.25", "1.42"
APPS = ("image-classification", "anomaly-detection", "llm-fine-tuning")
# The metric that says whether an app learns, and whether it shall rise.
GOAL = {"image-classification": ("eval_acc", True), "anomaly-detection": ("auc", True), "llm-fine-tuning": ("perplexity", False)}
RUN_LIMIT_S = 300.0

pytestmark = pytest.mark.trellis_only


class Trial:
    """A federation of our own parts whose apps run in the Python of a release, and one app of the catalogue."""

    def __init__(self, federation, app: Path, release: str, nodes: int):
        self.fed = federation(fleet=(OwnNode(python=release),), runtime=release, nodes=nodes).start()
        self.app = app
        self.cli = FlwrCli(self.fed.workspace, app, self.fed.superlink, version=release)

    def run(self, name: str = "result", **settings: object) -> dict:
        """What the ServerApp tells of a run that completed."""
        nodes = self.fed.shape.nodes
        usual = {"min_fit_clients": nodes, "min_evaluate_clients": nodes, "min_available_clients": nodes}
        run_id = self.cli.submit(result_path=self.fed.result_path(name), **(usual | settings))
        state = self.fed.wait_finished(run_id, RUN_LIMIT_S)
        assert state.status == "finished:completed", self.cli.log(run_id).text
        return self.fed.result(name)


def curve(told: dict, app: str) -> list[float]:
    metric, _ = GOAL[app]
    return [metrics[metric] for metrics in told["evaluate"]]


def improves(told: dict, app: str) -> bool:
    values = curve(told, app)
    return values[-1] > values[0] if GOAL[app][1] else values[-1] < values[0]


@pytest.mark.quick
@pytest.mark.parametrize("release", [OLDEST, NEWEST])
@pytest.mark.parametrize("app", APPS)
def test_an_app_learns(federation, exported, tmp_path, app, release):
    trial = Trial(federation, exported(app), release, nodes=2)

    told = trial.run(num_server_rounds=2, checkpoint_path=tmp_path / "kept", checkpoint_interval=1)

    assert [metrics["round"] for metrics in told["evaluate"]] == [1, 2]
    assert improves(told, app), told["evaluate"]
    if app == "llm-fine-tuning":
        assert told["train"][0]["perplexity_before"] > 200, "at first every byte is as likely as any other"
    kept = sorted(path.name for path in (tmp_path / "kept").iterdir())
    rounds = ["checkpoint_round_1.npz", "checkpoint_round_2.npz"]
    assert kept == ["checkpoint_latest.json", "checkpoint_latest.npz", *rounds, "model.npz"]
    with np.load(tmp_path / "kept" / "model.npz") as final, np.load(tmp_path / "kept" / rounds[1]) as last:
        assert final.files == last.files and all((final[name] == last[name]).all() for name in final.files)


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize(
    ("nodes", "settings"),
    [
        (2, {"strategy": "FedProx", "proximal_mu": 0.1}),
        (2, {"strategy": "FedAdam", "server_lr": 0.02}),
        (2, {"strategy": "FedAvgM", "server_lr": 0.5}),
        (3, {"strategy": "FedTrimmedAvg", "trim_beta": 0.34}),
        (5, {"strategy": "Krum", "num_malicious": 1}),
    ],
    ids=lambda value: value["strategy"] if isinstance(value, dict) else str(value),
)
def test_an_app_learns_with_every_kind_of_strategy(federation, exported, app, nodes, settings):
    trial = Trial(federation, exported(app), OLDEST, nodes)

    told = trial.run(num_server_rounds=4, **settings)

    assert improves(told, app), told["evaluate"]


def test_a_strong_pull_keeps_clients_where_they_began(federation, exported):
    """FedProx is no FedAvg by another name: the clients obey proximal-mu."""
    trial = Trial(federation, exported("image-classification"), OLDEST, nodes=2)

    free = trial.run("free", num_server_rounds=1, strategy="FedProx", proximal_mu=0.0)
    pulled = trial.run("pulled", num_server_rounds=1, strategy="FedProx", proximal_mu=9.0)

    assert pulled["train"][0]["train_loss"] > free["train"][0]["train_loss"] + 0.1


def test_uneven_classes_are_harder(federation, exported):
    trial = Trial(federation, exported("image-classification"), OLDEST, nodes=3)

    even = trial.run("even", num_server_rounds=2)
    uneven = trial.run("uneven", num_server_rounds=2, dirichlet_alpha=0.05)

    # On its few classes a node trains with less loss, and that is all the worse for the federation.
    assert uneven["train"][0]["train_loss"] < even["train"][0]["train_loss"]
    assert improves(uneven, "image-classification")


def test_a_run_goes_on_from_its_checkpoint(federation, exported, tmp_path):
    trial = Trial(federation, exported("image-classification"), OLDEST, nodes=2)
    kept = {"checkpoint_path": tmp_path / "kept", "checkpoint_interval": 1}

    first = trial.run("first", num_server_rounds=2, **kept)
    rest = trial.run("rest", num_server_rounds=3, resume=True, **kept)

    assert [metrics["round"] for metrics in rest["evaluate"]] == [3]
    assert rest["evaluate"][0]["eval_acc"] > first["evaluate"][0]["eval_acc"]


def test_nodes_use_the_data_of_their_own(federation, exported, tmp_path):
    """A directory that every node sees, of which each takes its part."""
    rng = np.random.default_rng(1)
    causes = rng.normal(0, 1, (600, 2))
    rows = np.hstack([causes, causes @ rng.normal(0, 1, (2, 3)) + 0.05 * rng.normal(0, 1, (600, 3))])
    odd = rng.random(600) < 0.1
    rows[odd] = rng.normal(0, 1, (int(odd.sum()), 5)) * 2
    lines = [",".join([*(f"{value:.4f}" for value in row), str(int(bad))]) for row, bad in zip(rows, odd)]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,c,d,e,label", *lines]))
    trial = Trial(federation, exported("anomaly-detection"), OLDEST, nodes=2)

    told = trial.run(num_server_rounds=3, data_dir=tmp_path, hidden_units=2)

    assert improves(told, "anomaly-detection") and curve(told, "anomaly-detection")[-1] > 0.8


@pytest.mark.parametrize("app", APPS)
def test_everything_that_is_wrong_is_told_at_once(federation, exported, app):
    trial = Trial(federation, exported(app), OLDEST, nodes=2)

    run_id = trial.cli.submit(strategy="FedNothing", trim_beta=0.7, num_server_rounds=0)

    assert trial.fed.wait_finished(run_id).status == "finished:failed"
    log = trial.cli.log(run_id).text
    for part in ("strategy is 'FedNothing'", "trim-beta is 0.7", "num-server-rounds is 0"):
        assert part in log


@pytest.mark.quick
def test_app_run_is_trellis_run_of_its_directory(workspace, exported):
    def dry(*words: str) -> dict:
        argv = [str(trellis_binary()), *words, "--nodes", "2", "--set", "batch-size=8", "--dry-run", "-o", "json"]
        done = subprocess.run(argv, env=workspace.env(), capture_output=True, text=True, check=True, timeout=30)
        return json.loads(done.stdout)

    directory = exported("anomaly-detection")
    assert dry("app", "run", "anomaly-detection") == dry("run", str(directory), "--app-server")


@pytest.mark.quick
def test_the_gradients_of_the_small_language_model_are_right(exported):
    directory = exported("llm-fine-tuning")
    script = """
import sys
import numpy as np
from llm_fine_tuning import small_model

wide = lambda arrays: {name: array.astype(np.float64) for name, array in arrays.items()}
rng = np.random.default_rng(0)
model, adapters = wide(small_model.base(12)), wide(small_model.fresh_adapters(3, 1))
adapters = {name: array + rng.normal(0, 0.02, array.shape) for name, array in adapters.items()}
rows = small_model.encoded(["hello world", "abc"], 12)
_, gradients = small_model.gradients_of(model, adapters, 2.0, rows)
for name, array in adapters.items():
    place, step = tuple(rng.integers(size) for size in array.shape), 1e-5
    around = []
    for sign in (1, -1):
        moved = {**adapters, name: array.copy()}
        moved[name][place] += sign * step
        around.append(small_model.loss(model, moved, 2.0, rows))
    measured = (around[0] - around[1]) / (2 * step)
    assert abs(measured - gradients[name][place]) < 1e-6, name
"""
    subprocess.run([flower(OLDEST).command("python"), "-c", script], cwd=directory, check=True, timeout=60)
