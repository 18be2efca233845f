"""The `flwr` commands against the SuperLink: what they show, and what they change."""

import re

import pytest

from harness.credentials import make_node_key
from harness.federation import OFFICIAL, TLS_AUTH, Federation, Shape
from harness.flower_cli import FEDERATION, FlwrCli
from harness.process import pid_exists, wait_pid_file
from harness.waiting import wait_for
from harness.workspace import Workspace

START_LIMIT_S = 60.0
GONE_LIMIT_S = 10.0


@pytest.mark.quick
def test_ls_and_log_show_a_completed_run(nodeless):
    fed = nodeless().start()
    run_id = fed.cli.submit()
    fed.wait_finished(run_id)

    (listed,) = fed.cli.json("ls", ".", FEDERATION)["runs"]
    assert listed["run-id"] == str(run_id)
    assert listed["status"] == "finished:completed"
    assert (listed["fab-id"], listed["fab-version"], listed["federation"]) == ("trellis/faulty", "1.0.0", "default")
    assert "N/A" not in (listed["pending-at"], listed["starting-at"], listed["running-at"], listed["finished-at"])
    table = fed.cli.run_command("ls", ".", FEDERATION).stdout
    assert "@trellis/faulty==1.0.0" in table and "finished:completed" in table

    logged = fed.cli.log(run_id)
    assert logged.code == 0
    assert logged.stdout.count("faulty: nothing to do") == 1
    shown = fed.cli.run_command("log", str(run_id), ".", FEDERATION, "--show")
    assert "faulty: nothing to do" in shown.stdout


@pytest.mark.parametrize("release", ["1.25", "1.28", "1.38", pytest.param("1.42", marks=pytest.mark.quick)])
@pytest.mark.trellis_only
def test_a_run_with_options_of_a_simulation_is_refused(nodeless, release):
    fed = nodeless(cli=release, runtime=release).start()
    options = ("--federation-config", "num_supernodes=10")
    if not fed.cli.release.cli_reads_home:
        options = ()
        with (fed.cli.app / "pyproject.toml").open("a") as file:
            file.write("\noptions.num-supernodes = 10\n")

    answer = fed.cli.run_command("run", ".", FEDERATION, *options)

    assert "does not simulate" in " ".join(answer.text.split()), answer
    assert fed.cli.runs() == {}


@pytest.mark.parametrize(
    "serverapp", ["waits", pytest.param("hangs", marks=[pytest.mark.trellis_only, pytest.mark.quick])]
)
def test_stop_ends_the_run_and_its_process(nodeless, workspace, serverapp):
    """`waits` asks the SuperLink and so can learn that it is over; `hangs` has to be killed."""
    fed = nodeless(serverapp).start()
    pid_path = workspace.root / "serverapp.pid"
    run_id = fed.cli.submit(pid_path=pid_path)
    pid = wait_pid_file(pid_path, START_LIMIT_S)
    assert fed.superlink.control.wait_status(run_id, "running", START_LIMIT_S)

    answer = fed.cli.json("stop", str(run_id), ".", FEDERATION)

    assert answer["run-id"] == str(run_id)
    (listed,) = fed.cli.json("ls", ".", FEDERATION)["runs"]
    assert listed["status"] == "finished:stopped"
    wait_for(f"ServerApp process {pid} to end", lambda: not pid_exists(pid), GONE_LIMIT_S)
    again = fed.cli.run_command("stop", str(run_id), ".", FEDERATION)
    assert f"Run ID {run_id} is already finished" in again.text


def test_a_stopped_run_leaves_its_nodes_ready_for_the_next(federation, workspace, reference):
    fed = federation().start()
    gate = workspace.root / "gate"
    held = fed.cli.submit(gate_path=gate)
    wait_for("a client to hold an instruction", (workspace.root / "gate.started").exists, START_LIMIT_S)
    fed.cli.json("stop", str(held), ".", FEDERATION)
    (workspace.root / "gate.open").touch()

    run_id = fed.cli.submit(result_path=fed.result_path())

    assert fed.wait_finished(run_id).status == "finished:completed"
    assert fed.result()["sha256"] == reference(rounds=3)
    assert fed.superlink.control.run(held).status == "finished:stopped"
    assert fed.dead_nodes() == []


