"""Runs in a real MLflow server: points, parameters, the model; and a server that is killed in the middle."""

from pathlib import Path

import pytest

from harness.own_supernode import OwnNode
from harness.trackers import MlflowServer
from harness.trellis_cli import TrellisCli
from harness.trellis_run import TrellisRun, saved_arrays
from harness.waiting import wait_for

ROUNDS = 10
# Long enough that what the machine does besides is less than the tolerance.
ROUND_S = 1.0
TOLERANCE = 0.05

pytestmark = pytest.mark.trellis_only


@pytest.fixture
def mlflow(workspace) -> MlflowServer:
    return MlflowServer(workspace).start()


def rounds(run: dict, name: str) -> list[int]:
    return [step for step, _ in run["metrics"][name]]


def round_reports(training: TrellisRun) -> list[dict]:
    return [report for report in training.events("report") if report["kind"] == "round"]


def test_ten_rounds_and_a_model_that_predicts(workspace, mlflow):
    flags = ("--rounds", str(ROUNDS), "--nodes", "2", "--seed", "1", "--mlflow", mlflow.uri)
    training = TrellisRun(workspace, "native:mlp", *flags, "--mlflow-experiment", "digits")
    ended = training.wait_ended()

    run = mlflow.run(ended["run_id"], "digits")
    for name in ("train/train_loss", "evaluate/eval_acc", "round/seconds", "round/nodes", "round/failures"):
        assert rounds(run, name) == list(range(1, ROUNDS + 1))
    accuracies = [report["evaluate"]["metrics"]["eval_acc"] for report in round_reports(training)]
    assert [value for _, value in run["metrics"]["evaluate/eval_acc"]] == pytest.approx(accuracies)
    assert run["info"]["status"] == "FINISHED"
    assert run["params"]["seed"] == "1" and run["params"]["strategy"] == "FedAvg"
    assert run["tags"]["trellis.app"] == "trellis/mlp"
    predicted = mlflow.load_model(run)
    assert predicted["shape"] == [2, 10] and predicted["sums"] == pytest.approx([1, 1], abs=1e-5)
    [tracked] = training.events("tracked")
    assert tracked["model"] and tracked["problems"] == []


def test_killed_in_the_middle_it_delays_nothing_and_the_gap_is_closed_later(
    federation, numpy_app, first_model, workspace, mlflow
):
    fed = federation(fleet=(OwnNode(),)).start()
    models = fed.superlink.state_dir / "models"
    models.mkdir(exist_ok=True)
    (models / first_model.name).write_bytes(first_model.read_bytes())
    flags = ("--initial-model", first_model.name, "--rounds", str(ROUNDS), "--set", f"train-seconds={ROUND_S}")

    def trained(*more: str) -> TrellisRun:
        return TrellisRun(fed.workspace, numpy_app, *flags, *more, superlink=fed.superlink)

    def seconds(training: TrellisRun) -> float:
        reports = round_reports(training)
        return reports[-1]["started_at"] - reports[0]["started_at"]

    alone = trained()
    alone.wait_ended()
    training = trained("--mlflow", mlflow.uri)
    run_id = training.wait_started()
    wait_for("some rounds", lambda: len(round_reports(training)) >= 4, 60)
    mlflow.kill()
    ended = training.wait_ended()

    assert seconds(training) == pytest.approx(seconds(alone), rel=TOLERANCE)
    [tracked] = training.events("tracked")
    assert tracked["delivered"] > 0 and tracked["not_delivered"] > 0 and not tracked["model"]
    lost = f"{tracked['not_delivered']} of {tracked['delivered'] + tracked['not_delivered']} points not delivered"
    assert lost in tracked["problems"][0] and "Connection refused" in tracked["problems"][0]

    mlflow.start()
    cli = TrellisCli(fed.workspace, fed.superlink)
    for _ in range(2):
        cli.run("track", str(run_id)[:8], "--mlflow", mlflow.uri)
        run = mlflow.run(run_id)
        assert all(rounds(run, name) == list(range(1, ROUNDS + 1)) for name in run["metrics"]), "once each"
        assert run["info"]["status"] == "FINISHED"
    arrays = {name: array.tolist() for name, array in saved_arrays(Path(ended["model"])).items()}
    assert mlflow.load_model(run) == arrays


def test_a_flower_app_with_a_serverapp_of_its_own(workspace, numpy_app, mlflow):
    training = TrellisRun(workspace, numpy_app, "--nodes", "2", "--set", "seed=9", "--mlflow", mlflow.uri)
    run = mlflow.run(training.wait_ended()["run_id"])

    assert rounds(run, "round/nodes") == [1, 2, 3]
    assert any(name.startswith("evaluate/") for name in run["metrics"])
    assert run["params"]["seed"] == "9" and run["params"]["array-count"] == "4"
    assert run["info"]["status"] == "FINISHED"


def test_a_server_that_was_never_there_is_told(workspace):
    training = TrellisRun(workspace, "native:logistic", "--rounds", "2", "--nodes", "1", "--mlflow", "http://127.0.0.1:1")
    assert training.wait_ended()["status"] == "completed"
    [tracked] = training.events("tracked")
    assert tracked["delivered"] == 0 and "Connection refused" in tracked["problems"][0]
