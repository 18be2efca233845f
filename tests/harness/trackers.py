"""A real MLflow server, and what it and TensorBoard know of a run, told by their own packages."""

import json
import subprocess
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.environment import environment
from harness.ports import free_port
from harness.process import Process
from harness.waiting import wait_for
from harness.workspace import Workspace
from provision import CannotBeHad

TENSORBOARD = ("tensorboard==2.21.0",)
# The server without what it needs for training: a third of the whole package.
MLFLOW = (
    "mlflow-skinny==3.17.2",
    "aiohttp==3.14.5",
    "alembic==1.20.1",
    "flask==3.1.3",
    "flask-cors==6.0.5",
    "numpy==2.4.6",
    "pandas==3.1.1",
    "sqlalchemy==2.1.9",
)
# It imports half of its packages before it listens.
START_LIMIT_S = 120.0
CALL_LIMIT_S = 60.0

READ_EVENTS = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
tags = events.Tags()
hparams = {}
for name in events.summary_metadata:
    if name.startswith("_hparams_/session_start"):
        content = events.summary_metadata[name].plugin_data.content
        start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
        hparams = {key: value.string_value or value.number_value or value.bool_value for key, value in start.hparams.items()}
texts = {name: events.Tensors(name)[0].tensor_proto.string_val[0].decode() for name in tags["tensors"]}
scalars = {name: [[event.step, event.value] for event in events.Scalars(name)] for name in tags["scalars"]}
print(json.dumps({"scalars": scalars, "texts": texts, "hparams": hparams}))
"""

LOAD_MODEL = """
import json, sys
import mlflow, numpy as np
model = mlflow.pyfunc.load_model(f"runs:/{sys.argv[1]}/model")
signature = model.metadata.signature
features = signature.inputs.inputs[0].shape[1] if signature.inputs else None
given = None if features is None else np.ones((2, features), dtype=np.float32)
predicted = model.predict(given)
if isinstance(predicted, dict):
    print(json.dumps({name: array.tolist() for name, array in predicted.items()}))
else:
    print(json.dumps({"shape": predicted.shape, "sums": predicted.sum(axis=1).tolist()}))
"""


def programs(name: str, packages: tuple[str, ...]) -> Path:
    """Of an environment with these packages, or a skip that says why there is none."""
    try:
        return environment(name, *packages)
    except CannotBeHad as why:
        pytest.skip(f"{name} cannot be had here: {why}")


def told(python: Path, script: str, *words: str, env: dict[str, str] | None = None) -> dict:
    """What a script prints in JSON."""
    done = subprocess.run(
        [str(python), "-c", script, *words], env=env, capture_output=True, text=True, timeout=CALL_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def tensorboard_run(directory: Path) -> dict:
    """`scalars`, `texts` and `hparams` of a run, as TensorBoard reads them."""
    return told(programs("tensorboard", TENSORBOARD) / "python", READ_EVENTS, str(directory))


@dataclass
class MlflowServer:
    """One server with a database and artifacts of its own; started again, it has the same."""

    workspace: Workspace
    port: int = field(default_factory=free_port)
    process: Process | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        switches = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        return self.workspace.env(**switches, MLFLOW_TRACKING_URI=self.uri)

    def start(self) -> "MlflowServer":
        place = self.workspace.root / "mlflow"
        place.mkdir(exist_ok=True)
        python = programs("mlflow", MLFLOW) / "python"
        argv = [str(python), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        argv += ["--backend-store-uri", f"sqlite:///{place}/runs.db", "--artifacts-destination", str(place / "artifacts")]
        self.process = self.workspace.start(f"mlflow-{len(self.workspace.processes)}", argv, self.env)
        wait_for("MLflow to serve", self._serves, START_LIMIT_S)
        return self

    def kill(self) -> None:
        self.process.kill_group()

    def run(self, run_id: int | str, experiment: str = "trellis") -> dict:
        """`info`, `metrics` (all points by name: steps and values), `params` and `tags` of our run."""
        found = self._call(f"experiments/get-by-name?experiment_name={experiment}")["experiment"]["experiment_id"]
        search = {"experiment_ids": [found], "filter": f"tags.`trellis.run_id` = '{run_id}'"}
        runs = self._call("runs/search", search)["runs"]
        assert len(runs) == 1, f"MLflow has {len(runs)} runs of {run_id}"
        info, data = runs[0]["info"], runs[0]["data"]
        names = [metric["key"] for metric in data.get("metrics", [])]
        pairs = {kind: {it["key"]: it["value"] for it in data.get(kind, [])} for kind in ("params", "tags")}
        return {"info": info, "metrics": {name: self._points(info["run_id"], name) for name in names}, **pairs}

    def load_model(self, run: dict) -> dict:
        """What `mlflow.pyfunc.load_model` makes of the model of a run."""
        return told(programs("mlflow", MLFLOW) / "python", LOAD_MODEL, run["info"]["run_id"], env=self.env)

    def _points(self, run: str, name: str) -> list[tuple[int, float]]:
        history = self._call(f"metrics/get-history?run_id={run}&metric_key={name}")["metrics"]
        return sorted((int(metric.get("step", 0)), float(metric["value"])) for metric in history)

    def _serves(self) -> bool:
        assert self.process.alive, self.process.output()
        try:
            return urllib.request.urlopen(f"{self.uri}/health", timeout=5).status == 200
        except OSError:
            return False

    def _call(self, path: str, body: dict | None = None) -> dict:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.uri}/api/2.0/mlflow/{path}", data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=CALL_LIMIT_S) as answer:
            return json.load(answer)
