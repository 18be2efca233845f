"""Native runs with unmodified official nodes: the weights are those of Flower's own ServerApp, and `flwr` sees any run."""

import shutil
from pathlib import Path

import pytest

from harness.federation import Federation
from harness.own_supernode import OwnNode
from harness.trellis_run import TrellisRun, saved_arrays
from harness.waiting import wait_for

ROUNDS = 3
OLDEST, NEWEST = "1.25", "1.42"

pytestmark = pytest.mark.trellis_only


def trained(fed: Federation, app: Path, first_model: Path, *flags: str) -> TrellisRun:
    """Train from a model that lies with the SuperLink's own: a run may name no other file there."""
    models = fed.superlink.state_dir / "models"
    models.mkdir(exist_ok=True)
    shutil.copy(first_model, models)
    flags = ("--rounds", str(ROUNDS), "--initial-model", first_model.name, *flags)
    return TrellisRun(fed.workspace, app, *flags, superlink=fed.superlink)


@pytest.mark.parametrize(
    "fleet", [(OLDEST,), (NEWEST,), (OLDEST, NEWEST), (OwnNode(),)], ids=["1.25", "1.42", "both", "ours"]
)
def test_the_weights_are_those_of_flowers_serverapp(federation, numpy_app, first_model, digest, reference, fleet):
    fed = federation(fleet=fleet).start()

    ended = trained(fed, numpy_app, first_model).wait_ended()

    assert ended["status"] == "completed"
    assert digest(saved_arrays(Path(ended["model"]))) == reference(rounds=ROUNDS)
    assert fed.dead_nodes() == []


@pytest.mark.quick
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_flwr_sees_it_as_any_run(federation, numpy_app, first_model, version):
    fed = federation(fleet=(version,), cli=version).start()

    training = trained(fed, numpy_app, first_model)
    run_id = training.wait_started()
    reports = training.wait_ended() and training.events("report")

    assert fed.cli.runs()[run_id] == "finished:completed"
    assert [report["round"] for report in reports if report["kind"] == "round"] == [1, 2, 3]
    assert [f"[ROUND {number}/{ROUNDS}]" in fed.cli.log(run_id).text for number in (1, 2, 3)] == [True] * 3


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_flwr_stop_ends_it(federation, numpy_app, first_model, version, tmp_path):
    fed = federation(fleet=(version,), cli=version).start()
    gate = tmp_path / "gate"

    held = ("--set", f"gate-path={gate}", "--set", "gate-partition=-1")
    training = trained(fed, numpy_app, first_model, *held)
    run_id = training.wait_started()
    wait_for("a client to hold its instruction", Path(f"{gate}.started").exists, 60)
    fed.cli.stop(run_id)

    assert training.wait_ended(code=1)["status"] == "stopped"
    Path(f"{gate}.open").touch()
    assert fed.cli.runs()[run_id] == "finished:stopped"


def test_it_outlives_the_superlink(federation, numpy_app, first_model, digest, reference, tmp_path):
    """The training goes on in its own process, and so does whoever follows it."""
    fed = federation(fleet=(OwnNode(),)).start()
    gate = tmp_path / "gate"

    held = ("--set", f"gate-path={gate}", "--set", "gate-partition=-1")
    training = trained(fed, numpy_app, first_model, *held)
    training.wait_started()
    wait_for("a client to hold its instruction", Path(f"{gate}.started").exists, 60)
    fed.superlink.kill()
    fed.superlink.start()
    Path(f"{gate}.open").touch()

    ended = training.wait_ended()
    assert digest(saved_arrays(Path(ended["model"]))) == reference(rounds=ROUNDS)
    assert [report["round"] for report in training.events("report") if report["kind"] == "round"] == [1, 2, 3]


@pytest.mark.quick
def test_an_app_of_the_program_on_any_node_of_ours(federation, workspace):
    """The run names it; the nodes were told nothing."""
    fed = federation(fleet=(OwnNode(),)).start()

    flags = ("--rounds", "3", "--set", "hidden=16", "--seed", "3")
    training = TrellisRun(workspace, "native:mlp", *flags, superlink=fed.superlink)
    training.wait_ended()

    last = [report for report in training.events("report") if report["kind"] == "round"][-1]
    assert last["evaluate"]["metrics"]["eval_acc"] > 0.8


def test_ctrl_c_stops_the_run(federation, numpy_app, first_model, tmp_path):
    fed = federation(fleet=(OwnNode(),)).start()
    gate = tmp_path / "gate"

    held = ("--set", f"gate-path={gate}", "--set", "gate-partition=-1")
    training = trained(fed, numpy_app, first_model, *held)
    run_id = training.wait_started()
    wait_for("a client to hold its instruction", Path(f"{gate}.started").exists, 60)
    training.interrupt()

    assert training.wait_ended(code=130)["status"] == "stopped"
    assert fed.cli.runs()[run_id] == "finished:stopped"
