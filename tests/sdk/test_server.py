"""The package against a real server: federations, documents, runs, models, logs, tokens."""

import ast
import contextlib
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from harness.federation import APPS

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]

ROUNDS = 3


@pytest.fixture(scope="module")
def run(platform):
    """One that is over."""
    import trellis

    started = trellis.connect(home=platform.home).run("native:mlp", rounds=ROUNDS, strategy="FedAdam", local_epochs=1)
    started.wait(60, progress=False)
    return started


def test_a_client_finds_the_server_of_this_machine(platform, client, monkeypatch):
    import trellis

    assert client.me().role == "admin"
    assert client.me().version == trellis.__version__
    monkeypatch.setenv("TRELLIS_HOME", str(platform.home))
    assert trellis.connect().url == client.url
    monkeypatch.delenv("TRELLIS_HOME")
    by_file = trellis.connect(client.url, token_file=platform.home / "admin.token")
    assert [federation.name for federation in by_file.federations()] == ["local"]
    monkeypatch.setenv("TRELLIS_SERVER", client.url)
    monkeypatch.setenv("TRELLIS_SERVER_TOKEN", (platform.home / "admin.token").read_text())
    assert trellis.connect().me().role == "admin"


def test_a_token_of_the_environment_is_not_for_the_server_of_a_home(platform, client, monkeypatch):
    import trellis

    monkeypatch.setenv("TRELLIS_SERVER", "http://127.0.0.1:1")
    monkeypatch.setenv("TRELLIS_SERVER_TOKEN", "of-another-server")
    monkeypatch.setenv("TRELLIS_SERVER_TOKEN_FILE", "/nowhere")
    assert trellis.connect(home=platform.home).url == client.url


@pytest.mark.parametrize("minor", range(9, 15))
def test_every_python(platform, script, minor):
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"there is no Python 3.{minor} here")
    script(
        """
import asyncio, trellis
run = trellis.connect().run(rounds=1)
assert [event.kind for event in run.events(60)].count("round") == 2
assert run.wait().outcome == "completed" and "[ROUND 1/1]" in "".join(run.logs())
async def again():
    client = await trellis.aio.connect()
    return [event.kind async for event in (await client.get_run(run.id)).events(60)]
assert asyncio.run(again()).count("round") == 2
try:
    trellis.connect("http://127.0.0.1:1", token="x")
except trellis.Unreachable:
    pass
""",
        home=platform.home,
        python=python,
    )


def interpreter(minor: int) -> str | None:
    """One on PATH that starts, or of pyenv."""
    beside = sorted(Path(sys.base_prefix).parent.glob(f"3.{minor}.*/bin/python"))
    for python in [f"python3.{minor}", *map(str, beside)]:
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
                return python
    return None


def test_a_federation_and_its_nodes(client):
    detail = client.federation()
    assert (detail.summary.name, detail.summary.state, detail.summary.nodes.ready) == ("local", "ready", 2)
    assert detail.status is not None and detail.status.coordinator.phase == "ready"
    assert [node.phase for node in client.nodes()] == ["ready", "ready"]
    assert client.connection().http
    assert client.current_plan().actions == []
    assert "native:mlp" in [app.name for app in client.apps().apps]
    assert any("SuperLink" in line for line in client.logs("coordinator"))


def test_a_run_from_its_start_to_its_model(client, run):
    assert (run.outcome, run.finished, run.info.native) == ("completed", True, True)
    assert [row["round"] for row in run.history] == [1, 2, 3]
    losses = run.history.column("train_loss")
    assert all(isinstance(loss, float) for loss in losses) and losses[-1] < losses[0]
    last = run.refresh().training
    assert last is not None and last.strategy == "FedAdam"
    assert last.metrics == {name: run.history[-1][name] for name in last.metrics}, "metrics are named as in the API"
    assert run.id in [each.id for each in client.runs()]
    assert client.get_run(run.id).info == run.info


def test_the_model_of_a_run(client, run):
    import trellis

    model = run.model()
    assert model and all(isinstance(array, np.ndarray) and np.isfinite(array).all() for array in model.values())
    kept = run.models()
    assert (kept[0].round, kept[0].final) == (ROUNDS, True), kept
    assert run.model(round=ROUNDS).keys() == model.keys()
    with pytest.raises(trellis.NotFound, match=r"no model of round 7: there are checkpoints of rounds .*3"):
        run.model(round=7)


def test_a_model_for_torch(platform, run, script, torch_python):
    done = script(
        f"""
import trellis
state = trellis.connect().get_run({run.id!r}).state_dict()
print([(name, list(tensor.shape), float(tensor.double().sum())) for name, tensor in state.items()])
""",
        home=platform.home,
        python=torch_python,
    )
    expected = [(name, list(array.shape), float(array.astype("f8").sum())) for name, array in run.model().items()]
    assert ast.literal_eval(done.stdout) == pytest.approx(expected)


