"""Honest apps do not notice the sandbox: all apps of this repository, each with and without it, compared bit for bit."""

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from conftest import make_federation
from harness.digits import DATA, fresh
from harness.federation import APPS, Federation
from harness.flower_cli import FlwrCli
from harness.own_supernode import OwnNode
from harness.place import Place
from harness.workspace import REPOSITORY, Workspace, trellis_binary

pytestmark = pytest.mark.trellis_only

OLDEST, NEWEST = "1.25", "1.42"
REQUIRED, OFF = "required", "off"
RUN_LIMIT_S = 300.0
EXPORT_LIMIT_S = 30.0
NODES = 2
CATALOGUE = ("image-classification", "anomaly-detection", "llm-fine-tuning")


class Output:
    """Files that one run of an app writes."""

    def __init__(self, directory: Path):
        directory.mkdir()
        self.directory = directory
        self.result = directory / "result.json"

    def told(self) -> object:
        return json.loads(self.result.read_text())

    def weights(self, name: str) -> dict[str, tuple]:
        with np.load(self.directory / name) as model:
            return {name: (model[name].dtype.str, model[name].shape, model[name].tobytes()) for name in model.files}


def nothing(_: Output) -> None:
    """The app writes no result: it has to complete."""


@dataclass(frozen=True)
class Case:
    """How an app is run, and the part of its output that must be the same each time."""

    settings: Callable[[Output], dict] = lambda output: {}
    result: Callable[[Output], object] = nothing
    nodes: int = NODES
    source: Path | None = None


def of_catalogue(output: Output) -> dict:
    enough = {f"min_{name}_clients": NODES for name in ("fit", "evaluate", "available")}
    kept = {"checkpoint_path": output.directory, "checkpoint_interval": 1}
    return {"result_path": output.result, "num_server_rounds": 2} | kept | enough


def of_digits(output: Output) -> dict:
    first = output.directory / "first.npz"
    np.savez(first, **{str(index): array for index, array in enumerate(fresh(1))})
    return {"result_path": output.result, "initial_model": first, "data_path": DATA, "nodes": NODES}


def of_caller(_: Output) -> dict:
    """Asks the ServerApp for its nodes, and lets it go."""
    listener = socket.create_server(("127.0.0.1", 0))

    def ask() -> None:
        with listener, listener.accept()[0] as connection, connection.makefile("rw") as lines:
            lines.write('{"call": "nodes"}\n')
            lines.flush()
            lines.readline()

    threading.Thread(target=ask, daemon=True).start()
    return {"driver": "127.0.0.1:{}".format(listener.getsockname()[1])}


def with_result(**settings: object) -> Callable[[Output], dict]:
    return lambda output: {"result_path": output.result, **settings}


def rounds(output: Output) -> list:
    return [[asked["same"], asked["errors"]] for asked in output.told()]


def model_and_metrics(output: Output) -> tuple:
    return output.told()["evaluate"], output.weights("model.npz")


CASES = {
    "acts": Case(with_result(script="count count"), lambda output: [told["count"] for told in output.told()], nodes=1),
    "behaving": Case(),
    "caller": Case(of_caller),
    "digits": Case(of_digits, lambda output: (output.told(), output.weights("result.npz"))),
    "faulty": Case(),
    "intruder": Case(nodes=1),
    "measured": Case(),
    "measured_before": Case(),
    "numpy_fedavg": Case(with_result(), lambda output: output.told()["sha256"]),
    "roll_call": Case(with_result(), rounds),
    "five_offices": Case(with_result(nodes=NODES), Output.told, source=REPOSITORY / "demo" / "app"),
    **{name: Case(of_catalogue, model_and_metrics) for name in CATALOGUE},
}


def test_every_app_has_a_case():
    in_tests = {path.name for path in APPS.iterdir() if (path / "pyproject.toml").exists()}
    catalogue = {path.name for path in (REPOSITORY / "apps").iterdir() if (path / "pyproject.toml").exists()}
    assert set(CASES) == in_tests | catalogue | {"five_offices"}


@dataclass
class Stage:
    """Federations of one release, with and without a sandbox, that are started when they are needed."""

    config: pytest.Config
    release: str
    directory: Path
    federations: dict[tuple[str, int], Federation] = field(default_factory=dict)

    def federation(self, mode: str, nodes: int) -> Federation:
        if (mode, nodes) not in self.federations:
            root = self.directory / f"{mode}-{nodes}"
            root.mkdir()
            flags = ("--sandbox", mode)
            fleet = (OwnNode(python=self.release, flags=flags),)
            wanted = {"nodes": nodes, "fleet": fleet, "cli": self.release, "runtime": self.release, "link_flags": flags}
            self.federations[mode, nodes] = make_federation(Workspace(root), self.config, **wanted).start()
        return self.federations[mode, nodes]

    def run(self, name: str, mode: str) -> object:
        """The result of an app."""
        case = CASES[name]
        federation = self.federation(mode, case.nodes)
        place = Place.within(federation.workspace, name)
        output = Output(place.root / "output")
        cli = FlwrCli(place, source(name, case, place.root / "app"), federation.superlink, version=self.release)
        run_id = cli.submit(**case.settings(output))
        state = federation.wait_finished(run_id, RUN_LIMIT_S)
        assert state.status == "finished:completed", (mode, cli.log(run_id).text)
        return case.result(output)

    def close(self) -> None:
        for federation in self.federations.values():
            federation.workspace.close()


def source(name: str, case: Case, target: Path) -> Path:
    if name in CATALOGUE:
        argv = [str(trellis_binary()), "app", "export", name, str(target)]
        subprocess.run(argv, check=True, capture_output=True, timeout=EXPORT_LIMIT_S)
    else:
        shutil.copytree(case.source or APPS / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(request.config, request.param, tmp_path_factory.mktemp("stage"))
    yield made
    made.close()


@pytest.mark.parametrize("name", CASES)
def test_an_app_does_the_same_in_the_sandbox(stage, name):
    assert stage.run(name, REQUIRED) == stage.run(name, OFF)
    node = stage.federation(REQUIRED, CASES[name].nodes).nodes[0]
    assert node.status().content["sandbox"]["level"] == "full"