def test_supernode_register_ls_unregister(federation, workspace):
    fed = federation(security=TLS_AUTH, nodes=1).start()
    node_id = fed.nodes[0].wait_connected()
    (node,) = fed.cli.json("supernode", "ls", ".", FEDERATION)["nodes"]
    assert (node["node-id"], node["status"]) == (str(node_id), "online")

    spare = make_node_key(workspace.root / "keys", "spare")
    spare_id = fed.cli.json("supernode", "register", str(spare.public), ".", FEDERATION)["node-id"]
    listed = {node["node-id"]: node["status"] for node in fed.cli.json("supernode", "ls", ".", FEDERATION)["nodes"]}
    assert listed == {str(node_id): "online", str(spare_id): "registered"}

    twice = fed.cli.run_command("supernode", "register", str(spare.public), ".", FEDERATION)
    assert "already in use" in twice.text
    fed.cli.json("supernode", "unregister", str(spare_id), ".", FEDERATION)
    listed = {node["node-id"]: node["status"] for node in fed.cli.json("supernode", "ls", ".", FEDERATION)["nodes"]}
    assert listed == {str(node_id): "online", str(spare_id): "unregistered"}


@pytest.mark.trellis_only
def test_commands_answer_word_for_word_like_the_official_superlink(tmp_path, kind):
    assert transcript(tmp_path / "ours", kind) == transcript(tmp_path / "official", OFFICIAL)


def transcript(directory, kind):
    """What a series of commands prints, with ids, times and ports that differ by nature made equal."""
    directory.mkdir()
    workspace = Workspace(directory)
    try:
        return dict(said(workspace, kind))
    finally:
        workspace.close()


def said(workspace, kind):
    fed = Federation(workspace, Shape(kind=kind, app="faulty", nodes=0, security=TLS_AUTH)).start()
    run_id = str(fed.cli.submit())
    fed.wait_finished(int(run_id))
    key = make_node_key(workspace.root / "keys", "spare")
    login_app = workspace.copy_app(fed.cli.app, "login")
    pyproject = login_app / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().partition("[tool.flwr.federations")[0])
    login = FlwrCli(workspace, login_app, fed.superlink, account_auth=True)
    here = (".", FEDERATION)
    for cli, words in [
        (login, ("login", *here)),
        (fed.cli, ("pull", "--run-id", run_id, *here)),
        (fed.cli, ("pull", "--run-id", "1", *here)),
        (fed.cli, ("federation", "list", *here)),
        (fed.cli, ("federation", "show", *here)),
        (fed.cli, ("ls", "--run-id", "1", *here)),
        (fed.cli, ("log", "1", *here)),
        (fed.cli, ("stop", "1", *here)),
        (fed.cli, ("stop", run_id, *here)),
        (fed.cli, ("supernode", "unregister", "1", *here)),
        (fed.cli, ("supernode", "register", str(key.public), *here)),
        (fed.cli, ("supernode", "register", str(key.public), *here, "--format", "json")),
        (fed.cli, ("supernode", "ls", *here)),
        (fed.cli, ("ls", *here)),
    ]:
        answer = cli.run_command(*words)
        yield normalised(" ".join(words).replace(str(workspace.root), ".")), (answer.code, normalised(answer.text))


def normalised(text):
    text = re.sub(r"\b\d{12,20}\b", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?", "TIME", text)
    text = re.sub(r"\b\d+(\.\d+)?s\b|\b\d\d:\d\d:\d\d\b", "DURATION", text)
    # Table cells are padded to the length of ids that differ.
    return re.sub(r"[─━═]+", "-", re.sub(r" +", " ", text))