def test_a_history_for_pandas(platform, run, script, programs):
    done = script(
        f"""
import trellis
frame = trellis.connect().get_run({run.id!r}).history.to_pandas()
print(list(frame.index), frame["train_loss"].dtype, frame["train_loss"].is_monotonic_decreasing)
""",
        home=platform.home,
        python=str(programs / "python"),
    )
    assert done.stdout == "[1, 2, 3] float64 True\n"


def test_every_round_comes_once(client):
    run = client.run("native:mlp", rounds=ROUNDS, config={"local-epochs": 1})
    events = list(run.events(timeout=60))
    rounds = [event.report.round for event in events if event.kind == "round" and event.report.kind == "round"]
    states = [event.run.state for event in events if event.kind == "run"]
    assert rounds == [1, 2, 3]
    assert states[-1] == "finished" and len(states) == len(set(states))
    # Of a run that is over, what happened.
    assert [event.kind for event in run.events()].count("round") == [event.kind for event in events].count("round")


def test_a_wait_shows_the_rounds(client, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    run = client.run(rounds=2)
    assert run.wait(60).outcome == "completed"
    lines = shown.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["round 1/2", "round 2/2", f"run {run.id} completed"]


def test_a_run_is_stopped(client):
    import trellis

    run = client.run("native:mlp", rounds=100_000)
    with pytest.raises(trellis.WaitTimeout, match="goes on"):
        run.wait(0.5, progress=False)
    run.stop()
    assert run.wait(60, progress=False).outcome == "stopped"


def test_the_app_of_a_directory(platform, client, reference):
    run = client.run(platform.workspace.copy_app(APPS / "numpy_fedavg"), rounds=2)
    lines = list(run.logs(follow=True))
    run.wait(60, progress=False)
    assert (run.outcome, run.info.native, run.info.config["num-server-rounds"]) == ("completed", False, 2)
    assert lines and lines == list(run.logs())
    assert [row["round"] for row in run.history] == [1, 2]
    with pytest.raises(Exception, match="native_server=True"):
        run.model()


def test_documents_are_planned_applied_and_deleted(client, tmp_path):
    import trellis

    document = {
        "apiVersion": "trellis.dev/v1",
        "kind": "Federation",
        "metadata": {"name": "lab"},
        "spec": {"nodes": 1},
    }
    file = tmp_path / "lab.yaml"
    file.write_text("apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: lab}\nspec: {nodes: 0}\n")
    for each in (document, file, file.read_text()):
        assert client.plan(each).federation == "lab"
    made = client.apply(file, create=True)
    assert made.summary.name == "lab" and client.plan(document).exists
    with pytest.raises(trellis.Conflict):
        client.apply(document, create=True)
    with pytest.raises(trellis.Conflict):
        client.apply(document, revision=made.summary.revision + 1)
    ready = client.apply(document, revision=made.summary.revision, wait=True, timeout=60)
    assert ready.summary.nodes.ready == 1
    with pytest.raises(trellis.errors.ConfigurationError, match="2 federations: lab, local"):
        client.run()
    client.scale("nodes", 0, "lab")
    assert client.wait_ready("lab", 60).summary.nodes.wanted == 0
    client.delete("lab", purge=True, wait=True)
    assert [federation.name for federation in client.federations()] == ["local"]


def test_tokens_are_issued_and_revoked(client):
    import trellis

    issued = client.issue_token("a viewer", "viewer", ttl_s=3600)
    viewer = trellis.connect(client.url, token=issued.token)
    assert viewer.me().name == "a viewer"
    with pytest.raises(trellis.Forbidden, match="token with another role"):
        viewer.run("native:mlp", "local")
    assert issued.about.id in [token.id for token in client.tokens()]
    last = client.audit(limit=1)[-1]
    assert last.event == "token-issued" and issued.about.id in last.subject
    assert client.audit(after=last.seq) == []
    client.revoke_token(issued.about.id)
    with pytest.raises(trellis.Unauthorized):
        viewer.me()


def test_a_federation_is_up_for_as_long_as_a_block(script):
    done = script(
        """
import trellis
with trellis.up(nodes=1) as federation:
    assert federation.started and federation.detail().summary.nodes.ready == 1
    with trellis.up() as again:
        assert not again.started, "it was there before"
    assert federation.run(rounds=1).wait(60).outcome == "completed"
    url = federation.url
try:
    trellis.connect()
except trellis.NoServer as error:
    print(error)
"""
    )
    assert "no server runs on this machine" in done.stdout and "trellis.up()" in done.stdout
    assert "round 1/1" in done.stderr
