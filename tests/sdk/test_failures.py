"""What callers see when something is wrong: which error, and that it says what to do."""

import asyncio
import os
import signal
import stat
import sys

import pytest
from harness.authority import Authority
from harness.federation import APPS
from harness.platform import Platform
from harness.ports import free_port
from harness.process import marked_pids
from harness.waiting import wait_for
from harness.workspace import trellis_binary
from sdk.conftest import SOURCE

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]

SECRET = "a-token-that-nobody-sees"
SERVER_START_LIMIT_S = 60.0


def test_no_server_runs(tmp_path):
    import trellis

    with pytest.raises(trellis.NoServer, match=r"no server runs on this machine .*trellis\.up\(\)"):
        trellis.connect(home=tmp_path)
    with pytest.raises(trellis.Unreachable, match="cannot be reached: Connection refused. Is it running"):
        trellis.connect(f"http://127.0.0.1:{free_port()}", token=SECRET)


def test_a_wrong_token(client):
    import trellis

    with pytest.raises(trellis.Unauthorized, match="token_file=, TRELLIS_SERVER_TOKEN") as error:
        trellis.connect(client.url, token=SECRET)
    assert (error.value.status, error.value.kind) == (401, "unknown-caller")
    assert SECRET not in str(error.value)


def test_a_federation_that_is_not_there(client):
    import trellis

    for call in (client.federation, client.nodes, client.runs, client.delete, lambda name: client.run(federation=name)):
        with pytest.raises(trellis.NotFound, match="lokal.*did you mean local"):
            call("lokal")
    with pytest.raises(trellis.NotFound, match="there are local"):
        client.federation("something-else")
    with pytest.raises(trellis.NotFound, match="17"):
        client.get_run("17")


def test_everything_that_is_wrong_with_a_document(client):
    import trellis

    text = (
        "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: Lab}\n"
        "spec:\n  pools:\n  - {name: a, cuont: 2}\n  training: {strategy: FedAdm}\n"
    )
    for call in (client.plan, client.apply):
        with pytest.raises(trellis.Invalid) as error:
            call(text)
        problems = {problem.path: problem for problem in error.value.problems}
        assert {"metadata.name", "spec.training.strategy"} <= set(problems) and len(problems) >= 3
        assert problems["metadata.name"].line == 3
        assert all(problem.what in str(error.value) for problem in problems.values())
        assert "did you mean count?" in str(error.value)


def test_settings_that_are_not_known(platform, client):
    import trellis

    with pytest.raises(trellis.Invalid) as error:
        client.run("native:mlp", hiden=1, rounds="many")
    assert [problem.path for problem in error.value.problems] == ["settings.hiden", "settings.num-server-rounds"]
    app = platform.workspace.root / "apps" / "again"
    with pytest.raises(trellis.errors.ConfigurationError, match="directory of a Flower app"):
        client.run(app)
    if not app.exists():
        platform.workspace.copy_app(APPS / "numpy_fedavg", "again")
    with pytest.raises(trellis.ProgramFailed) as error:
        client.run(app, array_cuont=1, rounds="many")
    assert [problem.path for problem in error.value.problems] == ["settings.array-cuont", "settings.num-server-rounds"]
    assert "did you mean array-count?" in str(error.value)


def test_a_run_that_fails(platform, client):
    import trellis

    app = platform.workspace.copy_app(APPS / "faulty")
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace("faulty.completes:app", "faulty.broken_import:app"))
    run = client.run(app)
    with pytest.raises(trellis.RunFailed, match=f"run {run.id} failed: .+") as error:
        run.wait(60, progress=False)
    assert error.value.details == run.info.details
    assert run.wait(60, progress=False, check=False).outcome == "failed"


