"""A SuperNode without processes: the test calls the Fleet API with the client code of Flower 1.25."""

import time

import grpc
from flwr.app import Error, Message
from flwr.client.grpc_rere_client.node_auth_client_interceptor import NodeAuthClientInterceptor
from flwr.common.inflatable import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.common.inflatable_utils import inflate_object_from_contents
from flwr.common.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto import fleet_pb2, message_pb2, node_pb2
from flwr.proto.fleet_pb2_grpc import FleetStub
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes

# The maximum: this node sends no heartbeats.
HEARTBEAT_INTERVAL_S = 1800.0
POLL_S = 0.02
ANSWER_LIMIT_S = 15.0
FAILURE = "fail"


class FleetNode:
    """A node that is online from the start and does nothing by itself."""

    def __init__(self, address: str):
        keys = generate_key_pairs()
        self._channel = grpc.intercept_channel(grpc.insecure_channel(address), NodeAuthClientInterceptor(*keys))
        self._stub = FleetStub(self._channel)
        key = public_key_to_bytes(keys[1])
        self._stub.RegisterNode(fleet_pb2.RegisterNodeFleetRequest(public_key=key))
        activate = fleet_pb2.ActivateNodeRequest(public_key=key, heartbeat_interval=HEARTBEAT_INTERVAL_S)
        self.id = self._stub.ActivateNode(activate).node_id
        self._node = node_pb2.Node(node_id=self.id)

    def leave(self) -> None:
        self._stub.DeactivateNode(fleet_pb2.DeactivateNodeRequest(node_id=self.id))

    def unregister(self) -> None:
        self._stub.UnregisterNode(fleet_pb2.UnregisterNodeFleetRequest(node_id=self.id))

    def answer(self, count: int) -> None:
        """Pulls `count` messages and echoes them; a message with the text `fail` is answered with an error."""
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while count:
            pulled = self._stub.PullMessages(fleet_pb2.PullMessagesRequest(node=self._node))
            for tree in pulled.message_object_trees:
                self._send(self._take(tree, pulled.messages_list[0].metadata.run_id))
                count -= 1
            if not pulled.messages_list:
                assert time.monotonic() < deadline, f"{count} messages did not arrive"
                time.sleep(POLL_S)

    def _take(self, tree: message_pb2.ObjectTree, run: int) -> Message:
        contents = {}
        for part in iterate_object_tree(tree):
            request = message_pb2.PullObjectRequest(node=self._node, run_id=run, object_id=part.object_id)
            # An official SuperLink delivers a message before all its objects have arrived.
            deadline = time.monotonic() + ANSWER_LIMIT_S
            while not (pulled := self._stub.PullObject(request)).object_available:
                assert time.monotonic() < deadline, f"the object {part.object_id} did not arrive: {pulled}"
                time.sleep(POLL_S)
            contents[part.object_id] = pulled.object_content
        confirm = message_pb2.ConfirmMessageReceivedRequest(
            node=self._node, run_id=run, message_object_id=tree.object_id
        )
        self._stub.ConfirmMessageReceived(confirm)
        message = inflate_object_from_contents(tree.object_id, contents)
        message.metadata.__dict__["_message_id"] = tree.object_id
        return message

    def _send(self, asked: Message) -> None:
        fails = "config" in asked.content and asked.content["config"].get("text") == FAILURE
        reply = Message(Error(2, "as requested"), reply_to=asked) if fails else Message(asked.content, reply_to=asked)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        run = reply.metadata.run_id
        sent = remove_content_from_message(reply) if reply.has_content() else reply
        request = fleet_pb2.PushMessagesRequest(
            node=self._node,
            messages_list=[message_to_proto(sent)],
            message_object_trees=[get_object_tree(reply)],
            clientapp_runtime_list=[0.0],
        )
        wanted = self._stub.PushMessages(request).objects_to_push
        for object_id, part in get_all_nested_objects(reply).items():
            if object_id in wanted:
                push = message_pb2.PushObjectRequest(
                    node=self._node, run_id=run, object_id=object_id, object_content=part.deflate()
                )
                assert self._stub.PushObject(push).stored
