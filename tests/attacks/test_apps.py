"""Attacks on the port for ServerApps: other users, programs without a token, a proxy, paths in settings."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from flwr.proto.appio_pb2 import (
    ListAppsToLaunchRequest,
    PullAppMessagesRequest,
    PushAppMessagesRequest,
    RequestTokenRequest,
)
from flwr.proto.log_pb2 import PushLogsRequest
from flwr.proto.run_pb2 import RunStatus, UpdateRunStatusRequest
from flwr.proto.serverappio_pb2 import GetNodesRequest
from flwr.proto.serverappio_pb2_grpc import ServerAppIoStub

from harness.federation import PROCESS, SUBPROCESS
from harness.ports import HOST, free_port
from harness.process import wait_pid_file
from harness.trellis_run import TrellisRun
from harness.waiting import wait_for

pytestmark = [pytest.mark.trellis_only, pytest.mark.quick]

OLDEST = "1.25"
CALL_LIMIT_S = 10.0
START_LIMIT_S = 60.0
NOBODY = 65534
# A relay to the SuperLink, as a proxy or any other program of that user could run it.
RELAY = """
import socket, sys, threading
port, target = int(sys.argv[1]), (sys.argv[2], int(sys.argv[3]))
def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    sink.close()
listener = socket.create_server(("127.0.0.1", port))
while True:
    inside, _ = listener.accept()
    outside = socket.create_connection(target)
    for pair in ((inside, outside), (outside, inside)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


@contextmanager
def another_user(address: str) -> Iterator[str]:
    """The address of a relay that another user of this machine runs."""
    python = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")
    if os.geteuid() != 0 or python is None:
        pytest.skip("only root can act as another user, and that user needs a Python of the system")
    host, port = address.rsplit(":", 1)
    own = free_port()
    argv = [python, "-I", "-c", RELAY, str(own), host, port]
    relay = subprocess.Popen(argv, user=NOBODY, group=NOBODY, extra_groups=[], env={}, cwd="/")
    try:
        yield f"{HOST}:{own}"
    finally:
        relay.kill()
        relay.wait()


def calls(run_id: int) -> dict[str, object]:
    failed = RunStatus(status="finished", sub_status="failed", details="by an attacker")
    return {
        "ListAppsToLaunch": ListAppsToLaunchRequest(),
        "RequestToken": RequestTokenRequest(run_id=run_id),
        "GetNodes": GetNodesRequest(run_id=run_id),
        "PushMessages": PushAppMessagesRequest(run_id=run_id),
        "PullMessages": PullAppMessagesRequest(run_id=run_id),
        "PushLogs": PushLogsRequest(run_id=run_id, logs=["forged\n"]),
        "UpdateRunStatus": UpdateRunStatusRequest(run_id=run_id, run_status=failed),
    }


def answers(address: str, run_id: int) -> dict[str, grpc.StatusCode]:
    """The status of each call without a token."""
    codes = {}
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=CALL_LIMIT_S)
        stub = ServerAppIoStub(channel)
        for name, request in calls(run_id).items():
            try:
                getattr(stub, name)(request, timeout=CALL_LIMIT_S)
                codes[name] = grpc.StatusCode.OK
            except grpc.RpcError as error:
                codes[name] = error.code()
    return codes


def wait_running(federation: Callable, workspace, isolation: str):
    fed = federation(app="faulty", serverapp="waits", nodes=0, isolation=isolation, runtime=OLDEST, cli=OLDEST).start()
    run_id = fed.cli.submit(pid_path=workspace.root / "pid")
    wait_pid_file(workspace.root / "pid", START_LIMIT_S)
    return fed, run_id


@pytest.mark.parametrize("isolation", [SUBPROCESS, PROCESS])
def test_another_user_of_the_machine_can_do_nothing_to_a_run(federation, workspace, isolation):
    fed, run_id = wait_running(federation, workspace, isolation)

    with another_user(fed.superlink.serverappio_address) as address:
        codes = answers(address, run_id)

    assert set(codes.values()) == {grpc.StatusCode.UNAUTHENTICATED}, codes
    assert fed.superlink.control.run(run_id).status == "running", "the app of the run goes on"


def test_where_the_superlink_starts_apps_not_even_its_own_user_acts_without_a_token(federation, workspace):
    fed, run_id = wait_running(federation, workspace, SUBPROCESS)

    codes = answers(fed.superlink.serverappio_address, run_id)

    launcher = {"ListAppsToLaunch", "RequestToken"}
    refused = {code for name, code in codes.items() if name not in launcher}
    assert refused == {grpc.StatusCode.UNAUTHENTICATED}, codes
    assert fed.superlink.control.run(run_id).status == "running"


def test_a_native_run_reaches_no_file_outside_the_directory_of_models(federation, workspace):
    fed = federation(nodes=0).start()
    secret = fed.superlink.state_dir / "admin.token"
    for setting in ("checkpoint-path", "initial-model", "resume"):
        for path in (str(secret), "../admin.token"):
            told = TrellisRun(workspace, "native:mlp", f"--{setting}", path, superlink=fed.superlink)
            assert told.process.wait_exit(START_LIMIT_S) == 2
            assert "directory of models" in told.process.output()
    assert fed.superlink.control.runs() == {}


def test_a_link_inside_the_directory_of_models_leads_nowhere_else(federation, workspace):
    fed = federation(nodes=0).start()
    models = fed.superlink.state_dir / "models"
    outside = workspace.root / "outside"
    outside.mkdir()
    models.mkdir(exist_ok=True)
    (models / "out").symlink_to(outside)
    run = TrellisRun(workspace, "native:mlp", "--checkpoint-path", "out", superlink=fed.superlink)
    run_id = run.wait_started()

    state = wait_for("the run to fail", lambda: failed(fed, run_id), START_LIMIT_S)

    assert "leads out of the directory of models" in state.details
    assert list(Path(outside).iterdir()) == []


def failed(fed, run_id: int):
    state = fed.superlink.control.run(run_id)
    return state if state.status == "finished:failed" else None
