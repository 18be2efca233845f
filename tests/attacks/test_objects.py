"""Attacks of nodes through the objects they announce, and of accounts through streams they keep open."""

import hashlib
import io
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import grpc
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.appio_pb2 import PullAppInputsRequest, PushAppMessagesRequest, RequestTokenRequest
from flwr.proto.control_pb2 import StartRunRequest, StreamLogsRequest
from flwr.proto.control_pb2_grpc import ControlStub
from flwr.proto.fab_pb2 import Fab
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.fleet_pb2_grpc import FleetStub
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.recorddict_pb2 import RecordDict
from flwr.proto.serverappio_pb2_grpc import ServerAppIoStub

from harness.accounts import AccountControl, Api, administrator
from harness.credentials import make_tls
from harness.federation import PROCESS
from harness.superlink import LinkOptions, Superlink

pytestmark = [pytest.mark.trellis_only, pytest.mark.quick]

CALL_LIMIT_S = 60.0
STREAM_LIMIT_S = 30.0
TTL_S = 600.0
SUPERLINK = 1
PROJECT = "[project]\nname='app'\nversion='1'\n[tool.flwr.app]\npublisher='me'\n"
# More than any model needs; such a tree once blocked the store for a minute.
TOO_MANY_OBJECTS = 1_000_000
# Number of objects of a large model.
MANY_OBJECTS = 20_000
# A heartbeat with a higher latency is delayed by the attack.
DELAY_LIMIT_S = 5.0


class SigningNode:
    """A node with its own Fleet API client, which can send messages that no Flower program sends."""

    def __init__(self, superlink: Superlink):
        # A separate connection: messages of another node must not delay this one.
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(superlink.fleet_address, options)
        self._stub = FleetStub(self._channel)
        self._key = ec.generate_private_key(ec.SECP384R1())
        public = self._key.public_key()
        self._pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.node_id = self.call("RegisterNode", RegisterNodeFleetRequest(public_key=self._pem)).node_id
        self.call("ActivateNode", ActivateNodeRequest(public_key=self._pem, heartbeat_interval=30))

    @property
    def node(self) -> Node:
        return Node(node_id=self.node_id)

    def call(self, rpc: str, request):
        return getattr(self._stub, rpc)(request, metadata=self._signed(), timeout=CALL_LIMIT_S)

    def send(self, rpc: str, message: bytes) -> grpc.StatusCode:
        """Performs a call with an encoded message and returns its status."""
        try:
            self._channel.unary_unary(f"/flwr.proto.Fleet/{rpc}")(message, metadata=self._signed(), timeout=CALL_LIMIT_S)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    def _signed(self) -> list[tuple[str, str | bytes]]:
        timestamp = datetime.now(UTC).isoformat()
        signature = self._key.sign(timestamp.encode(), ec.ECDSA(hashes.SHA256()))
        return [
            ("flwr-public-key-bin", self._pem),
            ("flwr-signature-bin", signature),
            ("flwr-timestamp", timestamp),
        ]

    def pull(self) -> Message:
        return self.call("PullMessages", PullMessagesRequest(node=self.node)).messages_list[0]

    def reply(self, to: Message, children: list[ObjectTree]) -> PushMessagesRequest:
        """The announcement of a reply with this tree."""
        metadata = Metadata()
        metadata.CopyFrom(to.metadata)
        metadata.src_node_id, metadata.dst_node_id = self.node_id, SUPERLINK
        metadata.reply_to_message_id = to.metadata.message_id
        metadata.message_id = hashlib.sha256(str(time.time_ns()).encode()).hexdigest()
        metadata.created_at, metadata.ttl = time.time(), TTL_S / 2
        tree = ObjectTree(object_id=metadata.message_id, children=children)
        message = Message(metadata=metadata, content=RecordDict())
        return PushMessagesRequest(node=self.node, messages_list=[message], message_object_trees=[tree])

    def close(self) -> None:
        self._channel.close()


def encoded(kind: str, children: list[str], body: bytes) -> bytes:
    """An object: a header that names its children, a zero, a body."""
    return f"{kind} {','.join(children)} {len(body)}".encode() + b"\0" + body


