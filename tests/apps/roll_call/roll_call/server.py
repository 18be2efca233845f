"""The ServerApp. It uses no strategy: everything that comes back is looked at here."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

NODES_LIMIT_S = 300.0
ROUND_LIMIT_S = 300.0

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    nodes = _wait_nodes(grid, int(config["nodes"]))
    sent = np.arange(int(config["array-length"]), dtype=np.float32)
    rounds = [_ask_all(grid, nodes, sent, number) for number in range(1, int(config["num-server-rounds"]) + 1)]
    # Written whole or not at all: a test may look at any moment.
    path = Path(str(config["result-path"]))
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(rounds))
    draft.replace(path)


def _wait_nodes(grid: Grid, count: int) -> list[int]:
    deadline = time.monotonic() + NODES_LIMIT_S
    while len(nodes := sorted(grid.get_node_ids())) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(nodes)} of {count} nodes came within {NODES_LIMIT_S} s")
        time.sleep(0.5)
    return nodes


def _ask_all(grid: Grid, nodes: list[int], sent: np.ndarray, server_round: int) -> dict:
    """One instruction to each node; who answered, and whose answer is what was sent."""
    began = time.time()
    content = RecordDict({"arrays": ArrayRecord([sent]), "config": ConfigRecord({"server-round": server_round})})
    asked = [Message(content=content, dst_node_id=node, message_type="train") for node in nodes]
    replies = list(grid.send_and_receive(asked, timeout=ROUND_LIMIT_S))
    good = [reply for reply in replies if reply.has_content()]
    return {
        "seconds": time.time() - began,
        "answered": sorted(str(reply.metadata.src_node_id) for reply in replies),
        "same": sum(_is_same(reply, sent) for reply in good),
        "errors": [reply.error.reason for reply in replies if reply.has_error()],
    }


def _is_same(reply: Message, sent: np.ndarray) -> bool:
    arrays = reply.content["arrays"].to_numpy_ndarrays()
    return len(arrays) == 1 and np.array_equal(arrays[0], sent)
