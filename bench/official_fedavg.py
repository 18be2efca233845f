#!/usr/bin/env python3
"""How long Flower's own FedAvg takes: K replies of so many float32 in memory, aggregated. Run by bench/aggregate.py.

Prints one line of JSON: seconds of each try, the peak of memory, and the version.
"""

import contextlib
import json
import resource
import sys
import time
from importlib.metadata import version

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

with contextlib.suppress(ImportError):
    # In later releases a message can only be made within a task.
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def replies(clients: int, elements: int) -> list[Message]:
    rng = np.random.default_rng(7)
    made = []
    for client in range(clients):
        asked = Message(content=RecordDict(), dst_node_id=client + 1, message_type="train")
        asked.metadata.__dict__["_message_id"] = f"{client:064x}"
        arrays = ArrayRecord({"w": Array(rng.random(elements, dtype=np.float32))})
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": client + 1})})
        made.append(Message(content=content, reply_to=asked))
    return made


def main(clients: int, elements: int, tries: int) -> None:
    strategy, given, seconds = FedAvg(), replies(clients, elements), []
    for _ in range(tries):
        begin = time.perf_counter()
        arrays, _ = strategy.aggregate_train(1, given)
        seconds.append(time.perf_counter() - begin)
        assert arrays is not None
        del arrays
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes, "version": version("flwr")}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
