"""The ServerApp: reads a call per line (JSON) from the test, makes it with Flower's own grid, and writes the result."""

import importlib
import json
import socket

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from google.protobuf.json_format import MessageToDict, ParseDict

# Where the releases define their messages.
PROTOS = ("runtime", "appio", "serverappio", "message", "run", "fab", "heartbeat", "log")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    host, _, port = str(context.run_config["driver"]).rpartition(":")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rw") as lines:
        for line in lines:
            call = json.loads(line)
            try:
                result = CALLS[call.pop("call")](grid, **call)
            except BaseException as error:  # pylint: disable=broad-except
                # `RunNotRunningException` is no Exception.
                result = {"raised": _raised(error)}
            lines.write(json.dumps(result) + "\n")
            lines.flush()


def nodes(grid: Grid) -> object:
    return list(grid.get_node_ids())


def push(grid: Grid, messages: list[dict]) -> object:
    return list(grid.push_messages([_message(**message) for message in messages]))


def pull(grid: Grid, ids: list[str]) -> object:
    return [_told(grid, reply) for reply in grid.pull_messages(ids)]


def send_and_receive(grid: Grid, messages: list[dict], timeout: float) -> object:
    replies = grid.send_and_receive([_message(**message) for message in messages], timeout=timeout)
    return [_told(grid, reply) for reply in replies]


def rpc(grid: Grid, name: str, request: str, fields: dict) -> object:
    """A call with any request, as the grid makes it."""
    answer = getattr(_client(grid), name)(ParseDict(fields, _proto(request)(), ignore_unknown_fields=True))
    return MessageToDict(answer, preserving_proto_field_name=True)


def push_malformed(grid: Grid, dst: int, change: dict, trees: int) -> object:
    """PushMessages with one message, of which `change` is wrong, and so many trees."""
    seen = {}

    class Recorded(Exception):
        """Enough was seen."""

    def record(request, **_):
        seen["request"] = request
        raise Recorded

    client = _client(grid)
    own = client.__dict__.get("PushMessages")
    client.PushMessages = record
    try:
        grid.push_messages([_message(dst)])
    except Recorded:
        pass
    finally:
        if own is None:
            del client.PushMessages
        else:
            client.PushMessages = own
    request = seen["request"]
    for field, value in change.items():
        if field == "messages":
            del request.messages_list[:]
        elif field == "content":
            request.messages_list[0].ClearField("content")
        else:
            setattr(request.messages_list[0].metadata, field, value)
    tree = request.message_object_trees[0]
    del request.message_object_trees[:]
    request.message_object_trees.extend([tree] * trees)
    return list(client.PushMessages(request).message_ids)


CALLS = {call.__name__: call for call in (nodes, push, pull, send_and_receive, rpc, push_malformed)}


def _client(grid: Grid):
    """The stub up to 1.34, the HTTP client from 1.35."""
    return grid._runtime_client if hasattr(grid, "_runtime_client") else grid._stub  # pylint: disable=protected-access


def _proto(name: str):
    for module in PROTOS:
        try:
            return getattr(importlib.import_module(f"flwr.proto.{module}_pb2"), name)
        except (ImportError, AttributeError):
            continue
    raise LookupError(f"this release has no {name}")


def _message(dst: int, text: str = "", ttl: float | None = None, kind: str = "train") -> Message:
    content = RecordDict({"config": ConfigRecord({"text": text})} if text else {})
    return Message(content, dst_node_id=dst, message_type=kind, ttl=ttl)


def _told(grid: Grid, reply: Message) -> dict:
    metadata = reply.metadata
    told = {
        "reply_to": metadata.reply_to_message_id,
        "type": metadata.message_type,
        "group": metadata.group_id,
        "from": metadata.src_node_id,
        "to": metadata.dst_node_id,
        "of_the_run": metadata.run_id == grid.run.run_id,
        "has_ttl": metadata.ttl > 0,
    }
    if reply.has_error():
        return told | {"error": reply.error.code}
    return told | {"content": {name: dict(record) for name, record in reply.content.items()}}


def _raised(error: BaseException) -> str:
    """As the retry rules of clients tell errors apart: `run over`, `unauthenticated`, or the call fails."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    code = getattr(error.code(), "name", None) if callable(getattr(error, "code", None)) else None
    if type(error).__name__ == "RunNotRunningException" or status == 403 or code == "PERMISSION_DENIED":
        return "run over"
    if status == 401 or code == "UNAUTHENTICATED":
        return "unauthenticated"
    if status is not None or code is not None:
        return "fails"
    return f"{type(error).__name__}: {error}"
