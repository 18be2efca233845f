"""The ServerApp: tries by itself, asks the one node to try, and leaves what came of both in its working directory."""

import json
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from intruder.attempts import carry_out

CHECK_S = 0.1
REPLY_LIMIT_S = 120.0

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    outcomes = {"server": carry_out(str(context.run_config["server-attempts"])), "client": _ask(grid)}
    Path("outcomes.json").write_text(json.dumps(outcomes))


def _ask(grid: Grid) -> dict[str, str]:
    while len(nodes := list(grid.get_node_ids())) != 1:
        time.sleep(CHECK_S)
    content = RecordDict({"config": ConfigRecord({})})
    message = Message(content, dst_node_id=nodes[0], message_type="train")
    (reply,) = grid.send_and_receive([message], timeout=REPLY_LIMIT_S)
    if reply.has_error():
        return {"error": f"{reply.error.code} {reply.error.reason}"}
    return json.loads(str(reply.content["outcomes"]["json"]))
