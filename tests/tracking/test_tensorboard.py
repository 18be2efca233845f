"""Event files of runs, as the real TensorBoard reads them."""

import json
import subprocess

import pytest

from harness.platform import Platform
from harness.trackers import tensorboard_run
from harness.trellis_run import TrellisRun
from harness.workspace import trellis_binary

ROUNDS = 10

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]


def rounds(run: dict, name: str) -> list[int]:
    return [step for step, _ in run["scalars"][name]]


def test_ten_rounds_are_ten_points_of_each_metric(workspace):
    directory = workspace.root / "tensorboard"
    flags = ("--rounds", str(ROUNDS), "--nodes", "2", "--seed", "1", "--tensorboard", str(directory))
    training = TrellisRun(workspace, "native:mlp", *flags)
    ended = training.wait_ended()

    run = tensorboard_run(directory / ended["run_id"])
    expected = {"train/train_loss", "evaluate/eval_acc", "evaluate/eval_loss"}
    assert expected | {"round/seconds", "round/nodes", "round/failures"} <= set(run["scalars"])
    assert all(rounds(run, name) == list(range(1, ROUNDS + 1)) for name in expected)
    reports = [report for report in training.events("report") if report["kind"] == "round"]
    accuracies = [report["evaluate"]["metrics"]["eval_acc"] for report in reports]
    assert [value for _, value in run["scalars"]["evaluate/eval_acc"]] == pytest.approx(accuracies)
    assert {value for _, value in run["scalars"]["round/nodes"]} == {2.0}
    assert run["hparams"]["strategy"] == "FedAvg" and run["hparams"]["num-server-rounds"] == ROUNDS
    assert "| seed | 1 |" in run["texts"]["run"]
    [tracked] = training.events("tracked")
    assert tracked["sink"] == "tensorboard" and tracked["problems"] == [] and tracked["not_delivered"] == 0
    assert tracked["delivered"] == sum(map(len, run["scalars"].values()))


def test_a_flower_app_with_a_serverapp_of_its_own(workspace, numpy_app):
    directory = workspace.root / "tensorboard"
    training = TrellisRun(workspace, numpy_app, "--nodes", "2", "--set", "seed=9", "--tensorboard", str(directory))
    run = tensorboard_run(directory / training.wait_ended()["run_id"])

    assert rounds(run, "round/nodes") == [1, 2, 3]
    assert any(name.startswith("train/") for name in run["scalars"])
    assert any(name.startswith("evaluate/") for name in run["scalars"])
    assert run["hparams"]["seed"] == 9 and run["hparams"]["array-count"] == 4


def test_a_run_that_is_there_is_tracked_by_the_beginning_of_its_id(workspace):
    platform = Platform(workspace)
    platform.run("up", "--nodes", "2", "--detach")
    lines = platform.run("run", "--rounds", "3", "--detach", "-o", "json").splitlines()
    run_id = json.loads(lines[0])["run_id"]
    directory = workspace.root / "tensorboard"
    words = ("track", run_id[:6], "--tensorboard", str(directory), "-o", "json")
    events = [json.loads(line) for line in platform.run(*words, "--follow").splitlines()]

    assert [event["round"] for event in events if event["event"] == "report" and event["kind"] == "round"] == [1, 2, 3]
    assert events[-1]["event"] == "tracked" and events[-1]["problems"] == []
    first = {path.name: path.read_bytes() for path in (directory / run_id).iterdir()}
    assert rounds(tensorboard_run(directory / run_id), "evaluate/eval_loss") == [1, 2, 3]
    platform.run(*words)
    assert {path.name: path.read_bytes() for path in (directory / run_id).iterdir()} == first


def test_mistakes_are_told_at_once_and_nothing_is_sent(workspace):
    file = workspace.root / "file"
    file.touch()
    words = ("--tensorboard", str(file / "runs"), "--mlflow", "ftp://127.0.0.1", "--rounds", "0")
    done = subprocess.run(
        [str(trellis_binary()), "run", *words], env=workspace.env(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    for mistake in ("is no directory", "begins with neither https:// nor http://", "rounds"):
        assert mistake in done.stderr
