"""The ServerApp: sends the acts of its script to the one node, one after another, and writes down what came back.

`act@5` lives for 5 s only. `until-ended` is no act: it waits until the process that replied last is gone.
"""

import json
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

CHECK_S = 0.1
TTL_S = 600.0
END_LIMIT_S = 60.0

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    told: list[dict] = []
    for word in str(config["script"]).split():
        if word == "until-ended":
            _wait_ended(told[-1]["pid"])
            continue
        act, _, ttl = word.partition("@")
        began = time.monotonic()
        message = _message(grid, act, float(ttl or TTL_S))
        replies = grid.send_and_receive([message], timeout=float(config["reply-limit"]))
        told.append({"act": act, "seconds": time.monotonic() - began} | _what(list(replies)))
        print(f"acts: {told[-1]}")
    if path := str(config["result-path"]):
        # Written whole or not at all: a test may look at any moment.
        draft = Path(path + ".draft")
        draft.write_text(json.dumps(told))
        draft.replace(path)


def _message(grid: Grid, act: str, ttl: float) -> Message:
    content = RecordDict({"config": ConfigRecord({"act": act})})
    return Message(content, dst_node_id=_only_node(grid), message_type="train", ttl=ttl)


def _only_node(grid: Grid) -> int:
    while len(nodes := list(grid.get_node_ids())) != 1:
        time.sleep(CHECK_S)
    return nodes[0]


def _wait_ended(pid: int) -> None:
    deadline = time.monotonic() + END_LIMIT_S
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} did not end within {END_LIMIT_S} s")
        time.sleep(CHECK_S)


def _what(replies: list[Message]) -> dict:
    """What the app told, or the error it is answered with, or nothing where nobody answered."""
    if not replies:
        return {}
    (reply,) = replies
    if reply.has_error():
        return {"error": reply.error.code, "reason": reply.error.reason}
    return dict(reply.content["told"])
