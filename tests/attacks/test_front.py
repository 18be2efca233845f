"""Limits of the memory, waiting time and log entries that an unauthenticated caller can cause in a SuperLink."""

import hashlib
import http.client
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.proto.control_pb2 import (
    GetLoginDetailsRequest,
    ListRunsRequest,
    ListRunsResponse,
    StartRunRequest,
    StartRunResponse,
)
from flwr.proto.fab_pb2 import Fab
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest

from attacks.intruder import Signer, call, connect, head, listen, protobuf
from harness.federation import APPS
from harness.process import peak_memory_bytes
from harness.waiting import wait_for

pytestmark = [pytest.mark.trellis_only]

MIB = 1 << 20
# Two bytes per message.
EMPTY_MESSAGES = b"\x12\x00" * (8 * MIB)
MAX_GROWTH_BYTES = 150 * MIB
AT_ONCE_S = 3.0
HUGE_BYTES = 530_000_000
CONNECTIONS = 100
IDLE = 800
MAX_SLOWDOWN = 5
# Undisturbed calls are measured for this long before the attack and after it.
QUIET_S = 4.0
START_LIMIT_S = 120.0


def memory_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status).group(1))


def grpc_refusal(address: str, method: str, message: bytes) -> grpc.StatusCode:
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(f"/flwr.proto.{method}")(message, timeout=60)
        except grpc.RpcError as refused:
            return refused.code()
    raise AssertionError(f"{method} was not refused")


@pytest.mark.quick
def test_lists_of_nothing_take_no_memory(fortress):
    link = fortress.superlink
    before = peak_memory_bytes(link.process.pid)
    path = "v1/fleet/push-messages"

    stranger = call(link, path, Signer().headers() | protobuf(), EMPTY_MESSAGES)
    member = call(link, path, fortress.node.headers() | protobuf(), EMPTY_MESSAGES)
    app = grpc_refusal(link.serverappio_address, "ServerAppIo/PushMessages", EMPTY_MESSAGES)
    launcher = grpc_refusal(link.serverappio_address, "ServerAppIo/AcquireTask", b"\x0a\x00" * (8 * MIB))

    assert (stranger.status, member.status) == (401, 413), (stranger, member)
    refused = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
    assert app in refused and launcher in refused
    assert peak_memory_bytes(link.process.pid) - before < MAX_GROWTH_BYTES
    beat = SendNodeHeartbeatRequest(node=Node(node_id=fortress.node_id), heartbeat_interval=30.0)
    honest = call(link, "v1/fleet/send-node-heartbeat", fortress.node.headers() | protobuf(), beat)
    assert honest.status == 200, honest


@pytest.mark.quick
def test_who_announces_much_and_sends_nothing_keeps_nobody_waiting(fortress):
    link = fortress.superlink
    with ExitStack() as held:
        for headers in (Signer().headers(), {"authorization": "Bearer nonsense"}, {"flwr-task-token": "ab" * 128}):
            for path in ("v1/fleet/push-messages", "v1/control/start-run", "v1/runtime/push-messages"):
                connection = held.enter_context(connect(link))
                connection.sendall(head(path, headers | protobuf(), HUGE_BYTES) + b"\x00")
        began = time.monotonic()
        request = StartRunRequest(fab=Fab(content=bytes(MIB)), federation="default")
        answer = call(link, "v1/control/start-run", fortress.bearer | protobuf(), request)
        assert time.monotonic() - began < AT_ONCE_S
    assert answer.status == 412, f"it was read, and is no app: {answer}"


@pytest.mark.quick
def test_idle_sockets_delay_no_handshake(fortress):
    link = fortress.superlink
    with ExitStack() as held:
        idle = [held.enter_context(connect(link, tls=False)) for _ in range(IDLE)]
        for connection in idle[::2]:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01")  # The beginning of a greeting.
        began = time.monotonic()
        with connect(link) as connection:
            connection.sendall(head("health", {}, 0, "GET"))
            answer = listen(connection)
        assert time.monotonic() - began < AT_ONCE_S
    assert answer.status == 200, answer


@pytest.mark.quick
def test_foreign_names_and_pages_are_refused(fortress):
    link, json = fortress.superlink, {"content-type": "application/json"}
    for headers, status in (
        (json, 200),
        (json | {"host": link.http_address}, 200),
        (json | {"origin": "https://localhost"}, 200),
        (json | {"host": "rebound.example"}, 421),
        (json | {"origin": "https://evil.example"}, 403),
        (json | {"origin": "null"}, 403),
        ({}, 415),
        ({"content-type": "text/plain"}, 415),
    ):
        answer = call(link, "v1/trellis/create-join-token", fortress.bearer | headers, b'{"ttl_s": 60}')
        assert answer.status == status, (headers, answer)
    page = call(link, "login", {"origin": "https://evil.example"}, b"code=x&token=y")
    assert page.status == 403, page


@pytest.mark.quick
@pytest.mark.parametrize("path", ["login", "health", "metrics", "nothing"])
def test_browsers_must_use_tls_from_then_on(fortress, path):
    with connect(fortress.superlink) as connection:
        connection.sendall(head(path, {}, 0, "GET"))
        assert "strict-transport-security: max-age=" in listen(connection).head


