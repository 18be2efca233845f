"""The interop matrix: SuperNodes, command lines and ServerApps of many releases around one SuperLink.

Every run has a node of each release, so that a run per command line and runtime covers their whole product. What a test
finds goes into the record from which the table is made.
"""

import re

import pytest

from harness.federation import PROCESS, SUBPROCESS, Federation
from harness.matrix import (
    BETWEEN,
    COMMAND_LINES,
    COMMANDS,
    LAUNCHED,
    NODES,
    PASS,
    RELEASES,
    RUNTIMES,
    SUPEREXEC,
    SUPERNODE,
    TOO_OLD,
)
from harness.supernode import Supernode
from harness.waiting import wait_for

START_LIMIT_S = 60.0
LOG_LIMIT_S = 30.0
# Enough for instructions and replies of every node; more would only repeat them.
ROUNDS = 1
OLDEST, NEWEST = "1.25", "1.42"

pytestmark = pytest.mark.trellis_only


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    versions = RELEASES + (BETWEEN if metafunc.config.getoption("--every-release") else ())
    if "cli_version" in metafunc.fixturenames:
        metafunc.parametrize("cli_version", versions)
    if "app_version" in metafunc.fixturenames:
        # The product has those of its runtimes that we launch.
        launched = [(LAUNCHED, version) for version in versions if version not in RUNTIMES]
        metafunc.parametrize(("link", "app_version"), launched + [(SUPEREXEC, version) for version in versions])


@pytest.fixture(scope="module")
def fleet(request, shared_federation) -> Federation:
    """A federation with a node of every release and the runtime that the parameter names."""
    return shared_federation(nodes=len(NODES), fleet=NODES, runtime=request.param).start()


@pytest.fixture(scope="module")
def waiting(shared_federation) -> Federation:
    """A federation whose runs wait until they are stopped."""
    return shared_federation(app="faulty", serverapp="waits", fleet=(OLDEST, NEWEST)).start()


@pytest.mark.parametrize("fleet", RUNTIMES, indirect=True)
@pytest.mark.parametrize("version", COMMAND_LINES)
def test_a_run_with_a_node_of_every_release(fleet, version, reference, record):
    expected = reference(rounds=ROUNDS, nodes=len(NODES))
    cli = fleet.cli_of(version)
    settings = {"num_server_rounds": ROUNDS, "nodes": len(NODES), "evaluate": False}

    run_id = cli.submit(result_path=fleet.result_path(version), **settings)

    state = fleet.wait_finished(run_id)
    assert state.status == "finished:completed", state
    assert (fleet.result(version)["sha256"], fleet.result(version)["rounds"]) == (expected, ROUNDS)
    assert f"weights sha256 {expected}" in cli.log(run_id).stdout
    record.tried(LAUNCHED, fleet.shape.runtime, PASS)
    for node in NODES:
        record.met(node, version, fleet.shape.runtime, PASS)


def test_every_command_of(waiting, cli_version, record):
    cli, control = waiting.cli_of(cli_version), waiting.superlink.control
    run_id = cli.submit()
    control.wait_status(run_id, "running", START_LIMIT_S)
    wait_for("the ServerApp's line", lambda: "faulty: waiting" in control.logged(run_id), LOG_LIMIT_S)

    online = dict.fromkeys(control.online_nodes(), "online")
    (name,) = cli.federations()
    nodes, runs = cli.federation(name)
    assert cli.runs()[run_id] == "running"
    assert cli.nodes() == online
    assert (nodes, runs[run_id]) == (online, "running")

    cli.stop(run_id)

    assert cli.runs()[run_id] == "finished:stopped"
    logged = cli.log(run_id)
    assert "faulty: waiting" in logged.stdout, logged
    record.tried(COMMANDS, cli_version, PASS)


def test_a_node_that_is_too_old_is_told_so(federation, workspace, record):
    fed = federation(nodes=0, fleet=(TOO_OLD,))
    fed.superlink.start()
    node = Supernode(workspace, fed.superlink, 0, 1, version=TOO_OLD).start()

    node.process.wait_exit(START_LIMIT_S)

    told = re.search(r'details = "(This SuperLink serves Flower [^:]*: [^"]*)"', node.process.output())
    assert told, node.process.output()
    assert fed.superlink.process.output().count("unknown call: ") == 1
    record.tried(SUPERNODE, TOO_OLD, f"refused: {told[1]}")


def test_a_serverapp(federation, reference, record, link, app_version):
    isolation = SUBPROCESS if link == LAUNCHED else PROCESS
    expected = reference(rounds=ROUNDS)
    fed = federation(runtime=app_version, isolation=isolation, fleet=(app_version, NEWEST)).start()

    run_id = fed.cli.submit(num_server_rounds=ROUNDS, evaluate=False, result_path=fed.result_path())

    state = fed.wait_finished(run_id)
    assert state.status == "finished:completed", state
    assert fed.result()["sha256"] == expected
    record.tried(link, app_version, PASS)
    record.tried(SUPERNODE, app_version, PASS)
