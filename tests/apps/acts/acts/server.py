"""The ServerApp: sends the acts of its script to the one node, one after another, and writes down what came back."""

import json
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

CHECK_S = 0.1

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    told = []
    for act in str(config["script"]).split():
        node = _only_node(grid)
        content = RecordDict({"config": ConfigRecord({"act": act})})
        message = Message(content, dst_node_id=node, message_type="train", ttl=float(config["ttl"]))
        began = time.monotonic()
        replies = list(grid.send_and_receive([message], timeout=float(config["reply-limit"])))
        told.append({"act": act, "seconds": time.monotonic() - began} | _what(replies))
        print(f"acts: {told[-1]}")
    if path := str(config["result-path"]):
        # Written whole or not at all: a test may look at any moment.
        draft = Path(path + ".draft")
        draft.write_text(json.dumps(told))
        draft.replace(path)


def _only_node(grid: Grid) -> int:
    while len(nodes := list(grid.get_node_ids())) != 1:
        time.sleep(CHECK_S)
    return nodes[0]


def _what(replies: list[Message]) -> dict:
    """What the app told, or the error it is answered with, or nothing where nobody answered."""
    if not replies:
        return {}
    (reply,) = replies
    if reply.has_error():
        return {"error": reply.error.code, "reason": reply.error.reason}
    return dict(reply.content["told"])