def test_the_program_is_missing(monkeypatch, tmp_path):
    import trellis

    with pytest.raises(trellis.NoProgram, match="nowhere"):
        trellis.up(program=tmp_path / "nowhere")
    monkeypatch.delenv("TRELLIS_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(trellis.NoProgram, match="pip install trellis-fl"):
        trellis.up()


def test_a_federation_that_cannot_be_up(script):
    done = script("import trellis; trellis.up('Bad Name')", code=1)
    assert "trellis.errors.ProgramFailed" in done.stderr and "metadata.name" in done.stderr


def test_an_interrupted_start_leaves_nothing(workspace):
    platform = Platform(workspace)
    python = workspace.start(
        "script",
        # So many nodes are not ready before the signal arrives.
        [sys.executable, "-c", "import trellis; trellis.up(nodes=16)"],
        platform.env(PYTHONPATH=str(SOURCE), TRELLIS_BIN=str(trellis_binary())),
    )
    wait_for("a part", lambda: platform.processes("superlink") != [], SERVER_START_LIMIT_S)
    os.kill(python.pid, signal.SIGINT)
    assert python.wait_exit(SERVER_START_LIMIT_S) != 0 and "KeyboardInterrupt" in python.output()
    wait_for("everything to end", lambda: not marked_pids(workspace.mark), SERVER_START_LIMIT_S)


def test_the_token_is_on_no_command_line(client, tmp_path, monkeypatch):
    """The program gets it on its standard input, where other users of the machine cannot see it."""
    import trellis

    program = tmp_path / "trellis"
    program.write_text(f"#!/bin/sh\ntr '\\0' '\\n' < /proc/$$/cmdline > {tmp_path}/told\nenv >> {tmp_path}/told\ncat > {tmp_path}/stdin\nexit 3\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TRELLIS_SERVER_TOKEN", SECRET)
    with pytest.raises(trellis.ProgramFailed):
        client.run(APPS / "numpy_fedavg", program=program)
    told, token = (tmp_path / "told").read_text(), (tmp_path / "stdin").read_text()
    assert token and token not in told and SECRET not in told and "--server-token-file" in told


def server_process(platform: Platform) -> int | None:
    found = platform.processes("server")
    return found[0] if found else None


def test_a_server_that_is_killed_while_events_are_read(platform, client):
    """It is started again; what happened meanwhile is caught up on, and each round comes once."""
    run = client.run("native:mlp", rounds=60, local_epochs=5)
    rounds, killed = [], None
    for event in run.events(timeout=120):
        if event.kind == "round" and event.report.kind == "round":
            rounds.append(event.report.round)
        if rounds and killed is None:
            killed = wait_for("the server's process", lambda: server_process(platform), 10.0)
            os.kill(killed, signal.SIGKILL)
    assert run.outcome == "completed"
    assert rounds == list(range(1, 61))
    assert server_process(platform) not in (None, killed)


def test_a_server_that_stays_away(workspace, monkeypatch):
    import trellis
    from trellis._patience import Absence

    monkeypatch.setattr(Absence, "limit_s", 1.0)
    platform = Platform(workspace)
    argv = platform.argv("server", "--listen", f"127.0.0.1:{free_port()}")
    server = workspace.start("server", argv, platform.env())
    server.wait_line("serving", SERVER_START_LIMIT_S)
    client = trellis.connect(home=platform.home)
    events = client.events()
    assert next(events).kind == "resync"
    server.kill()
    with pytest.raises(trellis.Unreachable, match="Is it running"):
        next(events)
    with pytest.raises(trellis.NoServer):
        trellis.connect(home=platform.home)


def test_a_server_with_tls(workspace):
    import trellis

    platform = Platform(workspace)
    files = Authority(workspace).issue(workspace.root / "tls", "localhost")
    other = Authority(workspace, "other").issue(workspace.root / "other-tls", "localhost")
    port = free_port()
    argv = platform.argv("server", "--listen", f"127.0.0.1:{port}", "--certificate", str(files.cert))
    argv += ["--key", str(files.key), "--trust", str(files.ca)]
    workspace.start("server", argv, platform.env()).wait_line("serving", SERVER_START_LIMIT_S)
    token = (platform.home / "admin.token").read_text()
    url = f"https://localhost:{port}"
    assert trellis.connect(url, token=token, root_certificates=files.ca).me().role == "admin"
    assert trellis.connect(home=platform.home).url.startswith("https://"), "the server says what to trust"
    assert asyncio.run(trellis.aio.connect(home=platform.home)).url.startswith("https://")
    for trust in ({"root_certificates": other.ca}, {}):
        with pytest.raises(trellis.Unreachable, match="certificate that is not trusted.*root_certificates=") as error:
            trellis.connect(url, token=token, **trust)
        assert token.strip() not in str(error.value)
    with pytest.raises(trellis.errors.TrellisError):
        trellis.connect(f"http://localhost:{port}", token=token)
