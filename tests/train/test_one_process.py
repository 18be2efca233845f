"""`trellis run` alone: a whole federation in one process, which leaves nothing behind but its models."""

import json
from pathlib import Path

import pytest

from harness.process import marked_pids, pid_exists
from harness.release import flower
from harness.trellis_run import TrellisRun, saved_arrays

OLDEST, NEWEST = "1.25", "1.42"

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]


def left_over(mark: str) -> list[int]:
    """Living processes that carry the mark of a workspace."""
    return [pid for pid in marked_pids(mark) if pid_exists(pid)]


def test_digits_are_learned_without_python(workspace):
    training = TrellisRun(workspace, "native:mlp", "--rounds", "5", "--nodes", "4", "--seed", "1")
    ended = training.wait_ended()

    last = [report for report in training.events("report") if report["kind"] == "round"][-1]
    assert last["evaluate"]["metrics"]["eval_acc"] > 0.9
    assert Path(ended["model"]).parent.parent == workspace.trellis_home / "models" / "_in-process"
    assert left_over(workspace.mark) == []


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_a_flower_app_in_warm_workers(workspace, numpy_app, first_model, digest, reference, version):
    flags = ("--nodes", "2", "--rounds", "2", "--initial-model", str(first_model))
    training = TrellisRun(workspace, numpy_app, *flags, release=flower(version))

    assert digest(saved_arrays(Path(training.wait_ended()["model"]))) == reference(rounds=2)
    assert left_over(workspace.mark) == []


def test_a_flower_app_trains_with_the_first_model_of_its_own_serverapp(workspace, numpy_app, reference):
    result = workspace.root / "result.json"
    training = TrellisRun(workspace, numpy_app, "--nodes", "2", "--rounds", "2", "--set", f"result-path={result}")

    assert training.wait_ended()["status"] == "completed"
    assert json.loads(result.read_text())["sha256"] == reference(rounds=2)
    assert left_over(workspace.mark) == []


def test_ctrl_c_ends_every_part_of_it(workspace, numpy_app, first_model, tmp_path):
    gate = tmp_path / "gate"
    held = ("--set", f"gate-path={gate}", "--set", "gate-partition=-1")
    training = TrellisRun(workspace, numpy_app, "--nodes", "2", "--initial-model", str(first_model), *held)
    training.wait_started()
    training.interrupt()

    assert training.wait_ended(code=130)["status"] == "stopped"
    assert left_over(workspace.mark) == []