@pytest.mark.quick
def test_a_flood_of_bad_tokens_hides_nothing(fortress):
    link = fortress.superlink
    before = fortress.admin.call("list-audit", limit=1000)["entries"]
    lines = link.process.output().count("\n")
    for number in range(400):
        headers = protobuf() | {"authorization": f"Bearer trellis_{number}"}
        assert call(link, "v1/control/list-runs", headers, ListRunsRequest()).status == 401
    made = fortress.admin.call("create-account", name="seen-in-the-flood", role="viewer")

    entries = fortress.admin.call("list-audit", limit=1000)["entries"]
    assert 1 <= len(entries) - len(before) < 100
    assert [entry["seq"] for entry in entries[: len(before)]] == [entry["seq"] for entry in before]
    assert any(entry["event"] == "account-created" and entry["subject"] == made["name"] for entry in entries)
    assert link.process.output().count("\n") - lines < 100


@pytest.mark.quick
def test_logins_begun_by_one_address_leave_room_for_others(fortress):
    link, path = fortress.superlink, "v1/control/get-login-details"
    ask = GetLoginDetailsRequest()
    refused = [call(link, path, protobuf(), ask, source="127.0.0.3").status == 503 for _ in range(200)]
    assert sum(refused) > 100
    assert call(link, path, protobuf(), ask, source="127.0.0.4").status == 200


class Asking:
    """Calls of an honest node over one connection, with their latencies."""

    def __init__(self, fortress, run_id: int):
        self._fortress = fortress
        tls = ssl.create_default_context(cafile=str(fortress.superlink.options.tls.ca))
        self._connection = http.client.HTTPSConnection(fortress.superlink.http_address, context=tls, timeout=60)
        self._body = GetRunRequest(node=Node(node_id=fortress.node_id), run_id=run_id).SerializeToString()

    def ask(self) -> float:
        headers = self._fortress.node.headers() | protobuf()
        began = time.monotonic()
        self._connection.request("POST", "/v1/fleet/get-run", self._body, headers)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 200
        return time.monotonic() - began

    def ask_for(self, seconds: float) -> list[float]:
        until = time.monotonic() + seconds
        return list(iter(lambda: self.ask() if time.monotonic() < until else None, None))


def p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


@pytest.fixture
def attackers_core(fortress) -> Iterator[int]:
    """A core for the attacker alone. The server and the honest node share the others, before, during and after the attack.

    So the latency of the node contains all work that the attack causes in the server, and none that it causes the attacker,
    whose machine would be another one.
    """
    usable = os.sched_getaffinity(0)
    if len(usable) < 2:
        pytest.skip("one core: the attacker would take the time of the server")
    core = max(usable)
    pid = fortress.superlink.process.pid
    pin(pid, usable - {core})
    os.sched_setaffinity(0, usable - {core})
    yield core
    os.sched_setaffinity(0, usable)
    pin(pid, usable)


def pin(pid: int, cores: set[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


@pytest.mark.parametrize("seconds", [pytest.param(8, marks=pytest.mark.quick), 60])
def test_a_hundred_connections_of_nobody_change_little(fortress, attackers_core, seconds):
    link = fortress.superlink
    run_id = start_run(fortress)
    node, pid = Asking(fortress, run_id), link.process.pid
    usual, took = node.ask_for(QUIET_S), []
    most = before = memory_bytes(pid)
    script = str(Path(__file__).with_name("flood.py"))
    argv = [sys.executable, script, link.http_address, str(link.options.tls.ca), str(seconds), str(CONNECTIONS)]

    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as flood:
        os.sched_setaffinity(flood.pid, {attackers_core})
        while flood.poll() is None:
            took.append(node.ask())
            most = max(most, memory_bytes(pid))
        attempts = int(flood.stdout.read())
    usual += node.ask_for(QUIET_S)

    told = f"p99 {p99(took) * 1e3:.1f} ms of {len(took)} instead of {p99(usual) * 1e3:.1f} ms of {len(usual)}"
    print(f"{told}, {(most - before) / MIB:.0f} MiB, {attempts} attempts")
    assert attempts > CONNECTIONS, "the attack did not take place"
    assert most - before < MAX_GROWTH_BYTES, f"{(most - before) / MIB:.0f} MiB more"
    assert p99(took) <= MAX_SLOWDOWN * p99(usual), told
    assert state(fortress, run_id) == "running"


def start_run(fortress) -> int:
    """Submits a run whose ServerApp waits."""
    app = fortress.grounds.copy_app(APPS / "faulty", f"waits-{time.monotonic_ns()}")
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace("faulty.completes:app", "faulty.waits:app"))
    content = build_fab_from_disk(app)
    fab = Fab(content=content, hash_str=hashlib.sha256(content).hexdigest())
    request = StartRunRequest(fab=fab, federation="default")
    answer = call(fortress.superlink, "v1/control/start-run", fortress.bearer | protobuf(), request)
    assert answer.status == 200, answer
    run_id = StartRunResponse.FromString(answer.body).run_id
    wait_for("the run to be running", lambda: state(fortress, run_id) == "running", START_LIMIT_S)
    return run_id


def state(fortress, run_id: int) -> str:
    answer = call(fortress.superlink, "v1/control/list-runs", fortress.bearer | protobuf(), ListRunsRequest())
    return ListRunsResponse.FromString(answer.body).run_dict[run_id].status.status