class ServerApp:
    """The ServerApp of a run, played by the test."""

    def __init__(self, superlink: Superlink, run_id: int):
        self.run_id = run_id
        self._channel = grpc.insecure_channel(superlink.serverappio_address)
        self._stub = ServerAppIoStub(self._channel)
        token = self._stub.RequestToken(RequestTokenRequest(run_id=run_id), timeout=CALL_LIMIT_S).token
        self._stub.PullAppInputs(PullAppInputsRequest(token=token), timeout=CALL_LIMIT_S)

    def instruction(self, node_id: int, text: str) -> tuple[Message, ObjectTree, list[bytes]]:
        """A message with one record, its tree and its objects, children first."""
        record = encoded("RecordDict", [], text.encode())
        record_id = hashlib.sha256(record).hexdigest()
        metadata = Metadata(
            run_id=self.run_id, src_node_id=SUPERLINK, dst_node_id=node_id, ttl=TTL_S, message_type="train"
        )
        metadata.created_at = time.time()
        root = encoded("Message", [record_id], metadata.SerializeToString())
        metadata.message_id = hashlib.sha256(root).hexdigest()
        tree = ObjectTree(object_id=metadata.message_id, children=[ObjectTree(object_id=record_id)])
        return Message(metadata=metadata, content=RecordDict()), tree, [record, root]

    def send(self, message: Message, tree: ObjectTree, objects: list[bytes]) -> None:
        request = PushAppMessagesRequest(run_id=self.run_id, messages_list=[message], message_object_trees=[tree])
        self._stub.PushMessages(request, timeout=CALL_LIMIT_S)
        for content in objects:
            push = PushObjectRequest(node=Node(node_id=SUPERLINK), run_id=self.run_id, object_content=content)
            push.object_id = hashlib.sha256(content).hexdigest()
            assert self._stub.PushObject(push, timeout=CALL_LIMIT_S).stored

    def close(self) -> None:
        self._channel.close()


class Stage:
    """A SuperLink whose apps and nodes the test simulates."""

    def __init__(self, federation):
        # The command line submits the runs; no SuperExec starts them.
        self.fed = federation(app="faulty", nodes=0, isolation=PROCESS)
        self.fed.superlink.start()
        self._open: list[SigningNode | ServerApp] = []

    def node(self) -> SigningNode:
        self._open.append(SigningNode(self.fed.superlink))
        return self._open[-1]

    def run(self) -> ServerApp:
        self._open.append(ServerApp(self.fed.superlink, self.fed.cli.submit()))
        return self._open[-1]

    def close(self) -> None:
        for part in self._open:
            part.close()


@pytest.fixture
def stage(federation) -> Iterator[Stage]:
    stage = Stage(federation)
    yield stage
    stage.close()


def test_a_node_cannot_spoil_what_another_run_will_send(stage):
    attacker, victim = stage.node(), stage.node()
    own, other = stage.run(), stage.run()
    own.send(*own.instruction(attacker.node_id, "own"))
    asked = attacker.pull()
    message, tree, objects = other.instruction(victim.node_id, "a model that both know")

    bogus = [ObjectTree(object_id="ab" * 32)]
    false = [ObjectTree(object_id=spoilt.object_id, children=bogus) for spoilt in (tree, *tree.children)]
    attacker.call("PushMessages", attacker.reply(asked, false))
    other.send(message, tree, objects)

    assert victim.pull().metadata.message_id == tree.object_id


def test_a_huge_tree_is_refused_and_delays_nobody(stage):
    attacker, honest = stage.node(), stage.node()
    run = stage.run()
    run.send(*run.instruction(attacker.node_id, "train"))
    asked = attacker.pull()

    def numbered(count: int) -> list[ObjectTree]:
        return [ObjectTree(object_id=f"{number:064x}") for number in range(count)]

    huge = attacker.reply(asked, numbered(TOO_MANY_OBJECTS)).SerializeToString()

    with ThreadPoolExecutor(1) as attacking:
        attack = attacking.submit(attacker.send, "PushMessages", huge)
        delays = []
        while not attack.done():
            began = time.monotonic()
            honest.call("SendNodeHeartbeat", SendNodeHeartbeatRequest(node=honest.node, heartbeat_interval=30))
            delays.append(time.monotonic() - began)

    assert attack.result() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert max(delays) < DELAY_LIMIT_S
    attacker.call("PushMessages", attacker.reply(asked, numbered(MANY_OBJECTS)))


def submitted(control: AccountControl) -> int:
    """Submits a run that no SuperExec starts."""
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.writestr("pyproject.toml", PROJECT)
    request = StartRunRequest(fab=Fab(content=bundle.getvalue()), federation="default")
    return control._call("StartRun", request).run_id


def test_a_disabled_account_reads_no_further(workspace):
    tls = make_tls(workspace.root / "tls")
    superlink = Superlink(workspace, LinkOptions(tls=tls, isolation=PROCESS, flags=("--account-auth", "on"))).start()
    admin = administrator(superlink)
    viewer = AccountControl(Api(superlink, admin.new_account("vera", "viewer")))
    run_id = submitted(AccountControl(admin))
    with viewer._channel() as channel:
        stream = ControlStub(channel).StreamLogs(StreamLogsRequest(run_id=run_id), timeout=STREAM_LIMIT_S)
        admin.call("disable-account", name="vera")

        with pytest.raises(grpc.RpcError) as ended:
            next(stream)

    assert ended.value.code() == grpc.StatusCode.UNAUTHENTICATED
